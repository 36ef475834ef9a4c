//! HTML page of a comparison. It has scores, tests of every pair of runs, curves of training,
//! recipes (settings of the trainings), and the translations of each sentence side by side.

use anyhow::Result;
use serde_json::{Value, json};
use taper_plots::parts::{Section, figures, note, panel, parallel_coordinates, table};
use taper_plots::{Axis, Chart, Figure, Language, Page, Series, escape};

use super::{Comparison, SystemScores, test};
use crate::page::{SCRIPT, STYLE, plain, sections};
use crate::sentences::SentenceSet;

/// p-value up to which a difference counts as significant.
const SIGNIFICANT: f64 = 0.05;
/// Largest number of runs for which every pair is tested.
const MOST_PAIRED: usize = 12;

impl Comparison<'_> {
    /// Makes a chart with a dot for each run: its minutes of training and its BLEU on a split.
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

    /// Makes a table of the differences in BLEU between every pair of runs, with p-values. Empty
    /// for two runs, because the table of scores already has their difference, and for more than
    /// [`MOST_PAIRED`] runs.
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
        // `test` compares all sets with the first one, so the set of this table row comes first.
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
            "BLEU of the row minus BLEU of the column; in colour if p ≤ 0.05.",
            "行的 BLEU 减去列的 BLEU；p ≤ 0.05 时着色。",
        ));
        Ok(panel(language.choose("Every pair", "两两比较"), &html))
    }

    /// Makes a chart of parallel coordinates. It has an axis for each key that differs between the
    /// recipes, an axis for each score, and a line for each run. Empty if the recipes differ in no
    /// key but the name.
    fn coordinates(&self, language: Language) -> String {
        let mut axes = self.recipes.clone();
        // Each run has its own name, so an axis of names would show nothing.
        axes.retain(|(key, _)| key != "name");
        if axes.is_empty() {
            return String::new();
        }
        for (split, scores) in &self.splits {
            let values = scores.iter().map(|one| format!("{:.2}", one.bleu.score)).collect();
            axes.push((format!("BLEU {split}"), values));
        }
        let title = language.choose("Recipes and their scores", "配方与得分");
        parallel_coordinates(title, &self.names, &axes)
    }

    /// Makes the section of a split, with its scores.
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
