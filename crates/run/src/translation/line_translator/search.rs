//! Search for the translations of texts. One search can give results for several length settings
//! (penalties and rewards). A search is repeated if prescribed translations of terms are missing.
//! Reranking can choose among the translations that were found.

use anyhow::Result;
use taper_decoding::{Criteria, DecodingConfig, Ensemble, LengthSettings, Renumbered};

use super::LineTranslator;
use crate::translation::parts::{DividedLine, DividedLines, TextPart};
use crate::translation::places::LineNumbers;
use crate::translation::punctuation::join;
use crate::translation::search::{Found, SearchTexts, translate, translate_under};

impl LineTranslator<'_> {
    /// Best translation of each line for each of the settings `lengths`, with a beam of
    /// `beam_size`. For each setting, the result has a list with the translation of each line. Each
    /// translation equals the result of [`Self::best`] with this setting.
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
        let DividedLines { texts, lines: divided } =
            self.divider().divide(lines, &[], LineNumbers::From(1))?;
        let config = DecodingConfig { beam_size, n_best: 1, ..self.decoding.clone() };
        let indices: Vec<usize> = texts.iter().map(|text| text.index).collect();
        let control = &Renumbered::new(self.control, &indices);
        let searched = SearchTexts { texts: &texts, shortlist: self.shortlist.as_deref() };
        let tokenizers = self.tokenizers;
        let translations = match &*self.members {
            [one] => {
                translate_under(one, tokenizers, &config, lengths, searched, control, progress)?
            }
            several => {
                let ensemble = &Ensemble::new(several)?;
                translate_under(
                    ensemble, tokenizers, &config, lengths, searched, control, progress,
                )?
            }
        };
        let mut whole = vec![Vec::with_capacity(lines.len()); lengths.len()];
        let mut translations = translations.iter();
        for DividedLine { parts, overlong, .. } in divided {
            overlong?;
            let of_line: Vec<&Vec<String>> = translations.by_ref().take(parts).collect();
            for (at, whole) in whole.iter_mut().enumerate() {
                let texts: Vec<&str> = of_line.iter().map(|part| part[at].as_str()).collect();
                whole.push(join(&texts));
            }
        }
        Ok(whole)
    }

    /// Candidates for the translation of each line, in the order in which the search returns them.
    /// Each candidate comes with its scores by all criteria of reranking. For a line that is
    /// translated in parts, the list is empty.
    ///
    /// # Errors
    /// See [`Self::translate`].
    pub(crate) fn candidates(
        &self,
        lines: &[String],
        progress: impl FnMut(usize),
    ) -> Result<Vec<Vec<(String, Criteria)>>> {
        let DividedLines { texts, lines: divided } =
            self.divider().divide(lines, &[], LineNumbers::From(1))?;
        let Found { translations: candidates, faults } = self.search_unranked(&texts, progress)?;
        if let Some(error) = faults.into_values().next() {
            return Err(error);
        }
        let scores = self.reranker.all_scores(&texts, &candidates)?;
        let mut scored = candidates.into_iter().zip(scores);
        divided
            .into_iter()
            .map(|DividedLine { parts, overlong, .. }| {
                overlong?;
                let parts: Vec<_> = scored.by_ref().take(parts).collect();
                Ok(match <[_; 1]>::try_from(parts) {
                    Ok([(candidates, scores)]) => {
                        candidates.into_iter().map(|one| one.text).zip(scores).collect()
                    }
                    Err(_) => Vec::new(),
                })
            })
            .collect()
    }

    /// Translations of each text, the best first. If the prescribed translation of a term is
    /// missing in the best translation, the text is searched again with its terms as constraints.
    /// The first search has no constraints, because most translations contain the terms anyway, and
    /// translations without constraints are better.
    pub(super) fn search(&self, texts: &[TextPart], progress: impl FnMut(usize)) -> Result<Found> {
        let mut found = self.search_and_rank(texts, progress)?;
        let Some(terms) = &self.terms else { return Ok(found) };
        let lacks = |number: &usize| {
            let (numbers, best) = (&texts[*number].terms, found.translations[*number].first());
            best.is_some_and(|best| terms.missing(numbers, &best.text).next().is_some())
        };
        let again: Vec<usize> = (0..texts.len()).filter(lacks).collect();
        let with_phrases = |&number: &usize| TextPart {
            phrases: terms.phrases(&texts[number].terms),
            ..texts[number].clone()
        };
        let texts: Vec<TextPart> = again.iter().map(with_phrases).collect();
        let with_terms = self.search_and_rank(&texts, |_| {})?;
        let faults = with_terms.faults.into_iter().map(|(index, error)| (again[index], error));
        found.faults.extend(faults);
        for (number, better) in again.into_iter().zip(with_terms.translations) {
            if !better.is_empty() {
                found.translations[number] = better;
            }
        }
        Ok(found)
    }

    fn search_and_rank(&self, texts: &[TextPart], progress: impl FnMut(usize)) -> Result<Found> {
        let mut found = self.search_unranked(texts, progress)?;
        self.reranker.rank(texts, &mut found.translations)?;
        Ok(found)
    }

    /// Translations of each text, in the order in which the search returns them.
    fn search_unranked(&self, texts: &[TextPart], progress: impl FnMut(usize)) -> Result<Found> {
        let (tokenizers, config) = (self.tokenizers, &self.decoding);
        let lines: Vec<usize> = texts.iter().map(|text| text.index).collect();
        let control = &Renumbered::new(self.control, &lines);
        let texts = SearchTexts { texts, shortlist: self.shortlist.as_deref() };
        match &*self.members {
            [one] => translate(one, tokenizers, config, texts, control, progress),
            several => {
                translate(&Ensemble::new(several)?, tokenizers, config, texts, control, progress)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::translation::TranslationSettings;
    use crate::{LoadSettings, LoadedRun};

    #[test]
    fn a_line_without_a_possible_translation_is_refused_alone() {
        let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/frozen/format-1");
        let run: LoadedRun = LoadedRun::open(&run, &LoadSettings::default()).expect("loaded");
        let mut settings = TranslationSettings::from_config(&run.config);
        // No translation has so many tokens without a repetition.
        (settings.decoding.min_length, settings.decoding.max_length) = (200, 200);
        (settings.decoding.max_length_offset, settings.decoding.no_repeat_ngram) = (200, 1);
        for beam_size in [1, 3] {
            settings.decoding.beam_size = beam_size;
            let translator = LineTranslator::new(&run, &settings).expect("a translator");
            let lines = ["", "run cat", "  "].map(str::to_owned);
            let translated: Vec<_> =
                translator.translate(&lines, &[], 5, |_| {}).expect("searched").collect();
            let error = translated[1].as_ref().expect_err("no translation");
            assert!(error.is::<crate::BadItem>(), "{error}");
            assert!(error.to_string().contains("line 6: no translation"), "{error}");
            for index in [0, 2] {
                let line = translated[index].as_ref().expect("translated");
                assert_eq!(line.translations[0].text, "");
            }
        }
    }
}
