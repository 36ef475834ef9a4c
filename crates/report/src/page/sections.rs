//! Contents of the sections of a report.

use std::path::Path;

use serde_json::{Value, json};
use taper_plots::parts::{note, panel, panels, table};
use taper_plots::{Language, escape};
use taper_run::folder::Command;
use taper_run::numbers::grouped;

use crate::flaws::Flaw;
use crate::paths::{short, short_argument};
use crate::run_data::RunData;
use crate::sentences::SentenceSet;

/// Remark on skipped updates; empty if there are none.
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

/// Section with all numbers of the data report `data.json`, under their paths in the file. The
/// numbers of all splits (training, validation and test text) are in one table, with a column for
/// each split.
pub(super) fn data(data: &Value, language: Language) -> String {
    let mut rows = Vec::new();
    flatten("", data, &mut rows);
    let (shown, rest): (Vec<_>, Vec<_>) = rows
        .into_iter()
        .partition(|[path, _]| !path.contains("histogram") && !path.contains("hash"));
    let head = quantities(language);
    let part = |path: &str| path.split_once('.').map_or("", |(part, _)| part).to_owned();
    let mut parts: Vec<(String, Vec<[String; 2]>)> = Vec::new();
    for [path, value] in shown {
        let name = part(&path);
        let rest = path.strip_prefix(&format!("{name}.")).unwrap_or(&path).to_owned();
        match parts.iter_mut().find(|one| one.0 == name) {
            Some((_, rows)) => rows.push([rest, value]),
            None => parts.push((name, vec![[rest, value]])),
        }
    }
    let (whole, splits): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| part.0.is_empty());
    let mut shown: Vec<String> = whole
        .iter()
        .map(|(_, rows)| panel(language.choose("vocabulary", "词表"), &table(&head, rows)))
        .collect();
    shown.extend(split_table(&splits, language));
    format!(
        "{}<details><summary>{}</summary>{}</details>",
        shown.concat(),
        language.choose("Lengths and hashes", "长度分布与哈希"),
        table(&head, &rest),
    )
}

/// Panel with the numbers of each split side by side; `None` without splits.
fn split_table(splits: &[(String, Vec<[String; 2]>)], language: Language) -> Option<String> {
    let mut paths: Vec<&str> = Vec::new();
    for [path, _] in splits.iter().flat_map(|split| &split.1) {
        // The name of a split is the heading of its column.
        if path != "split" && !paths.contains(&path.as_str()) {
            paths.push(path);
        }
    }
    let mut head = vec![language.choose("quantity", "项目")];
    head.extend(splits.iter().map(|split| split.0.as_str()));
    let row = |path: &&str| -> Vec<String> {
        let value = |split: &(String, Vec<[String; 2]>)| {
            let found = split.1.iter().find(|row| row[0] == *path);
            found.map_or_else(|| "–".to_owned(), |row| row[1].clone())
        };
        std::iter::once((*path).to_owned()).chain(splits.iter().map(value)).collect()
    };
    let rows: Vec<Vec<String>> = paths.iter().map(row).collect();
    let title = language.choose("Splits", "各划分");
    (!splits.is_empty()).then(|| panel(title, &table(&head, &rows)))
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
        Value::Number(number) => rows.push([path.to_owned(), shown(number)]),
        other => rows.push([path.to_owned(), other.to_string()]),
    }
}

/// Formats a number: an integer with separators, any other number with six digits.
fn shown(number: &serde_json::Number) -> String {
    match (number.as_u64(), number.as_f64()) {
        (Some(count), _) => grouped(count),
        (_, Some(value)) => format!("{value:.5e}").parse::<f64>().unwrap_or(value).to_string(),
        _ => number.to_string(),
    }
}

/// Headings of a table of names and values.
fn quantities(language: Language) -> [&'static str; 2] {
    [language.choose("quantity", "项目"), language.choose("value", "数值")]
}

/// Panels with scores, one for each test set. A panel has the metrics, other numbers, and the
/// quantities from which the metrics were computed.
pub(super) fn scores(run: &RunData, language: Language) -> Vec<String> {
    let head = [language.choose("metric", "指标"), language.choose("score", "得分")];
    let of_one = |result: &Value| {
        let metrics = result.as_object().into_iter().flatten();
        let metrics: Vec<(&String, f64)> =
            metrics.filter_map(|(key, metric)| Some((key, metric["score"].as_f64()?))).collect();
        let mut rows = Vec::new();
        flatten("", result, &mut rows);
        rows.retain(|[path, _]| {
            path != "split"
                && !["confusion", "labels", "calibration."].iter().any(|own| path.starts_with(own))
        });
        let of_metrics = |[path, _]: &[String; 2]| {
            let key = path.split('.').next();
            metrics.iter().any(|(own, _)| Some(own.as_str()) == key)
        };
        let (parts, others): (Vec<_>, Vec<_>) = rows.into_iter().partition(of_metrics);
        let mut body = String::new();
        if !metrics.is_empty() {
            let named = |&(key, score): &(&String, f64)| {
                let name = result[key]["name"].as_str();
                [name.map_or_else(|| key.to_uppercase(), str::to_owned), format!("{score:.2}")]
            };
            body += &table(&head, &metrics.iter().map(named).collect::<Vec<_>>());
        }
        body += &table(&quantities(language), &others);
        if !parts.is_empty() {
            let summary =
                language.choose("Signatures and parts of the metrics", "指标的签名与组成");
            let parts = table(&quantities(language), &parts);
            body += &format!("<details><summary>{summary}</summary>{parts}</details>");
        }
        panel(result["split"].as_str().unwrap_or("test"), &body)
    };
    run.scores.iter().map(of_one).collect()
}

/// Panel with the scores of each direction (pair of source and target language); `None` if no score
/// names a direction.
pub(super) fn directions(run: &RunData, language: Language) -> Option<String> {
    let head = [
        language.choose("direction", "方向"),
        language.choose("test set", "测试集"),
        language.choose("sentences", "句数"),
        "BLEU",
        "chrF2",
        "chrF2++",
    ];
    let trained = run.config.data.trained_directions();
    let row = |result: &Value| {
        let direction = result["direction"].as_str()?;
        let is_trained = trained.iter().any(|one| one.to_string() == direction);
        let zero_shot =
            if is_trained { "" } else { language.choose(" (zero-shot)", "（零样本）") };
        let score = |name: &str| {
            result[name]["score"].as_f64().map_or_else(|| "–".to_owned(), |one| format!("{one:.2}"))
        };
        let split = result["split"].as_str().unwrap_or("test").to_owned();
        let sentences = result["sentences"].as_u64().map_or_else(|| "–".to_owned(), grouped);
        let scores = ["bleu", "chrf", "chrf_plus_plus"].map(score);
        Some([vec![format!("{direction}{zero_shot}"), split, sentences], scores.to_vec()].concat())
    };
    let rows: Vec<Vec<String>> = run.scores.iter().filter_map(row).collect();
    let title = language.choose("Directions", "各方向");
    (!rows.is_empty()).then(|| panel(title, &table(&head, &rows)))
}

/// Panels with the scores of hostile variants: copies of a test set in which the source text is
/// damaged or unusual. There is one panel for each test set whose variants were scored.
pub(super) fn hostile(run: &RunData, language: Language) -> Vec<String> {
    let head = [
        language.choose("variant", "变体"),
        language.choose("lines", "行数"),
        "BLEU",
        language.choose("clean", "原样"),
        "%",
        "chrF2",
        language.choose("clean", "原样"),
        "%",
    ];
    let number = |value: &Value, digits: usize| {
        value.as_f64().map_or_else(|| "–".to_owned(), |one| format!("{one:.digits$}"))
    };
    let row = |variant: &Value| -> Vec<String> {
        let name = variant["variant"].as_str().unwrap_or_default().to_owned();
        let lines = variant["lines"].as_u64().map_or_else(|| "–".to_owned(), grouped);
        let scores = ["bleu", "chrf"].into_iter().flat_map(|metric| {
            let of = &variant[metric];
            [number(&of["score"], 2), number(&of["clean"], 2), number(&of["share"], 1)]
        });
        [name, lines].into_iter().chain(scores).collect()
    };
    let of_set = |set: &Value| {
        let rows: Vec<Vec<String>> =
            set["variants"].as_array().into_iter().flatten().map(row).collect();
        let title = language.choose("made hostile", "恶劣变体");
        let split = set["split"].as_str().unwrap_or("test");
        panel(&format!("{split}: {title}"), &table(&head, &rows))
    };
    run.hostile.iter().map(of_set).collect()
}

/// Panel with the number of translations that have each flaw.
pub(super) fn flaws(set: &SentenceSet, language: Language) -> String {
    let rows: Vec<[String; 2]> = set
        .flaws()
        .into_iter()
        .map(|(flaw, count)| {
            let (english, chinese) = flaw.names();
            [language.choose(english, chinese).to_owned(), grouped(count as u64)]
        })
        .collect();
    let title = language.choose("Flaws that need no reader", "无需人读即可发现的错误");
    let head = [language.choose("flaw", "错误"), language.choose("sentences", "句数")];
    panel(&format!("{}: {title}", set.split), &table(&head, &rows))
}

/// HTML element that the script of the page fills with the sentences. An attribute has the names of
/// the flaws in `language`.
pub(crate) fn sentences(language: Language) -> String {
    let kinds = Flaw::ALL.map(|flaw| {
        let (english, chinese) = flaw.names();
        json!([flaw, language.choose(english, chinese)])
    });
    format!(
        "<div id=\"sentence-list\" data-flaws=\"{}\"></div><noscript>{}</noscript>",
        escape(&json!(kinds).to_string()),
        language.choose("The sentences need JavaScript.", "句子列表需要 JavaScript。"),
    )
}

/// Returns the sentences of a test set for the script of the page, as arrays without field names.
/// Each of `sets` has the translations by one system. `systems` has the names of the systems; it is
/// empty for a single system.
pub(crate) fn sentence_rows(sets: &[&SentenceSet], systems: &[String]) -> Value {
    let round = |score: f64| (score * 10.0).round() / 10.0;
    let row = |index: usize| {
        let of_each: Vec<&crate::Sentence> = sets.iter().map(|set| &set.sentences[index]).collect();
        let one = of_each[0];
        let mut row = json!([
            one.line,
            one.source,
            one.reference,
            of_each.iter().map(|one| one.translation.as_str()).collect::<Vec<_>>(),
            of_each.iter().map(|one| round(one.chrf)).collect::<Vec<_>>(),
            of_each.iter().map(|one| round(one.bleu)).collect::<Vec<_>>(),
            one.length,
            one.rarest,
            of_each.iter().map(|one| one.flaw).collect::<Vec<_>>(),
        ]);
        let links: Vec<Vec<usize>> = of_each.iter().map(|one| flat_links(one)).collect();
        if let Some(row) = row.as_array_mut().filter(|_| links.iter().any(|one| !one.is_empty())) {
            row.push(json!(links));
        }
        row
    };
    let rows: Vec<Value> = (0..sets[0].sentences.len()).map(row).collect();
    json!({ "split": sets[0].split, "systems": systems, "rows": rows })
}

/// Returns the links of a sentence for the script of the page. A link joins a part of the source
/// with a part of the translation. It is four numbers: start and end in the source, start and end
/// in the translation, in UTF-16 code units. If adjacent parts of the translation are linked with
/// the same part of the source, they become one part.
fn flat_links(sentence: &crate::Sentence) -> Vec<usize> {
    let units = |text: &str| -> Vec<usize> {
        let mut units = vec![0];
        units.extend(text.chars().scan(0, |before, character| {
            *before += character.len_utf16();
            Some(*before)
        }));
        units
    };
    let (source, target) = (units(&sentence.source), units(&sentence.translation));
    let mut joined: Vec<[usize; 4]> = Vec::new();
    for &[from, to, start, end] in &sentence.links {
        match joined.last_mut() {
            Some(last) if last[..2] == [from, to] && last[3] == start => last[3] = end,
            _ => joined.push([from, to, start, end]),
        }
    }
    let in_units =
        |[from, to, start, end]: [usize; 4]| [source[from], source[to], target[start], target[end]];
    joined.into_iter().flat_map(in_units).collect()
}

/// Section with the commands that were given for this run, and commands that repeat its training.
pub(super) fn commands(run: &RunData, language: Language) -> String {
    let say = |english: &str, chinese: &str| language.choose(english, chinese).to_owned();
    let given: String = run
        .commands
        .iter()
        .map(|one| {
            let folder = Path::new(&one.folder);
            let arguments = one.arguments.iter().map(|text| short_argument(text, folder)).collect();
            let shown = Command { arguments, ..one.clone() };
            format!("# {}, {}\n{}\n", one.began(), short(folder, 1), shown.line())
        })
        .collect();
    let given = match given.is_empty() {
        true => note(&say(
            "This run was begun by a version that did not keep its commands.",
            "开始此运行的版本未保存命令。",
        )),
        false => format!("<pre tabindex=\"0\">{}</pre>", escape(&given)),
    };
    let mut all = vec![panel(&say("Given to this run", "本次运行的命令"), &given)];
    if !run.again.is_empty() {
        let again = format!("<pre tabindex=\"0\">{}</pre>", escape(&run.again));
        let title =
            say("To do it again, to score it, to make this page", "重新训练、评分、生成本页");
        all.push(panel(&title, &again));
    }
    panels(&all)
}
