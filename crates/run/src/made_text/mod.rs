//! Training text that models make: back-translations, distilled translations, and new translations
//! of both sides of a corpus. Also the filtering of pairs that models find unlikely.
//!
//! All of them work in the same way: a text is streamed through the
//! [translator](crate::translation) into a [cache](TranslationCache), whose entries are identified
//! by weights, settings and text, and pairs are written from these entries. Work that is
//! interrupted, even by a kill, continues after the last complete line, and the resulting files are
//! the same. Existing entries are not made again.

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
pub use pairs::{MadePairs, OriginCount};
pub use parallel::ParallelCorpus;
