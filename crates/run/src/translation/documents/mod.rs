//! Translation of whole documents. Each sentence is translated as a line of text. Markup of words
//! is put around the translations of these words.

mod file;
mod sentences;

use std::collections::{BTreeMap, VecDeque};

use anyhow::{Result, anyhow};
use taper_documents::{Document, Line, Translated};

use super::{LineTranslator, TranslationSettings};
use crate::LoadedRun;

pub use file::DocumentFile;
pub use sentences::{TranslatedSentence, linked_sentences, sentence_settings};

/// Largest number of sentences that are translated together (a window).
const WINDOW: usize = 1024;

/// Document with its translation.
#[derive(Debug)]
pub struct TranslatedDocument {
    /// Text of the translated document.
    pub text: String,
    /// Number of lines (sentences) of the document.
    pub lines: usize,
    /// Lines that were not translated: number of the line, counted from 1, and reason.
    pub faults: Vec<(usize, anyhow::Error)>,
    /// Number of lines whose placeholders (such as `{name}`) the model had changed. They were put
    /// next to the translations of the neighbouring words.
    pub repaired: usize,
    /// Number of translations that end only because they reached the maximum length.
    pub truncated: usize,
    /// Prescribed translations of terms (words of the source) that are missing in a line: number of
    /// the line, counted from 1, and translation.
    pub missing_terms: Vec<(usize, String)>,
}

/// Translates a document with the model of `run`. `progress` receives the number of lines that are
/// translated so far.
///
/// # Errors
/// If the search, the tokenizer or an alignment fails.
pub fn translate_document(
    run: &LoadedRun,
    settings: &TranslationSettings,
    document: Document,
    mut progress: impl FnMut(usize),
) -> Result<TranslatedDocument> {
    let translator = LineTranslator::new(run, &sentence_settings(settings, false))?;
    let aligner = translator.under(&sentence_settings(settings, true), &());
    let prefix = &run.config.data.source_prefix;
    let mut translation = DocumentTranslation::new(document);
    while let Some(window) = translation.next_window() {
        let translator = if window.is_aligned() { &aligner } else { &translator };
        let texts = window.texts();
        let (before, all) = (translation.done(), translation.lines());
        let report = |count: usize| progress((before + count.min(texts.len())).min(all));
        let translated = translator.translate_sentences(texts, window.numbers(), report)?;
        let sentences = linked_sentences(prefix, texts, translated)?;
        translation.add(&window, sentences);
    }
    Ok(translation.finish())
}

/// Sentences that are translated together, without their markup.
#[derive(Debug)]
pub struct SentenceWindow {
    /// For each sentence, the index of its line in the document.
    indices: Vec<usize>,
    /// For each sentence, its number in the document, counted from 1.
    numbers: Vec<usize>,
    texts: Vec<String>,
    is_aligned: bool,
}

impl SentenceWindow {
    /// Texts of the sentences.
    #[must_use]
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// For each sentence, its number in the document, counted from 1.
    #[must_use]
    pub fn numbers(&self) -> &[usize] {
        &self.numbers
    }

    /// Whether the translations must be aligned with the sentences: the second argument of
    /// [`sentence_settings`].
    #[must_use]
    pub fn is_aligned(&self) -> bool {
        self.is_aligned
    }
}

/// Translation of a document that is in progress. The caller repeatedly gets a window of sentences,
/// translates them and adds the translations. At the end, this makes the translated document.
///
/// Only lines with markup are aligned with their translations. If the translation of a line has
/// other placeholders (such as `{name}`) than the line, the line is translated again without
/// placeholders. Then each placeholder is put next to the translation of the words beside it, as
/// often as it occurs in the line. If this second translation fails, or if the model has written
/// further placeholders, the line is not translated. A line whose translation is empty is not
/// translated either, so that no text is lost.
#[derive(Debug)]
pub struct DocumentTranslation {
    document: Document,
    translations: Vec<Option<Translated>>,
    faults: Vec<(usize, anyhow::Error)>,
    truncated: Vec<bool>,
    /// Prescribed translations of terms that are missing in the translation of a line, by the index
    /// of the line.
    missing_terms: BTreeMap<usize, Vec<String>>,
    /// Windows that [`Self::next_window`] has not returned yet: indices of their lines, and whether
    /// their translations must be aligned.
    waiting: VecDeque<(Vec<usize>, bool)>,
    done: usize,
    /// Lines that are translated again without placeholders, as they were before, by their
    /// indices; `None` until all lines have been translated once.
    repaired: Option<BTreeMap<usize, Line>>,
}

impl DocumentTranslation {
    /// Begins to translate a document.
    #[must_use]
    pub fn new(document: Document) -> Self {
        let lines = document.lines().len();
        let mut translation = Self {
            document,
            translations: vec![None; lines],
            faults: Vec::new(),
            truncated: vec![false; lines],
            missing_terms: BTreeMap::new(),
            waiting: VecDeque::new(),
            done: 0,
            repaired: None,
        };
        for has_markup in [false, true] {
            let lines = translation.document.lines().iter().enumerate();
            let of_kind = lines.filter(|(_, line)| line.has_markup() == has_markup);
            let numbers: Vec<usize> = of_kind.map(|(number, _)| number).collect();
            translation.wait(&numbers, has_markup);
        }
        translation
    }

    fn wait(&mut self, numbers: &[usize], is_aligned: bool) {
        self.waiting.extend(numbers.chunks(WINDOW).map(|window| (window.to_vec(), is_aligned)));
    }

    /// Number of lines of the document.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.translations.len()
    }

    /// Number of translations that have been added, but at most the number of lines, because some
    /// lines are translated twice.
    #[must_use]
    pub fn done(&self) -> usize {
        self.done.min(self.lines())
    }

    /// Next sentences to translate; `None` if there are no more. The translations of all earlier
    /// windows must have been added.
    pub fn next_window(&mut self) -> Option<SentenceWindow> {
        if self.waiting.is_empty() && self.repaired.is_none() {
            let changed = self.changed();
            let mut repaired = BTreeMap::new();
            for &number in &changed {
                let line = self.document.lines()[number].clone();
                self.document.replace(number, line.without_placeholders());
                repaired.insert(number, line);
            }
            self.repaired = Some(repaired);
            self.wait(&changed, true);
        }
        let (indices, is_aligned) = self.waiting.pop_front()?;
        let text = |&index: &usize| self.document.lines()[index].text().to_owned();
        let texts = indices.iter().map(text).collect();
        let numbers = indices.iter().map(|index| index + 1).collect();
        Some(SentenceWindow { indices, numbers, texts, is_aligned })
    }

    /// Indices of the lines whose translations have other placeholders than the lines themselves.
    fn changed(&self) -> Vec<usize> {
        let is_changed = |number: &usize| {
            let to = self.translations[*number].as_ref();
            to.is_some_and(|to| !self.document.lines()[*number].keeps_placeholders(&to.text))
        };
        (0..self.lines()).filter(is_changed).collect()
    }

    /// Adds the translations of a window's sentences. A sentence without a translation has an error
    /// instead.
    pub fn add(&mut self, window: &SentenceWindow, sentence: Vec<Result<TranslatedSentence>>) {
        self.done += window.indices.len();
        for (&number, sentence) in window.indices.iter().zip(sentence) {
            let Some(line) = self.document.lines().get(number) else { continue };
            match sentence.and_then(|sentence| self.checked(line, sentence)) {
                Err(error) => {
                    self.faults.push((number + 1, error));
                    self.translations[number] = None;
                    // If the line had a translation with other placeholders, which would make the
                    // document wrong, the line stays as it was. Nothing about this translation is
                    // reported.
                    if let Some(line) = self.repaired.as_mut().and_then(|all| all.remove(&number)) {
                        self.document.replace(number, line);
                    }
                    self.missing_terms.remove(&number);
                    self.truncated[number] = false;
                }
                Ok(sentence) => {
                    self.missing_terms.insert(number, sentence.missing_terms);
                    self.truncated[number] = sentence.is_truncated;
                    self.translations[number] = sentence.translation;
                }
            }
        }
    }

    /// Checks the translation of a line.
    ///
    /// # Errors
    /// If the translation is empty, or if it is a second translation that does not restore the
    /// placeholders.
    fn checked(&self, line: &Line, sentence: TranslatedSentence) -> Result<TranslatedSentence> {
        if let Some(to) = &sentence.translation {
            // A sentence without placeholders can be empty.
            if to.text.trim().is_empty() && !line.text().trim().is_empty() {
                return Err(anyhow!("its translation is empty"));
            }
            if self.repaired.is_some() && !line.restores_placeholders(to) {
                return Err(anyhow!("its translation has other placeholders or addresses"));
            }
        }
        Ok(sentence)
    }

    /// Document with the translations that were added. A line without a translation is not changed.
    #[must_use]
    pub fn finish(mut self) -> TranslatedDocument {
        self.faults.sort_by_key(|(number, _)| *number);
        let missing = self.missing_terms.into_iter();
        let missing_terms = missing
            .flat_map(|(number, terms)| terms.into_iter().map(move |term| (number + 1, term)));
        TranslatedDocument {
            text: self.document.write(&self.translations),
            lines: self.translations.len(),
            faults: self.faults,
            repaired: self.repaired.map_or(0, |repaired| repaired.len()),
            truncated: self.truncated.iter().filter(|&&is| is).count(),
            missing_terms: missing_terms.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use taper_documents::DocumentFormat;

    use super::*;

    fn sentence(text: &str) -> Result<TranslatedSentence> {
        let translation = Some(Translated { text: text.to_owned(), links: Vec::new() });
        Ok(TranslatedSentence { translation, ..TranslatedSentence::default() })
    }

    #[test]
    fn windows_give_every_sentence_once_and_again_what_lost_its_placeholders() {
        let source = "<p>One {a}.</p>\n<p><b>Two</b> three.</p>\n<p>Four.</p>\n".to_owned();
        let document = Document::parse(source, DocumentFormat::Html, "en").expect("a page");
        let mut translation = DocumentTranslation::new(document);
        let window = translation.next_window().expect("plain sentences");
        assert_eq!(
            (window.texts(), window.is_aligned()),
            (&["One {a}.", "Four."].map(str::to_owned)[..], false)
        );
        translation.add(&window, vec![sentence("Eins."), Err(anyhow::anyhow!("unknown"))]);
        assert_eq!((translation.done(), translation.lines()), (2, 3));
        let window = translation.next_window().expect("sentences with markup");
        assert_eq!((window.texts(), window.is_aligned()), (&["Two three.".to_owned()][..], true));
        assert_eq!(window.numbers(), [2]);
        translation.add(&window, vec![sentence("Zwei drei.")]);
        let window = translation.next_window().expect("the sentence without its placeholder");
        assert!(window.is_aligned() && !window.texts()[0].contains("{a}"), "{window:?}");
        translation.add(&window, vec![sentence("Eins.")]);
        assert_eq!(translation.done(), 3);
        assert!(translation.next_window().is_none());
        let found = translation.finish();
        assert_eq!((found.lines, found.repaired, found.truncated), (3, 1, 0));
        assert_eq!(found.faults.len(), 1);
        assert_eq!(found.faults[0].0, 3);
        assert_eq!(found.text.matches("{a}").count(), 1, "{}", found.text);
        assert!(
            found.text.contains("<p>Four.</p>") && found.text.contains("Eins"),
            "{}",
            found.text
        );
    }

    #[test]
    fn a_line_whose_second_translation_fails_is_reported_only_as_not_translated() {
        let source = "<p>One {a}.</p>\n<p>Two {b}.</p>\n".to_owned();
        let document = Document::parse(source.clone(), DocumentFormat::Html, "en").expect("a page");
        let mut translation = DocumentTranslation::new(document);
        let window = translation.next_window().expect("both sentences");
        let first = |text: &str| {
            let missing_terms = vec!["Wort".to_owned()];
            sentence(text).map(|one| TranslatedSentence {
                is_truncated: true,
                missing_terms,
                ..one
            })
        };
        translation.add(&window, vec![first("Eins."), first("Zwei.")]);
        let window = translation.next_window().expect("both sentences again");
        translation.add(&window, vec![Err(anyhow::anyhow!("too long")), sentence("Zwei.")]);
        assert!(translation.next_window().is_none());
        let found = translation.finish();
        assert_eq!((found.truncated, found.repaired), (0, 1));
        assert_eq!((found.faults.len(), found.missing_terms.len()), (1, 0));
        assert!(found.text.contains("<p>One {a}.</p>") && found.text.contains("Zwei"));
    }

    /// The second translation must not have placeholders, which would come to those of the line.
    #[test]
    fn a_line_with_other_placeholders_in_its_second_translation_stays_as_it_was() {
        let source = "<p>One <b>{a}</b> two. Three.</p>\n<p>Four {b}.</p>\n".to_owned();
        let document = Document::parse(source.clone(), DocumentFormat::Html, "en").expect("a page");
        let mut translation = DocumentTranslation::new(document);
        let window = translation.next_window().expect("sentences without markup");
        assert_eq!(window.texts(), ["Three.", "Four {b}."]);
        translation.add(&window, vec![sentence("Drei."), sentence("Vier.")]);
        let window = translation.next_window().expect("a sentence with markup");
        translation.add(&window, vec![sentence("Eins zwei.")]);
        let window = translation.next_window().expect("both sentences again");
        assert_eq!(window.texts(), ["One two.", "Four."]);
        translation.add(&window, vec![sentence("Eins {a} zwei."), sentence("Vier %s.")]);
        assert!(translation.next_window().is_none());
        let found = translation.finish();
        assert_eq!((found.repaired, found.faults.len()), (0, 2));
        let expected = source.replace("Three", "Drei");
        assert_eq!(found.text, expected);
        assert!(found.faults[0].1.to_string().contains("placeholders"));
    }

    #[test]
    fn an_empty_translation_is_refused() {
        let source = "<p>One.</p>\n<p>Two.</p>\n".to_owned();
        let document = Document::parse(source, DocumentFormat::Html, "en").expect("a page");
        let mut translation = DocumentTranslation::new(document);
        let window = translation.next_window().expect("both sentences");
        translation.add(&window, vec![sentence(" "), sentence("Zwei.")]);
        assert!(translation.next_window().is_none());
        let found = translation.finish();
        assert_eq!(found.text, "<p>One.</p>\n<p>Zwei.</p>\n");
        assert_eq!(found.faults[0].1.to_string(), "its translation is empty");
    }

    #[test]
    fn a_document_without_text_stays_as_it_is() {
        let source = "<!-- nothing -->\r\n".to_owned();
        let document = Document::parse(source.clone(), DocumentFormat::Html, "").expect("a page");
        let mut translation = DocumentTranslation::new(document);
        assert!(translation.next_window().is_none());
        assert_eq!(translation.finish().text, source);
    }
}
