//! Marks: the special tokens around the texts that an encoder reads. Here are their usual
//! spellings, and the rows that the post-processor of a `tokenizer.json` makes with them.

use anyhow::{Result, bail};
use serde_json::Value;
use taper_data::{SpecialTokens, Task};

use super::TOKENIZER_CONFIG;
use super::files::Files;
use crate::tasks::entry;

/// Spellings of the marks, for folders that do not name them.
pub(super) const CLASSES: [&str; 3] = ["[CLS]", "<cls>", "<s>"];
pub(super) const SEPARATORS: [&str; 3] = ["[SEP]", "<sep>", "</s>"];
pub(super) const MASKS: [&str; 2] = ["[MASK]", "<mask>"];

/// Refuses a vocabulary that lacks a mark, or the token for hidden tokens, although the task needs
/// it.
pub(super) fn require_marks(special: &SpecialTokens, task: Task) -> Result<()> {
    let (class, separator, mask) = (special.class, special.separator, special.mask);
    for (role, usual, is_missing) in [
        ("cls_token", CLASSES[0], class.is_none()),
        ("sep_token", SEPARATORS[0], separator.is_none()),
        ("mask_token", MASKS[0], entry(task).hides_tokens && mask.is_none()),
    ] {
        if entry(task).marks_texts() && is_missing {
            bail!(
                "no token is its {role}, which the model needs: there is no {usual}, and \
                 {TOKENIZER_CONFIG} names no other; add {role} there"
            );
        }
    }
    Ok(())
}

/// True if the post-processor of a `tokenizer.json` puts two separators between two texts, as
/// RoBERTa's does.
pub(super) fn is_doubled(file: &Value, separator: Option<u32>) -> bool {
    let pair = template(file, "pair");
    let between = pair.iter().skip_while(|piece| piece.is_some()).skip(1);
    let between = between.take_while(|piece| piece.is_some());
    let separators = between.filter(|piece| **piece == separator).count();
    post_processor(file)["type"] == "RobertaProcessing" || separators == 2
}

/// How the rows that Transformers makes of texts for an encoder compare with Taper's, which are
/// those of BERT or RoBERTa.
pub(super) struct Rows {
    /// True if the tokens of a row of one text are the same.
    is_single: bool,
    /// True if the tokens of a row of two texts are the same.
    is_pair: bool,
    /// True if the first text of a row of two has segment 0, and the second has segment 1.
    has_segments: bool,
    /// True if both texts of a row of two have segment 0.
    pub(super) shared_segment: bool,
}

impl Rows {
    /// Compares the rows, by the post-processor of a `tokenizer.json` and the other files of the
    /// folder.
    pub(super) fn read(file: &Value, files: &Files, special: &SpecialTokens) -> Self {
        let processor = post_processor(file);
        let (class, separator) = (special.class, special.separator);
        let between = 1 + usize::from(special.doubled_separator);
        let first = [vec![class, None], vec![separator; between]].concat();
        let [is_single, is_pair] = match processor["type"].as_str() {
            Some("BertProcessing" | "RobertaProcessing") => [true; 2],
            Some("TemplateProcessing") => [
                template(file, "single") == [class, None, separator],
                template(file, "pair") == [&*first, &[None, separator]].concat(),
            ],
            // BERT's tokenizer class adds its own marks, and so do folders that name no class.
            _ => [files.class().is_empty() || files.class().starts_with("Bert"); 2],
        };
        let pieces = processor["pair"].as_array().into_iter().flatten();
        let given: Vec<u64> = match processor["type"].as_str() {
            _ if !reads_segments(files) => vec![0; first.len() + 2],
            Some("RobertaProcessing") => vec![0; first.len() + 2],
            Some("TemplateProcessing") => {
                pieces.filter_map(|piece| segment(piece)["type_id"].as_u64()).collect()
            }
            _ => [vec![0; first.len()], vec![1; 2]].concat(),
        };
        let has_segments = given == [vec![0; first.len()], vec![1; 2]].concat();
        let shared_segment = given.iter().all(|&segment| segment == 0);
        Self { is_single, is_pair, has_segments, shared_segment }
    }

    /// Describes how the rows of Transformers differ from those that an encoder of `segments`
    /// segments reads here; `None` if they are equal, or the task does not depend on them.
    pub(super) fn difference(&self, task: Task, segments: usize) -> Option<String> {
        let are_segments = segments == 1 || self.has_segments || self.shared_segment;
        let rows = match (self.is_single, self.is_pair && are_segments) {
            _ if !entry(task).marks_texts() => return None,
            (false, _) => "a text",
            (true, false) if entry(task).reads_pairs => "a pair of texts",
            _ => return None,
        };
        Some(format!(
            "Transformers makes another row of {rows} than is read here, which is {} A {1} or {0} \
             A {1} B {1} with segments 0 and 1, or 0 alone: answers may differ",
            CLASSES[0], SEPARATORS[0]
        ))
    }
}

/// True if a folder's tokenizer gives the model the segments of tokens. Otherwise all segments are
/// 0.
fn reads_segments(files: &Files) -> bool {
    match files.keys(TOKENIZER_CONFIG)["model_input_names"].as_array() {
        Some(inputs) => inputs.iter().any(|input| input == "token_type_ids"),
        // The default class of version 5 makes no segments.
        None => files.class() != "TokenizersBackend",
    }
}

/// Content of one element of a template.
fn segment(piece: &Value) -> &Value {
    let is_mark = piece["SpecialToken"].is_object();
    if is_mark { &piece["SpecialToken"] } else { &piece["Sequence"] }
}

/// Post-processor of a `tokenizer.json`; in a sequence of them, the first that adds special tokens.
pub(super) fn post_processor(file: &Value) -> &Value {
    let whole = &file["post_processor"];
    let parts = whole["processors"].as_array().into_iter().flatten();
    let mut wanted = parts.filter(|part| part["type"] != "ByteLevel");
    if whole["type"] == "Sequence" { wanted.next().unwrap_or(&Value::Null) } else { whole }
}

/// Template for one text (`kind` is `single`) or two (`pair`), as ids of special tokens; `None`
/// stands for a text.
pub(super) fn template(file: &Value, kind: &str) -> Vec<Option<u32>> {
    let processor = post_processor(file);
    let piece = |piece: &Value| {
        let name = piece["SpecialToken"]["id"].as_str()?;
        let id = processor["special_tokens"][name]["ids"][0].as_u64()?;
        u32::try_from(id).ok()
    };
    processor[kind].as_array().into_iter().flatten().map(piece).collect()
}
