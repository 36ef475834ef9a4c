//! Tokenizers in folders of the library Transformers, read and written: the tokenizer itself, its
//! special tokens, and the files that name them.
//!
//! An import keeps these files with the run, and an export writes them again. For a tokenizer that
//! was trained here an export writes new files, so that `AutoTokenizer` gives the same ids as
//! Taper. For an encoder it also writes the post-processor that adds marks around texts.

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

/// Class of Transformers that uses a `tokenizer.json` unchanged, for any model.
const CLASS: &str = "PreTrainedTokenizerFast";

/// Tokenizer of a family: the files that it has, and the tokens that a translation model has around
/// texts in addition to the end token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenizerFiles {
    /// `tokenizer.json`, or the vocabulary from which it is made.
    Fast,
    /// `tokenizer.json`, or the vocabulary from which it is made. A beginning token comes before
    /// each text.
    Begun,
    /// `tokenizer.json`, or a model of SentencePiece.
    Pieces,
    /// A model of SentencePiece for each language, and a list of ids for the pieces of both
    /// languages or one for each; or `tokenizer.json`.
    Sides,
    /// One model of SentencePiece for all languages, and the ids of its pieces; or
    /// `tokenizer.json`. The token of a text's language comes before the text.
    Languages,
}

impl TokenizerFiles {
    /// Names of the models of SentencePiece, which are also written for tokenizers that were
    /// trained here.
    pub(super) const fn pieces(self) -> &'static [&'static str] {
        match self {
            Self::Pieces => &["spiece.model"],
            Self::Sides => &sides::SIDES,
            Self::Fast | Self::Begun | Self::Languages => &[],
        }
    }
}

/// File of a fast tokenizer.
const TOKENIZER: &str = "tokenizer.json";
/// File of the class and the arguments of a tokenizer.
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
/// File of the spellings of special tokens; older folders have these only here.
const SPECIAL_TOKENS_MAP: &str = "special_tokens_map.json";
/// File of the settings of generation.
pub(super) const GENERATION_CONFIG: &str = "generation_config.json";
/// File of tokens that a slow tokenizer adds to its vocabulary.
const ADDED_TOKENS: &str = "added_tokens.json";
/// File of the template that turns a conversation into text.
const CHAT_TEMPLATE: &str = "chat_template.jinja";

/// Files that an export writes again unchanged.
const KEPT: [&str; 4] = [TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP, GENERATION_CONFIG, CHAT_TEMPLATE];

/// Suffix of the keys of `config.json` that hold ids of tokens.
const ID_KEY: &str = "_token_id";

/// Entry of an added token in `tokenizer.json`.
fn added_token(content: &str, id: u64, special: bool) -> Value {
    json!({
        "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": !special, "special": special,
    })
}
