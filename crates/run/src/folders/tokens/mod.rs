//! The tokens of a folder of the library Transformers: its tokenizer, which of its tokens are
//! special, and the files that say so, both ways.
//!
//! What a folder says is kept with the run, and an export gives it back. A tokenizer of ours is
//! exported so that `AutoTokenizer` makes the same ids of a text: it gets the files that name its
//! special tokens, and for an encoder what puts the marks around texts.

mod read;
mod vocabulary;
mod write;

pub(super) use read::read;
pub(super) use write::{Exported, write};

/// The file of a fast tokenizer.
const TOKENIZER: &str = "tokenizer.json";
/// The file of what the tokenizer is made with.
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
/// The file that names the special tokens, in older folders all by itself.
const SPECIAL_TOKENS_MAP: &str = "special_tokens_map.json";
/// The file of how texts are written.
const GENERATION_CONFIG: &str = "generation_config.json";
/// The file of tokens that a slow tokenizer has beside its vocabulary.
const ADDED_TOKENS: &str = "added_tokens.json";
/// The file of how a conversation becomes a text.
const CHAT_TEMPLATE: &str = "chat_template.jinja";

/// The files that an export gives back.
const KEPT: [&str; 4] = [TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP, GENERATION_CONFIG, CHAT_TEMPLATE];

/// The end of the keys of `config.json` that hold ids of tokens.
const ID_KEY: &str = "_token_id";
