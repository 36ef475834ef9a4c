//! Figures of attention weights.

use anyhow::Result;
use taper_plots::{Figure, Heatmap, Language};

use super::{AttentionLayer, AttentionMap, AttentionPart, Weights};

/// Heatmap of the attention weights of a layer: those of the head with the number `head`, counted
/// from 1, or their mean over all heads if `head` is `None`.
///
/// # Errors
/// When the layer has no such head; the message has the numbers of those that exist.
pub fn attention_figure(
    layer: &AttentionLayer,
    head: Option<usize>,
    language: Language,
) -> Result<Figure> {
    let Some(head) = head else { return Ok(mean_figure(layer, language)) };
    Ok(head_figure(layer, (head, &*layer.weights(Some(head))?), language))
}

/// Heatmap of the mean of the attention weights of a layer over all its heads.
pub(crate) fn mean_figure(layer: &AttentionLayer, language: Language) -> Figure {
    let count = layer.heads.len();
    let whose = match language {
        Language::English => format!("mean of {count} heads"),
        Language::Chinese => format!("{count} 个头的均值"),
    };
    figure(layer, &layer.mean(), &whose, language)
}

/// Heatmap of the attention `weights` of the head with the number `head` of a layer.
fn head_figure(
    layer: &AttentionLayer,
    (head, weights): (usize, &Weights),
    language: Language,
) -> Figure {
    let whose = match language {
        Language::English => format!("head {head}"),
        Language::Chinese => format!("第 {head} 头"),
    };
    figure(layer, weights, &whose, language)
}

/// Heatmap of the rollout that [`AttentionMap::rollout`] returns as a layer: attention accumulated
/// over all layers of an encoder or decoder.
#[must_use]
pub fn rollout_figure(layer: &AttentionLayer, language: Language) -> Figure {
    let whose = language.choose("rolled out over all layers", "逐层累积（rollout）");
    figure(layer, &layer.mean(), whose, language)
}

fn figure(layer: &AttentionLayer, weights: &Weights, whose: &str, language: Language) -> Figure {
    let strongest = |row: &Vec<f32>| {
        (0..row.len()).reduce(|best, key| if row[key] > row[best] { key } else { best })
    };
    let pairs = layer.queries.iter().zip(weights).filter_map(|(query, row)| {
        let key = strongest(row)?;
        Some(format!("{query}: {} {:.2}", layer.keys[key], row[key]))
    });
    let most = language.choose("What each token attends to most. ", "每个词元最关注的词元。");
    let description = format!("{most}{}", pairs.collect::<Vec<_>>().join("; "));
    let wide = |row: &Vec<f32>| row.iter().map(|weight| f64::from(*weight)).collect();
    let heatmap = Heatmap {
        row_label: language.choose("attends", "关注者").to_owned(),
        column_label: language.choose("attended to", "被关注者").to_owned(),
        rows: layer.queries.clone(),
        columns: layer.keys.clone(),
        values: weights.iter().map(wide).collect(),
        strongest: Some(1.0),
    };
    let (part, number) = (layer.part.title(language), layer.layer);
    let title = match language {
        Language::English => format!("Attention {part}, layer {number}, {whose}"),
        Language::Chinese => format!("{part}注意力，第 {number} 层，{whose}"),
    };
    Figure::new(title, description, heatmap)
}

/// Figure of the attention weights of one layer and head, or of a rollout (attention accumulated
/// over layers). It comes with the names under which a page lists it.
struct Shown {
    part: AttentionPart,
    /// Number of the layer, or words for the rollout over all layers.
    layer: String,
    /// Number of the head, or the word for the mean over all heads.
    head: String,
    figure: Figure,
}

/// All figures of an attention map. Each layer has a figure of the mean over its heads, and one of
/// each head. The self-attention of an encoder or decoder also has a figure of its rollout. The
/// figures of attention from a decoder to an encoder come first.
fn all_shown(map: &AttentionMap, language: Language) -> Vec<Shown> {
    let mean = language.choose("mean", "均值");
    let mut parts = map.parts();
    parts.sort_by_key(|part| *part != AttentionPart::Cross);
    let mut shown = Vec::new();
    for part in parts {
        for layer in map.layers.iter().filter(|layer| layer.part == part) {
            let number = layer.layer.to_string();
            shown.push(Shown {
                part,
                layer: number.clone(),
                head: mean.to_owned(),
                figure: mean_figure(layer, language),
            });
            shown.extend((1..).zip(&layer.heads).map(|head| Shown {
                part,
                layer: number.clone(),
                head: head.0.to_string(),
                figure: head_figure(layer, head, language),
            }));
        }
        // Attention from a decoder to an encoder has no rollout.
        if let Ok(rolled) = map.rollout(part) {
            shown.push(Shown {
                part,
                layer: language.choose("all, rolled out", "全部，累积").to_owned(),
                head: mean.to_owned(),
                figure: rollout_figure(&rolled, language),
            });
        }
    }
    shown
}

/// All figures of the attention on a text, each with a name for its file.
#[must_use]
pub fn attention_figures(map: &AttentionMap, language: Language) -> Vec<(String, Figure)> {
    let named = |shown: Shown| {
        // The words for the mean and the rollout depend on the language. File names must not depend
        // on it, so they have fixed words.
        let Shown { part, figure, layer, head } = shown;
        let layer = layer.parse::<usize>().map_or("rollout".to_owned(), |n| format!("layer-{n}"));
        let head = head.parse::<usize>().map_or("mean".to_owned(), |n| format!("head-{n}"));
        (format!("{}-{layer}-{head}", part.name()), figure)
    };
    all_shown(map, language).into_iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_that_the_layer_lacks_is_an_error() {
        let head = |weight: f32| vec![vec![weight, 1.0 - weight]];
        let layer = AttentionLayer {
            part: AttentionPart::Cross,
            layer: 3,
            queries: vec!["a".to_owned()],
            keys: vec!["x".to_owned(), "y".to_owned()],
            heads: vec![head(0.25), head(0.75)],
        };
        let title = |head| attention_figure(&layer, head, Language::English).map(|one| one.title);
        assert_eq!(title(None).expect("a mean"), "Attention cross, layer 3, mean of 2 heads");
        assert_eq!(title(Some(2)).expect("a head"), "Attention cross, layer 3, head 2");
        assert_eq!(*layer.weights(Some(2)).expect("a head"), head(0.75));
        for number in [0, 3] {
            let error = title(Some(number)).expect_err("no such head").to_string();
            let expected = format!("attention cross, layer 3 has heads 1 to 2, not {number}");
            assert_eq!(error, expected);
        }
    }
}
