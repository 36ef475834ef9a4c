//! Conversion of a tokenizer's settings to the format of earlier versions of Transformers.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::CLASS;

/// Replaces names that only version 5 of Transformers knows with names that older versions also
/// know. `text` is the content of a `tokenizer_config.json`. Returns the new text; `None` if `text`
/// has no such names.
pub(super) fn for_older(text: &str) -> Result<Option<String>> {
    let mut config: Map<String, Value> = serde_json::from_str(text)?;
    let mut changed = false;
    if config.get("tokenizer_class").is_some_and(|class| class == "TokenizersBackend") {
        config.insert("tokenizer_class".to_owned(), json!(CLASS));
        changed = true;
    }
    if config.get("extra_special_tokens").is_some_and(Value::is_array)
        && let Some(tokens) = config.remove("extra_special_tokens")
    {
        if tokens != json!([]) {
            config.insert("additional_special_tokens".to_owned(), tokens);
        }
        changed = true;
    }
    let written = || serde_json::to_string_pretty(&config).map(|text| text + "\n");
    Ok(if changed { Some(written()?) } else { None })
}
