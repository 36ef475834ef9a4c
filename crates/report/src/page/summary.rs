//! First section of a report: the most important numbers, and a description of the run.

use anyhow::Result;
use serde_json::Value;
use taper_plots::Language;
use taper_plots::escape;
use taper_plots::parts::{Change, Stat, note, stats};
use taper_run::folder::RunState;
use taper_run::numbers::{grouped, scaled};
use taper_run::tasks::outline;
use taper_trainer::ProcessTime;

use crate::paths::{short, short_in_words};
use crate::run_data::RunData;

/// A number of a test set: its name, its JSON pointer in `scores.json`, a factor by which it is
/// multiplied, its unit, and whether a higher number is better.
type Score = (&'static str, &'static str, f64, &'static str, bool);

/// Numbers of test sets that are shown as cards, the most important first.
const SCORES: [Score; 7] = [
    ("BLEU", "/bleu/score", 1.0, "", true),
    ("chrF2", "/chrf/score", 1.0, "", true),
    ("F1", "/all/f1", 1.0, "", true),
    ("accuracy", "/accuracy", 100.0, "%", true),
    ("exact match", "/exact_match", 100.0, "%", true),
    ("perplexity", "/perplexity", 1.0, "", false),
    ("loss", "/loss", 1.0, "", false),
];
/// Largest number of cards of one test set.
const MOST: usize = 2;

/// Section with the most important numbers.
pub(super) fn section(run: &RunData, language: Language) -> Result<String> {
    let mut cards = Vec::new();
    for result in &run.scores {
        cards.extend(of_test_set(run, result, language)?);
    }
    cards.extend(validation(run, language));
    cards.extend(training(run, language));
    cards.extend(size(run, language));
    Ok(facts(run, language) + &stats(&cards) + &remarks(run, language))
}

/// Formats a number with a suitable number of digits.
fn shown(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        10_000.0.. if value.is_finite() => {
            let sign = if value < 0.0 { "-" } else { "" };
            format!("{sign}{}", grouped(value.abs().round() as u64))
        }
        10.0.. => format!("{value:.2}"),
        0.001.. => format!("{value:.4}"),
        _ => format!("{value:.2e}"),
    }
}

/// Change of a number since the parent run, which gave this run its first weights; `None` if the
/// parent does not have the number.
fn change(
    run: &RunData,
    (now, before): (f64, Option<f64>),
    more_is_better: bool,
    language: Language,
) -> Option<Change> {
    let (before, parent) = (before?, run.parent.as_ref()?);
    let apart = now - before;
    let sign = if apart < 0.0 { "▼ −" } else { "▲ +" };
    let since = language.choose("since", "相较");
    Some(Change {
        text: format!("{sign}{} {since} {}", shown(apart.abs()), parent.name),
        is_better: (apart != 0.0).then_some((apart > 0.0) == more_is_better),
    })
}

fn of_test_set(run: &RunData, result: &Value, language: Language) -> Result<Vec<Stat>> {
    let split = result["split"].as_str().unwrap_or("test");
    let detail = match result["sentences"].as_u64() {
        Some(count) => {
            format!("{split} · {} {}", grouped(count), language.choose("sentences", "句"))
        }
        None => split.to_owned(),
    };
    let set = run.sets.iter().find(|set| set.split == split);
    let mut cards = Vec::new();
    for (name, pointer, factor, unit, more_is_better) in SCORES {
        let Some(value) = result.pointer(pointer).and_then(Value::as_f64) else { continue };
        let value = factor * value;
        let interval = match (set, name) {
            (Some(set), "BLEU") => Some(set.interval(&set.scoring.bleu())?),
            (Some(set), "chrF2") => Some(set.interval(&set.scoring.chrf())?),
            _ => None,
        };
        let unit = match interval {
            Some(half) => format!("± {half:.2}"),
            None => unit.to_owned(),
        };
        let before = run.parent.as_ref().and_then(|one| one.score(&result["split"], pointer));
        let before = before.map(|before| factor * before);
        let course = match name {
            "BLEU" => run.record.scores("bleu"),
            "chrF2" => run.record.scores("chrf"),
            _ => Vec::new(),
        };
        cards.push(Stat {
            name: name.to_owned(),
            value: shown(value),
            unit,
            detail: detail.clone(),
            change: change(run, (value, before), more_is_better, language),
            course: course.into_iter().map(|at| at.1).collect(),
        });
        if cards.len() == MOST {
            break;
        }
    }
    Ok(cards)
}

/// Card of the best validation.
fn validation(run: &RunData, language: Language) -> Option<Stat> {
    let best = run.summary.best.as_ref()?;
    let name = best.metric.name();
    let parent = run.parent.as_ref().and_then(|one| one.summary.best.as_ref());
    let before = parent.filter(|one| one.metric == best.metric).map(|one| one.score);
    let more_is_better = best.metric.higher_is_better();
    let title = language.choose("Best validation", "最佳验证");
    Some(Stat {
        name: format!("{title}: {name}"),
        value: shown(best.score),
        unit: String::new(),
        detail: format!("{} {}", language.choose("update", "更新"), grouped(best.step)),
        change: change(run, (best.score, before), more_is_better, language),
        course: run.record.scores(name).into_iter().map(|at| at.1).collect(),
    })
}

/// Cards of the time of training, the rate of training and the size of the training data.
fn training(run: &RunData, language: Language) -> Vec<Stat> {
    let say = |english: &str, chinese: &str| language.choose(english, chinese).to_owned();
    let summary = &run.summary;
    let updates = match summary.max_updates {
        Some(most) => format!("{} / {}", grouped(summary.step), grouped(most)),
        None => grouped(summary.step),
    };
    let mut cards = Vec::new();
    if let Some(last) = run.record.logged.last() {
        let (value, unit) = duration(last.seconds, language);
        cards.push(Stat {
            name: say("Time of training", "训练时间"),
            value,
            unit,
            detail: format!("{updates} {}", say("updates", "次更新")),
            ..Stat::default()
        });
        let rates: Vec<f64> =
            run.record.measured(|one| one.tokens_per_second).into_iter().map(|at| at.1).collect();
        if last.seconds > 0.0 && last.tokens > 0 {
            cards.push(Stat {
                name: say("Rate", "速度"),
                value: grouped((last.tokens as f64 / last.seconds).round() as u64),
                unit: say("tokens/s", "词元/秒"),
                detail: format!("{} {}", grouped(last.tokens), say("target tokens", "目标词元")),
                course: rates,
                ..Stat::default()
            });
        }
    }
    let split = |key: &str| run.data.as_ref()?.pointer(key)?.as_u64();
    if let Some(pairs) = split("/train/pairs_kept") {
        let tokens = split("/train/target/tokens").map(grouped).unwrap_or_default();
        cards.push(Stat {
            name: say("Training data", "训练数据"),
            value: grouped(pairs),
            unit: say("pairs", "句对"),
            detail: format!("{tokens} {}", say("target tokens", "目标词元")),
            ..Stat::default()
        });
    }
    cards
}

/// Card of the number of parameters. It is computed from the settings of the model and the size of
/// the vocabulary.
fn size(run: &RunData, language: Language) -> Option<Stat> {
    let count = |key: &str| run.data.as_ref()?[key].as_u64().map(|count| count as usize);
    let vocabularies = count("source_vocabulary").zip(count("target_vocabulary"))?;
    let parameters = outline(&run.config, vocabularies).ok()?.len() as u64;
    let model = &run.config.model;
    let (value, unit) = scaled(parameters).split_once(' ').map_or_else(
        || (parameters.to_string(), String::new()),
        |(value, unit)| (value.to_owned(), unit.to_owned()),
    );
    Some(Stat {
        name: language.choose("Parameters", "参数量").to_owned(),
        value,
        unit,
        detail: format!("{} · d_model {}", grouped(parameters), model.d_model),
        ..Stat::default()
    })
}

/// Formats a duration as a number and a unit. The second text also has the remainder in the next
/// smaller unit: 3 hours and 12 minutes are `3` and `h 12 min`.
fn duration(seconds: f64, language: Language) -> (String, String) {
    let (hour, minute) = (language.choose("h", "小时"), language.choose("min", "分"));
    let all = seconds.round().max(0.0) as u64;
    match all {
        0..60 => (all.to_string(), language.choose("s", "秒").to_owned()),
        60..3600 => (
            (all / 60).to_string(),
            format!("{minute} {} {}", all % 60, language.choose("s", "秒")),
        ),
        _ => (grouped(all / 3600), format!("{hour} {} {minute}", all % 3600 / 60)),
    }
}

/// Line that describes the run: state, task, folder, time of the first command, and parent.
fn facts(run: &RunData, language: Language) -> String {
    let say = |english: &str, chinese: &str| language.choose(english, chinese).to_owned();
    let state = match &run.summary.state {
        RunState::Training { process } => {
            format!("{} ({process})", say("training, process", "训练中，进程"))
        }
        RunState::Finished { .. } => say("finished", "已完成"),
        RunState::Interrupted => say("interrupted", "已中断"),
        RunState::Damaged { cause } => {
            format!("{}: {}", say("damaged", "已损坏"), short_in_words(cause))
        }
    };
    let mut facts = vec![
        format!("<span class=\"badge\">{}</span>", escape(&state)),
        format!("<span>{}</span>", escape(&run.config.task.to_string())),
        format!("<code>{}</code>", escape(&short(run.folder.root(), 1))),
    ];
    if let Some(command) = run.commands.first() {
        facts.push(format!("<time>{}</time>", escape(&command.began())));
    }
    if let Some(parent) = &run.parent {
        let begun = say("begun with the weights of", "起始权重来自");
        facts.push(format!("<span>{begun} {}</span>", escape(&parent.name)));
    }
    format!("<p class=\"facts\">{}</p>\n", facts.join("\n"))
}

/// Remarks on processes and on invalid lines of the record.
fn remarks(run: &RunData, language: Language) -> String {
    let mut html = String::new();
    let processes = run.record.processes();
    let percent = |one: &ProcessTime| format!("{:.0}%", 100.0 * one.waiting());
    if let Some((rank, slowest)) = ProcessTime::slowest(&processes) {
        let all = processes.iter().map(percent).collect::<Vec<_>>().join(", ");
        html += &note(&match language {
            Language::English => format!(
                "Slowest process: {rank} on {}, which waits {} of the time (of each: {all})",
                slowest.host,
                percent(slowest)
            ),
            Language::Chinese => format!(
                "最慢的进程：{rank}（{}），等待时间占 {}（各进程：{all}）",
                slowest.host,
                percent(slowest)
            ),
        });
    }
    if run.record.unreadable > 0 {
        html += &note(&format!(
            "{}: {}",
            language.choose("Invalid lines of metrics.jsonl", "metrics.jsonl 中无法读取的行"),
            run.record.unreadable
        ));
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_sign() {
        let numbers = [-12_345.4, 12_345.4, -20.0, 0.0, f64::INFINITY];
        assert_eq!(numbers.map(shown), ["-12,345", "12,345", "-20.00", "0", "inf"]);
    }
}
