//! Weights made of weights: averaged, rounded, and in the formats of others.

pub(super) mod average;
pub(super) mod exchange;
pub(super) mod merge;
pub(super) mod quantize;
