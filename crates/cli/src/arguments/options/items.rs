//! Options of commands that answer texts, lines or files one by one.

use clap::{Args, ValueEnum};
use taper_data::SpelledSpecial;

/// Treatment of items that spell special tokens, and of items that cannot be answered.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ItemRules {
    #[command(flatten)]
    pub(crate) special_tokens: SpecialTokens,
    #[command(flatten)]
    pub(crate) strict: Strict,
}

/// Treatment of items that cannot be answered.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Strict {
    /// Stop at the first line or file that cannot be answered [default: such items are reported on
    /// standard error and stay empty, all others are answered, and the exit code at the end is 2]
    #[arg(long)]
    pub(crate) strict: bool,
}

/// Treatment of special tokens that a text spells.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct SpecialTokens {
    /// Treatment of text that spells a special token, such as </s>, <|endoftext|> or [SEP]
    #[arg(long = "special-tokens", value_enum, value_name = "RULE", default_value = "warn")]
    pub(crate) rule: SpecialTokenRule,
}

/// Treatment of a special token that a text spells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SpecialTokenRule {
    /// Refuse the line
    Refuse,
    /// Read it as ordinary text, as in training, and name the line on standard error
    Warn,
    /// Read it as ordinary text
    Text,
    /// Read it as the token
    Read,
}

impl From<SpecialTokenRule> for SpelledSpecial {
    fn from(rule: SpecialTokenRule) -> Self {
        match rule {
            SpecialTokenRule::Refuse => Self::Refuse,
            SpecialTokenRule::Warn | SpecialTokenRule::Text => Self::Text,
            SpecialTokenRule::Read => Self::Read,
        }
    }
}
