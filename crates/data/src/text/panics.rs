//! Converts panics of the `tokenizers` library to errors.
//!
//! The library panics if one of its regular expressions gives up on a text, for example after too
//! much backtracking, and for some damaged files. Instead of the panic, the caller gets an error
//! about the text or file, and nothing is printed.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use crate::{Error, Result};

/// Number of characters of a text that an error quotes.
const EXCERPT: usize = 24;

thread_local! {
    /// True while [`caught`] catches panics of this thread.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Result of `work`, or the message of its panic.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> std::result::Result<T, String> {
    static HOOK: Once = Once::new();
    // Panics that `caught` does not catch are passed to the previous hook, which prints them.
    HOOK.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_CAUGHT.get() {
                others(panic);
            }
        }));
    });
    let outer = IS_CAUGHT.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(outer);
    result.map_err(|panic| message_of(&*panic))
}

/// Message of a panic.
pub(crate) fn message_of(panic: &(dyn Any + Send)) -> String {
    let reason = panic.downcast_ref::<String>().map(String::as_str);
    let reason = reason.or_else(|| panic.downcast_ref::<&str>().copied());
    reason.unwrap_or("it gives no reason").to_owned()
}

/// Result of `work`, in which the library processes `text`. `action` names the work in errors.
///
/// # Errors
///
/// If the library refuses the text or panics. The error contains the beginning of `text`.
pub(crate) fn of_text<T>(
    action: &'static str,
    text: &str,
    work: impl FnOnce() -> tokenizers::Result<T>,
) -> Result<T> {
    let message = match caught(work) {
        Ok(Ok(made)) => return Ok(made),
        Ok(Err(refusal)) => refusal.to_string(),
        Err(said) => format!(
            "{said}; a pattern of tokenizer.json does not come to an end with this text: leave \
             this text out, shorten it, or use another tokenizer"
        ),
    };
    if text.is_empty() {
        return Err(Error::Tokenizer { action, message });
    }
    let mut excerpt: String = text.chars().take(EXCERPT).collect();
    if excerpt.len() < text.len() {
        excerpt.push('…');
    }
    let message = format!("{excerpt:?} ({} bytes): {message}", text.len());
    Err(Error::Tokenizer { action, message })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{Tokenizer, TokenizerConfig};

    /// Trains a tokenizer, and replaces the part `part` of its file by `value`.
    fn tokenizer(part: &str, value: &Value) -> Tokenizer {
        let config = TokenizerConfig { vocabulary_size: 300, ..TokenizerConfig::default() };
        let texts = ["aa b aaa", "b! aaaa!"].map(|text| Ok(text.to_owned()));
        let trained = Tokenizer::train(&config, false, false, texts.into_iter()).expect("trained");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokenizer.json");
        let mut file: Value = serde_json::from_str(trained.json()).expect("JSON");
        file[part] = value.clone();
        std::fs::write(&path, file.to_string()).expect("written");
        Tokenizer::load(&path).expect("loaded")
    }

    /// Pattern with which a regular expression tries every division of a sequence of letters before
    /// it gives up.
    fn endless() -> Value {
        json!({ "Regex": "(a+)+$" })
    }

    #[test]
    fn a_pattern_without_end_refuses_its_text_and_no_other() {
        let text = format!("{}!", "a".repeat(60));
        let refused = |result: Result<()>| {
            let error = result.expect_err("refused").to_string();
            assert!(error.contains("\"aaaaaaaaaaaaaaaaaaaaaaaa…\" (61 bytes)"), "{error}");
            assert!(error.contains("retry-limit-in-match over"), "{error}");
            assert!(error.contains("leave this text out"), "{error}");
        };
        let split = json!({
            "type": "Split", "pattern": endless(), "behavior": "Isolated", "invert": false,
        });
        let divides = tokenizer("pre_tokenizer", &split);
        refused(divides.encode(&text).map(drop));
        refused(divides.encode_text(&text).map(drop));
        refused(divides.tokens(&text).map(drop));
        refused(divides.encode_batch(&["b", text.as_str(), "aa"]).map(drop));
        assert!(!divides.encode("b! aa").expect("encoded").is_empty());
        let replace = json!({ "type": "Replace", "pattern": endless(), "content": "b" });
        let replaces = tokenizer("normalizer", &replace);
        refused(replaces.normalize(&text).map(drop));
        refused(replaces.encode(&text).map(drop));
        assert_eq!(replaces.normalize("ba").expect("normalised"), "bb");
    }

    #[test]
    fn a_panic_is_an_error_that_names_the_text() {
        let text = "a line\nand ".repeat(20);
        let error = of_text("encode", &text, || -> tokenizers::Result<()> {
            panic!("Onig: Regex search error: {}", "over")
        });
        let error = error.expect_err("caught").to_string();
        assert!(error.contains(r#""a line\nand a line\nand a …" (220 bytes): Onig"#), "{error}");
        assert_eq!(of_text("encode", "a", || Ok(7)).expect("made"), 7);
        assert_eq!(caught(|| std::panic::panic_any(7)).expect_err("caught"), "it gives no reason");
        assert!(!IS_CAUGHT.get());
    }
}
