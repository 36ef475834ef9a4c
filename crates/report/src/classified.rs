//! Figures of test sets of classification tasks, drawn from the results in `scores.json`.

use serde_json::Value;
use taper_plots::{Axis, Chart, Figure, Heatmap, Language, Series};

use crate::figures::NamedFigure;

/// Returns the figures of a test set: the confusion matrix of its labels, and the calibration
/// (accuracy by confidence). Empty for test sets of other tasks.
pub(crate) fn figures(result: &Value, language: Language) -> Vec<NamedFigure> {
    let split = result["split"].as_str().unwrap_or("test").replace(['/', '\\', ' '], "-");
    let confusion = confusion(result, language)
        .map(|figure| NamedFigure::new(format!("{split}-confusion"), figure));
    let calibration = calibration(result, language)
        .map(|figure| NamedFigure::new(format!("{split}-calibration"), figure));
    confusion.into_iter().chain(calibration).collect()
}

fn confusion(result: &Value, language: Language) -> Option<Figure> {
    let say = |english, chinese| language.choose(english, chinese);
    let labels: Vec<String> = serde_json::from_value(result.get("labels")?.clone()).ok()?;
    let counts: Vec<Vec<f64>> = serde_json::from_value(result.get("confusion")?.clone()).ok()?;
    let shares = counts.iter().map(|row| {
        let sum: f64 = row.iter().sum();
        row.iter().map(|count| if sum > 0.0 { count / sum } else { f64::NAN }).collect()
    });
    let described = labels.iter().zip(&counts).map(|(label, row)| {
        let given = labels.iter().zip(row).map(|(given, count)| format!("{count} {given}"));
        format!("{label}: {}", given.collect::<Vec<_>>().join(", "))
    });
    let description = described.collect::<Vec<_>>().join("; ");
    let map = Heatmap {
        row_label: say("right label", "正确标签").to_owned(),
        column_label: say("given label", "给出的标签").to_owned(),
        rows: labels.clone(),
        columns: labels,
        values: shares.collect(),
        strongest: Some(1.0),
    };
    Some(Figure::new(say("Which labels are confused", "混淆矩阵"), description, map))
}

fn calibration(result: &Value, language: Language) -> Option<Figure> {
    let say = |english, chinese| language.choose(english, chinese);
    let bins = result.get("calibration")?.as_array()?;
    let point = |bin: &Value| Some((bin["confidence"].as_f64()?, bin["accuracy"].as_f64()?));
    let points: Vec<(f64, f64)> = bins.iter().filter_map(point).collect();
    let described = bins.iter().filter_map(|bin| {
        let (confidence, accuracy) = point(bin)?;
        Some(format!("{confidence:.2}: {accuracy:.2} ({})", bin["examples"]))
    });
    let description = described.collect::<Vec<_>>().join("; ");
    let series = vec![
        Series::dashes(say("as confident as right", "理想"), vec![(0.0, 0.0), (1.0, 1.0)])
            .coloured(1),
        Series::line(say("this model", "本模型"), points).coloured(0),
    ];
    let (x, y) = (say("mean confidence of a bin", "置信度"), say("share that is right", "正确率"));
    let chart =
        Chart::new(Axis::linear(x).between(0.0, 1.0), Axis::linear(y).between(0.0, 1.0), series);
    Some(Figure::new(say("Calibration", "校准"), description, chart))
}
