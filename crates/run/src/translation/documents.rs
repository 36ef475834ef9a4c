//! Translation of whole documents: their sentences as lines are, and markup where its words went.

use std::collections::BTreeMap;

use anyhow::Result;
use taper_documents::{Document, Line, Translated};

use super::token_spans::token_spans;
use super::{AlignedTokens, Detail, LineTranslator, TranslationSettings};
use crate::LoadedRun;
use crate::items::BadItem;

/// Number of lines that are translated together.
const WINDOW: usize = 1024;

/// Document with its translation.
#[derive(Debug)]
pub struct TranslatedDocument {
    /// The translated document.
    pub text: String,
    /// Number of its lines.
    pub lines: usize,
    /// Reasons why a line stays as it is, each with the line's number, counted from 1.
    pub faults: Vec<(usize, anyhow::Error)>,
    /// Lines whose placeholders were put back, since the model would have changed them.
    pub repaired: usize,
    /// Number of translations that end only because they reached the maximum length.
    pub truncated: usize,
    /// Numbers of lines, from 1, each with a term whose translation it lacks.
    pub missing_terms: Vec<(usize, String)>,
}

/// Translates a document with the model of `run`; `progress` is called with the number of lines done
/// so far.
///
/// Only lines with markup are aligned. A line whose translation has another set of placeholders is
/// translated again without them, and they are put where their neighbours went: each stands there
/// exactly as often as in the source.
///
/// # Errors
/// When the search, the tokenizer or an alignment fails.
pub fn translate_document(
    run: &LoadedRun,
    settings: &TranslationSettings,
    mut document: Document,
    mut progress: impl FnMut(usize),
) -> Result<TranslatedDocument> {
    let detail = |alignments| Detail { all: false, alignments, weights: alignments };
    let plain = TranslationSettings { detail: detail(false), ..settings.clone() };
    let aligned = TranslationSettings { detail: detail(true), ..settings.clone() };
    let translator = LineTranslator::new(run, &plain)?;
    let aligner = translator.under(&aligned, &());
    let prefix = &run.config.data.source_prefix;
    let lines = document.lines().len();
    let mut found = Found { translations: vec![None; lines], ..Found::default() };
    let mut done = 0;
    for has_markup in [false, true] {
        let of_kind = |number: &usize| document.lines()[*number].has_markup() == has_markup;
        let numbers: Vec<usize> = (0..lines).filter(of_kind).collect();
        for window in numbers.chunks(WINDOW) {
            let translator = if has_markup { &aligner } else { &translator };
            found.translate(translator, document.lines(), window, prefix, |count| {
                progress(done + count.min(window.len()));
            })?;
            done += window.len();
        }
    }
    let is_changed = |number: &usize| {
        let to = found.translations[*number].as_ref();
        to.is_some_and(|to| !document.lines()[*number].keeps_placeholders(&to.text))
    };
    let changed: Vec<usize> = (0..lines).filter(is_changed).collect();
    for &number in &changed {
        let line = document.lines()[number].without_placeholders();
        document.replace(number, line);
    }
    for window in changed.chunks(WINDOW) {
        found.translate(&aligner, document.lines(), window, prefix, |_| {})?;
    }
    found.faults.sort_by_key(|(number, _)| *number);
    let missing = std::mem::take(&mut found.missing_terms).into_iter();
    let missing_terms =
        missing.flat_map(|(number, terms)| terms.into_iter().map(move |term| (number + 1, term)));
    Ok(TranslatedDocument {
        text: document.write(&found.translations),
        lines,
        faults: found.faults,
        repaired: changed.len(),
        truncated: found.truncated.iter().filter(|&&is| is).count(),
        missing_terms: missing_terms.collect(),
    })
}

/// Translations so far.
#[derive(Default)]
struct Found {
    translations: Vec<Option<Translated>>,
    faults: Vec<(usize, anyhow::Error)>,
    truncated: Vec<bool>,
    /// Terms that lines lack, by the numbers of these.
    missing_terms: BTreeMap<usize, Vec<String>>,
}

impl Found {
    /// Translates the lines of these numbers.
    fn translate(
        &mut self,
        translator: &LineTranslator<'_>,
        lines: &[Line],
        numbers: &[usize],
        prefix: &str,
        progress: impl FnMut(usize),
    ) -> Result<()> {
        self.truncated.resize(lines.len(), false);
        let texts: Vec<String> =
            numbers.iter().map(|&number| lines[number].text().to_owned()).collect();
        let translated = translator.translate(&texts, &[], 1, progress)?;
        for ((&number, text), translated) in numbers.iter().zip(&texts).zip(translated) {
            let best = match translated {
                Err(error) if error.is::<BadItem>() => {
                    self.faults.push((number + 1, error));
                    self.translations[number] = None;
                    continue;
                }
                translated => {
                    let translated = translated?;
                    self.missing_terms.insert(number, translated.missing_terms);
                    translated.translations.into_iter().next()
                }
            };
            self.truncated[number] = best.as_ref().is_some_and(|best| best.truncated);
            self.translations[number] = best.map(|best| {
                let aligned = best.alignment.unwrap_or_default();
                let links = links(prefix, text, &best.text, &aligned);
                Translated { text: best.text, links }
            });
        }
        Ok(())
    }
}

/// Links between bytes of a line and of its translation. The model saw `prefix` before the line.
fn links(
    prefix: &str,
    line: &str,
    text: &str,
    aligned: &AlignedTokens,
) -> Vec<(std::ops::Range<usize>, std::ops::Range<usize>)> {
    let before = prefix.len();
    let source = token_spans(&format!("{prefix}{line}"), &aligned.source_tokens);
    let target = token_spans(text, &aligned.target_tokens);
    let linked = aligned.pairs.iter().filter_map(|&(from, to)| {
        let (from, to) = (source.get(from)?, target.get(to)?);
        let from = from.start.checked_sub(before)?..from.end - before;
        (!from.is_empty() && !to.is_empty()).then(|| (from, to.clone()))
    });
    linked.collect()
}
