//! Figures of the course of a training: loss, scores and speed by update, and the norms of layers.

use taper_plots::{Axis, Chart, Figure, Heatmap, Language, Series};
use taper_trainer::NormsPerLayer;

use crate::figures::NamedFigure;
use crate::record::{Logged, Record};

/// Makes a chart of the series that `lines` returns for each run. If there are several runs, names
/// of series begin with the name of the run, also if only one run has series. `None` if there is
/// nothing to draw.
fn curve(
    runs: &[(&str, &Record)],
    (x, y): (Axis, Axis),
    lines: impl Fn(&Record) -> Vec<Series>,
) -> Option<Chart> {
    let mut series = Vec::new();
    for (number, &(name, record)) in runs.iter().enumerate() {
        for mut line in lines(record) {
            if line.points.is_empty() {
                continue;
            }
            if runs.len() > 1 {
                // A run has one colour in all charts.
                line = line.coloured(number);
                line.name = format!("{name}, {}", line.name);
            }
            series.push(line);
        }
    }
    let is_drawn = |line: &Series| line.points.iter().any(|at| at.1.is_finite());
    series.iter().any(is_drawn).then(|| Chart::new(x, y, series))
}

/// Describes a chart in words: the first and last value of each series.
fn described(chart: &Chart, language: Language) -> String {
    let describe = |series: &Series| {
        let (first, last) = (series.points.first()?, series.points.last()?);
        Some(match language {
            Language::English => {
                format!("{}: from {:.4} to {:.4}", series.name, first.1, last.1)
            }
            Language::Chinese => format!("{}：从 {:.4} 到 {:.4}", series.name, first.1, last.1),
        })
    };
    chart.series.iter().filter_map(describe).collect::<Vec<_>>().join("; ")
}

/// Function that reads a value from an entry of the log.
type Value = fn(&Logged) -> Option<f64>;

/// Describes the figures that show a single value of the log. The parts of a description are: name
/// of the file, title, vertical axis, name of the line, and value.
fn logged(language: Language) -> [(&'static str, &'static str, Axis, &'static str, Value); 4] {
    let say = |english: &'static str, chinese: &'static str| language.choose(english, chinese);
    [
        (
            "learning-rate",
            say("Learning rate", "学习率"),
            Axis::linear(say("learning rate", "学习率")),
            say("learning rate", "学习率"),
            |one| Some(one.learning_rate),
        ),
        (
            "gradient-norm",
            say("Norm of the gradients before clipping", "裁剪前的梯度范数"),
            Axis::log(say("norm", "范数")),
            say("norm", "范数"),
            |one| Some(one.gradient_norm),
        ),
        (
            "noise-scale",
            say("Gradient noise scale", "梯度噪声尺度"),
            Axis::log(say("target tokens", "目标词元")),
            say("noise scale", "噪声尺度"),
            |one| one.noise_scale,
        ),
        (
            "speed",
            say("Speed", "速度"),
            Axis::linear(say("target tokens a second", "目标词元/秒")),
            say("tokens a second", "词元/秒"),
            |one| one.tokens_per_second,
        ),
    ]
}

/// Returns figures of the training of `runs` by update: loss, accuracy, validation scores, learning
/// rate, norm and noise scale of the gradients, and speed.
#[must_use]
pub fn curves(runs: &[(&str, &Record)], language: Language) -> Vec<NamedFigure> {
    let say = |english: &'static str, chinese: &'static str| language.choose(english, chinese);
    let update = || Axis::linear(say("update", "更新次数"));
    let mut figures = Vec::new();
    let mut add = |name: &str, title: &str, chart: Option<Chart>| {
        let Some(chart) = chart else { return };
        let description = described(&chart, language);
        figures.push(NamedFigure::new(name, Figure::new(title, description, chart)));
    };
    let (training, validation) = (say("training", "训练"), say("validation", "验证"));
    let nats = say("nats a token", "奈特/词元");
    let losses = |of_numbers: bool, unit: &str, score: &str| {
        curve(runs, (update(), Axis::linear(unit)), |record| {
            if record.is_of_numbers() != of_numbers {
                return Vec::new();
            }
            vec![
                Series::line(training, record.measured(|one| Some(one.nll))),
                Series::dashes(validation, record.scores(score)),
            ]
        })
    };
    add("loss", say("Cross entropy", "交叉熵"), losses(false, nats, "nll"));
    let error = say("Squared error", "平方误差");
    add("squared-error", error, losses(true, error, "loss"));
    add(
        "accuracy",
        say("Tokens predicted right", "预测正确的词元"),
        curve(runs, (update(), Axis::linear("%")), |record| {
            let percent = |(step, share): (f64, f64)| (step, 100.0 * share);
            let logged = record.measured(|one| one.accuracy).into_iter().map(percent);
            let scores = record.scores("accuracy").into_iter().map(percent);
            vec![
                Series::line(training, logged.collect()),
                Series::dashes(validation, scores.collect()),
            ]
        }),
    );
    add(
        "scores",
        say("Scores of the validation text", "验证集得分"),
        curve(runs, (update(), Axis::linear(say("score", "得分"))), |record| {
            vec![
                Series::line("BLEU", record.scores("bleu")),
                Series::dashes("chrF2", record.scores("chrf")),
            ]
        }),
    );
    for (name, title, axis, label, value) in logged(language) {
        let line = |record: &Record| vec![Series::line(label, record.measured(value))];
        add(name, title, curve(runs, (update(), axis), line));
    }
    figures
}

/// Function that reads one of the norms of a layer.
type Norm = fn(&NormsPerLayer) -> f32;

/// Largest number of columns in a heatmap of layers.
const MOST_COLUMNS: usize = 60;

/// Returns heatmaps of the logarithms of gradient norms and weight norms, by layer and update;
/// empty if the run has not recorded norms.
#[must_use]
pub fn layer_figures(record: &Record, language: Language) -> Vec<NamedFigure> {
    let say = |english: &'static str, chinese: &'static str| language.choose(english, chinese);
    let kinds: [(&str, &str, Norm); 2] = [
        (
            "gradient-norms",
            say("log₁₀ of the gradients' norm by layer", "各层梯度范数的 log₁₀"),
            |norms| norms.gradient,
        ),
        (
            "weight-norms",
            say("log₁₀ of the weights' norm by layer", "各层权重范数的 log₁₀"),
            |norms| norms.weight,
        ),
    ];
    let entries: Vec<_> = record.logged.iter().filter(|one| !one.layers.is_empty()).collect();
    let Some(last) = entries.last() else { return Vec::new() };
    let every = entries.len().div_ceil(MOST_COLUMNS);
    let shown: Vec<_> = entries.iter().step_by(every).collect();
    let mut layers: Vec<&String> = last.layers.keys().collect();
    layers.sort_by_key(|name| in_order(name));
    let mut figures = Vec::new();
    for (name, title, of) in kinds {
        let value =
            |layer: &String, norms: &NormsPerLayer| (layer.clone(), f64::from(of(norms)).log10());
        let row = |layer: &&String| {
            let norm = |one: &&&Logged| {
                one.layers.get(*layer).map_or(f64::NAN, |norms| value(layer, norms).1)
            };
            shown.iter().map(norm).collect::<Vec<f64>>()
        };
        let described: Vec<String> = layers
            .iter()
            .filter_map(|&layer| Some(value(layer, last.layers.get(layer)?)))
            .map(|(layer, norm)| format!("{layer} {norm:.2}"))
            .collect();
        let map = Heatmap {
            row_label: say("layer", "层").to_owned(),
            column_label: say("update", "更新次数").to_owned(),
            rows: layers.iter().map(|&layer| layer.clone()).collect(),
            columns: shown.iter().map(|one| one.step.to_string()).collect(),
            values: layers.iter().map(row).collect(),
            strongest: None,
        };
        let height = 190 + 18 * layers.len() as u32;
        let figure = Figure::new(title, described.join("; "), map).sized(720, height);
        figures.push(NamedFigure::new(name, figure));
    }
    figures
}

/// Returns a chart for each layer, with the layer's gradient norm and weight norm by update; empty
/// if the run has not recorded norms.
#[must_use]
pub(crate) fn layer_charts(record: &Record, language: Language) -> Vec<Figure> {
    let say = |english: &'static str, chinese: &'static str| language.choose(english, chinese);
    let last = record.logged.iter().rfind(|one| !one.layers.is_empty());
    let mut layers: Vec<&String> = last.map(|one| one.layers.keys().collect()).unwrap_or_default();
    layers.sort_by_key(|name| in_order(name));
    let chart = |layer: &String| {
        let norms = |norm: Norm| {
            record.measured(|one| one.layers.get(layer).map(|norms| f64::from(norm(norms))))
        };
        let series = vec![
            Series::line(say("gradient", "梯度"), norms(|norms| norms.gradient)),
            Series::dashes(say("weights", "权重"), norms(|norms| norms.weight)),
        ];
        let (x, y) = (say("update", "更新次数"), say("norm", "范数"));
        let chart = Chart::new(Axis::linear(x), Axis::log(y), series);
        let is_drawn =
            chart.series.iter().flat_map(|one| &one.points).any(|at| chart.y.takes(at.1));
        let description = described(&chart, language);
        is_drawn.then(|| Figure::new(layer, description, chart).sized(360, 220))
    };
    layers.into_iter().filter_map(chart).collect()
}

/// Returns a key by which names of layers are sorted. Numbers in names are ordered by value, so
/// `layers.9` comes before `layers.10`.
pub(crate) fn in_order(name: &str) -> Vec<(usize, String)> {
    name.split('.').map(|part| (part.parse().unwrap_or(usize::MAX), part.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use taper_plots::Plot;

    fn record(accuracy: &str) -> Record {
        let line = format!(
            "{{\"event\":\"log\",\"step\":1,\"epoch\":0,\"loss\":2.5,\"nll\":2.0,{accuracy}\
             \"learning_rate\":0.001,\"gradient_norm\":1.5,\"tokens\":10,\"window_tokens\":10,\
             \"timing\":{{\"elapsed_seconds\":1.0}}}}\n"
        );
        let mut record = Record::default();
        record.append(line.as_bytes());
        assert_eq!(record.logged.len(), 1, "{line}");
        record
    }

    /// A run that predicts numbers has another chart of its loss than the others.
    #[test]
    fn a_run_has_its_name_and_its_colour_in_all_charts() {
        let (text, numbers) = (record("\"accuracy\":0.5,"), record(""));
        let figures = curves(&[("one", &text), ("two", &numbers)], Language::English);
        let series = |name: &str| -> Vec<(String, Option<usize>)> {
            let figure = figures.iter().find(|figure| figure.name == name).expect("drawn");
            let Plot::Chart(chart) = &figure.figure.plot else { panic!("no chart") };
            chart.series.iter().map(|line| (line.name.clone(), line.colour)).collect()
        };
        assert_eq!(series("loss"), [("one, training".to_owned(), Some(0))]);
        assert_eq!(series("squared-error"), [("two, training".to_owned(), Some(1))]);
        let rates = [("one", Some(0)), ("two", Some(1))];
        let rates = rates.map(|(run, colour)| (format!("{run}, learning rate"), colour));
        assert_eq!(series("learning-rate"), rates);
    }
}
