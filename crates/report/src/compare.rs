//! Comparison of runs: scores with significance, recipes, sentences won and lost.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use taper_metrics::resampling::{Comparison as Tested, DEFAULT_SEED, paired_bootstrap};
use taper_metrics::{Metric, Statistics};
use taper_plots::parts::{Section, figures, note, panel, parallel_coordinates, table};
use taper_plots::{Axis, Chart, Figure, Language, Page, Series, escape};
use taper_run::config::every_difference;

use crate::curves::curves;
use crate::figures::NamedFigure;
use crate::page::{SCRIPT, STYLE, plain, sections};
use crate::record::Record;
use crate::run_data::RunData;
use crate::sentences::{RESAMPLES, SentenceSet};
use crate::translated::systems_by_length;

/// p-value up to which a difference counts as significant.
const SIGNIFICANT: f64 = 0.05;
/// Largest number of runs of which every pair is tested.
const MOST_PAIRED: usize = 12;
/// Smallest difference in chrF2 by which a sentence counts as won or lost.
const EVEN: f64 = 1.0;

/// Scores of one run on a split, compared with the first run's.
#[derive(Debug, Clone, PartialEq)]
pub struct SystemScores {
    /// Name of the run.
    pub name: String,
    /// BLEU.
    pub bleu: Tested,
    /// chrF2.
    pub chrf: Tested,
    /// Sentences whose chrF2 is higher than, lower than, and within 1 of the first run's.
    pub sentences: [usize; 3],
}

/// Several runs compared with the first.
#[derive(Debug)]
pub struct Comparison<'a> {
    runs: &'a [RunData],
    names: Vec<String>,
    /// Scores of each run, for every split that all runs have translated.
    pub splits: Vec<(String, Vec<SystemScores>)>,
    /// Keys whose values differ between the runs, with the value in each run.
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
    if others.is_empty() {
        bail!("name two or more runs to compare");
    }
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

/// Names of runs, with their folders if two have the same name.
fn distinct_names(runs: &[RunData]) -> Vec<String> {
    let is_alone = |name: &str| runs.iter().filter(|run| run.name == name).count() == 1;
    let name = |run: &RunData| match is_alone(&run.name) {
        true => run.name.clone(),
        false => run.folder.root().display().to_string(),
    };
    runs.iter().map(name).collect()
}

/// Whether two sets have the same sentences and the same settings of scores.
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

/// Tests each set against the first.
fn test(metric: &dyn Metric, sets: &[&SentenceSet]) -> Result<Vec<Tested>> {
    let counted: Vec<Statistics> =
        sets.iter().map(|set| set.statistics(metric)).collect::<Result<_>>()?;
    let counted: Vec<&Statistics> = counted.iter().collect();
    Ok(paired_bootstrap(metric, &counted, RESAMPLES, DEFAULT_SEED)?)
}

/// Keys whose values differ between the runs.
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
    Ok(keys.into_iter().collect())
}

/// Cells for a score with its interval, and for the p-value of its difference.
fn cells(tested: &Tested) -> [String; 2] {
    let interval =
        tested.confidence.map_or_else(String::new, |one| format!(" ± {:.2}", one.half_width));
    let chance = tested.p_value.map_or_else(String::new, |chance| format!("{chance:.4}"));
    [format!("{:.2}{interval}", tested.score), chance]
}

impl Comparison<'_> {
    /// Rows of a split: name, BLEU, its p-value, chrF2, its p-value, won, lost, even.
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

    /// All figures: the curves of the runs, and their scores by the length of the source.
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

    /// Scores of all runs on a split, by the length of the source.
    fn by_length(&self, split: &str, language: Language) -> Result<NamedFigure> {
        let names = self.names.iter().map(String::as_str);
        let systems: Vec<(&str, &SentenceSet)> = names.zip(self.sets(split)).collect();
        systems_by_length(&systems, language)
    }

    /// Sentences of a split, for each run.
    fn sets(&self, split: &str) -> impl Iterator<Item = &SentenceSet> {
        self.runs.iter().filter_map(move |run| run.sets.iter().find(|one| one.split == split))
    }

    /// Curves of training, each figure with those of all runs.
    fn curves(&self, language: Language) -> Vec<NamedFigure> {
        let records: Vec<(&str, &Record)> = self
            .names
            .iter()
            .zip(self.runs)
            .map(|(name, run)| (name.as_str(), &run.record))
            .collect();
        curves(&records, language)
    }

    /// Minutes of training and the score of each run on a split.
    fn time_and_score(&self, split: &str, scores: &[SystemScores], language: Language) -> Figure {
        let say = |english, chinese| language.choose(english, chinese);
        let series = scores.iter().zip(self.runs).map(|(one, run)| {
            let minutes = run.record.logged.last().map_or(f64::NAN, |last| last.seconds / 60.0);
            Series::dots(&one.name, vec![(minutes, one.bleu.score)])
        });
        let series: Vec<Series> = series.collect();
        let described = series.iter().filter_map(|one| {
            let (minutes, bleu) = one.points.first()?;
            Some(format!("{}: {minutes:.1} min, BLEU {bleu:.2}", one.name))
        });
        let description = described.collect::<Vec<_>>().join("; ");
        let minutes = Axis::linear(say("minutes of training", "训练分钟数"));
        let chart = Chart::new(minutes, Axis::linear("BLEU"), series);
        Figure::new(format!("{}, {split}", say("Time and score", "时间与得分")), description, chart)
    }

    /// Table of the differences in BLEU between each two runs, with their p-values; empty for two
    /// runs, which the table of scores has, and for many.
    fn matrix(&self, split: &str, language: Language) -> Result<String> {
        if !(3..=MOST_PAIRED).contains(&self.runs.len()) {
            return Ok(String::new());
        }
        let sets: Vec<&SentenceSet> = self.sets(split).collect();
        let metric = sets[0].scoring.bleu();
        let mut html = format!(
            "<div class=\"wide\" tabindex=\"0\"><table><thead><tr><th scope=\"col\">{}</th>",
            language.choose("run", "运行")
        );
        for name in &self.names {
            html += &format!("<th scope=\"col\" class=\"number\">{}</th>", escape(name));
        }
        html += "</tr></thead><tbody>\n";
        // Columns are compared with the row that is tested first.
        for (row, name) in self.names.iter().enumerate() {
            let mut order = vec![sets[row]];
            order.extend(sets.iter().enumerate().filter(|(at, _)| *at != row).map(|(_, set)| *set));
            let tested = test(&metric, &order)?;
            html += &format!("<tr><th scope=\"row\">{}</th>", escape(name));
            for column in 0..sets.len() {
                if column == row {
                    html += "<td class=\"number muted\">–</td>";
                    continue;
                }
                let one = tested[if column < row { column + 1 } else { column }];
                let apart = tested[0].score - one.score;
                let chance = one.p_value.unwrap_or(1.0);
                let class = match (chance <= SIGNIFICANT, apart > 0.0) {
                    (false, _) => "",
                    (true, true) => " is-better",
                    (true, false) => " is-worse",
                };
                html += &format!(
                    "<td class=\"number{class}\">{apart:+.2} <span class=\"muted\">p {chance:.3}\
                     </span></td>"
                );
            }
            html += "</tr>\n";
        }
        html += "</tbody></table></div>\n";
        html += &note(language.choose(
            "BLEU of the row less that of the column; in colour where p ≤ 0.05.",
            "行的 BLEU 减去列的 BLEU；p ≤ 0.05 时着色。",
        ));
        Ok(panel(language.choose("Every pair", "两两比较"), &html))
    }

    /// What differs in the recipes and what came of it, as lines over axes; empty if nothing
    /// differs.
    fn coordinates(&self, language: Language) -> String {
        let mut axes = self.recipes.clone();
        if axes.is_empty() {
            return String::new();
        }
        // Axes of what a run has to itself say nothing.
        axes.retain(|(key, _)| key != "name");
        for (split, scores) in &self.splits {
            let values = scores.iter().map(|one| format!("{:.2}", one.bleu.score)).collect();
            axes.push((format!("BLEU {split}"), values));
        }
        let title = language.choose("Recipes and their scores", "配方与得分");
        parallel_coordinates(title, &self.names, &axes)
    }

    /// Scores of a split.
    fn split_section(
        &self,
        number: usize,
        (split, scores): &(String, Vec<SystemScores>),
        language: Language,
    ) -> Result<Section> {
        let say = |english: &'static str, chinese: &'static str| language.choose(english, chinese);
        let head = [
            say("run", "运行"),
            "BLEU",
            "p",
            "chrF2",
            "p",
            say("won", "胜"),
            say("lost", "负"),
            say("even", "平"),
        ];
        let words = note(say(
            "Won and lost: sentences whose chrF2 differs by more than 1 from the first run's. \
             p: how often a difference as large comes about by chance (paired bootstrap).",
            "胜负：句子的 chrF2 与第一个运行相差超过 1。p：偶然出现同样大差异的概率（配对自助法）。",
        ));
        let beside = match language {
            Language::English => format!("Beside {}", self.names[0]),
            Language::Chinese => format!("与 {} 相比", self.names[0]),
        };
        let mut body = panel(&beside, &(table(&head, &Self::rows(scores)) + &words));
        body += &self.matrix(split, language)?;
        let time = self.time_and_score(split, scores, language);
        let mut drawn = vec![self.by_length(split, language)?.figure];
        if time.draw().is_ok() {
            drawn.push(time);
        }
        body += &figures(&drawn)?;
        Ok(Section::new(format!("split-{number}"), split, body))
    }

    /// HTML page of the comparison.
    ///
    /// # Errors
    /// When a figure cannot be drawn.
    pub fn page(&self, language: Language) -> Result<String> {
        let say = |english: &'static str, chinese: &'static str| language.choose(english, chinese);
        let mut parts = Vec::new();
        for (number, split) in self.splits.iter().enumerate() {
            parts.push(self.split_section(number, split, language)?);
        }
        let mut body = figures(plain(&self.curves(language)))?;
        body += &self.missing.iter().map(|text| note(text)).collect::<String>();
        parts.push(Section::new("curves", say("Training", "训练曲线"), body));
        let head: Vec<&str> = std::iter::once(say("key", "键"))
            .chain(self.names.iter().map(String::as_str))
            .collect();
        let table = table(&head, &self.recipe_rows());
        let body = self.coordinates(language) + &panel(say("Keys", "键"), &table);
        parts.push(Section::new("recipes", say("What differs in the recipes", "配方差异"), body));
        let mut data = Vec::new();
        if !self.splits.is_empty() {
            let body = sections::sentences(language);
            parts.push(Section::new("sentences", say("Sentences", "句子"), body));
            let rows = |(split, _): &(String, _)| {
                let sets: Vec<&SentenceSet> = self.sets(split).collect();
                sections::sentence_rows(&sets, &self.names)
            };
            let sets: Vec<Value> = self.splits.iter().map(rows).collect();
            data.push(("sentence-data".to_owned(), json!({ "sets": sets })));
        }
        let script = if data.is_empty() { String::new() } else { SCRIPT.to_owned() };
        let title = format!("{} · Taper", self.names.join(" / "));
        let body = Section::all(&parts, language);
        Ok(Page { language, title, body, style: STYLE.to_owned(), script, data, ..Page::default() }
            .html())
    }
}

/// Aligns cells in columns: the first to the left, the others to the right.
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
