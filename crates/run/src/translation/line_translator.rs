//! Translation of lines of text: the search, with overlong lines, prefixes, ensembles and
//! alignments.

use std::sync::Arc;

use anyhow::Result;
use serde::Serialize;
use taper_data::{EncodedText, TokenizerPair};
use taper_decoding::{
    AlignedAttention, Control, Criteria, DecodingConfig, Ensemble, LengthSettings, Renumbered,
    StepModel, WithSpecialIds,
};
use taper_model::{Inference, Model, TranslationModel};

use super::alignment::{LineAligner, SearchedLine, by_weight};
use super::overlong::{LineLimit, Overlong};
use super::parts::{DividedLine, DividedLines, LineDivider, TextPart, merge};
use super::punctuation::join;
use super::reranking::Reranker;
use super::search::{speaking, translate, translate_under};
use super::{Detail, Terms, Translation, TranslationSettings, for_the_best};
use crate::LoadedRun;

/// Translations of one line.
#[derive(Debug, Serialize)]
pub struct TranslatedLine {
    /// Translations, best first, at least one.
    pub translations: Vec<Translation>,
    /// Translations of terms that the best translation lacks, because it ends at the maximum
    /// length.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_terms: Vec<String>,
    /// Treatment of the line if it was too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlong: Option<Overlong>,
}

/// Settings of the search for the requested detail, with the candidates to choose among.
fn decoding(settings: &TranslationSettings) -> DecodingConfig {
    match settings.detail.all {
        true => settings.decoding.clone().with_candidates(),
        false => for_the_best(&settings.decoding).with_candidates(),
    }
}

/// Number of translations of a line to return.
fn wanted(settings: &TranslationSettings) -> usize {
    if settings.detail.all { settings.decoding.n_best } else { 1 }
}

/// Models of a [`LineTranslator`], with their packed weights.
#[derive(Debug, Clone)]
pub struct PackedModels(Arc<[WithSpecialIds<Inference>]>);

/// Translator of lines of text, by a model or an ensemble.
#[derive(Debug)]
pub struct LineTranslator<'a> {
    tokenizers: &'a TokenizerPair,
    /// Model that computes alignments.
    model: &'a TranslationModel,
    /// Models of the search.
    members: Arc<[WithSpecialIds<Inference>]>,
    decoding: DecodingConfig,
    reranker: Reranker,
    /// Number of translations of a line to return.
    wanted: usize,
    limit: LineLimit,
    aligned_by: AlignedAttention,
    terms: Option<Arc<Terms>>,
    pub(super) detail: Detail,
    control: &'a dyn Control,
}

impl<'a> LineTranslator<'a> {
    /// Translator with the model of `run`, and the members of the ensemble that `settings` name.
    ///
    /// # Errors
    /// When a member cannot be loaded, or has another tokenizer.
    pub fn new(run: &'a LoadedRun, settings: &TranslationSettings) -> Result<Self> {
        let mut translator = Self::of(&run.model, &run.tokenizers, settings)?;
        let mut members = vec![speaking(&run.model, run.tokenizers.target())];
        for member in &settings.ensemble {
            let member = run.load_member(member)?;
            translator.limit = translator.limit.within(member.config(), run.tokenizers.source());
            members.push(speaking(&member, run.tokenizers.target()));
        }
        Ok(Self { members: members.into(), ..translator })
    }

    /// Translator with the model of `run` alone, like [`Self::new`], which shares the packed weights
    /// of an earlier one.
    ///
    /// # Errors
    /// When a model that chooses among candidates cannot be loaded.
    pub fn with_models(
        run: &'a LoadedRun,
        settings: &TranslationSettings,
        models: &PackedModels,
    ) -> Result<Self> {
        let translator = Self::of(&run.model, &run.tokenizers, settings)?;
        Ok(Self { members: Arc::clone(&models.0), ..translator })
    }

    /// Models of the search, for [`Self::with_models`].
    #[must_use]
    pub fn models(&self) -> PackedModels {
        PackedModels(Arc::clone(&self.members))
    }

    /// Translator with other settings, the same models and the same limit. `control`, which can
    /// interrupt and end it, addresses lines by their indices in a call.
    #[must_use]
    pub fn under<'s>(
        &'s self,
        settings: &TranslationSettings,
        control: &'s dyn Control,
    ) -> LineTranslator<'s> {
        LineTranslator {
            members: Arc::clone(&self.members),
            decoding: decoding(settings),
            reranker: self.reranker.under(&settings.decoding, settings.tokenizer),
            wanted: wanted(settings),
            aligned_by: settings.aligned_by,
            terms: settings.terms.clone(),
            detail: settings.detail,
            control,
            ..*self
        }
    }

    /// Translator with the same models and other tokenizers of their run, for one of its
    /// directions.
    #[must_use]
    pub fn with_tokenizers<'t>(&'t self, tokenizers: &'t TokenizerPair) -> LineTranslator<'t> {
        LineTranslator {
            tokenizers,
            limit: self.limit.within(self.model.config(), tokenizers.source()),
            members: Arc::clone(&self.members),
            decoding: self.decoding.clone(),
            reranker: self.reranker.clone(),
            terms: self.terms.clone(),
            ..*self
        }
    }

    /// Translator with `model` alone.
    ///
    /// # Errors
    /// When a model that chooses among candidates cannot be loaded.
    pub(crate) fn of(
        model: &'a TranslationModel,
        tokenizers: &'a TokenizerPair,
        settings: &TranslationSettings,
    ) -> Result<Self> {
        let TranslationSettings { overlong, max_source_tokens, aligned_by, terms, detail, .. } =
            settings;
        let limit = LineLimit::new(*overlong, *max_source_tokens)
            .within(model.config(), tokenizers.source());
        let [source, target] = &settings.languages;
        let languages = [source.as_str(), target.as_str()];
        Ok(Self {
            tokenizers,
            model,
            members: Arc::new([speaking(model, tokenizers.target())]),
            decoding: decoding(settings),
            reranker: Reranker::new(&settings.decoding, settings.tokenizer, languages)?,
            wanted: wanted(settings),
            limit,
            aligned_by: *aligned_by,
            terms: terms.clone(),
            detail: *detail,
            control: &(),
        })
    }

    /// Best translation of each line under each of `lengths`, with a beam of `beam_size`: all lines
    /// under the first setting, then all under the next. Each equals the result of [`Self::best`]
    /// under its setting.
    ///
    /// # Errors
    /// See [`Self::translate`].
    pub(crate) fn best_under(
        &self,
        lines: &[String],
        beam_size: usize,
        lengths: &[LengthSettings],
        progress: impl FnMut(usize),
    ) -> Result<Vec<Vec<String>>> {
        let DividedLines { texts, lines: divided } = self.divider().divide(lines, &[], 1)?;
        let config = DecodingConfig { beam_size, n_best: 1, ..self.decoding.clone() };
        let found = match &*self.members {
            [one] => translate_under(one, self.tokenizers, &config, lengths, &texts, progress)?,
            several => {
                let ensemble = Ensemble::new(several)?;
                translate_under(&ensemble, self.tokenizers, &config, lengths, &texts, progress)?
            }
        };
        let mut whole = vec![Vec::with_capacity(lines.len()); lengths.len()];
        let mut found = found.iter();
        for DividedLine { parts, overlong, .. } in divided {
            overlong?;
            let of_line: Vec<&Vec<String>> = found.by_ref().take(parts).collect();
            for (at, whole) in whole.iter_mut().enumerate() {
                let texts: Vec<&str> = of_line.iter().map(|part| part[at].as_str()).collect();
                whole.push(join(&texts));
            }
        }
        Ok(whole)
    }

    /// Candidates of each line in the order of the search, with their scores by every criterion;
    /// empty for a line that is translated in parts.
    ///
    /// # Errors
    /// See [`Self::translate`].
    pub(crate) fn candidates(
        &self,
        lines: &[String],
        progress: impl FnMut(usize),
    ) -> Result<Vec<Vec<(String, Criteria)>>> {
        let DividedLines { texts, lines: divided } = self.divider().divide(lines, &[], 1)?;
        let found = self.found(&texts, 1, progress)?;
        let scores = self.reranker.all_scores(&texts, &found)?;
        let mut scored = found.into_iter().zip(scores);
        divided
            .into_iter()
            .map(|DividedLine { parts, overlong, .. }| {
                overlong?;
                let parts: Vec<_> = scored.by_ref().take(parts).collect();
                Ok(match <[_; 1]>::try_from(parts) {
                    Ok([(found, scores)]) => {
                        found.into_iter().map(|one| one.text).zip(scores).collect()
                    }
                    Err(_) => Vec::new(),
                })
            })
            .collect()
    }

    /// Translates `lines`, which are numbered from `first`; each translation begins with the line's
    /// entry of `prefixes`, if there are any. `progress` is called with the number of sentences
    /// done so far. Alignments are computed lazily, in the order of the lines, so that only those
    /// of few lines are in memory. A line that cannot be translated has a [`BadItem`] in its place:
    /// an overlong line, if such lines are refused; a line with special tokens, if they are
    /// refused; and a line with a prefix that no translation can have. A cancelled line has no
    /// translations.
    ///
    /// [`BadItem`]: crate::BadItem
    ///
    /// # Errors
    /// When the search, the tokenizer or an alignment fails.
    pub fn translate(
        &self,
        lines: &[String],
        prefixes: &[String],
        first: usize,
        progress: impl FnMut(usize),
    ) -> Result<impl Iterator<Item = Result<TranslatedLine>>> {
        self.translate_divided(self.divider().divide(lines, prefixes, first)?, first, progress)
    }

    /// Translates lines like [`Self::translate`] that are tokenised already, by the run's tokenizer
    /// of sources.
    ///
    /// # Errors
    /// See [`Self::translate`].
    pub fn translate_encoded(
        &self,
        lines: &[&EncodedText],
        prefixes: &[String],
        first: usize,
        progress: impl FnMut(usize),
    ) -> Result<impl Iterator<Item = Result<TranslatedLine>>> {
        self.translate_divided(
            self.divider().divide_encoded(lines, prefixes, first)?,
            first,
            progress,
        )
    }

    /// Refuses a prefix that no translation can have.
    ///
    /// # Errors
    /// When it has special tokens, or characters that the target vocabulary cannot spell, or is
    /// longer than the longest translation.
    pub fn check_prefix(&self, prefix: &str) -> Result<()> {
        self.divider().prefix(prefix.trim(), 1).map(drop)
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
        first: usize,
        progress: impl FnMut(usize),
    ) -> Result<impl Iterator<Item = Result<TranslatedLine>>> {
        let mut found = self.search(&texts, first, progress)?.into_iter();
        let to_align = texts.into_iter().filter(|_| self.detail.alignments);
        let mut sources = to_align.map(|text| text.source);
        let most = self.wanted;
        let found = lines.into_iter().map(|DividedLine { parts, whole, terms, overlong }| {
            let mut translations: Vec<Vec<Translation>> = found.by_ref().take(parts).collect();
            // A translation of the line consists of one translation of each part.
            let ranks = translations.iter().map(Vec::len).fold(most, usize::min);
            translations.iter_mut().for_each(|part| part.truncate(ranks));
            let sources = sources.by_ref().take(parts).collect();
            SearchedLine { whole, sources, translations, terms, overlong }
        });
        Ok(by_weight(found)
            .into_iter()
            .flat_map(move |group| self.finish(group).unwrap_or_else(|error| vec![Err(error)])))
    }

    /// Translations of texts. If a translation lacks the translation of a term, the text is
    /// searched again with the terms as constraints. Most translations contain their terms without
    /// constraints, and are better for it.
    fn search(
        &self,
        texts: &[TextPart],
        first: usize,
        progress: impl FnMut(usize),
    ) -> Result<Vec<Vec<Translation>>> {
        let mut found = self.search_once(texts, first, progress)?;
        let Some(terms) = &self.terms else { return Ok(found) };
        let lacks = |number: &usize| {
            let (numbers, best) = (&texts[*number].terms, found[*number].first());
            best.is_some_and(|best| terms.missing(numbers, &best.text).next().is_some())
        };
        let again: Vec<usize> = (0..texts.len()).filter(lacks).collect();
        let with_phrases = |&number: &usize| TextPart {
            phrases: terms.phrases(&texts[number].terms),
            ..texts[number].clone()
        };
        let texts: Vec<TextPart> = again.iter().map(with_phrases).collect();
        let with_terms = self.search_once(&texts, first, |_| {})?;
        for (number, translations) in again.into_iter().zip(with_terms) {
            if !translations.is_empty() {
                found[number] = translations;
            }
        }
        Ok(found)
    }

    fn search_once(
        &self,
        texts: &[TextPart],
        first: usize,
        progress: impl FnMut(usize),
    ) -> Result<Vec<Vec<Translation>>> {
        let mut found = self.found(texts, first, progress)?;
        self.reranker.rank(texts, &mut found)?;
        Ok(found)
    }

    /// Results of one search, in its order.
    fn found(
        &self,
        texts: &[TextPart],
        first: usize,
        progress: impl FnMut(usize),
    ) -> Result<Vec<Vec<Translation>>> {
        let (tokenizers, config) = (self.tokenizers, &self.decoding);
        let lines: Vec<usize> = texts.iter().map(|text| text.line - first).collect();
        let control = &Renumbered::new(self.control, &lines);
        match &*self.members {
            [one] => translate(one, tokenizers, config, texts, control, progress),
            several => {
                translate(&Ensemble::new(several)?, tokenizers, config, texts, control, progress)
            }
        }
    }

    /// Joins parts to lines, and aligns their translations if requested.
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

    /// Texts that are tokenised to translate lines, with their alignments, and with parts of long
    /// lines.
    fn encodings(rule: OverlongRule, lines: &[&str], prefixes: &[&str]) -> (u64, usize) {
        let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/frozen/format-1");
        let run: LoadedRun = LoadedRun::open(&run, &LoadSettings::default()).expect("loaded");
        let settings = TranslationSettings {
            overlong: rule,
            max_source_tokens: 6,
            detail: Detail { all: true, alignments: true, weights: true },
            ..TranslationSettings::of(&run.config)
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
        // To find places to divide a long line, the beginnings of single words are tokenised.
        for rule in [OverlongRule::Split, OverlongRule::Cut] {
            let (encodings, parts) = encodings(rule, &[long], &[]);
            assert!(parts > 0 && encodings <= 1 + 8 * parts as u64, "{encodings}, {parts} parts");
        }
    }
}
