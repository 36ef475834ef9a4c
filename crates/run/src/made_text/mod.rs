//! Training text that models make: back-translations, distilled translations, and both sides of a
//! corpus translated again; and pairs that are left out because models find them unlikely.
//!
//! One mechanism serves all: a text is streamed through the [translator](crate::translation) into a
//! [cache](TranslationCache), whose entries are named by weights, settings and text, and pairs are
//! written from there. What was interrupted, even by a kill, goes on after the last whole line and
//! ends with the same bytes; what is there is not made twice.

mod backtranslation;
mod cache;
mod distillation;
mod diversification;
mod filtering;
mod noise;
mod pairs;
mod parallel;

pub use backtranslation::{BackTranslation, Method, back_translate};
pub use cache::{CacheProgress, Choice, TranslationCache};
pub use distillation::{Distillation, distill};
pub use diversification::{Diversification, diversify};
pub use filtering::{Dropped, Filtered, Filtering, Keep, filter};
pub use pairs::{Made, OriginCount};
pub use parallel::ParallelCorpus;
