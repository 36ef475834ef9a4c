//! Encoders of texts with heads for tasks: masked language models, and models that can be
//! fine-tuned from them.

mod classifier;
mod masked;
mod span;
mod tagger;

pub use classifier::TextClassifier;
pub use masked::MaskedLanguageModel;
pub use span::SpanExtractor;
pub use tagger::TokenTagger;
