//! Comparison of runs (trainings): scores with their significance, keys that differ between the
//! recipes (files with all settings of a training), and numbers of sentences that are better or
//! worse.

mod page;

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use taper_metrics::resampling::{Comparison as Tested, DEFAULT_SEED, paired_bootstrap};
use taper_metrics::{Metric, Statistics};
use taper_plots::Language;
use taper_run::config::every_difference;

use crate::curves::curves;
use crate::figures::NamedFigure;
use crate::paths::{short_paths, short_values};
use crate::record::Record;
use crate::run_data::RunData;
use crate::sentences::{RESAMPLES, SentenceSet};
use crate::translated::systems_by_length;

/// A sentence counts as won or lost if its chrF2 differs by more than this from its chrF2 in the
/// first run. The range of chrF2 is from 0 to 100.
const EVEN: f64 = 1.0;

/// Scores of one run on a split, that is, on one test set, compared with the scores of the first
/// run.
#[derive(Debug, Clone, PartialEq)]
pub struct SystemScores {
    /// Name of the run.
    pub name: String,
    /// BLEU.
    pub bleu: Tested,
    /// chrF2.
    pub chrf: Tested,
    /// Numbers of sentences that are won, lost and even, in this order. A sentence is won if its
    /// chrF2 is more than 1 above its chrF2 in the first run, lost if it is more than 1 below, and
    /// otherwise even.
    pub sentences: [usize; 3],
}

/// Several runs compared with the first.
#[derive(Debug)]
pub struct Comparison<'a> {
    runs: &'a [RunData],
    names: Vec<String>,
    /// Scores of each run, for every split that all runs have translated.
    pub splits: Vec<(String, Vec<SystemScores>)>,
    /// Keys of the recipes whose values differ between the runs, with the value in each run.
    pub recipes: Vec<(String, Vec<String>)>,
    /// Splits that cannot be compared, and why.
    pub missing: Vec<String>,
}

/// Compares each run with the first.
///
/// # Errors
/// When there are fewer than two runs, or a score cannot be computed.
pub fn compare(runs: &[RunData]) -> Result<Comparison<'_>> {
    let [first, others @ ..] = runs else { bail!("name two or more runs to compare") };
    ensure!(!others.is_empty(), "name two or more runs to compare");
    let mut comparison = Comparison {
        runs,
        names: distinct_names(runs),
        splits: Vec::new(),
        recipes: recipes(runs)?,
        missing: Vec::new(),
    };
    for set in &first.sets {
        let sets: Vec<&SentenceSet> = std::iter::once(set)
            .chain(
                others.iter().filter_map(|run| run.sets.iter().find(|one| one.split == set.split)),
            )
            .collect();
        let problem = if sets.len() < runs.len() {
            Some("not every run has translations of it")
        } else if !sets.iter().all(|other| are_alike(set, other)) {
            Some("the runs do not have the same sentences or scoring")
        } else {
            None
        };
        match problem {
            Some(problem) => comparison.missing.push(format!("split `{}`: {problem}", set.split)),
            None => {
                let scores = scores(&sets, &comparison.names)?;
                comparison.splits.push((set.split.clone(), scores));
            }
        }
    }
    Ok(comparison)
}

/// Returns a name for each run: its own name, or the end of the path of its folder if another run
/// has the same name.
fn distinct_names(runs: &[RunData]) -> Vec<String> {
    let is_alone = |name: &str| runs.iter().filter(|run| run.name == name).count() == 1;
    let name = |run: &RunData| match is_alone(&run.name) {
        true => run.name.clone(),
        false => run.folder.root().display().to_string(),
    };
    short_paths(&runs.iter().map(name).collect::<Vec<_>>())
}

/// Whether two sets have the same sources and references, and are scored with the same settings.
fn are_alike(one: &SentenceSet, other: &SentenceSet) -> bool {
    let text = |set: &SentenceSet| -> Vec<(String, String)> {
        set.sentences.iter().map(|one| (one.source.clone(), one.reference.clone())).collect()
    };
    one.scoring == other.scoring && text(one) == text(other)
}

fn scores(sets: &[&SentenceSet], names: &[String]) -> Result<Vec<SystemScores>> {
    let scoring = sets[0].scoring;
    let bleu = test(&scoring.bleu(), sets)?;
    let chrf = test(&scoring.chrf(), sets)?;
    let mut systems = Vec::new();
    for (number, set) in sets.iter().enumerate() {
        let mut sentences = [0; 3];
        for (own, first) in set.sentences.iter().zip(&sets[0].sentences) {
            let difference = own.chrf - first.chrf;
            let place = if difference > EVEN {
                0
            } else if difference < -EVEN {
                1
            } else {
                2
            };
            sentences[place] += 1;
        }
        let (bleu, chrf) = (bleu[number], chrf[number]);
        systems.push(SystemScores { name: names[number].clone(), bleu, chrf, sentences });
    }
    Ok(systems)
}

/// Scores each set with `metric`, and tests its difference from the first set.
///
/// The p-value is computed as in sacreBLEU, with one exception: it is 1 if every sentence has the
/// same counts in a set as in the first set, because the scores are then equal. sacreBLEU would
/// give a p-value close to 0, because it counts resamples whose difference is *larger* than the
/// actual difference.
fn test(metric: &dyn Metric, sets: &[&SentenceSet]) -> Result<Vec<Tested>> {
    let counted: Vec<Statistics> =
        sets.iter().map(|set| set.statistics(metric)).collect::<Result<_>>()?;
    let counted: Vec<&Statistics> = counted.iter().collect();
    let mut tested = paired_bootstrap(metric, &counted, RESAMPLES, DEFAULT_SEED)?;
    for (tested, set) in tested.iter_mut().zip(&counted).skip(1) {
        if set.rows().eq(counted[0].rows()) {
            tested.p_value = Some(1.0);
        }
    }
    Ok(tested)
}

/// Returns the keys of the recipes whose values differ between the runs, with the value in each
/// run.
fn recipes(runs: &[RunData]) -> Result<Vec<(String, Vec<String>)>> {
    let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let show = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
    for (number, run) in runs.iter().enumerate().skip(1) {
        for one in every_difference(&runs[0].config, &run.config)? {
            let first = show(one.left);
            let row = keys.entry(one.key).or_insert_with(|| vec![first; runs.len()]);
            row[number] = show(one.right);
        }
    }
    Ok(keys.into_iter().map(|(key, values)| (key, short_values(&values))).collect())
}

/// Returns two table cells: the score with its confidence interval, and the p-value of its
/// difference from the first run.
fn cells(tested: &Tested) -> [String; 2] {
    let interval =
        tested.confidence.map_or_else(String::new, |one| format!(" ± {:.2}", one.half_width));
    let chance = tested.p_value.map_or_else(String::new, |chance| format!("{chance:.4}"));
    [format!("{:.2}{interval}", tested.score), chance]
}

impl Comparison<'_> {
    /// Returns a table row for each run on a split. The cells are: name, BLEU, p-value of BLEU,
    /// chrF2, p-value of chrF2, and the numbers of sentences that are won, lost and even.
    fn rows(scores: &[SystemScores]) -> Vec<Vec<String>> {
        let row = |(number, one): (usize, &SystemScores)| {
            let counts = one.sentences.map(|count| match number {
                0 => String::new(),
                _ => count.to_string(),
            });
            let mut row = vec![one.name.clone()];
            row.extend(cells(&one.bleu));
            row.extend(cells(&one.chrf));
            row.extend(counts);
            row
        };
        scores.iter().enumerate().map(row).collect()
    }

    /// Comparison as lines for a terminal.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (split, scores) in &self.splits {
            let head = ["run", "BLEU", "p", "chrF2", "p", "won", "lost", "even"];
            lines.push(format!(
                "{split}: beside {} (paired bootstrap, {RESAMPLES} resamples)",
                self.names[0]
            ));
            lines.extend(aligned(&head, &Self::rows(scores)));
            lines.push(String::new());
        }
        if !self.recipes.is_empty() {
            let head: Vec<&str> =
                std::iter::once("key").chain(self.names.iter().map(String::as_str)).collect();
            let rows: Vec<Vec<String>> = self.recipe_rows();
            lines.extend(aligned(&head, &rows));
        }
        lines.extend(self.missing.iter().map(|text| format!("not compared: {text}")));
        lines
    }

    fn recipe_rows(&self) -> Vec<Vec<String>> {
        let row = |(key, values): &(String, Vec<String>)| {
            std::iter::once(key).chain(values).cloned().collect()
        };
        self.recipes.iter().map(row).collect()
    }

    /// Returns all figures: training curves, and scores by the length of the source.
    ///
    /// # Errors
    /// When a score cannot be computed.
    pub fn figures(&self, language: Language) -> Result<Vec<NamedFigure>> {
        let mut figures = self.curves(language);
        for (split, _) in &self.splits {
            figures.push(self.by_length(split, language)?);
        }
        Ok(figures)
    }

    /// Returns a figure of the scores of all runs on a split, by the length of the source.
    fn by_length(&self, split: &str, language: Language) -> Result<NamedFigure> {
        let names = self.names.iter().map(String::as_str);
        let systems: Vec<(&str, &SentenceSet)> = names.zip(self.sets(split)).collect();
        systems_by_length(&systems, language)
    }

    /// Returns the sentences of a split for each run.
    fn sets(&self, split: &str) -> impl Iterator<Item = &SentenceSet> {
        self.runs.iter().filter_map(move |run| run.sets.iter().find(|one| one.split == split))
    }

    /// Returns figures of training curves; each figure has the curves of all runs.
    fn curves(&self, language: Language) -> Vec<NamedFigure> {
        let records: Vec<(&str, &Record)> = self
            .names
            .iter()
            .zip(self.runs)
            .map(|(name, run)| (name.as_str(), &run.record))
            .collect();
        curves(&records, language)
    }
}

/// Pads the cells of a table to columns of equal width. The first column is aligned to the left,
/// and the other columns are aligned to the right.
fn aligned(head: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.max().unwrap_or(0).max(head[column].chars().count())
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let cell = |(number, text): (usize, &str)| match number {
            0 => format!("{text:<0$}", widths[0]),
            _ => format!("{text:>0$}", widths[number]),
        };
        cells.into_iter().enumerate().map(cell).collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    std::iter::once(line(head.to_vec()))
        .chain(rows.iter().map(|row| line(row.iter().map(String::as_str).collect())))
        .collect()
}
