//! Settings of questions about texts: the `[data.questions]` table of a recipe (the TOML file with
//! all settings of a training).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Settings of the data for extractive question answering: the answer to a question is a span of a
/// given text. The defaults are those of BERT's program for SQuAD.
///
/// A split named `train` is the file `{dir}/train.json`, which may end in `.gz` or `.zst`, in the
/// format of SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QuestionsConfig {
    /// Whether a question may have no answer in its text, as in SQuAD 2.0; `<cls>` represents this
    /// case.
    pub unanswerable: bool,
    /// Largest number of tokens of a row, which has a question, its context and three special
    /// tokens. A longer context is read in several windows.
    #[schemars(range(min = 5))]
    pub max_tokens: usize,
    /// Distance in tokens between the beginnings of successive windows of a context. Tokens that
    /// are in two windows are read twice. A distance beyond the number of context tokens in a
    /// window is reduced to this number, so that no token is left out.
    #[schemars(range(min = 1))]
    pub document_stride: usize,
    /// Largest number of tokens of a question that are read; the rest is cut off.
    #[schemars(range(min = 1))]
    pub max_question_tokens: usize,
    /// Largest number of tokens of an answer.
    #[schemars(range(min = 1))]
    pub max_answer_tokens: usize,
}

impl QuestionsConfig {
    /// Refuses impossible settings.
    ///
    /// # Errors
    ///
    /// [`Error::Config`], with the offending key, if a setting is impossible.
    pub(crate) fn validate(&self) -> Result<()> {
        let wrong = |key, message: String| Err(Error::Config { key, message });
        for (key, value) in [
            ("data.questions.document_stride", self.document_stride),
            ("data.questions.max_question_tokens", self.max_question_tokens),
            ("data.questions.max_answer_tokens", self.max_answer_tokens),
        ] {
            if value == 0 {
                return wrong(key, "must be at least 1".to_owned());
            }
        }
        // The row also has three special tokens (marks) and at least one token of the context.
        let least = self.max_question_tokens.saturating_add(4);
        if self.max_tokens < least {
            return wrong(
                "data.questions.max_tokens",
                format!(
                    "is {}: it must have room for three marks, for \
                     data.questions.max_question_tokens = {} and for the context, at least {least} \
                     in all",
                    self.max_tokens, self.max_question_tokens
                ),
            );
        }
        Ok(())
    }
}

impl Default for QuestionsConfig {
    fn default() -> Self {
        Self {
            unanswerable: false,
            max_tokens: 384,
            document_stride: 128,
            max_question_tokens: 64,
            max_answer_tokens: 30,
        }
    }
}
