//! Documents that clients send: they are read, translated part by part, and written in their
//! format.
//!
//! **Decision.** A document is translated by many requests to the run (a trained model), each with
//! a few sentences. The alternative, a single request, would make other work wait for the whole
//! document. Reading and writing happen on separate threads, because only one thread speaks HTTP.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use serde_json::{Value, json};
use taper_data::Direction;
use taper_run::translation::{
    DocumentFile, DocumentTranslation, SentenceWindow, TranslatedDocument, TranslatedSentence,
};
use tokio::sync::OwnedSemaphorePermit;

use crate::app::App;
use crate::engine::{Engine, TranslateSentences};
use crate::error::{Refusal, one_line};
use crate::files::KeptFile;
use crate::http::Part;
use crate::settings::Limits;

/// Largest number of sentences that are translated at a time, so that a long document does not
/// delay other requests.
const TOGETHER: usize = 32;

/// Largest size of the text of an archive after decompression, as a multiple of the largest size of
/// a document.
const EXPANSION: u64 = 4;

/// Largest number of sentences from which the language of a document is detected.
pub(super) const SAMPLED: usize = 64;

/// Longest pause before the next part of a document is submitted again to a run that is busy or is
/// loaded again.
const PAUSE: Duration = Duration::from_secs(1);

/// Document that a client has sent.
pub(super) struct SentDocument {
    /// Name of the file, without folders.
    name: String,
    file: DocumentFile,
    /// Sentences from all parts of the document, from which its language is detected.
    pub(super) sample: Vec<String>,
    /// Permit that is held while the document is in progress. `None` if the document is a text
    /// inside a request: it is no larger than other requests, and needs no permit.
    place: Option<OwnedSemaphorePermit>,
}

/// Reads a document.
///
/// # Errors
/// When too many documents are in progress, the document is too large, its name indicates no
/// format, or its content does not have this format.
pub(super) async fn opened(app: &App, part: Part) -> Result<SentDocument, Refusal> {
    let most = app.limits().document_bytes;
    if part.bytes.len() > most {
        return Err(Refusal::Large(format!("a document must have at most {most} bytes")));
    }
    let place = Arc::clone(&app.documents).try_acquire_owned();
    let place = place.map_err(|_| Refusal::Busy(Duration::from_secs(1)))?;
    let name = part.file.unwrap_or_default();
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
    read(app, name, part.bytes, Some(place)).await
}

/// Reads a text of a request as HTML.
///
/// # Errors
/// See [`opened`].
pub(super) async fn html(app: &App, text: &str) -> Result<SentDocument, Refusal> {
    read(app, "q.html".to_owned(), text.as_bytes().to_vec(), None).await
}

async fn read(
    app: &App,
    name: String,
    bytes: Vec<u8>,
    place: Option<OwnedSemaphorePermit>,
) -> Result<SentDocument, Refusal> {
    let most = app.limits().document_bytes;
    aside(move || {
        let malformed = |error| Refusal::Malformed(format!("{name:?}: {}", one_line(&error)));
        let file = DocumentFile::read(Path::new(&name), bytes, EXPANSION * most as u64);
        let file = file.map_err(malformed)?;
        // The language is not known yet. Any division into sentences suffices to detect it.
        let document = file.document("").map_err(malformed)?;
        let lines = document.lines();
        let sample = lines.iter().step_by(lines.len().div_ceil(SAMPLED).max(1));
        let sample = sample.map(|line| line.text().to_owned()).collect();
        Ok(SentDocument { name, file, sample, place })
    })
    .await
}

/// Runs `work` on a separate thread, so that other requests do not wait, and returns its result. If
/// `work` panics, returns a refusal, so that only this document is affected.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let failed =
        || Refusal::Failed("the document could not be read; the server goes on".to_owned());
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(failed()))
}

/// Document that is being translated.
pub(super) struct DocumentWork {
    document: SentDocument,
    translation: DocumentTranslation,
    direction: Direction,
    terms: String,
    /// Window (sentences that are translated together) in progress, with the translations of its
    /// first sentences.
    window: Option<(SentenceWindow, Vec<anyhow::Result<TranslatedSentence>>)>,
    /// Whether a part of the document is already translated.
    has_begun: bool,
}

impl DocumentWork {
    /// Prepares to translate a document in a direction of a run. `terms` has lines of a term, a tab
    /// and its translation.
    ///
    /// # Errors
    /// When the document is malformed, has too many sentences, or has a sentence that is larger
    /// than a whole request may be. Counting the tokens of such a sentence would delay other
    /// requests.
    pub(super) async fn new(
        app: &App,
        document: SentDocument,
        direction: Direction,
        terms: String,
    ) -> Result<Self, Refusal> {
        let (most, most_bytes) = (app.limits().sentences, app.limits().body_bytes);
        aside(move || {
            let parsed = document.file.document(&direction.from);
            let parsed = parsed.map_err(|error| Refusal::Malformed(one_line(&error)))?;
            let sentences = parsed.lines().len();
            if sentences > most {
                return Err(Refusal::Large(format!(
                    "the document has {sentences} sentences: it must have at most {most}"
                )));
            }
            let mut lengths = (1..).zip(parsed.lines().iter().map(|line| line.text().len()));
            if let Some((number, bytes)) = lengths.find(|(_, bytes)| *bytes > most_bytes) {
                return Err(Refusal::Large(format!(
                    "sentence {number} of the document has {bytes} bytes: it must have at most \
                     {most_bytes}"
                )));
            }
            let translation = DocumentTranslation::new(parsed);
            let (window, has_begun) = (None, false);
            Ok(Self { document, translation, direction, terms, window, has_begun })
        })
        .await
    }

    /// Translates the next sentences; returns whether there were any.
    ///
    /// # Errors
    /// When the run is busy or down and no part has been translated yet, and other errors of
    /// [`App::ask`].
    pub(super) async fn step(&mut self, app: &App, engine: &Engine) -> Result<bool, Refusal> {
        if self.window.is_none() {
            self.window = self.translation.next_window().map(|window| (window, Vec::new()));
        }
        let Some((window, translated)) = &mut self.window else { return Ok(false) };
        let texts = together(&window.texts()[translated.len()..], app.limits());
        let answers = loop {
            let asked = TranslateSentences {
                texts: texts.to_vec(),
                numbers: window.numbers()[translated.len()..][..texts.len()].to_vec(),
                direction: Some(self.direction.clone()),
                terms: self.terms.clone(),
                is_aligned: window.is_aligned(),
            };
            match app.ask(engine, asked).await {
                // Waits for a run that is busy or is loaded again: if the request failed, the
                // finished parts would be lost. The whole document has a time limit.
                Err(Refusal::Busy(wait) | Refusal::Down(_, wait)) if self.has_begun => {
                    tokio::time::sleep(wait.min(PAUSE)).await;
                }
                answers => break answers?,
            }
        };
        if answers.len() != texts.len() {
            return Err(Refusal::Failed("sentences have no translation".to_owned()));
        }
        translated.extend(answers);
        self.has_begun = true;
        if translated.len() == window.texts().len()
            && let Some((window, translated)) = self.window.take()
        {
            self.translation.add(&window, translated);
        }
        Ok(true)
    }

    /// Returns the number of translated sentences, and the number of all sentences.
    pub(super) fn progress(&self) -> (usize, usize) {
        let in_window = self.window.as_ref().map_or(0, |(_, translated)| translated.len());
        let all = self.translation.lines();
        ((self.translation.done() + in_window).min(all), all)
    }

    /// Translates the rest of the document within the time limit, and stores the translation.
    /// `report` is called after each part.
    ///
    /// # Errors
    /// Errors of [`Self::step`], and an error if the translation takes too long.
    pub(super) async fn finish(
        mut self,
        app: &App,
        engine: &Engine,
        report: impl FnMut(&Self),
    ) -> Result<StoredDocument, Refusal> {
        let all = async move {
            self.rest(app, engine, report).await?;
            self.store(app).await
        };
        in_time(app, all).await
    }

    /// Translates the rest of the document within the time limit. Returns the translated text and a
    /// warning, whose content is that of [`StoredDocument::warning`].
    ///
    /// # Errors
    /// See [`Self::finish`].
    pub(super) async fn text(
        mut self,
        app: &App,
        engine: &Engine,
    ) -> Result<(String, Option<String>), Refusal> {
        in_time(app, self.rest(app, engine, |_| {})).await?;
        let mut document = self.translation.finish();
        Ok((std::mem::take(&mut document.text), warning(&document)))
    }

    async fn rest(
        &mut self,
        app: &App,
        engine: &Engine,
        mut told: impl FnMut(&Self),
    ) -> Result<(), Refusal> {
        while self.step(app, engine).await? {
            told(self);
        }
        Ok(())
    }

    async fn store(self, app: &App) -> Result<StoredDocument, Refusal> {
        let Self { document: SentDocument { name, file, place, .. }, translation, .. } = self;
        let written = aside(move || {
            let mut found = translation.finish();
            let media_type = file.media_type();
            let bytes = file.write(std::mem::take(&mut found.text));
            let bytes = bytes.map_err(|error| Refusal::Failed(one_line(&error)))?;
            drop(place);
            Ok((found, KeptFile { name, media_type, content: Bytes::from(bytes) }))
        });
        let (found, file) = written.await?;
        let name = file.name.clone();
        Ok(StoredDocument {
            address: format!("download_file/{}", app.files.keep(file)?),
            name,
            found,
        })
    }
}

/// Returns the result of `work`, or a refusal if `work` takes too long.
async fn in_time<T>(
    app: &App,
    work: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    tokio::time::timeout(app.limits().document_answer, work).await.unwrap_or(Err(Refusal::Late))
}

/// Returns the first sentences of `texts` that are translated together. They have at most half as
/// many bytes as a request may have tokens, unless the first sentence alone has more.
///
/// A request with too many tokens would be refused, and with it the document, but tokens are
/// counted only later. A sentence rarely has more tokens than bytes; the other half is for tokens
/// that the tokenizer adds to each sentence, and for characters that normalisation makes longer.
fn together<'t>(texts: &'t [String], limits: &Limits) -> &'t [String] {
    let mut bytes = 0;
    let fits = |text: &&String| {
        bytes += text.len();
        bytes <= limits.tokens / 2
    };
    let most = TOGETHER.min(limits.lines);
    let count = texts.iter().take(most).take_while(fits).count();
    &texts[..count.max(1).min(texts.len())]
}

/// Translated document that waits to be fetched.
pub(super) struct StoredDocument {
    /// Address relative to the root of the server.
    pub(super) address: String,
    /// Name of the file as the client sent it.
    name: String,
    /// Report of the translation, without the translated text.
    found: TranslatedDocument,
}

impl StoredDocument {
    /// Returns the description for clients.
    pub(super) fn description(&self) -> Value {
        let TranslatedDocument { lines, faults, repaired, truncated, missing_terms, .. } =
            &self.found;
        let unchanged = faults
            .iter()
            .map(|(sentence, error)| json!({ "sentence": sentence, "reason": one_line(error) }));
        let missing = missing_terms
            .iter()
            .map(|(sentence, term)| json!({ "sentence": sentence, "term": term }));
        json!({
            "url": self.address, "name": self.name, "sentences": lines,
            "unchanged": unchanged.collect::<Vec<_>>(), "repaired": repaired,
            "truncated": truncated, "missing_terms": missing.collect::<Vec<_>>(),
        })
    }

    /// Returns a warning that sentences were not translated, or that translations end at the
    /// maximum length; `None` if neither happened.
    pub(super) fn warning(&self) -> Option<String> {
        warning(&self.found)
    }
}

fn warning(document: &TranslatedDocument) -> Option<String> {
    let TranslatedDocument { lines, faults, truncated, .. } = document;
    let mut warnings = Vec::new();
    if let Some((sentence, error)) = faults.first() {
        warnings.push(format!(
            "{} of {lines} sentences are not translated; the first is sentence {sentence}: {}",
            faults.len(),
            one_line(error)
        ));
    }
    if *truncated > 0 {
        warnings.push(taper_run::truncated_translations(*truncated, *lines, ""));
    }
    (!warnings.is_empty()).then(|| warnings.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_go_together_up_to_a_number_and_a_size() {
        let limits = Limits { tokens: 20, lines: 3, ..Limits::default() };
        let counts = |lengths: &[usize]| {
            let texts: Vec<String> = lengths.iter().map(|&length| "x".repeat(length)).collect();
            together(&texts, &limits).len()
        };
        for (lengths, count) in
            [(&[1, 1, 1, 1][..], 3), (&[5, 5, 1], 2), (&[50, 1], 1), (&[11], 1), (&[], 0)]
        {
            assert_eq!(counts(lengths), count, "{lengths:?}");
        }
    }
}
