//! The vocabulary of a tokenizer: ids, their tokens, and the roles of tokens.

use tokenizers::ModelWrapper;

use super::{END, Marks, SPECIAL_TOKENS, START, SpecialTokens, Tokenizer};

impl Tokenizer {
    /// Token of an id; `None` if the id has no token.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// For each id, true if it is one of the 256 tokens that spell a byte.
    pub(crate) fn byte_ids(&self) -> Vec<bool> {
        let mut is_byte = vec![false; self.vocabulary_size];
        for byte in 0..=u8::MAX {
            // The model may have no row for a token of the tokenizer.
            let id = self.inner.token_to_id(&byte_token(byte));
            if let Some(is_byte) = id.and_then(|id| is_byte.get_mut(id as usize)) {
                *is_byte = true;
            }
        }
        is_byte
    }

    /// Id of a token; `None` if the vocabulary lacks it.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Special tokens, by their roles.
    pub fn special_tokens(&self) -> &SpecialTokens {
        &self.special
    }

    /// Id of the token that ends a document: `</s>`, or its counterpart in an imported model.
    pub fn end(&self) -> u32 {
        // There is always such a token. A tokenizer that was trained here has `</s>`. An imported
        // tokenizer has it according to the names of its tokens, or according to the facts about
        // the model.
        self.special.ends.first().copied().unwrap_or(END)
    }

    /// Id of the first token that a translation decoder reads: `<s>`, or its counterpart in an
    /// imported model.
    pub fn decoder_start(&self) -> u32 {
        self.special.start.unwrap_or(START)
    }

    /// Ids without a token: rows of a model's embedding beyond the tokenizer's ids, or gaps between
    /// the ids.
    pub fn ids_without_token(&self) -> Vec<u32> {
        let all = 0..self.vocabulary_size as u32;
        all.filter(|&id| self.inner.id_to_token(id).is_none()).collect()
    }

    /// True if an id is a special token, which represents no text.
    pub fn is_special(&self, id: u32) -> bool {
        let is_mark = |marks: Marks| [marks.class, marks.separator, marks.mask].contains(&id);
        self.special.contains(id) || self.marks().is_ok_and(is_mark)
    }

    /// Prefix of the tokens that continue a word. `None` if the vocabulary has no such prefix,
    /// because it marks the beginnings of words instead.
    pub(crate) fn continuing_prefix(&self) -> Option<&str> {
        let prefix = match self.inner.get_model() {
            ModelWrapper::WordPiece(model) => Some(&model.continuing_subword_prefix),
            ModelWrapper::BPE(model) => model.continuing_subword_prefix.as_ref(),
            _ => None,
        };
        prefix.map(String::as_str).filter(|prefix| !prefix.is_empty())
    }

    /// True if the vocabulary has the special tokens of this project at their ids.
    pub fn has_special_tokens(&self) -> bool {
        self.is_ours
    }

    /// True if an id represents text that the vocabulary cannot spell.
    pub fn is_unknown(&self, id: u32) -> bool {
        self.special.unknown == Some(id)
    }

    /// Number of ids, including special tokens and ids [without a token](Self::ids_without_token).
    /// This is the number of rows of an embedding matrix.
    pub fn vocabulary_size(&self) -> usize {
        self.vocabulary_size
    }
}

/// Token that represents a byte, such as `<0x41>`.
pub(crate) fn byte_token(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}

/// True if a token spells text. Special tokens and tokens of bytes do not.
pub(crate) fn is_text(token: &str) -> bool {
    let digits = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    let is_byte = digits
        .and_then(|digits| u8::from_str_radix(digits, 16).ok())
        .is_some_and(|byte| byte_token(byte) == token);
    !is_byte && !SPECIAL_TOKENS.contains(&token)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{FolderTokens, TokenizerConfig};

    #[test]
    fn a_vocabulary_of_bpe_may_mark_the_tokens_that_continue_words() {
        let config = TokenizerConfig { vocabulary_size: 300, ..TokenizerConfig::default() };
        let texts = ["aa b aaa", "b! aaaa!"].map(|text| Ok(text.to_owned()));
        let trained = Tokenizer::train(&config, false, false, texts.into_iter()).expect("trained");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokenizer.json");
        for (prefix, expected) in [("##", Some("##")), ("", None)] {
            let mut file: Value = serde_json::from_str(trained.json()).expect("JSON");
            assert_eq!(file["model"]["type"], "BPE");
            file["model"]["continuing_subword_prefix"] = prefix.into();
            file["model"]["merges"] = json!([]);
            std::fs::write(&path, file.to_string()).expect("written");
            let tokenizer = Tokenizer::load(&path).expect("loaded");
            assert_eq!(tokenizer.continuing_prefix(), expected);
        }
        assert_eq!(trained.continuing_prefix(), None);
    }

    #[test]
    fn tokens_that_the_model_has_no_row_for_are_refused() {
        let words = ["<pad>", "<unk>", "<s>", "</s>", "a", "b", "<0x41>"].map(str::to_owned);
        let of_words = Tokenizer::of_words(&words).expect("words");
        let facts = FolderTokens {
            vocabulary_size: 5,
            without_row: 2,
            sentence_piece_forms: false,
            special: SpecialTokens { ends: vec![END], ..SpecialTokens::default() },
            ids: Default::default(),
            files: Default::default(),
            binary_files: Default::default(),
        };
        let imported = of_words.with_folder(&facts).expect("facts");
        assert_eq!(imported.byte_ids(), [false; 5]);
        assert_eq!(imported.encode("a").expect("encoded"), [4]);
        for error in [imported.encode("b").map(drop), imported.encode_text("b").map(drop)] {
            let error = error.expect_err("refused").to_string();
            assert!(error.contains("token \"b\" with the id 5"), "{error}");
        }
    }
}
