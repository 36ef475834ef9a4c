//! Sentences of a test set, each with its translation.

use anyhow::{Result, bail, ensure};
use serde::Serialize;
use taper_metrics::resampling::{DEFAULT_SEED, confidence};
use taper_metrics::{Bleu, Chrf, Metric, Statistics, Tokenizer, segments};

use crate::flaws::Flaw;
use crate::words::{Frequencies, words};

/// Number of resamples of a bootstrap: sacreBLEU's default.
pub(crate) const RESAMPLES: usize = 1000;

/// A sentence with its translation, scores and flaw.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sentence {
    /// Line of the sentence, from 1.
    pub line: usize,
    /// Source text.
    pub source: String,
    /// Reference translation.
    pub reference: String,
    /// Translation by the run.
    pub translation: String,
    /// chrF2 of the sentence.
    pub chrf: f64,
    /// BLEU of the sentence, with effective order: n-gram orders for which the translation is too
    /// short are left out.
    pub bleu: f64,
    /// Number of words of the source.
    pub length: usize,
    /// Rarest word of the source, preceded by its frequency in the training text.
    pub rarest: Option<(u64, String)>,
    /// First flaw of the translation.
    pub flaw: Option<Flaw>,
    /// Links between parts of the source and of the translation. Each link has four positions in
    /// characters: start and end in the source, start and end in the translation. Empty if the run
    /// has not stored links.
    pub links: Vec<[usize; 4]>,
}

/// The sentences of a test set.
#[derive(Debug, Clone, PartialEq)]
pub struct SentenceSet {
    /// Name of the split.
    pub split: String,
    /// Sentences in the order of the file.
    pub sentences: Vec<Sentence>,
    /// Settings of the scores.
    pub scoring: Scoring,
}

/// Settings for scoring text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scoring {
    /// BLEU's tokenizer.
    pub tokenizer: Tokenizer,
    /// Whether case is ignored.
    pub lowercase: bool,
}

impl Scoring {
    /// Returns BLEU with these settings.
    #[must_use]
    pub fn bleu(&self) -> Bleu {
        Bleu { tokenizer: self.tokenizer, lowercase: self.lowercase, ..Bleu::default() }
    }

    /// Returns chrF2 with these settings.
    #[must_use]
    pub fn chrf(&self) -> Chrf {
        Chrf { lowercase: self.lowercase, ..Chrf::default() }
    }
}

impl SentenceSet {
    /// Makes a set of sentences, and scores each translation.
    ///
    /// # Errors
    /// When the numbers of sources, references and translations differ.
    pub(crate) fn new(
        split: &str,
        (sources, references): (&[String], &[String]),
        translations: &[String],
        scoring: Scoring,
        frequencies: Option<&Frequencies>,
    ) -> Result<Self> {
        ensure!(
            sources.len() == translations.len() && references.len() == translations.len(),
            "split `{split}` has {} sentences now, but {} translations are kept: resuming the \
                 run translates them again",
            sources.len(),
            translations.len()
        );
        let bleu = Bleu { effective_order: true, ..scoring.bleu() };
        let chrf = scoring.chrf();
        let mut sentences = Vec::with_capacity(sources.len());
        for (index, source) in sources.iter().enumerate() {
            let (reference, translation) = (&references[index], &translations[index]);
            sentences.push(Sentence {
                line: index + 1,
                chrf: chrf.sentence(translation, &[reference])?.score,
                bleu: bleu.sentence(translation, &[reference])?.score,
                length: words(source).len(),
                rarest: frequencies.and_then(|counted| counted.rarest(source)),
                flaw: Flaw::first(source, reference, translation),
                links: Vec::new(),
                source: source.clone(),
                reference: reference.clone(),
                translation: translation.clone(),
            });
        }
        Ok(Self { split: split.to_owned(), sentences, scoring })
    }

    /// Adds the links of all sentences.
    ///
    /// # Errors
    /// When the links do not fit the sentences.
    pub(crate) fn link(&mut self, links: Vec<Vec<[usize; 4]>>) -> Result<()> {
        if links.len() != self.sentences.len() {
            bail!("{} sentences, but {} lines of links", self.sentences.len(), links.len());
        }
        for (sentence, links) in self.sentences.iter().zip(&links) {
            let [source, target] =
                [&sentence.source, &sentence.translation].map(|text| text.chars().count());
            let is_within = |[from, to, start, end]: &[usize; 4]| {
                from < to && *to <= source && start < end && *end <= target
            };
            if !links.iter().all(is_within) {
                bail!("line {}: a link lies outside its sentence", sentence.line);
            }
        }
        self.sentences.iter_mut().zip(links).for_each(|(one, links)| one.links = links);
        Ok(())
    }

    /// Returns the counts in each sentence from which `metric` computes a score.
    ///
    /// # Errors
    /// When the sentences cannot be scored.
    pub(crate) fn statistics(&self, metric: &dyn Metric) -> Result<Statistics> {
        let text = |field: fn(&Sentence) -> &str| self.sentences.iter().map(field).collect();
        let translations: Vec<&str> = text(|one| &one.translation);
        let references = [text(|one| &one.reference)];
        Ok(Statistics::count(metric, &segments(&translations, &references)?)?)
    }

    /// Returns half the width of the 95 % bootstrap interval of a metric.
    ///
    /// # Errors
    /// When the sentences cannot be scored.
    pub(crate) fn interval(&self, metric: &dyn Metric) -> Result<f64> {
        Ok(confidence(metric, &self.statistics(metric)?, RESAMPLES, DEFAULT_SEED)?.half_width)
    }

    /// Returns the number of sentences with each flaw.
    #[must_use]
    pub fn flaws(&self) -> Vec<(Flaw, usize)> {
        let count = |flaw| self.sentences.iter().filter(|one| one.flaw == Some(flaw)).count();
        Flaw::ALL.map(|flaw| (flaw, count(flaw))).to_vec()
    }

    /// Scores groups of sentences. `kinds` has the names of the groups, and `kind` returns the
    /// index of the group of a sentence. Returns the name, the number of sentences, BLEU and chrF2
    /// of each group. Empty groups are omitted.
    ///
    /// # Errors
    /// When the sentences cannot be scored.
    pub(crate) fn by_kind<const K: usize>(
        &self,
        kinds: [&str; K],
        kind: impl Fn(&Sentence) -> Option<usize>,
    ) -> Result<Vec<(String, usize, f64, f64)>> {
        let mut groups: [Vec<&Sentence>; K] = std::array::from_fn(|_| Vec::new());
        for sentence in &self.sentences {
            if let Some(kind) = kind(sentence) {
                groups[kind].push(sentence);
            }
        }
        let mut scores = Vec::new();
        for (name, group) in kinds.into_iter().zip(groups) {
            if group.is_empty() {
                continue;
            }
            let translations: Vec<&str> =
                group.iter().map(|one| one.translation.as_str()).collect();
            let references = [group.iter().map(|one| one.reference.as_str()).collect::<Vec<_>>()];
            let bleu = self.scoring.bleu().corpus(&translations, &references)?.score;
            let chrf = self.scoring.chrf().corpus(&translations, &references)?.score;
            scores.push((name.to_owned(), group.len(), bleu, chrf));
        }
        Ok(scores)
    }

    /// Scores groups of sentences by the number of words of the source. Returns the name, the
    /// number of sentences, BLEU and chrF2 of each group.
    ///
    /// # Errors
    /// When the sentences cannot be scored.
    pub fn by_length(&self) -> Result<Vec<(String, usize, f64, f64)>> {
        const MOST: [usize; 6] = [5, 10, 15, 20, 30, 50];
        let kinds = ["1–5", "6–10", "11–15", "16–20", "21–30", "31–50", "51+"];
        self.by_kind(kinds, |one| {
            Some(MOST.iter().position(|&most| one.length <= most).unwrap_or(MOST.len()))
        })
    }

    /// Scores groups of sentences by the frequency of the rarest word of the source in the training
    /// text. Returns the name, the number of sentences, BLEU and chrF2 of each group.
    ///
    /// # Errors
    /// When the sentences cannot be scored.
    pub fn by_rarest_word(&self) -> Result<Vec<(String, usize, f64, f64)>> {
        const MOST: [u64; 6] = [0, 1, 4, 19, 99, 999];
        let kinds = ["0", "1", "2–4", "5–19", "20–99", "100–999", "1000+"];
        self.by_kind(kinds, |one| {
            let (count, _) = one.rarest.as_ref()?;
            Some(MOST.iter().position(|most| count <= most).unwrap_or(MOST.len()))
        })
    }
}
