//! Formats results as text or as sacreBLEU's JSON.

use anyhow::Result;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::ser::PrettyFormatter;
use taper_metrics::resampling::Comparison;
use taper_metrics::{Score, Signature};

use super::Style;
use super::table::Table;
use crate::arguments::OutputFormat;

/// Largest p-value that counts as significant.
const SIGNIFICANT: f64 = 0.05;

/// One metric's results for several systems.
#[derive(Debug)]
pub(super) struct SystemReport {
    /// The metric's name.
    pub(super) metric: String,
    /// A result for each system.
    pub(super) results: Report,
    /// Signature of the metric: its settings and version in the form that sacreBLEU prints.
    pub(super) signature: Signature,
}

/// Results of each system under one metric.
#[derive(Debug)]
pub(super) enum Report {
    /// Scores as text.
    Scores(Vec<String>),
    /// The outcome of a paired test.
    Compared(Vec<Comparison>),
}

/// Formats the scores of one system: a line for each metric, or JSON.
pub(super) fn one_system(scores: &[Score], style: Style) -> Result<String> {
    let json = style.format == OutputFormat::Json;
    let mut reports = Vec::with_capacity(scores.len());
    for score in scores {
        reports.push(if style.score_only {
            score.number(style.decimals)
        } else if json {
            to_json(&ScoreRecord::new(score, style.decimals), b" ")?
        } else {
            score.line(style.decimals, style.short)
        });
    }
    Ok(match &reports[..] {
        [report] => report.clone(),
        _ if json => format!("[\n{}\n]", reports.join(",\n")),
        _ => aligned(&reports),
    })
}

/// Aligns lines at their equals signs.
fn aligned(lines: &[String]) -> String {
    let places: Option<Vec<usize>> =
        lines.iter().map(|line| line.chars().position(|character| character == '=')).collect();
    let Some(places) = places else { return lines.join("\n") };
    let furthest = places.iter().copied().max().unwrap_or(0);
    let moved: Vec<String> = lines
        .iter()
        .zip(&places)
        .map(|(line, place)| " ".repeat(furthest - place) + line)
        .collect();
    moved.join("\n")
}

/// Formats the results of several systems: a table with signatures below, or JSON.
pub(super) fn several_systems(
    names: &[&str],
    reports: &[SystemReport],
    style: Style,
) -> Result<String> {
    if style.format == OutputFormat::Json {
        let record = |(index, &system)| SystemRecord {
            system,
            results: Object(
                reports
                    .iter()
                    .map(|report| (report.metric.as_str(), report.results.record(index)))
                    .collect(),
            ),
        };
        return to_json(&names.iter().enumerate().map(record).collect::<Vec<_>>(), b"    ");
    }
    let latex = style.format == OutputFormat::Latex;
    let mut table = Table::default();
    table.push("System", names.iter().map(|&name| name.to_owned()).collect());
    for report in reports {
        let heading = match &report.results {
            Report::Compared(results)
                if results.iter().any(|result| result.confidence.is_some()) =>
            {
                format!("{} (μ ± 95% CI)", report.metric)
            }
            _ => report.metric.clone(),
        };
        table.push(&heading, report.results.cells(style.decimals, if latex { " " } else { "\n" }));
    }
    let mut text = if latex { table.latex() } else { table.grid() };
    if reports.iter().any(|report| matches!(report.results, Report::Compared(_))) {
        text.push_str(
            "\n\np is the probability of a difference from the baseline at least this large\n",
        );
        text.push_str("if chance alone made it; * marks p ≤ 0.05. It says that systems differ, not which is better.");
    }
    text.push_str("\n\nSignatures");
    for report in reports {
        let signature = if style.short {
            format!("{:#}", report.signature)
        } else {
            report.signature.to_string()
        };
        text.push_str(&format!("\n - {:<10} {signature}", report.metric));
    }
    Ok(text)
}

impl Report {
    /// Returns the result of the system with the index `index`, for JSON.
    fn record(&self, index: usize) -> ResultRecord<'_> {
        match self {
            Self::Scores(scores) => ResultRecord::Score(&scores[index]),
            Self::Compared(results) => {
                let Comparison { score, p_value, confidence } = results[index];
                ResultRecord::Comparison {
                    score,
                    p_value,
                    mean: confidence.map(|confidence| confidence.mean),
                    ci: confidence.map(|confidence| confidence.half_width),
                }
            }
        }
    }

    /// Formats the results as cells of a table.
    fn cells(&self, decimals: usize, separator: &str) -> Vec<String> {
        let results = match self {
            Self::Scores(scores) => return scores.clone(),
            Self::Compared(results) => results,
        };
        let cell = |result: &Comparison| {
            let mut cell = format!("{:.decimals$}", result.score);
            if let Some(confidence) = result.confidence {
                cell.push_str(&format!(
                    " ({:.decimals$} ± {:.decimals$})",
                    confidence.mean, confidence.half_width
                ));
            }
            if let Some(p_value) = result.p_value {
                let mark = if p_value <= SIGNIFICANT { "*" } else { "" };
                cell.push_str(&format!("{separator}(p = {p_value:.4}){mark}"));
            }
            cell
        };
        results.iter().map(cell).collect()
    }
}

/// A score in sacreBLEU's JSON. Numbers have the digits that are printed as text, and the signature
/// is also given field by field.
#[derive(serde::Serialize)]
struct ScoreRecord<'a> {
    name: &'a str,
    score: f64,
    signature: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    confidence_mean: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    confidence_var: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    confidence: Option<String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    verbose_score: &'a str,
    #[serde(flatten)]
    fields: Object<'a, &'a str>,
}

impl<'a> ScoreRecord<'a> {
    fn new(score: &'a Score, decimals: usize) -> Self {
        let confidence = score.shown_confidence();
        Self {
            name: &score.name,
            score: rounded(score.value, decimals),
            signature: score.signature.to_string(),
            confidence_mean: confidence.map(|confidence| rounded(confidence.mean, decimals)),
            confidence_var: confidence.map(|confidence| rounded(confidence.half_width, decimals)),
            confidence: confidence.map(|confidence| confidence.text(decimals)),
            verbose_score: &score.details,
            fields: Object(
                score
                    .signature
                    .fields()
                    .iter()
                    .map(|field| (field.name, field.value.as_str()))
                    .collect(),
            ),
        }
    }
}

/// A system's results in sacreBLEU's JSON.
#[derive(serde::Serialize)]
struct SystemRecord<'a> {
    system: &'a str,
    #[serde(flatten)]
    results: Object<'a, ResultRecord<'a>>,
}

/// One result: the printed score, or all numbers of a paired test.
#[derive(serde::Serialize)]
#[serde(untagged)]
enum ResultRecord<'a> {
    Score(&'a str),
    Comparison { score: f64, p_value: Option<f64>, mean: Option<f64>, ci: Option<f64> },
}

/// A JSON object whose keys keep their order.
struct Object<'a, V>(Vec<(&'a str, V)>);

impl<V: Serialize> Serialize for Object<'_, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// Rounds a number to the number of printed decimals.
fn rounded(value: f64, decimals: usize) -> f64 {
    format!("{value:.decimals$}").parse().unwrap_or(value)
}

/// Formats a value as JSON, with `indent` for each level of indentation.
fn to_json(value: &impl Serialize, indent: &[u8]) -> Result<String> {
    let mut bytes = Vec::new();
    value.serialize(&mut serde_json::Serializer::with_formatter(
        &mut bytes,
        PrettyFormatter::with_indent(indent),
    ))?;
    Ok(String::from_utf8(bytes)?)
}
