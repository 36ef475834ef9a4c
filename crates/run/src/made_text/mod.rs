//! Training text that models make: back-translations, distilled translations, and new translations
//! of both sides of a corpus. Also the filtering of pairs that models find unlikely.
//!
//! All of these methods work in the same way. A [translator](crate::translation) translates or
//! scores a text, and the results are stored in a [cache](TranslationCache), under a key that
//! depends on weights, settings and text. Pairs are then written from the cache. If the process is
//! interrupted or killed, the next call continues after the last complete line in the cache, and
//! the resulting files are the same. What is in the cache is not computed again.

mod backtranslation;
mod cache;
mod distillation;
mod diversification;
mod filtering;
mod noise;
mod pairs;
mod parallel;

pub use backtranslation::{BackTranslation, Method, back_translate};
pub(crate) use cache::checksum;
pub use cache::{CacheProgress, Choice, TranslationCache};
pub use distillation::{Distillation, distill};
pub use diversification::{Diversification, diversify};
pub use filtering::{Dropped, Filtered, Filtering, Keep, filter};
pub(crate) use pairs::file_names;
pub use pairs::{MadePairs, OriginCount};
pub use parallel::ParallelCorpus;
