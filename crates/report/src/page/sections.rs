//! Contents of the sections of a report.

use serde_json::{Value, json};
use taper_plots::{Language, escape};
use taper_run::folder::{RunState, quoted};
use taper_trainer::ProcessTime;

use super::{note, table};
use crate::flaws::Flaw;
use crate::run_data::RunData;
use crate::sentences::SentenceSet;

/// Section on state, progress and best validation.
pub(super) fn summary(run: &RunData, language: Language) -> String {
    let say = |english: &str, chinese: &str| language.choose(english, chinese).to_owned();
    let summary = &run.summary;
    let state = match &summary.state {
        RunState::Training { process } => {
            format!("{} ({process})", say("training, process", "训练中，进程"))
        }
        RunState::Finished { .. } => say("finished", "已完成"),
        RunState::Interrupted => say("interrupted", "已中断"),
        RunState::Damaged { cause } => format!("{}: {cause}", say("damaged", "已损坏")),
    };
    let mut rows = vec![
        [say("folder", "文件夹"), run.folder.root().display().to_string()],
        [say("task", "任务"), run.config.task.to_string()],
        [say("state", "状态"), state],
        [say("updates", "更新次数"), summary.step.to_string()],
    ];
    if let Some(last) = run.record.logged.last() {
        let minutes = format!("{:.1}", last.seconds / 60.0);
        rows.push([say("minutes of training", "训练分钟数"), minutes]);
        rows.push([say("target tokens", "目标词元"), last.tokens.to_string()]);
    }
    let processes = run.record.processes();
    let percent = |one: &ProcessTime| format!("{:.0}%", 100.0 * one.waiting());
    if let Some((rank, slowest)) = ProcessTime::slowest(&processes) {
        let all = processes.iter().map(percent).collect::<Vec<_>>().join(", ");
        let text = match language {
            Language::English => format!(
                "{rank} on {}, which waits {} of the time (of each process: {all})",
                slowest.host,
                percent(slowest)
            ),
            Language::Chinese => format!(
                "{rank}（{}），等待时间占 {}（各进程：{all}）",
                slowest.host,
                percent(slowest)
            ),
        };
        rows.push([say("slowest process", "最慢的进程"), text]);
    }
    if let Some(best) = &summary.best {
        let text =
            format!("{} {:.4} ({} {})", best.metric, best.score, say("update", "更新"), best.step);
        rows.push([say("best validation", "最佳验证"), text]);
    }
    for test in &summary.tests {
        rows.push([format!("BLEU {}", test.split), format!("{:.2}", test.bleu)]);
    }
    let mut html = table(&[language.choose("what", "项目"), ""], &rows);
    if run.record.unreadable > 0 {
        html += &note(&format!(
            "{}: {}",
            say("lines of metrics.jsonl that are no records", "metrics.jsonl 中无法读取的行"),
            run.record.unreadable
        ));
    }
    html
}

/// Section on skipped updates.
pub(super) fn skipped(run: &RunData, language: Language) -> String {
    let Some((last, reason)) = run.record.skipped.last() else { return String::new() };
    let count = run.record.skipped.len();
    note(&match language {
        Language::English => {
            format!("{count} updates were skipped, the last after update {last}: {reason}")
        }
        Language::Chinese => {
            format!("跳过了 {count} 次更新，最后一次在第 {last} 次更新之后：{reason}")
        }
    })
}

/// Section with every number of the data report, by its path.
pub(super) fn data(data: &Value, language: Language) -> String {
    let mut rows = Vec::new();
    flatten("", data, &mut rows);
    let (shown, rest): (Vec<_>, Vec<_>) = rows
        .into_iter()
        .partition(|[path, _]| !path.contains("histogram") && !path.contains("hash"));
    let head = [language.choose("what", "项目"), language.choose("value", "数值")];
    format!(
        "{}<details><summary>{}</summary>{}</details>",
        table(&head, &shown),
        language.choose("Lengths and hashes", "长度分布与哈希"),
        table(&head, &rest),
    )
}

fn flatten(path: &str, value: &Value, rows: &mut Vec<[String; 2]>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| flatten(&below(key), value, rows)),
        Value::Array(values) => values
            .iter()
            .enumerate()
            .for_each(|(index, value)| flatten(&below(&index.to_string()), value, rows)),
        Value::Null => {}
        Value::String(text) => rows.push([path.to_owned(), text.clone()]),
        other => rows.push([path.to_owned(), other.to_string()]),
    }
}

/// Section with the scores of the test sets.
pub(super) fn scores(run: &RunData, language: Language) -> String {
    let mut html = String::new();
    for result in &run.scores {
        let mut rows = Vec::new();
        flatten("", result, &mut rows);
        rows.retain(|[path, _]| {
            !["confusion", "labels", "calibration."].iter().any(|table| path.starts_with(table))
        });
        html += &format!("<h3>{}</h3>\n", escape(result["split"].as_str().unwrap_or("test")));
        html += &table(&[language.choose("what", "项目"), language.choose("value", "数值")], &rows);
    }
    html
}

/// Table of the number of translations with each flaw.
pub(super) fn flaws(set: &SentenceSet, language: Language) -> String {
    let rows: Vec<[String; 2]> = set
        .flaws()
        .into_iter()
        .map(|(flaw, count)| {
            let (english, chinese) = flaw.names();
            [language.choose(english, chinese).to_owned(), count.to_string()]
        })
        .collect();
    let title = language.choose("Flaws that need no reader", "无需人读即可发现的错误");
    let head = [language.choose("flaw", "错误"), language.choose("sentences", "句数")];
    format!("<h3>{}: {title}</h3>\n{}", escape(&set.split), table(&head, &rows))
}

/// Element that the script fills with the sentences, with the script's labels in this language.
pub(crate) fn sentences(language: Language, compares: bool) -> String {
    let say = |english: &str, chinese: &str| language.choose(english, chinese).to_owned();
    let (worst, best) = match compares {
        false => (
            say("lowest chrF2 first", "chrF2 由低到高"),
            say("highest chrF2 first", "chrF2 由高到低"),
        ),
        true => (
            say("where the second run lost most", "第二个运行输得最多的在前"),
            say("where the second run won most", "第二个运行赢得最多的在前"),
        ),
    };
    let texts = json!({
        "set": say("test set", "测试集"), "order": say("order", "排序"),
        "find": say("find text", "查找文本"), "kind": say("flaw", "错误"), "any": say("any", "不限"),
        "count": say("sentences", "句"), "source": say("source", "原文"),
        "reference": say("reference", "参考译文"), "translation": say("translation", "译文"),
        "rarest": say("rarest word", "最罕见词"), "words": say("words", "词"),
        "orders": {
            "worst": worst,
            "best": best,
            "file": say("as in the file", "按文件顺序"),
            "long": say("longest first", "由长到短"),
            "rare": say("rarest word first", "最罕见词优先"),
        },
        "kinds": Flaw::ALL.map(|flaw| {
            let (english, chinese) = flaw.names();
            json!([flaw, say(english, chinese)])
        }),
    });
    format!(
        "<div id=\"sentence-list\" data-texts=\"{}\"></div><noscript>{}</noscript>",
        escape(&texts.to_string()),
        say("The sentences need JavaScript.", "句子列表需要 JavaScript。"),
    )
}

/// Sentences of a set for the script, as arrays without field names.
pub(super) fn sentence_rows(set: &SentenceSet) -> Value {
    let round = |score: f64| (score * 10.0).round() / 10.0;
    let row = |one: &crate::Sentence| {
        json!([
            one.line,
            one.source,
            one.reference,
            one.translation,
            round(one.chrf),
            round(one.bleu),
            one.length,
            one.rarest,
            one.flaw,
        ])
    };
    json!({ "split": set.split, "rows": set.sentences.iter().map(row).collect::<Vec<_>>() })
}

/// Section with the commands given to the run, and commands that use it.
pub(super) fn commands(run: &RunData, language: Language) -> String {
    let say = |english: &str, chinese: &str| language.choose(english, chinese).to_owned();
    let given: String = run
        .commands
        .iter()
        .map(|one| format!("# {}, {}\n{}\n", one.began(), one.folder, one.line()))
        .collect();
    let given = match given.is_empty() {
        true => note(&say(
            "This run was begun by a version that did not keep its commands.",
            "开始此运行的版本未保存命令。",
        )),
        false => format!("<pre tabindex=\"0\">{}</pre>", escape(&given)),
    };
    let folder = quoted(run.folder.root());
    let again = format!(
        "taper train {folder}/config.toml --run NEW\ntaper evaluate {folder}\n\
         taper report {folder}\n"
    );
    format!(
        "<h3>{}</h3>{given}<h3>{}</h3><pre tabindex=\"0\">{}</pre>",
        say("Given to this run", "本次运行的命令"),
        say("To do it again, to score it, to make this page", "重新训练、评分、生成本页"),
        escape(&again),
    )
}
