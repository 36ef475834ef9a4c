//! Reading and writing of tokenizers in folders of the library Transformers: the tokenizer itself,
//! its special tokens, and the files that name them.
//!
//! An import keeps these files in the new run (a model of Taper with its files), and an export of
//! this run writes them again. For a tokenizer that was trained by Taper, an export writes new
//! files, so that `AutoTokenizer` gives the same ids as Taper. For an encoder, the tokenizer then
//! also has the post-processor that puts special tokens around texts.

mod fairseq;
mod files;
mod languages;
mod marks;
mod older;
mod own_pieces;
mod parts;
mod pieces;
mod read;
mod sentence_piece;
mod sides;
mod t5;
mod vocabulary;
mod write;

use serde_json::{Value, json};

pub(super) use languages::{kind_of, with_languages};
pub use own_pieces::sentence_piece_model;
pub(super) use read::{read, read_file};
pub(crate) use sides::write_sentence_pieces;
pub(super) use sides::{came_with_sides, has_sides, read_sides, write_sides};
pub(super) use write::{Exported, write, write_generation};

/// Tokenizer class in Transformers that uses a `tokenizer.json` as it is, for any model.
const CLASS: &str = "PreTrainedTokenizerFast";

/// Kind of the tokenizers in a model family: which files they have, and which tokens a translation
/// model has around texts in addition to the end token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenizerFiles {
    /// `tokenizer.json`, or vocabulary files from which it is made.
    Fast,
    /// `tokenizer.json`, or vocabulary files from which it is made. A token that marks the
    /// beginning comes before each text.
    Begun,
    /// `tokenizer.json`, or a SentencePiece model.
    Pieces,
    /// A SentencePiece model for each language. The ids of its pieces are in one file for both
    /// languages, or in a file for each language. A folder can have `tokenizer.json` instead.
    Sides,
    /// One SentencePiece model for all languages, and a file with the ids of its pieces. A folder
    /// can have `tokenizer.json` instead. The token of a text's language comes before the text.
    Languages,
}

impl TokenizerFiles {
    /// Names of the SentencePiece models that an export also writes for a tokenizer that was
    /// trained by Taper.
    pub(super) const fn pieces(self) -> &'static [&'static str] {
        match self {
            Self::Pieces => &["spiece.model"],
            Self::Sides => &sides::SIDES,
            Self::Fast | Self::Begun | Self::Languages => &[],
        }
    }
}

/// File of a fast tokenizer, one of the library `tokenizers`.
const TOKENIZER: &str = "tokenizer.json";
/// File with the class and the arguments of a tokenizer.
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
/// File with the spellings of special tokens; older folders have them only in this file.
const SPECIAL_TOKENS_MAP: &str = "special_tokens_map.json";
/// File with the settings of generation.
pub(super) const GENERATION_CONFIG: &str = "generation_config.json";
/// File with tokens that a slow tokenizer adds to its vocabulary.
const ADDED_TOKENS: &str = "added_tokens.json";
/// File with the template that turns a conversation into text.
const CHAT_TEMPLATE: &str = "chat_template.jinja";

/// Files that an import keeps and an export writes again.
const KEPT: [&str; 4] = [TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP, GENERATION_CONFIG, CHAT_TEMPLATE];

/// Suffix of the keys of `config.json` whose values are ids of tokens.
const ID_KEY: &str = "_token_id";

/// Entry for an added token in the list `added_tokens` of a `tokenizer.json`.
fn added_token(content: &str, id: u64, special: bool) -> Value {
    json!({
        "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": !special, "special": special,
    })
}
