//! Families of encoders: a body without a decoder under one of several heads.

pub(super) mod bert;
pub(super) mod roberta;
pub(super) mod vit;
