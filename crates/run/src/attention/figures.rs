//! Attention as figures, and as a page on which every layer and head can be chosen.

use serde_json::json;
use taper_plots::{Figure, Heatmap, Language, Page, PlotError, escape};

use super::{AttentionLayer, AttentionMap, Weights};

/// Weights below this are left out of pages, where nobody would see them: those of a page grow with
/// layers, heads and the square of the text.
const SEEN: f32 = 0.005;

/// What the page does beside what every page does.
const SCRIPT: &str = include_str!("page.js");

/// The weights of a head, counted from 1, or the mean over all, as a heatmap.
#[must_use]
pub fn attention_figure(layer: &AttentionLayer, head: Option<usize>) -> Figure {
    let (weights, whose) = match head.and_then(|head| Some((head, layer.heads.get(head - 1)?))) {
        Some((head, weights)) => (weights.clone(), format!("head {head}")),
        None => (layer.mean(), format!("mean of {} heads", layer.heads.len())),
    };
    figure(layer, &weights, &whose)
}

/// What flows through all layers of a part, as [`AttentionMap::rollout`] has it.
#[must_use]
pub fn rollout_figure(layer: &AttentionLayer) -> Figure {
    figure(layer, &layer.mean(), "rolled out over all layers")
}

fn figure(layer: &AttentionLayer, weights: &Weights, whose: &str) -> Figure {
    let strongest = |row: &Vec<f32>| {
        (0..row.len()).reduce(|best, key| if row[key] > row[best] { key } else { best })
    };
    let pairs = layer.queries.iter().zip(weights).filter_map(|(query, row)| {
        let key = strongest(row)?;
        Some(format!("{query}: {} {:.2}", layer.keys[key], row[key]))
    });
    let description =
        format!("What each token attends to most. {}", pairs.collect::<Vec<_>>().join("; "));
    let wide = |row: &Vec<f32>| row.iter().map(|weight| f64::from(*weight)).collect();
    let heatmap = Heatmap {
        row_label: "attends".to_owned(),
        column_label: "attended to".to_owned(),
        rows: layer.queries.clone(),
        columns: layer.keys.clone(),
        values: weights.iter().map(wide).collect(),
        strongest: Some(1.0),
    };
    let title = format!("Attention {}, layer {}, {whose}", layer.part.name(), layer.layer);
    Figure::new(title, description, heatmap)
}

/// A page with the weights of each layer and head, chosen by lists or by the keys of arrows.
///
/// # Errors
/// When there is nothing to draw.
pub fn attention_page(map: &AttentionMap) -> Result<String, PlotError> {
    let mut body = format!("<p lang=\"und\">{}</p>\n", escape(&map.text));
    if !map.translation.is_empty() {
        body += &format!("<p lang=\"und\">{}</p>\n", escape(&map.translation));
    }
    body += "<p class=\"muted\">Choose with the lists; h and l change the head, j and k the layer, \
             p the part. Weights below half a percent are left out.</p>\n\
             <p><label>Part <select id=\"part\"></select></label> \
             <label>Layer <select id=\"layer\"></select></label> \
             <label>Head <select id=\"head\"></select></label></p>\n\
             <p id=\"chosen\" class=\"muted\" role=\"status\"></p>\n";
    let mut choices = Vec::new();
    let mut add = |name: (&str, &str, &str), figure: Figure| -> Result<(), PlotError> {
        let id = format!("figure-{}", choices.len());
        body += &format!("<figure id=\"{id}\" hidden>{}</figure>\n", figure.draw()?.inline());
        let (part, layer, head) = name;
        choices.push(json!({ "id": id, "part": part, "layer": layer, "head": head }));
        Ok(())
    };
    for layer in &map.layers {
        let number = layer.layer.to_string();
        add((layer.part.name(), &number, "mean"), thinned(attention_figure(layer, None)))?;
        for head in 1..=layer.heads.len() {
            let figure = thinned(attention_figure(layer, Some(head)));
            add((layer.part.name(), &number, &head.to_string()), figure)?;
        }
    }
    for part in map.parts() {
        // Attention to an encoder does not roll out.
        if let Ok(rolled) = map.rollout(part) {
            add((part.name(), "all, rolled out", "mean"), thinned(rollout_figure(&rolled)))?;
        }
    }
    Ok(Page {
        language: Language::English,
        title: "Attention".to_owned(),
        body,
        script: SCRIPT.to_owned(),
        data: vec![("choices".to_owned(), choices.into())],
        ..Page::default()
    }
    .html())
}

/// Without the weights that nobody would see.
fn thinned(mut figure: Figure) -> Figure {
    if let taper_plots::Plot::Heatmap(map) = &mut figure.plot {
        let small = map.values.iter_mut().flatten().filter(|value| **value < f64::from(SEEN));
        small.for_each(|value| *value = f64::NAN);
    }
    figure
}
