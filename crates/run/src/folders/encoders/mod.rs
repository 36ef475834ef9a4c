//! Families of encoders: models without a decoder, which differ in their heads (output layers for a
//! task).

pub(super) mod bert;
pub(super) mod roberta;
pub(super) mod vit;
