//! Data for translation: pairs of sentences are read, cleaned, tokenised, and put into batches with
//! pairs of similar length.

pub(crate) mod cache;
pub(crate) mod cleaning;
pub(crate) mod dataset;
pub(crate) mod digits;
pub(crate) mod directions;
pub(crate) mod hold_out;
pub(crate) mod hostile;
pub(crate) mod largest;
pub(crate) mod lengths;
pub(crate) mod links;
pub(crate) mod modifiers;
pub(crate) mod near_duplicates;
pub(crate) mod prepare;
pub(crate) mod reader;
pub(crate) mod report;
pub(crate) mod rules;
pub(crate) mod subwords;
pub(crate) mod tokenizers;
pub(crate) mod variation;
