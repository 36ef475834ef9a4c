//! Parts of a `tokenizer.json` that are made from other files of a folder.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::added_token;
use super::files::Files;

/// Entries in `added_tokens` for those special tokens that a vocabulary has: the ones in `usual`,
/// and the ones that the folder's `files` name.
pub(super) fn added<'a>(
    usual: impl Iterator<Item = &'a str>,
    ids: &BTreeMap<&str, u64>,
    files: &'a Files,
) -> Vec<Value> {
    let mut tokens: BTreeMap<u64, &str> = BTreeMap::new();
    for token in usual.chain(files.all_named()) {
        tokens.extend(ids.get(token).map(|&id| (id, token)));
    }
    tokens.into_iter().map(|(id, token)| added_token(token, id, true)).collect()
}

/// Post-processor that puts special tokens around one text or two, as BERT's tokenizer does; null
/// if `id` returns no id for one of them.
pub(super) fn template(class: &str, separator: &str, id: impl Fn(&str) -> Option<u64>) -> Value {
    let (Some(class_id), Some(separator_id)) = (id(class), id(separator)) else {
        return Value::Null;
    };
    let mark =
        |name: &str, segment: u8| json!({ "SpecialToken": { "id": name, "type_id": segment } });
    let text = |name: &str, segment: u8| json!({ "Sequence": { "id": name, "type_id": segment } });
    let single = [mark(class, 0), text("A", 0), mark(separator, 0)];
    let pair = single.iter().cloned().chain([text("B", 1), mark(separator, 1)]);
    let token = |name: &str, id: u64| json!({ "id": name, "ids": [id], "tokens": [name] });
    json!({
        "type": "TemplateProcessing",
        "single": single,
        "pair": pair.collect::<Vec<Value>>(),
        "special_tokens": { class: token(class, class_id), separator: token(separator, separator_id) },
    })
}

/// Post-processor that puts the end token `end` after a text.
pub(super) fn ends(end: &str, id: u32) -> Value {
    let text = |name: &str| json!({ "Sequence": { "id": name, "type_id": 0 } });
    let mark = json!({ "SpecialToken": { "id": end, "type_id": 0 } });
    json!({
        "type": "TemplateProcessing",
        "single": [text("A"), mark],
        "pair": [text("A"), text("B"), mark],
        "special_tokens": { end: { "id": end, "ids": [id], "tokens": [end] } },
    })
}
