//! Attention as figures, and as a page on which every layer and head can be chosen.

use taper_plots::{Figure, Heatmap, Language, Page, PlotError, escape};

use super::{AttentionLayer, AttentionMap, AttentionPart, Weights};

/// Weights below this are omitted from pages, where they would be invisible: the number of weights
/// grows with layers, heads and the square of the text length.
const SEEN: f32 = 0.005;

/// Script of a page with an [`attention_view`], in addition to the script of every page.
pub const ATTENTION_SCRIPT: &str = include_str!("page.js");

/// Heatmap of the weights of one head, counted from 1, or of the mean over all heads.
#[must_use]
pub fn attention_figure(layer: &AttentionLayer, head: Option<usize>, language: Language) -> Figure {
    let (weights, whose) = match head.and_then(|head| Some((head, layer.heads.get(head - 1)?))) {
        Some((head, weights)) => {
            let whose = match language {
                Language::English => format!("head {head}"),
                Language::Chinese => format!("第 {head} 头"),
            };
            (weights.clone(), whose)
        }
        None => {
            let count = layer.heads.len();
            let whose = match language {
                Language::English => format!("mean of {count} heads"),
                Language::Chinese => format!("{count} 个头的均值"),
            };
            (layer.mean(), whose)
        }
    };
    figure(layer, &weights, &whose, language)
}

/// Heatmap of the flow through all layers of a part, from [`AttentionMap::rollout`].
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

/// Weights of one layer and head on a text, or their rollout.
struct Shown {
    part: AttentionPart,
    /// Entry in the list of layers.
    layer: String,
    /// Entry in the list of heads.
    head: String,
    figure: Figure,
}

/// Every layer's mean and heads, attention to an encoder first, and the rollout of each part.
fn all_shown(map: &AttentionMap, language: Language) -> Vec<Shown> {
    let mean = language.choose("mean", "均值");
    let mut parts = map.parts();
    parts.sort_by_key(|part| *part != AttentionPart::Cross);
    let mut shown = Vec::new();
    for part in parts {
        for layer in map.layers.iter().filter(|layer| layer.part == part) {
            let number = layer.layer.to_string();
            for head in std::iter::once(None).chain((1..=layer.heads.len()).map(Some)) {
                shown.push(Shown {
                    part,
                    layer: number.clone(),
                    head: head.map_or_else(|| mean.to_owned(), |head| head.to_string()),
                    figure: attention_figure(layer, head, language),
                });
            }
        }
        // Attention to an encoder has no rollout.
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

/// Every figure of a text's attention, each with a name for its file.
#[must_use]
pub fn attention_figures(map: &AttentionMap, language: Language) -> Vec<(String, Figure)> {
    let named = |shown: Shown| {
        // Names of files are the same in each language.
        let Shown { part, figure, layer, head } = shown;
        let layer = layer.parse::<usize>().map_or("rollout".to_owned(), |n| format!("layer-{n}"));
        let head = head.parse::<usize>().map_or("mean".to_owned(), |n| format!("head-{n}"));
        (format!("{}-{layer}-{head}", part.name()), figure)
    };
    all_shown(map, language).into_iter().map(named).collect()
}

/// Weights of each layer and head as a part of a page: lists, and the figure that they choose. The
/// page needs [`ATTENTION_SCRIPT`].
///
/// # Errors
/// When there is nothing to draw.
pub fn attention_view(map: &AttentionMap, language: Language) -> Result<String, PlotError> {
    let mut html = String::from("<div class=\"attention\">\n");
    for text in [&map.text, &map.translation].into_iter().filter(|text| !text.is_empty()) {
        html += &format!("<p lang=\"und\">{}</p>\n", escape(text));
    }
    let lists = [("part", "Part", "部分"), ("layer", "Layer", "层"), ("head", "Head", "头")];
    html += "<p>";
    for (name, english, chinese) in lists {
        let title = language.choose(english, chinese);
        html += &format!("<label>{title} <select name=\"{name}\"></select></label> ");
    }
    html += "</p>\n";
    for Shown { part, layer, head, figure } in all_shown(map, language) {
        html += &format!(
            "<figure data-part=\"{}\" data-layer=\"{layer}\" data-head=\"{head}\" hidden>{}\
             </figure>\n",
            part.title(language),
            thinned(figure).draw()?.inline()
        );
    }
    Ok(html + "</div>\n")
}

/// Note for readers of [`attention_view`].
#[must_use]
pub const fn attention_note(language: Language) -> &'static str {
    language.choose(
        "Choose with the lists; h and l change the head, j and k the layer, p the part. Weights \
         below half a percent are left out.",
        "用列表选择；h 与 l 换头，j 与 k 换层，p 换部分。低于百分之零点五的权重不显示。",
    )
}

/// Page with the weights of each layer and head, chosen by lists or by keys.
///
/// # Errors
/// When there is nothing to draw.
pub fn attention_page(map: &AttentionMap, language: Language) -> Result<String, PlotError> {
    let note = format!("<p class=\"muted\">{}</p>\n", attention_note(language));
    Ok(Page {
        language,
        title: language.choose("Attention", "注意力").to_owned(),
        body: note + &attention_view(map, language)?,
        script: ATTENTION_SCRIPT.to_owned(),
        ..Page::default()
    }
    .html())
}

/// Removes weights too small to be seen.
fn thinned(mut figure: Figure) -> Figure {
    if let taper_plots::Plot::Heatmap(map) = &mut figure.plot {
        let small = map.values.iter_mut().flatten().filter(|value| **value < f64::from(SEEN));
        small.for_each(|value| *value = f64::NAN);
    }
    figure
}
