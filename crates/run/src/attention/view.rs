//! Attention as a web page: ribbons between tokens, a matrix of weights, and small images of all
//! heads.

use serde_json::{Value, json};
use taper_plots::{Language, Page, escape};

use super::heads::in_chinese;
use super::{AttentionLayer, AttentionMap, AttentionPart, Weights, profiles};

/// Smallest attention weight that a page contains. Smaller weights would be invisible, and the
/// number of weights grows with layers, heads and the square of the text's length.
const SEEN: f32 = 0.005;

/// Script of a page with an [`attention_view`], in addition to the script that all pages of the
/// program have.
pub const ATTENTION_SCRIPT: &str = include_str!("view.js");

/// Weights in the form that the script of the page reads: for each row, one flat list with the
/// index of a column, its weight in thousandths, the next column, its weight, and so on. Weights
/// below [`SEEN`] are left out.
fn sparse(weights: &Weights) -> Value {
    let row = |row: &Vec<f32>| {
        let visible = row.iter().enumerate().filter(|(_, weight)| **weight >= SEEN);
        let numbers =
            visible.flat_map(|(key, weight)| [key as u64, (weight * 1000.0).round() as u64]);
        numbers.collect::<Vec<u64>>()
    };
    json!(weights.iter().map(row).collect::<Vec<_>>())
}

/// Data of one layer for the script; `roles` describe what its heads attend to.
fn layer(layer: &AttentionLayer, name: &str, roles: &[String]) -> Value {
    json!({
        "layer": name, "queries": layer.queries, "keys": layer.keys, "roles": roles,
        "heads": layer.heads.iter().map(sparse).collect::<Vec<_>>(),
    })
}

/// Data of all kinds of attention for the script. Attention from a decoder to an encoder comes
/// first. The layers of each other kind are followed by its rollout: attention accumulated over the
/// layers.
pub(super) fn parts(map: &AttentionMap, language: Language) -> Value {
    let heads = profiles(std::slice::from_ref(map));
    let roles = |one: &AttentionLayer| -> Vec<String> {
        let heads_of_layer =
            heads.iter().filter(|head| head.part == one.part && head.layer == one.layer);
        heads_of_layer
            .map(|head| language.choose(head.does(), in_chinese(head.does())).to_owned())
            .collect()
    };
    let mut parts = map.parts();
    parts.sort_by_key(|part| *part != AttentionPart::Cross);
    let of_part = |part: &AttentionPart| {
        let layers_of_part = map.layers.iter().filter(|layer| layer.part == *part);
        let mut layers: Vec<Value> =
            layers_of_part.map(|one| layer(one, &one.layer.to_string(), &roles(one))).collect();
        // Attention from a decoder to an encoder has no rollout.
        if let Ok(rolled) = map.rollout(*part) {
            let all = language.choose("all, rolled out", "全部，累积");
            layers.push(layer(&rolled, all, &[]));
        }
        json!({ "name": part.name(), "part": part.title(language), "layers": layers })
    };
    json!(parts.iter().map(of_part).collect::<Vec<_>>())
}

/// HTML that shows the attention weights of each layer and head; the page that contains it needs
/// [`ATTENTION_SCRIPT`].
#[must_use]
pub fn attention_view(map: &AttentionMap, language: Language) -> String {
    let mut html = format!(
        "<div class=\"attention\" data-parts=\"{}\">\n",
        escape(&parts(map, language).to_string())
    );
    for text in [&map.text, &map.translation].into_iter().filter(|text| !text.is_empty()) {
        html += &format!("<p lang=\"und\" dir=\"auto\">{}</p>\n", escape(text));
    }
    html + "</div>\n"
}

/// Explanation of what [`attention_view`] shows, for the readers of the page.
#[must_use]
pub const fn attention_note(language: Language) -> &'static str {
    language.choose(
        "Choose with the lists or on the wall of heads; h and l change the head, j and k the \
         layer, p the part. Weights below half a percent are omitted.",
        "用列表或在各头缩略图上选择；h 与 l 换头，j 与 k 换层，p 换部分。低于百分之零点五的权重不显示。",
    )
}

/// HTML page with the attention weights of each layer and head.
#[must_use]
pub fn attention_page(map: &AttentionMap, language: Language) -> String {
    let note = format!("<p class=\"muted\">{}</p>\n", attention_note(language));
    Page {
        language,
        title: language.choose("Attention", "注意力").to_owned(),
        body: note + &attention_view(map, language),
        script: ATTENTION_SCRIPT.to_owned(),
        ..Page::default()
    }
    .html()
}
