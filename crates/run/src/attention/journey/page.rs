//! Web page with the journey of a text or image through a model: one diagram, which a script draws
//! from the values that the model computed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use taper_plots::{Language, Page};

use super::{HeadInputs, Journey, StackVectors};
use crate::attention::AttentionMap;
use crate::attention::view::parts;

/// Scripts of this page, in addition to the script that all pages of the program have.
const SCRIPTS: [&str; 8] = [
    include_str!("page/numbers.js"),
    include_str!("page/drawing.js"),
    include_str!("page/picture.js"),
    include_str!("page/vectors.js"),
    include_str!("page/attention.js"),
    include_str!("page/answers.js"),
    include_str!("page/inspector.js"),
    include_str!("page/journey.js"),
];
const STYLE: &str = include_str!("page/style.css");
/// Largest number of elements of a vector that the page shows as a strip of cells. Of a longer
/// vector, elements at equal intervals are shown.
const STRIP: usize = 64;
/// Largest number of tokens with which the page contains queries, keys and values. With more
/// tokens, these are left out, to keep the page small.
const MOST_TOKENS: usize = 96;

/// Page with the diagram of the journey.
#[must_use]
pub fn journey_page(journey: &Journey, language: Language) -> String {
    let title = match language {
        Language::English => format!("The journey of “{}”", journey.text),
        Language::Chinese => format!("“{}”的旅程", journey.text),
    };
    Page {
        language,
        title,
        body: "<div id=\"journey\"></div>".to_owned(),
        style: STYLE.to_owned(),
        script: SCRIPTS.concat(),
        data: vec![("journey-data".to_owned(), data(journey, language))],
        ..Page::default()
    }
    .html()
}

/// Data that the page's script draws, as JSON.
fn data(journey: &Journey, language: Language) -> Value {
    let tokens: usize = journey.vectors.iter().map(|stack| stack.tokens.len()).sum();
    let heads = if tokens <= MOST_TOKENS { &journey.heads[..] } else { &[] };
    let map = AttentionMap { layers: journey.attention.clone(), ..AttentionMap::default() };
    json!({
        "answer": journey.answer, "text": journey.text, "normalized": journey.normalized,
        "pieces": journey.pieces, "positions": journey.positions,
        "stacks": journey.vectors.iter().map(stack).collect::<Vec<_>>(),
        "attention": parts(&map, language),
        "heads": heads.iter().map(head).collect::<Vec<_>>(),
        "picture": journey.picture.as_ref().map(|picture| json!({
            "size": picture.size, "patch": picture.patch, "channels": picture.channels,
            "before": picture.before, "pixels": STANDARD.encode(&picture.pixels),
        })),
        "beam": journey.beam, "found": journey.found, "choices": journey.choices,
        "evidence": journey.evidence,
    })
}

/// Data of a stack (encoder or decoder): for each step, the norms of all vectors, and the elements
/// shown as strips.
fn stack(stack: &StackVectors) -> Value {
    let norm = |row: &[f32]| rounded(f64::from(row.iter().map(|x| x * x).sum::<f32>().sqrt()));
    let mut before: Option<&Vec<Vec<f32>>> = None;
    let steps = stack.steps.iter().map(|step| {
        // Distance between the state of each token at this step and its state at the step before.
        // The vectors of tokens and of positions are left out, because only their sum is a state.
        let is_state = !matches!(step.point, "token" | "position");
        let moved = before.filter(|_| is_state).map(|before| {
            let distance = |(before, after): (&Vec<f32>, &Vec<f32>)| {
                norm(
                    &after
                        .iter()
                        .zip(before)
                        .map(|(after, before)| after - before)
                        .collect::<Vec<_>>(),
                )
            };
            before.iter().zip(&step.rows).map(distance).collect::<Vec<_>>()
        });
        if is_state {
            before = Some(&step.rows);
        }
        let width = step.rows.first().map_or(0, Vec::len);
        let shown = width.min(STRIP);
        let strip = |row: &Vec<f32>| -> Vec<f32> {
            (0..shown).map(|cell| row[cell * width / shown]).collect()
        };
        json!({
            "layers": step.layers, "point": step.point, "width": width,
            "norms": step.rows.iter().map(|row| norm(row)).collect::<Vec<_>>(), "moved": moved,
            "strips": packed(step.rows.iter().map(strip)),
        })
    });
    json!({ "stack": stack.stack, "tokens": stack.tokens, "steps": steps.collect::<Vec<_>>() })
}

fn head(head: &HeadInputs) -> Value {
    json!({
        "part": head.part.name(), "layer": head.layer, "scale": head.scale, "width": head.width,
        "queries": packed(head.queries.iter().cloned()),
        "keys": packed(head.keys.iter().cloned()),
        "values": packed(head.values.iter().cloned()),
    })
}

/// Packs rows of numbers as JSON: 16-bit integers, little-endian, in base64, and the unit to
/// multiply the integers by.
fn packed(rows: impl Iterator<Item = Vec<f32>>) -> Value {
    let rows: Vec<Vec<f32>> = rows.collect();
    let peak = rows.iter().flatten().fold(0.0f32, |most, x| most.max(x.abs()));
    let unit = if peak > 0.0 { peak / f32::from(i16::MAX) } else { 1.0 };
    let bytes: Vec<u8> =
        rows.iter().flatten().flat_map(|x| ((x / unit).round() as i16).to_le_bytes()).collect();
    json!({ "rows": rows.len(), "unit": unit, "numbers": STANDARD.encode(bytes) })
}

/// Rounds a number to four significant digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}
