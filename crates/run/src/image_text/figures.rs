//! Probabilities of texts for images, as a figure.

use taper_plots::{Figure, Heatmap, Language};

/// Probabilities of texts, or of labels, for images.
#[derive(Debug, Clone, PartialEq)]
pub struct Matches {
    /// Names of the images.
    pub images: Vec<String>,
    /// The texts.
    pub texts: Vec<String>,
    /// Probability of each text (column) for each image (row).
    pub probabilities: Vec<Vec<f64>>,
}

/// Heatmap with a row for each image and a column for each text.
#[must_use]
pub fn matches_figure(matches: Matches, language: Language) -> Figure {
    let Matches { images, texts, probabilities } = matches;
    let likeliest = |row: &Vec<f64>| {
        (0..row.len()).max_by(|&one, &other| row[one].total_cmp(&row[other])).unwrap_or(0)
    };
    let pairs = images.iter().zip(&probabilities).filter_map(|(image, row)| {
        let best = likeliest(row);
        Some(format!("{image}: {} {:.2}", texts.get(best)?, row.get(best)?))
    });
    let introduction =
        language.choose("Each image and its likeliest text. ", "每幅图像与其最可能的文本。");
    let description = format!("{introduction}{}", pairs.collect::<Vec<_>>().join("; "));
    let heatmap = Heatmap {
        row_label: language.choose("image", "图像").to_owned(),
        column_label: language.choose("text", "文本").to_owned(),
        rows: images,
        columns: texts,
        values: probabilities,
        strongest: Some(1.0),
    };
    let title = language.choose("Which text belongs to an image", "哪段文本属于图像");
    Figure::new(title, description, heatmap)
}
