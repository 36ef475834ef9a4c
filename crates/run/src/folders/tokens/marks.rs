//! Marks: the special tokens around the texts that an encoder reads. This module has the usual
//! spellings of marks. It also reads the post-processor of a `tokenizer.json`, which determines how
//! rows are made. A row is the token sequence of one or two texts with their marks.

use anyhow::{Result, bail};
use serde_json::Value;
use taper_data::{SpecialTokens, Task};

use super::TOKENIZER_CONFIG;
use super::files::Files;
use crate::tasks::entry;

/// Usual spellings of the special tokens before a text (`CLASSES`), after a text (`SEPARATORS`) and
/// in place of hidden tokens (`MASKS`), for folders that do not name them.
pub(super) const CLASSES: [&str; 3] = ["[CLS]", "<cls>", "<s>"];
pub(super) const SEPARATORS: [&str; 3] = ["[SEP]", "<sep>", "</s>"];
pub(super) const MASKS: [&str; 2] = ["[MASK]", "<mask>"];

/// Refuses a vocabulary without the marks (special tokens) around texts, or without the mask, if
/// the task needs them.
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

/// Whether the post-processor in `file`, a `tokenizer.json`, puts two separators between two texts,
/// as RoBERTa's does.
pub(super) fn is_doubled(file: &Value, separator: Option<u32>) -> bool {
    let pair = template(file, "pair");
    let between = pair.iter().skip_while(|piece| piece.is_some()).skip(1);
    let between = between.take_while(|piece| piece.is_some());
    let separators = between.filter(|piece| **piece == separator).count();
    post_processor(file)["type"] == "RobertaProcessing" || separators == 2
}

/// Comparison of the rows (token sequences) that Transformers makes of texts for an encoder with
/// the rows that Taper makes. The rows of Taper are like those of BERT or of RoBERTa.
pub(super) struct Rows {
    /// Whether Transformers and Taper make the same tokens of one text.
    is_single: bool,
    /// Whether Transformers and Taper make the same tokens of two texts.
    is_pair: bool,
    /// Whether Transformers gives segment 0 to the first of two texts, and segment 1 to the second.
    has_segments: bool,
    /// Whether Transformers gives segment 0 to both of two texts.
    pub(super) shared_segment: bool,
}

impl Rows {
    /// Makes the comparison from the post-processor in `file`, a `tokenizer.json`, and from the
    /// other files of the folder.
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
            // Without a known post-processor, BERT's tokenizer class adds BERT's marks.
            // Transformers also uses this class for folders that name no class.
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

    /// Describes how the rows of Transformers differ from those that Taper makes for an encoder
    /// with `segments` kinds of segments. `None` if they are equal, or the task does not depend on
    /// them.
    pub(super) fn difference(&self, task: Task, segments: usize) -> Option<String> {
        let are_segments = segments == 1 || self.has_segments || self.shared_segment;
        let rows = match (self.is_single, self.is_pair && are_segments) {
            _ if !entry(task).marks_texts() => return None,
            (false, _) => "a text",
            (true, false) if entry(task).reads_pairs => "a pair of texts",
            _ => return None,
        };
        Some(format!(
            "Transformers makes another row of {rows} than this program, which makes {} A {1} or \
             {0} A {1} B {1} with segments 0 and 1, or 0 alone: answers may differ",
            CLASSES[0], SEPARATORS[0]
        ))
    }
}

/// Whether a folder's tokenizer, in Transformers, passes the segments of tokens to the model; if
/// not, all segments are 0.
fn reads_segments(files: &Files) -> bool {
    match files.keys(TOKENIZER_CONFIG)["model_input_names"].as_array() {
        Some(inputs) => inputs.iter().any(|input| input == "token_type_ids"),
        // The default tokenizer class of Transformers 5 passes no segments.
        None => files.class() != "TokenizersBackend",
    }
}

/// Content of one element of a post-processor's template: a special token or a text.
fn segment(piece: &Value) -> &Value {
    let is_mark = piece["SpecialToken"].is_object();
    if is_mark { &piece["SpecialToken"] } else { &piece["Sequence"] }
}

/// Post-processor of `file`, a `tokenizer.json`. If the file has a sequence of several
/// post-processors, returns the first that adds special tokens.
pub(super) fn post_processor(file: &Value) -> &Value {
    let whole = &file["post_processor"];
    let parts = whole["processors"].as_array().into_iter().flatten();
    let mut wanted = parts.filter(|part| part["type"] != "ByteLevel");
    if whole["type"] == "Sequence" { wanted.next().unwrap_or(&Value::Null) } else { whole }
}

/// Template of the post-processor for one text (`kind` is `single`) or two (`pair`): for each
/// element, the id of a special token, or `None` if the element stands for a text.
pub(super) fn template(file: &Value, kind: &str) -> Vec<Option<u32>> {
    let processor = post_processor(file);
    let piece = |piece: &Value| {
        let name = piece["SpecialToken"]["id"].as_str()?;
        let id = processor["special_tokens"][name]["ids"][0].as_u64()?;
        u32::try_from(id).ok()
    };
    processor[kind].as_array().into_iter().flatten().map(piece).collect()
}
