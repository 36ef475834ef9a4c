//! Lines of text in, their translations out: overlong lines, prefixes, ensembles and alignments
//! around the search.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use taper_data::{END, Tokenizer};
use taper_decoding::{Alignment, Ensemble, align_with};
use taper_model::Inference;

use super::overlong::{Limit, Overlong, encode_long, join};
use super::{LoadedRun, Text, Translation, encode_sources, for_the_best, translate};

/// The most weights of alignments that are held at once: 16 MiB of them. Those of one line may be
/// more, where it has many parts; nearly all of them are zero then, since each part attends to
/// itself alone.
const MOST_WEIGHTS: usize = 1 << 22;

/// How many tokens two divisions of a text are looked through for a token that they share.
const AHEAD: usize = 64;

/// What is shown of a line. The rest is not computed, or not kept.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shown {
    /// Every translation that is found, not only the best.
    pub all: bool,
    /// The alignment of each.
    pub alignments: bool,
    /// Its tokens and weights too, not only its pairs.
    pub weights: bool,
}

/// The translations of one line.
#[derive(Debug, Serialize)]
pub struct Translated {
    /// Best first, at least one.
    pub translations: Vec<Translation>,
    /// What was done if the line was too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlong: Option<Overlong>,
}

/// Which source token each target token was made from.
#[derive(Debug, Clone, Default, Serialize)]
pub struct AlignedTokens {
    /// Tokens of the source line, `</s>` last, also where it was translated in parts, which the
    /// model saw with tokens and a `</s>` of their own; of its beginning where that alone was
    /// translated. None where only pairs are shown.
    pub source_tokens: Vec<String>,
    /// Tokens of the translation; none where only pairs are shown.
    pub target_tokens: Vec<String>,
    /// (source, target) positions from 0.
    pub pairs: Vec<(usize, usize)>,
    /// For each target token the weight of each source token; nothing where only pairs are shown,
    /// and for a line whose translations have more than [`MOST_WEIGHTS`].
    pub weights: Vec<Vec<f32>>,
}

/// A line after the search.
struct Found<'l> {
    line: &'l str,
    /// The tokens of each of its parts, `</s>` last; none where nothing is to be aligned.
    sources: Vec<Vec<u32>>,
    /// The translations of each part, as many of one as of another.
    translations: Vec<Vec<Translation>>,
    overlong: Option<Overlong>,
}

impl Found<'_> {
    /// What is to be aligned: of each translation in turn, each part and what was made of it.
    fn pairs(&self) -> impl Iterator<Item = (&[u32], &[u32])> {
        let ranks = self.translations.first().map_or(0, Vec::len);
        (0..ranks).flat_map(move |rank| {
            let parts = self.sources.iter().zip(&self.translations);
            parts.map(move |(source, found)| (source.as_slice(), found[rank].tokens.as_slice()))
        })
    }

    /// How many weights its alignments have: one of each source token for each target token.
    fn weights(&self) -> usize {
        let width: usize = self.sources.iter().map(Vec::len).sum();
        let height: usize = self.pairs().map(|(_, target)| target.len()).sum();
        width.saturating_mul(height)
    }
}

/// A run, or several that decide together, applied to lines of text.
pub struct LineTranslator<'a> {
    run: &'a LoadedRun,
    models: Vec<Inference>,
    limit: Limit,
    shown: Shown,
}

impl<'a> LineTranslator<'a> {
    /// A translator by `run` and the members of the ensemble, each the folder of a run or of a
    /// checkpoint.
    ///
    /// # Errors
    /// When a member cannot be loaded, or has another tokenizer.
    pub fn new(
        run: &'a LoadedRun,
        ensemble: &[impl AsRef<Path>],
        limit: Limit,
        shown: Shown,
    ) -> Result<Self> {
        let mut models = vec![run.model.inference()];
        for member in ensemble {
            models.push(run.load_member(member.as_ref())?.inference());
        }
        let limit =
            models.iter().fold(limit, |limit, member| limit.within(member.model().config()));
        Ok(Self { run, models, limit, shown })
    }

    /// Translates `lines`, which are numbered from `first`; each begins with its entry of
    /// `prefixes`, where there are any. `progress` is called with the sentences done so far.
    /// Alignments are made as the answer is taken, in the order of the lines, so that those of
    /// few lines are held at a time.
    ///
    /// # Errors
    /// For an overlong line, where the rule is to refuse them; when the search or the tokenizer
    /// fails, or an alignment.
    pub fn translate(
        &self,
        lines: &[String],
        prefixes: &[String],
        first: usize,
        progress: impl FnMut(usize),
    ) -> Result<impl Iterator<Item = Result<Translated>>> {
        let mut texts = Vec::with_capacity(lines.len());
        let mut cuts = Vec::with_capacity(lines.len());
        for (index, line) in lines.iter().enumerate() {
            let (parts, overlong) =
                self.limit.apply(self.run.tokenizers.source(), line, first + index)?;
            for (source, part) in parts.iter().zip(0..) {
                let prefix =
                    if part == 0 { prefixes.get(index).map_or("", String::as_str) } else { "" };
                texts.push(Text { source, prefix, line: first + index, part });
            }
            cuts.push((parts.len(), overlong));
        }
        let mut found = self.search(&texts, progress)?.into_iter();
        let to_align: Vec<&str> =
            texts.iter().filter(|_| self.shown.alignments).map(|text| text.source).collect();
        let mut sources = encode_sources(&self.run.tokenizers, &to_align)?.into_iter();
        let most = if self.shown.all { usize::MAX } else { 1 };
        let found = lines.iter().zip(cuts).map(|(line, (parts, overlong))| {
            let mut translations: Vec<Vec<Translation>> = found.by_ref().take(parts).collect();
            // A translation of the line is made of one of each part.
            let ranks = translations.iter().map(Vec::len).fold(most, usize::min);
            translations.iter_mut().for_each(|part| part.truncate(ranks));
            Found { line, sources: sources.by_ref().take(parts).collect(), translations, overlong }
        });
        Ok(together(found).into_iter().flat_map(move |group| match self.finish(group) {
            Ok(lines) => lines.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        }))
    }

    fn search(
        &self,
        texts: &[Text<'_>],
        progress: impl FnMut(usize),
    ) -> Result<Vec<Vec<Translation>>> {
        let (tokenizers, config) = (&self.run.tokenizers, &self.run.config.decoding);
        let config = if self.shown.all { config.clone() } else { for_the_best(config) };
        match self.models.as_slice() {
            [one] => translate(one, tokenizers, &config, texts, progress),
            several => translate(&Ensemble::new(several)?, tokenizers, &config, texts, progress),
        }
    }

    /// Puts lines together from their parts, and aligns their translations where that is asked for.
    fn finish(&self, lines: Vec<Found<'_>>) -> Result<Vec<Translated>> {
        let mut alignments = self.align(&lines)?.into_iter();
        let whole = |line: Found<'_>| {
            let aligned = if self.shown.alignments {
                self.aligned(&line, &mut alignments)?
            } else {
                Vec::new()
            };
            let mut translations = merge(line.translations);
            translations
                .iter_mut()
                .zip(aligned)
                .for_each(|(translation, aligned)| translation.alignment = Some(aligned));
            Ok(Translated { translations, overlong: line.overlong })
        };
        lines.into_iter().map(whole).collect()
    }

    /// Aligns the parts of lines with their translations, by the run's own model.
    fn align(&self, lines: &[Found<'_>]) -> Result<Vec<Alignment>> {
        let (sources, targets): (Vec<&[u32]>, Vec<&[u32]>) =
            lines.iter().flat_map(Found::pairs).unzip();
        let weights =
            self.shown.weights && lines.iter().map(Found::weights).sum::<usize>() <= MOST_WEIGHTS;
        let mut aligned = Vec::with_capacity(sources.len());
        let keep = |alignment: Alignment| {
            aligned.push(if weights {
                alignment
            } else {
                Alignment { weights: Vec::new(), ..alignment }
            })
        };
        align_with(&self.run.model, &sources, &targets, keep).context("alignment failed")?;
        Ok(aligned)
    }

    /// The alignment of each translation of a line, from those of its parts in the order of
    /// [`Found::pairs`]. Each part attends to its own tokens only, and to a `</s>` that is
    /// shown as the line's.
    fn aligned(
        &self,
        line: &Found<'_>,
        alignments: &mut impl Iterator<Item = Alignment>,
    ) -> Result<Vec<AlignedTokens>> {
        let (source_ids, places) = self.places(line)?;
        let names = |tokenizer: &Tokenizer, ids: &[u32]| -> Vec<String> {
            ids.iter()
                .filter(|_| self.shown.weights)
                .map(|&id| tokenizer.token(id).unwrap_or_default())
                .collect()
        };
        let source_tokens = names(self.run.tokenizers.source(), &source_ids);
        let mut aligned = Vec::new();
        let mut pairs = line.pairs().zip(alignments).peekable();
        while pairs.peek().is_some() {
            let mut whole =
                AlignedTokens { source_tokens: source_tokens.clone(), ..AlignedTokens::default() };
            let mut before = 0;
            for (places, ((_, target), alignment)) in places.iter().zip(pairs.by_ref()) {
                whole.pairs.extend(
                    alignment.pairs.into_iter().map(|(from, to)| (places[from], before + to)),
                );
                whole.weights.extend(alignment.weights.into_iter().map(|row| {
                    let mut wide = vec![0.0; source_ids.len()];
                    places.iter().zip(row).for_each(|(&place, weight)| wide[place] += weight);
                    wide
                }));
                whole.target_tokens.extend(names(self.run.tokenizers.target(), target));
                before += target.len();
            }
            aligned.push(whole);
        }
        Ok(aligned)
    }

    /// The tokens of a line, and for each token of each part its place among them.
    fn places(&self, line: &Found<'_>) -> Result<(Vec<u32>, Vec<Vec<usize>>)> {
        if let [whole] = line.sources.as_slice() {
            return Ok((whole.clone(), vec![(0..whole.len()).collect()]));
        }
        let words = |source: &[u32]| source.len().saturating_sub(1);
        let mut tokens = encode_long(self.run.tokenizers.source(), line.line)?;
        let of_parts: Vec<u32> =
            line.sources.iter().flat_map(|source| &source[..words(source)]).copied().collect();
        let mut found = places(&tokens, &of_parts).into_iter();
        let end = tokens.len();
        tokens.push(END);
        let places = line
            .sources
            .iter()
            .map(|source| found.by_ref().take(words(source)).chain([end]).collect())
            .collect();
        Ok((tokens, places))
    }
}

/// Consecutive lines whose alignments have at most [`MOST_WEIGHTS`] weights together, or one line
/// that has more.
fn together<'l>(lines: impl Iterator<Item = Found<'l>>) -> Vec<Vec<Found<'l>>> {
    let mut groups: Vec<Vec<Found<'_>>> = Vec::new();
    let mut held = 0_usize;
    for line in lines {
        let weights = line.weights();
        held = held.saturating_add(weights);
        match groups.last_mut() {
            Some(group) if held <= MOST_WEIGHTS => group.push(line),
            _ => {
                held = weights;
                groups.push(vec![line]);
            }
        }
    }
    groups
}

/// For each token of the parts of a line its place among the tokens of the line.
///
/// They are the same but where the line was divided: a part that does not follow a blank has the
/// mark of a word's beginning all the same, a word that was cut has other tokens, and blanks at the
/// cut are in no part. Tokens there get the place of those that the line has instead.
fn places(line: &[u32], parts: &[u32]) -> Vec<usize> {
    let mut places = Vec::with_capacity(parts.len());
    let mut next = 0;
    while places.len() < parts.len() {
        let (parts, rest) = (&parts[places.len()..], line.get(next..).unwrap_or_default());
        // The nearest tokens from which both go on alike. More of the parts are left out first,
        // since they have a mark more.
        let (of_parts, of_line) = (0..AHEAD)
            .flat_map(|both| (0..=both).map(move |of_line| (both - of_line, of_line)))
            .find(|&(of_parts, of_line)| {
                parts.get(of_parts).zip(rest.get(of_line)).is_some_and(|(one, other)| one == other)
            })
            .unwrap_or((0, 0));
        let instead = |place: usize| {
            (next + place.min(of_line.saturating_sub(1))).min(line.len().saturating_sub(1))
        };
        places.extend((0..of_parts).map(instead));
        next += of_line;
        places.push(next.min(line.len().saturating_sub(1)));
        next += 1;
    }
    places
}

/// One list of translations from those of a line's parts: rank by rank, log-probabilities added,
/// scores averaged.
fn merge(mut parts: Vec<Vec<Translation>>) -> Vec<Translation> {
    if parts.len() == 1 {
        return parts.swap_remove(0);
    }
    let ranks = parts.iter().map(Vec::len).min().unwrap_or(0);
    (0..ranks)
        .map(|rank| {
            let chosen: Vec<&Translation> = parts.iter().map(|part| &part[rank]).collect();
            let texts: Vec<&str> = chosen.iter().map(|part| part.text.as_str()).collect();
            Translation {
                text: join(&texts),
                score: chosen.iter().map(|part| part.score).sum::<f64>() / chosen.len() as f64,
                log_probability: chosen.iter().map(|part| part.log_probability).sum(),
                length: chosen.iter().map(|part| part.length).sum(),
                tokens: chosen.iter().flat_map(|part| part.tokens.iter().copied()).collect(),
                alignment: None,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_parts_have_their_places_in_the_line() {
        assert_eq!(places(&[5, 6, 7], &[5, 6, 7]), [0, 1, 2]);
        // A mark, 9, before what does not follow a blank.
        assert_eq!(
            places(&[9, 5, 6, 7, 8, 5], &[9, 5, 6, 9, 7, 9, 8, 5]),
            [0, 1, 2, 3, 3, 4, 4, 5]
        );
        // Blanks at the cut, which are in no part.
        assert_eq!(places(&[5, 9, 9, 6, 7], &[5, 6, 7]), [0, 3, 4]);
        // A word that was cut: 56 and 7 of the line are 5, 60 and 70 of the parts.
        assert_eq!(places(&[4, 56, 7, 8, 4], &[4, 5, 60, 70, 8, 4]), [0, 1, 2, 2, 3, 4]);
        // Nothing in common, and more of it than the line has.
        assert_eq!(places(&[4, 5], &[6, 7, 8]), [0, 1, 1]);
        assert_eq!(places(&[], &[6]), [0]);
    }

    #[test]
    fn few_weights_are_held_at_once() {
        let line = |source: usize, target: usize, parts: usize| {
            let translation = Translation {
                text: String::new(),
                score: 0.0,
                log_probability: 0.0,
                length: 0,
                tokens: vec![4; target],
                alignment: None,
            };
            Found {
                line: "",
                sources: vec![vec![4; source]; parts],
                translations: vec![vec![translation; 2]; parts],
                overlong: None,
            }
        };
        assert_eq!(line(20, 30, 1).weights(), 20 * 2 * 30);
        assert_eq!(line(20, 30, 5).weights(), 5 * 20 * 5 * 2 * 30);
        // Each of the long lines has too many by itself.
        let lines = [
            line(20, 30, 1),
            line(20, 30, 1),
            line(20, 30, 100),
            line(20, 30, 1),
            line(20, 30, 50),
            line(20, 30, 50),
        ];
        let sizes: Vec<usize> = together(lines.into_iter()).iter().map(Vec::len).collect();
        assert_eq!(sizes, [2, 1, 2, 1]);
        // Nothing is held where nothing is to be aligned.
        assert_eq!(together((0..10).map(|_| line(20, 30, 0))).len(), 1);
    }
}
