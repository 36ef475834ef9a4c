//! Figure of test sets of in-context regression, drawn from the results in `scores.json`.

use serde_json::Value;
use taper_plots::{Axis, Chart, Figure, Language, Series};

use crate::figures::NamedFigure;

/// Makes a figure of the mean squared error by the number of examples that a predictor has seen.
/// The predictors are the model, ridge regression, least squares, and the mean of the answers.
/// `None` for test sets of other tasks.
pub(crate) fn figure(result: &Value, language: Language) -> Option<NamedFigure> {
    let say = |english, chinese| language.choose(english, chinese);
    let split = result["split"].as_str().unwrap_or("test").replace(['/', '\\', ' '], "-");
    let (after, noise) = (result.get("after")?.as_array()?, result["noise"].as_f64()?);
    let points = |name: &str| -> Vec<(f64, f64)> {
        let point = |at: &Value| {
            Some((at["examples"].as_f64()?, at.get("of_answers")?.get(name)?.as_f64()?))
        };
        after.iter().filter_map(point).collect()
    };
    let last = after.last()?["examples"].as_f64()?;
    let series = vec![
        Series::line(say("this model", "本模型"), points("model")).coloured(0),
        Series::dashes(say("ridge regression", "岭回归"), points("ridge")).coloured(1),
        Series::dots(say("least squares", "最小二乘"), points("least_squares")).coloured(2),
        Series::line(say("mean of the answers", "已知答案的均值"), points("mean")).coloured(3),
        Series::dashes(
            say("the noise alone", "仅噪声"),
            if noise > 0.0 { [0.0, last].map(|x| (x, noise * noise)).to_vec() } else { Vec::new() },
        )
        .coloured(4),
    ];
    let described = points("model").into_iter().zip(points("ridge")).map(|(model, ridge)| {
        let beside = say("ridge regression", "岭回归");
        format!("{}: {:.4} ({beside} {:.4})", model.0, model.1, ridge.1)
    });
    let description = described.collect::<Vec<_>>().join("; ");
    let series = series.into_iter().filter(|line| !line.points.is_empty()).collect();
    let chart = Chart::new(
        Axis::linear(say("examples", "示例数")),
        Axis::log(say("mean squared error", "均方误差")),
        series,
    );
    let title = say("What follows from so many examples", "误差随示例数的变化");
    Some(NamedFigure::new(format!("{split}-examples"), Figure::new(title, description, chart)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_predictor_has_a_line_and_other_tasks_have_none() {
        let errors = serde_json::json!({
            "model": 1.5, "ridge": 1.0, "least_squares": 2.0, "mean": 4.0,
        });
        let at =
            |examples: usize| serde_json::json!({ "examples": examples, "of_answers": errors });
        let result =
            serde_json::json!({ "split": "my test", "noise": 0.5, "after": [at(0), at(1)] });
        let NamedFigure { name, figure } = figure(&result, Language::English).unwrap();
        assert_eq!(name, "my-test-examples");
        assert_eq!(
            figure.description,
            "0: 1.5000 (ridge regression 1.0000); 1: 1.5000 (ridge regression 1.0000)"
        );
        let taper_plots::Plot::Chart(chart) = &figure.plot else { panic!("no chart") };
        assert_eq!(chart.series.len(), 5);
        assert_eq!(chart.series[4].points, [(0.0, 0.25), (1.0, 0.25)]);
        figure.draw().unwrap();
        assert!(
            super::figure(&serde_json::json!({ "accuracy": 0.5 }), Language::English).is_none()
        );
    }
}
