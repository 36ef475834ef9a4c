//! The report of a run: one HTML file.

mod html;
mod recipe;
pub(crate) mod sections;

use anyhow::{Context, Result};
use serde_json::json;
use taper_plots::{Language, Page};
use taper_run::attention::ATTENTION_SCRIPT;

use crate::curves::{curves, layer_figures};
use crate::run_data::chosen;
use crate::run_data::{RunData, test_set_figures};
use crate::translated;
use html::Section;
pub(crate) use html::{figures, note, table};

/// Style of the sentences.
pub(crate) const STYLE: &str = include_str!("sentences.css");
/// Script that sorts and filters sentences, shows them when they scroll into view, and compares
/// them word by word.
pub(crate) const SCRIPT: &str = include_str!("sentences.js");

/// Scores, figures and flaws of the test sets.
fn test_sets(run: &RunData, language: Language) -> Result<String> {
    let mut body = sections::scores(run, language);
    for set in &run.sets {
        body += &figures(&translated::figures(set, language)?)?;
        body += &sections::flaws(set, language);
    }
    for result in &run.scores {
        body += &figures(&test_set_figures(result, language))?;
    }
    Ok(body)
}

/// HTML page of a run.
///
/// # Errors
/// When a figure cannot be drawn, or a test set cannot be scored.
pub fn report(run: &RunData, language: Language) -> Result<String> {
    let say = |english: &'static str, chinese: &'static str| language.choose(english, chinese);
    let mut parts = vec![Section {
        id: "summary",
        title: say("Summary", "概要"),
        body: sections::summary(run, language),
    }];
    let mut of_training = curves(&[(&run.name, &run.record)], language);
    of_training.extend(layer_figures(&run.record, language));
    parts.push(Section {
        id: "curves",
        title: say("Training", "训练曲线"),
        body: figures(&of_training).context("the curves of training")?
            + &sections::skipped(run, language),
    });
    if let Some(data) = &run.data {
        let (title, body) = (say("Data", "数据"), sections::data(data, language));
        parts.push(Section { id: "data", title, body });
    }
    let (title, body) = (say("Recipe", "配方"), recipe::section(run, language)?);
    parts.push(Section { id: "recipe", title, body });
    if !run.scores.is_empty() {
        let body = test_sets(run, language)?;
        parts.push(Section { id: "test", title: say("Test sets", "测试集"), body });
    }
    let mut data = Vec::new();
    if !run.sets.is_empty() {
        let (title, body) = (say("Sentences", "句子"), sections::sentences(language, false));
        parts.push(Section { id: "sentences", title, body });
        let sets: Vec<_> = run.sets.iter().map(sections::sentence_rows).collect();
        data.push(("sentence-data".to_owned(), json!({ "sets": sets })));
    }
    if !run.chosen.is_empty() {
        let body = chosen::views(&run.chosen, language)?;
        parts.push(Section { id: "attention", title: say("Attention", "注意力"), body });
    }
    let (title, body) = (say("Commands", "命令"), sections::commands(run, language));
    parts.push(Section { id: "commands", title, body });
    if !run.missing.is_empty() {
        let body = run.missing.iter().map(|text| note(text)).collect();
        parts.push(Section { id: "missing", title: say("Not shown", "未显示"), body });
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
