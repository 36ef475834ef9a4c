//! The report of a run (a training with its files): one HTML file.

mod recipe;
pub(crate) mod sections;
mod summary;

use anyhow::{Context, Result};
use serde_json::json;
use taper_plots::parts::{Section, figures, note, panels, small_multiples};
use taper_plots::{Figure, Language, Page};
use taper_run::attention::ATTENTION_SCRIPT;

use crate::curves::{curves, layer_charts, layer_figures};
use crate::figures::NamedFigure;
use crate::paths::short_in_words;
use crate::ridges::spread_figures;
use crate::run_data::chosen;
use crate::run_data::{RunData, test_set_figures};
use crate::translated;

/// Style sheet of the list of sentences.
pub(crate) const STYLE: &str = include_str!("sentences.css");
/// Script that sorts and filters sentences, shows them when they scroll into view, compares them
/// word by word, and shows which words are aligned.
pub(crate) const SCRIPT: &str = concat!(include_str!("words.js"), include_str!("sentences.js"));

/// Figures without their file names.
pub(crate) fn plain(figures: &[NamedFigure]) -> impl Iterator<Item = &Figure> {
    figures.iter().map(|one| &one.figure)
}

/// Figures and tables of training: curves, and layers if they were recorded.
fn training(run: &RunData, language: Language) -> Result<String> {
    let mut html = figures(plain(&curves(&[(&run.name, &run.record)], language)))?;
    html += &sections::skipped(run, language);
    let layers = layer_charts(&run.record, language);
    if !layers.is_empty() {
        let title = language.choose("Layers", "各层");
        html += &format!("<h3>{title}</h3>\n{}", small_multiples(&layers)?);
        let mut of_layers = spread_figures(&run.record, language);
        of_layers.extend(layer_figures(&run.record, language));
        html += &figures(plain(&of_layers))?;
    }
    Ok(html)
}

/// Figures of the test sets, tables of scores, and tables of flaws in the translations.
fn test_sets(run: &RunData, language: Language) -> Result<String> {
    let mut of_sets = Vec::new();
    for set in &run.sets {
        of_sets.extend(translated::figures(set, language)?);
    }
    for result in &run.scores {
        of_sets.extend(test_set_figures(result, language));
    }
    let mut tables: Vec<String> = sections::directions(run, language).into_iter().collect();
    tables.extend(sections::scores(run, language));
    tables.extend(sections::hostile(run, language));
    tables.extend(run.sets.iter().map(|set| sections::flaws(set, language)));
    Ok(figures(plain(&of_sets))? + &panels(&tables))
}

/// Returns the report of a run as an HTML page.
///
/// # Errors
/// When a figure cannot be drawn, or a test set cannot be scored.
pub fn report(run: &RunData, language: Language) -> Result<String> {
    let say = |english: &'static str, chinese: &'static str| language.choose(english, chinese);
    let mut parts = vec![Section::new(
        "summary",
        say("Summary", "概要"),
        summary::section(run, language).context("the scores of the test sets")?,
    )];
    let body = training(run, language).context("the curves of training")?;
    parts.push(Section::new("curves", say("Training", "训练曲线"), body));
    if !run.scores.is_empty() || !run.hostile.is_empty() {
        let body = test_sets(run, language)?;
        parts.push(Section::new("test", say("Test sets", "测试集"), body));
    }
    let mut data = Vec::new();
    if !run.sets.is_empty() {
        let body = sections::sentences(language);
        parts.push(Section::new("sentences", say("Sentences", "句子"), body));
        let sets: Vec<_> =
            run.sets.iter().map(|set| sections::sentence_rows(&[set], &[])).collect();
        data.push(("sentence-data".to_owned(), json!({ "sets": sets })));
    }
    if !run.chosen.is_empty() {
        let body = chosen::views(&run.chosen, language);
        parts.push(Section::new("attention", say("Attention", "注意力"), body));
    }
    parts.push(Section::new("recipe", say("Recipe", "配方"), recipe::section(run, language)?));
    if let Some(data) = &run.data {
        let body = sections::data(data, language);
        parts.push(Section::new("data", say("Data", "数据"), body));
    }
    let body = sections::commands(run, language);
    parts.push(Section::new("commands", say("Commands", "命令"), body));
    if !run.missing.is_empty() {
        let body = run.missing.iter().map(|text| note(&short_in_words(text))).collect();
        parts.push(Section::new("missing", say("Not shown", "未显示"), body));
    }
    let mut script = String::new();
    if !run.sets.is_empty() {
        script += SCRIPT;
    }
    if !run.chosen.is_empty() {
        script += ATTENTION_SCRIPT;
    }
    let page = Page {
        language,
        title: format!("{} · Taper", run.name),
        body: Section::all(&parts, language),
        style: STYLE.to_owned(),
        script,
        data,
        ..Page::default()
    };
    Ok(page.html())
}
