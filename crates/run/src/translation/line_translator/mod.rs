//! Translation of lines of text, including overlong lines, prescribed beginnings of translations
//! (prefixes), ensembles of models, and alignments.

mod search;

use std::sync::Arc;

use anyhow::Result;
use serde::Serialize;
use taper_data::{EncodedText, TokenizerPair};
use taper_decoding::{AlignedAttention, Control, DecodingConfig, StepModel, WithSpecialIds};
use taper_model::{Inference, Model, TranslationModel};

use super::alignment::{LineAligner, SearchedLine, by_weight};
use super::overlong::{LineLimit, Overlong};
use super::parts::{DividedLine, DividedLines, LineDivider, merge};
use super::places::{LineNumbers, Place};
use super::reranking::Reranker;
use super::search::{Found, speaking};
use super::{Terms, Translation, TranslationDetail, TranslationSettings, for_the_best};
use crate::LoadedRun;
use crate::shortlist::{LoadedShortlist, RunShortlist};

/// Translations of one line.
#[derive(Debug, Serialize)]
pub struct TranslatedLine {
    /// Translations, the best first; empty only if the translation of the line was cancelled.
    pub translations: Vec<Translation>,
    /// Prescribed translations of terms that are missing in the best translation, because it ends
    /// at the maximum length.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_terms: Vec<String>,
    /// Treatment of the line if it has too many tokens; otherwise `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlong: Option<Overlong>,
}

/// Settings of the search. It finds only the best translation, or `n_best` translations if
/// `settings.detail.all` is set. If translations are chosen among candidates (reranking), it finds
/// as many candidates as the settings of reranking say.
fn decoding(settings: &TranslationSettings) -> DecodingConfig {
    match settings.detail.all {
        true => settings.decoding.clone().with_candidates(),
        false => for_the_best(&settings.decoding).with_candidates(),
    }
}

/// Number of translations that are returned for a line.
fn wanted(settings: &TranslationSettings) -> usize {
    if settings.detail.all { settings.decoding.n_best } else { 1 }
}

/// Models of a [`LineTranslator`]. Their weights are packed, that is, arranged in the order in
/// which matrix kernels read them.
#[derive(Debug, Clone)]
pub struct PackedModels(Arc<[WithSpecialIds<Inference>]>);

/// Translator of lines of text, by a model or an ensemble.
#[derive(Debug)]
pub struct LineTranslator<'a> {
    tokenizers: &'a TokenizerPair,
    /// Model that computes alignments.
    model: &'a TranslationModel,
    /// Models with which translations are searched.
    members: Arc<[WithSpecialIds<Inference>]>,
    decoding: DecodingConfig,
    reranker: Reranker,
    wanted: usize,
    limit: LineLimit,
    aligned_by: AlignedAttention,
    terms: Option<Arc<Terms>>,
    /// Shortlist: target tokens that translations may contain; `None` if they may contain all
    /// tokens.
    shortlist: Option<Arc<LoadedShortlist>>,
    pub(super) detail: TranslationDetail,
    control: &'a dyn Control,
}

impl<'a> LineTranslator<'a> {
    /// Translator with the model of `run` (a loaded model with its files) and, for an ensemble, the
    /// other models that `settings` name.
    ///
    /// # Errors
    /// When a member cannot be loaded, or has another tokenizer, or when the settings need a
    /// shortlist that the run does not have.
    pub fn new(run: &'a LoadedRun, settings: &TranslationSettings) -> Result<Self> {
        let mut translator = Self::from_run(run, settings)?;
        let mut members = vec![speaking(&run.model, run.tokenizers.target())];
        for member in &settings.ensemble {
            let member = run.load_member(member)?;
            translator.limit = translator.limit.within(member.config(), run.tokenizers.source());
            members.push(speaking(&member, run.tokenizers.target()));
        }
        Ok(Self { members: members.into(), ..translator })
    }

    /// Translator for `run` that searches with `models`, which come from an earlier translator, so
    /// that weights are not packed again.
    ///
    /// # Errors
    /// When a model that chooses among candidates, or the shortlist, cannot be loaded.
    pub fn with_models(
        run: &'a LoadedRun,
        settings: &TranslationSettings,
        models: &PackedModels,
    ) -> Result<Self> {
        let translator = Self::from_run(run, settings)?;
        Ok(Self { members: Arc::clone(&models.0), ..translator })
    }

    /// Translator that searches with the model of `run` alone.
    fn from_run(run: &'a LoadedRun, settings: &TranslationSettings) -> Result<Self> {
        Self::from_model(&run.model, &run.tokenizers, Some(&run.shortlist), settings)
    }

    /// Models of the search, for [`Self::with_models`].
    #[must_use]
    pub fn models(&self) -> PackedModels {
        PackedModels(Arc::clone(&self.members))
    }

    /// Translator with other settings, but with the same models and the same limit on the tokens of
    /// a line. It has a shortlist only if this translator has one. `control` can interrupt
    /// translation, or cancel single lines by their indices in a call such as [`Self::translate`].
    #[must_use]
    pub fn under<'s>(
        &'s self,
        settings: &TranslationSettings,
        control: &'s dyn Control,
    ) -> LineTranslator<'s> {
        LineTranslator {
            members: Arc::clone(&self.members),
            decoding: decoding(settings),
            reranker: self.reranker.under(&settings.decoding, wanted(settings), settings.tokenizer),
            wanted: wanted(settings),
            aligned_by: settings.aligned_by,
            terms: settings.terms.clone(),
            shortlist: self.shortlist.clone().filter(|_| settings.decoding.shortlist),
            detail: settings.detail,
            control,
            ..*self
        }
    }

    /// Translator with the same models for one of the run's directions of translation.
    /// `tokenizers`: tokenizers of this direction.
    #[must_use]
    pub fn with_tokenizers<'t>(&'t self, tokenizers: &'t TokenizerPair) -> LineTranslator<'t> {
        LineTranslator {
            tokenizers,
            limit: self.limit.within(self.model.config(), tokenizers.source()),
            members: Arc::clone(&self.members),
            decoding: self.decoding.clone(),
            reranker: self.reranker.clone(),
            terms: self.terms.clone(),
            shortlist: self.shortlist.clone(),
            ..*self
        }
    }

    /// Translator that searches with `model` alone. Without a `shortlist`, translations may contain
    /// all tokens, whatever the settings say.
    ///
    /// # Errors
    /// When a model that chooses among candidates, or the shortlist, cannot be loaded.
    pub(crate) fn from_model(
        model: &'a TranslationModel,
        tokenizers: &'a TokenizerPair,
        shortlist: Option<&RunShortlist>,
        settings: &TranslationSettings,
    ) -> Result<Self> {
        let TranslationSettings { overlong, max_source_tokens, aligned_by, terms, detail, .. } =
            settings;
        let limit = LineLimit::new(*overlong, *max_source_tokens)
            .within(model.config(), tokenizers.source());
        let shortlist = shortlist.filter(|_| settings.decoding.shortlist);
        let shortlist = shortlist.map(RunShortlist::get).transpose()?;
        let [source, target] = &settings.languages;
        let languages = [source.as_str(), target.as_str()];
        Ok(Self {
            tokenizers,
            model,
            members: Arc::new([speaking(model, tokenizers.target())]),
            decoding: decoding(settings),
            reranker: Reranker::new(
                &settings.decoding,
                wanted(settings),
                settings.tokenizer,
                languages,
            )?,
            wanted: wanted(settings),
            limit,
            aligned_by: *aligned_by,
            terms: terms.clone(),
            shortlist,
            detail: *detail,
            control: &(),
        })
    }

    /// Translates `lines`. `first`: number of the first line in messages. If `prefixes` is not
    /// empty, the translation of each line begins with the prefix at the same index. `progress`
    /// receives the number of sentences that are translated so far. Alignments are computed lazily,
    /// in the order of the lines, so that only the alignments of few lines are in memory.
    ///
    /// The result for a line that cannot be translated is a [`BadItem`]. The settings can refuse
    /// overlong lines and lines with names of special tokens. A line with a prefix that no
    /// translation can have is always refused, and so is a line for which the search finds nothing.
    /// A cancelled line has no translations.
    ///
    /// [`BadItem`]: crate::BadItem
    ///
    /// # Errors
    /// If the search, the tokenizer or an alignment fails.
    pub fn translate(
        &self,
        lines: &[String],
        prefixes: &[String],
        first: usize,
        progress: impl FnMut(usize),
    ) -> Result<impl Iterator<Item = Result<TranslatedLine>>> {
        let numbers = LineNumbers::From(first);
        self.translate_divided(self.divider().divide(lines, prefixes, numbers)?, progress)
    }

    /// Translates sentences of a document, in the same way as [`Self::translate`]. `numbers`: for
    /// each sentence, its number in the document.
    ///
    /// # Errors
    /// See [`Self::translate`].
    pub fn translate_sentences(
        &self,
        sentences: &[String],
        numbers: &[usize],
        progress: impl FnMut(usize),
    ) -> Result<impl Iterator<Item = Result<TranslatedLine>>> {
        let numbers = LineNumbers::Sentences(numbers);
        self.translate_divided(self.divider().divide(sentences, &[], numbers)?, progress)
    }

    /// Translates lines that are already tokenised by the run's source tokenizer, in the same way
    /// as [`Self::translate`].
    ///
    /// # Errors
    /// See [`Self::translate`].
    pub fn translate_encoded(
        &self,
        lines: &[&EncodedText],
        prefixes: &[String],
        numbers: LineNumbers<'_>,
        progress: impl FnMut(usize),
    ) -> Result<impl Iterator<Item = Result<TranslatedLine>>> {
        let divided = self.divider().divide_encoded(lines, prefixes, numbers)?;
        self.translate_divided(divided, progress)
    }

    /// Returns an error for a prefix that no translation can have.
    ///
    /// # Errors
    /// If the prefix has names of special tokens or characters that the target vocabulary cannot
    /// spell, or has more tokens than the longest translation.
    pub fn check_prefix(&self, prefix: &str) -> Result<()> {
        self.divider().prefix(prefix.trim(), Place::line(1)).map(drop)
    }

    fn aligner(&self) -> LineAligner<'_> {
        let Self { model, tokenizers, aligned_by, control, .. } = *self;
        LineAligner { model, tokenizers, aligned_by, weights: self.detail.weights, control }
    }

    fn divider(&self) -> LineDivider<'_> {
        let longest_output = self.members.iter().filter_map(StepModel::longest_output).min();
        let Self { tokenizers, limit, control, .. } = *self;
        LineDivider { tokenizers, limit, terms: self.terms.as_deref(), longest_output, control }
    }

    fn translate_divided(
        &self,
        DividedLines { texts, lines }: DividedLines,
        progress: impl FnMut(usize),
    ) -> Result<impl Iterator<Item = Result<TranslatedLine>>> {
        let Found { translations, mut faults } = self.search(&texts, progress)?;
        let mut found_translations = translations.into_iter();
        let mut searched = 0;
        let to_align = texts.into_iter().filter(|_| self.detail.alignments);
        let mut sources = to_align.map(|text| text.source);
        let most = self.wanted;
        let found_translations =
            lines.into_iter().map(|DividedLine { parts, whole, terms, overlong }| {
                let mut translations: Vec<Vec<Translation>> =
                    found_translations.by_ref().take(parts).collect();
                let fault = (searched..searched + parts).find_map(|index| faults.remove(&index));
                searched += parts;
                if fault.is_some() {
                    // A part without a translation leaves the whole line without one.
                    translations.iter_mut().for_each(Vec::clear);
                }
                let overlong = fault.map_or(overlong, Err);
                // A translation of the line consists of one translation of each part, so all parts
                // need the same number of translations.
                let ranks = translations.iter().map(Vec::len).fold(most, usize::min);
                translations.iter_mut().for_each(|part| part.truncate(ranks));
                let sources = sources.by_ref().take(parts).collect();
                SearchedLine { whole, sources, translations, terms, overlong }
            });
        Ok(by_weight(found_translations)
            .into_iter()
            .flat_map(move |group| self.finish(group).unwrap_or_else(|error| vec![Err(error)])))
    }

    /// Joins the parts of each line, and aligns the translations if requested.
    fn finish(&self, lines: Vec<SearchedLine>) -> Result<Vec<Result<TranslatedLine>>> {
        let aligner = self.aligner();
        let mut alignments = aligner.align(&lines)?.into_iter();
        let whole = |line: SearchedLine| -> Result<TranslatedLine> {
            let aligned = if self.detail.alignments && line.overlong.is_ok() {
                aligner.aligned(&line, &mut alignments)
            } else {
                Vec::new()
            };
            let SearchedLine { translations, terms, overlong, .. } = line;
            let overlong = overlong?;
            let mut translations = merge(translations);
            let missing_terms = match (&self.terms, translations.first()) {
                (Some(all), Some(best)) => {
                    all.missing(&terms, &best.text).map(str::to_owned).collect()
                }
                _ => Vec::new(),
            };
            translations
                .iter_mut()
                .zip(aligned)
                .for_each(|(translation, aligned)| translation.alignment = Some(aligned));
            Ok(TranslatedLine { translations, missing_terms, overlong })
        };
        Ok(lines.into_iter().map(whole).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::LoadSettings;
    use crate::translation::OverlongRule;

    /// Translates lines with alignments. Returns the number of texts that were tokenised for this,
    /// and the number of parts of overlong lines.
    fn encodings(rule: OverlongRule, lines: &[&str], prefixes: &[&str]) -> (u64, usize) {
        let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/frozen/format-1");
        let run: LoadedRun = LoadedRun::open(&run, &LoadSettings::default()).expect("loaded");
        let settings = TranslationSettings {
            overlong: rule,
            max_source_tokens: 6,
            detail: TranslationDetail { all: true, alignments: true, weights: true },
            ..TranslationSettings::from_config(&run.config)
        };
        let translator = LineTranslator::new(&run, &settings).expect("a translator");
        let owned =
            |texts: &[&str]| -> Vec<String> { texts.iter().map(|&text| text.to_owned()).collect() };
        let before = run.tokenizers.source().encodings();
        let (lines, prefixes) = (owned(lines), owned(prefixes));
        let translated = translator.translate(&lines, &prefixes, 1, |_| {});
        let mut parts = 0;
        for translated in translated.expect("searched") {
            match translated {
                Ok(line) => {
                    assert!(line.translations[0].alignment.is_some());
                    parts += line.overlong.map_or(0, |overlong| overlong.parts);
                }
                Err(error) => assert!(rule == OverlongRule::Error, "{error:#}"),
            }
        }
        (run.tokenizers.source().encodings() - before, parts)
    }

    #[test]
    fn an_error_names_the_number_of_a_sentence_in_its_document() {
        let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/frozen/format-1");
        let run: LoadedRun = LoadedRun::open(&run, &LoadSettings::default()).expect("loaded");
        let settings = TranslationSettings {
            overlong: OverlongRule::Error,
            max_source_tokens: 6,
            ..TranslationSettings::from_config(&run.config)
        };
        let translator = LineTranslator::new(&run, &settings).expect("a translator");
        let sentences = ["run cat".to_owned(), "run cat big dogs see two ".repeat(20)];
        let translated = translator.translate_sentences(&sentences, &[7, 1500], |_| {});
        let translated: Vec<_> = translated.expect("searched").collect();
        assert!(translated[0].is_ok());
        let error = translated[1].as_ref().expect_err("too long").to_string();
        assert!(error.starts_with("sentence 1500 has "), "{error}");
    }

    #[test]
    fn a_term_in_several_parts_of_a_line_counts_once() {
        let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/frozen/format-1");
        let run: LoadedRun = LoadedRun::open(&run, &LoadSettings::default()).expect("loaded");
        let terms = Terms::parse("dogs\there\ncat\ttwo\n", "", &run.tokenizers).expect("terms");
        let settings = TranslationSettings {
            overlong: OverlongRule::Split,
            max_source_tokens: 6,
            terms: terms.map(Arc::new),
            ..TranslationSettings::from_config(&run.config)
        };
        let translator = LineTranslator::new(&run, &settings).expect("a translator");
        let lines = ["run cat big dogs see two ".repeat(20)];
        let divided = translator.divider().divide(&lines, &[], LineNumbers::From(1));
        let divided = divided.expect("divided");
        assert!(divided.lines[0].parts > 3, "{} parts", divided.lines[0].parts);
        assert_eq!(divided.lines[0].terms, [1, 0]);
    }

    #[test]
    fn each_line_is_tokenised_once() {
        let long = "run cat big dogs see two ".repeat(20);
        let long = long.trim();
        for line in ["run cat", "", "   ", "  run cat "] {
            for rule in [OverlongRule::Split, OverlongRule::Cut, OverlongRule::Error] {
                assert_eq!(encodings(rule, &[line], &[]), (1, 0), "{rule:?}: {line:?}");
            }
        }
        assert_eq!(encodings(OverlongRule::Error, &[long], &[]), (1, 0));
        assert_eq!(encodings(OverlongRule::Error, &[&format!("  {long} ")], &[]), (1, 0));
        let lines = ["run cat", "", "big sees red red", "two"];
        assert_eq!(encodings(OverlongRule::Split, &lines, &[]), (4, 0));
        // Each prefix is tokenised too.
        assert_eq!(encodings(OverlongRule::Split, &lines, &["", " ", "big", "two"]), (6, 0));
        // To find positions at which a long line can be divided, parts of it are tokenised again.
        for rule in [OverlongRule::Split, OverlongRule::Cut] {
            let (encodings, parts) = encodings(rule, &[long], &[]);
            assert!(parts > 0 && encodings <= 1 + 8 * parts as u64, "{encodings}, {parts} parts");
        }
    }
}
