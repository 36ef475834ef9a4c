//! Encoders of texts with the heads of their tasks: masked language models, and models that are
//! fine-tuned from one.

mod classifier;
mod masked;
mod span;
mod tagger;

pub use classifier::TextClassifier;
pub use masked::MaskedLanguageModel;
pub use span::SpanExtractor;
pub use tagger::TokenTagger;
