//! Items that are answered one by one: lines of a text, or arguments of the command line. An error
//! in one item is reported and printed in place of the answer; the other items are still answered.

use anyhow::{Result, bail};
use taper_data::Tokenizer;

use crate::advice::one_line;
use crate::arguments::{SpecialTokenRule, SpecialTokens, Strict};
use crate::text::say;

/// Largest number of reported lines that spell special tokens.
const NAMED: usize = 10;

/// Record of the items without an answer.
#[derive(Debug)]
pub(crate) struct Faults {
    /// Whether the first item with an error ends the command.
    strict: bool,
    count: usize,
    first: String,
}

impl Faults {
    /// Makes a record without items.
    pub(crate) fn new(arguments: Strict) -> Self {
        Self { strict: arguments.strict, count: 0, first: String::new() }
    }

    /// Reports the error of an item, and returns the message, to be printed in place of the answer.
    ///
    /// # Errors
    /// Returns `error` itself if the first item with an error ends the command.
    pub(crate) fn note(&mut self, error: anyhow::Error) -> Result<String> {
        if self.strict {
            return Err(error);
        }
        let message = one_line(&error);
        say(&message);
        self.count += 1;
        if self.count == 1 {
            self.first.clone_from(&message);
        }
        Ok(message)
    }

    /// Ends a command that has answered `all` items.
    ///
    /// # Errors
    /// When an item has no answer. The error says how many items have none, and repeats the first
    /// message.
    pub(crate) fn end(self, all: usize) -> Result<()> {
        match self.count {
            0 => Ok(()),
            1 => bail!("1 of {all} has no answer: {}", self.first),
            count => bail!("{count} of {all} have no answer; the first: {}", self.first),
        }
    }
}

/// Reporter of lines in which the text of a special token, such as `</s>`, occurs. The user may
/// expect that it is read as this token, but it is read as ordinary text.
#[derive(Debug)]
pub(crate) struct SpelledLines<'a> {
    tokenizer: &'a Tokenizer,
    /// Number of lines that may still be reported.
    left: usize,
}

impl<'a> SpelledLines<'a> {
    /// Makes a reporter for texts that `tokenizer` reads.
    pub(crate) fn new(tokenizer: &'a Tokenizer, arguments: SpecialTokens) -> Self {
        let left = if arguments.rule == SpecialTokenRule::Warn { NAMED } else { 0 };
        Self { tokenizer, left }
    }

    /// Reports the text at `place` if it spells a special token.
    pub(crate) fn look(&mut self, text: &str, place: impl FnOnce() -> String) {
        if self.left == 0 {
            return;
        }
        let Some(token) = self.tokenizer.spelled(text) else { return };
        self.left -= 1;
        say(&format!(
            "{}: spells the special token {token}, which is taken as text; --special-tokens read \
             makes it the token",
            place()
        ));
        if self.left == 0 {
            say("other lines that spell special tokens are not named");
        }
    }

    /// Reports each of the `lines` of `file` that spells a special token.
    pub(crate) fn look_at_lines(&mut self, lines: &[String], file: &str) {
        for (index, line) in lines.iter().enumerate() {
            self.look(line, || format!("{file}, line {}", index + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn faults_are_summed_up_and_the_first_may_end_all() {
        let mut faults = Faults::new(Strict { strict: false });
        assert_eq!(
            faults.note(anyhow!("is empty").context("line 2")).expect("noted"),
            "line 2: is empty"
        );
        assert!(faults.note(anyhow!("line 4: is empty")).is_ok());
        let error = faults.end(5).expect_err("two faults").to_string();
        assert_eq!(error, "2 of 5 have no answer; the first: line 2: is empty");
        assert!(Faults::new(Strict { strict: false }).end(5).is_ok());
        assert!(Faults::new(Strict { strict: true }).note(anyhow!("is empty")).is_err());
    }
}
