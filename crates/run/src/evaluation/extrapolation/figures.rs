//! Figures of the predictions of language models on texts longer than in training.

use taper_plots::{Axis, Chart, Figure, Heatmap, Series};

use super::Extrapolation;

/// Figure of the perplexity against the block length, with a curve for each model.
#[must_use]
pub fn extrapolation_figure(measured: &[Extrapolation]) -> Figure {
    let line = |one: &Extrapolation| {
        let points = one.points.iter();
        let points = points.filter_map(|point| Some((point.length as f64, point.perplexity?)));
        Series::line(one.name(), points.collect())
    };
    let chart = Chart::new(
        Axis::log("tokens of a block"),
        Axis::log("perplexity of a token"),
        measured.iter().map(line).collect(),
    );
    let mut trained: Vec<usize> = measured.iter().map(|one| one.trained).collect();
    trained.sort_unstable();
    trained.dedup();
    let trained: Vec<String> = trained.iter().map(ToString::to_string).collect();
    let described = format!(
        "The perplexity of language models that were trained on blocks of {} tokens, by the length of \
         the blocks that they read.",
        trained.join(" or ")
    );
    Figure::new("Texts longer than in training", described, chart)
}

/// Heatmap of the share of keys that a model found in texts in which they were hidden. (Keys are
/// random strings.) Rows are depths of the key in the text, columns are lengths of the text. `None`
/// if the model was not asked for keys.
#[must_use]
pub fn passkey_figure(one: &Extrapolation) -> Option<Figure> {
    let asked = || one.points.iter().filter_map(|point| Some((point, point.passkey.as_ref()?)));
    let depths = &asked().next()?.1;
    let share = |depth: usize| {
        asked().map(|(_, keys)| keys[depth].found as f64 / keys[depth].keys as f64).collect()
    };
    let heatmap = Heatmap {
        row_label: "depth of the key".to_owned(),
        column_label: "tokens of the text".to_owned(),
        rows: depths.iter().map(|at| format!("{:.0} %", 100.0 * at.depth)).collect(),
        columns: asked().map(|(point, _)| point.length.to_string()).collect(),
        values: (0..depths.len()).map(share).collect(),
        strongest: Some(1.0),
    };
    let lines = asked().map(|(point, keys)| {
        let found: usize = keys.iter().map(|at| at.found).sum();
        let all: usize = keys.iter().map(|at| at.keys).sum();
        format!("{found} of {all} in {} tokens", point.length)
    });
    let described = format!(
        "Share of the keys that the model repeats, by their depth in a text and its length; it was \
         trained on {} tokens. Over all depths: {}.",
        one.trained,
        lines.collect::<Vec<_>>().join(", ")
    );
    Some(Figure::new(format!("Keys found: {}", one.name()), described, heatmap))
}
