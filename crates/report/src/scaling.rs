//! Scaling laws, which describe how the loss of a language model depends on its size and on the
//! amount of its training data. Points come from runs (trainings) or tables; laws are fitted to
//! them and shown in figures.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use taper_data::read_regular;
use taper_plots::{Axis, Chart, Figure, Language, Series};
use taper_run::RunFolder;
use taper_run::scaling::{Fit, Intervals, Law, Observation, PowerLaw, Scale, bootstrap, fit};
use taper_run::tasks::{entry, outline};

use crate::figures::NamedFigure;
use crate::record::Record;
use crate::run_data::json;

/// Largest number of bytes that are read from a table of points.
const MOST_BYTES: u64 = 1 << 28;
/// Confidence level of intervals.
const CONFIDENCE: f64 = 0.95;
/// Smallest number of points that determines a law of one input (parameters or tokens). The points
/// must also have at least this number of different values of the input.
const FEWEST: usize = 4;
/// Smallest number of points that determines a law of two inputs.
const FEWEST_JOINT: usize = 6;
/// Smallest number of different values of each input that determines a law of two inputs without
/// either law of one input: two values have one difference, which does not determine both the
/// factor and the exponent of a term.
const FEWEST_EACH: usize = 3;

/// A trained model: its size, its amount of training data, and its loss.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// Name of the model.
    pub name: String,
    /// Number of parameters, N.
    pub parameters: f64,
    /// Number of tokens of training up to the measurement of the loss, D.
    pub tokens: f64,
    /// Loss on held-out text, in nats per token.
    pub loss: f64,
}

impl Point {
    /// Makes a point from a run that trains a language model. The loss is that of the last
    /// validation.
    ///
    /// # Errors
    /// When the run has another task, or has not been validated.
    pub fn from_run(root: &Path) -> Result<Self> {
        let folder = RunFolder::open(root)?;
        let shown = root.display();
        let config = folder.load_config(&[])?;
        if !entry(config.task).generates {
            bail!("{shown}: its task is {}; scaling laws are of language models", config.task);
        }
        let record = Record::read(&folder.metrics())?;
        if record.logged.is_empty() {
            bail!("{shown}: nothing was trained yet");
        }
        let (step, loss) = record.scores("nll").last().copied().with_context(|| {
            format!(
                "{shown}: no validation was recorded: set data.text.hold_out or data.validation"
            )
        })?;
        // Training may have gone on after the validation.
        let tokens = record.tokens_at(step as u64).filter(|tokens| *tokens > 0.0);
        let tokens = tokens.with_context(|| format!("{shown}: nothing was trained yet"))?;
        let report =
            json(&folder.data_report())?.with_context(|| format!("{shown}: no data.json"))?;
        let size = |key: &str| report[key].as_u64().map(|count| count as usize);
        let vocabularies = size("source_vocabulary").zip(size("target_vocabulary"));
        let vocabularies =
            vocabularies.with_context(|| format!("{shown}: data.json has no vocabulary"))?;
        let parameters = outline(&config, vocabularies)?.len() as f64;
        let name = root.file_name().unwrap_or(root.as_os_str()).to_string_lossy().into_owned();
        Ok(Self { name, parameters, tokens, loss })
    }

    /// Reads points from a CSV file with a header line. The columns are:
    ///
    /// - `parameters` or `Model Size`;
    /// - `tokens`, or else `flops` or `Training FLOP`, from which tokens are computed as FLOPs /
    ///   6N;
    /// - `loss`;
    /// - optionally `name`.
    ///
    /// # Errors
    /// When a column is missing, or a cell is not a number.
    pub fn from_table(path: &Path) -> Result<Vec<Self>> {
        let shown = path.display();
        let bytes =
            read_regular(path, MOST_BYTES).with_context(|| format!("cannot read {shown}"))?;
        let mut table = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(&bytes[..]);
        let head = table.headers().with_context(|| format!("{shown}: no table"))?.clone();
        let column = |names: &[&str]| {
            let is_named = |cell: &str| names.iter().any(|name| cell.eq_ignore_ascii_case(name));
            head.iter().position(is_named)
        };
        let need = |names: &[&str]| {
            column(names).with_context(|| {
                format!("{shown}: the table has no column `{}`", names.join("` or `"))
            })
        };
        let size = need(&["parameters", "model size"])?;
        let loss = need(&["loss"])?;
        let tokens = column(&["tokens"]);
        let flops = match tokens {
            Some(_) => None,
            None => Some(need(&["tokens", "flops", "training flop"])?),
        };
        let name = column(&["name"]);
        let mut points = Vec::new();
        let mut rows = table.records();
        loop {
            let line = line_of_row(&bytes, rows.reader().position());
            let Some(row) = rows.next() else { break };
            let row = row.with_context(|| format!("{shown}, line {line}"))?;
            let value = |column: usize| {
                let cell = row.get(column).unwrap_or_default();
                let value: Option<f64> = cell.parse().ok().filter(|one: &f64| *one > 0.0);
                value
                    .filter(|value| value.is_finite())
                    .with_context(|| format!("{shown}, line {line}: {cell:?} is no number above 0"))
            };
            let parameters = value(size)?;
            let tokens = match (tokens, flops) {
                (Some(tokens), _) => value(tokens)?,
                (None, Some(flops)) => value(flops)? / 6.0 / parameters,
                (None, None) => bail!("{shown}: no column of tokens"),
            };
            let name = name.and_then(|name| row.get(name)).map_or_else(String::new, str::to_owned);
            points.push(Self { name, parameters, tokens, loss: value(loss)? });
        }
        Ok(points)
    }

    /// Floating-point operations of the training: 6ND.
    fn flops(&self) -> f64 {
        6.0 * self.parameters * self.tokens
    }
}

/// Line of the next row of a table, whose reader is at `position`: blank lines come before the row.
fn line_of_row(table: &[u8], position: &csv::Position) -> u64 {
    let rest = usize::try_from(position.byte()).ok().and_then(|start| table.get(start..));
    let blank = rest.unwrap_or_default().iter().take_while(|byte| b"\r\n".contains(byte));
    position.line() + blank.filter(|&&byte| byte == b'\n').count() as u64
}

/// A law with the confidence intervals of its parameters.
type Fitted<const K: usize> = (Fit<K>, Intervals<K>);

/// Trained models, and the laws that they determine.
#[derive(Debug)]
pub struct Study {
    /// Points, in ascending order of the number of parameters.
    pub points: Vec<Point>,
    /// Law L(N, D) of the loss by parameters and tokens; `None` if there are too few points.
    pub joint: Option<Fitted<2>>,
    /// Law L(N) of the loss by parameters; `None` if the models have fewer than four sizes.
    pub of_size: Option<Fitted<1>>,
    /// Law L(D) of the loss by tokens; `None` if the models have fewer than four amounts of
    /// training data.
    pub of_data: Option<Fitted<1>>,
    /// Law L(N) that is a pure power law, without a constant term for the irreducible loss. `None`
    /// if the models have fewer than two sizes.
    pub power: Option<PowerLaw>,
}

impl Study {
    /// Fits laws to `points`, without the `leave_out` points that have the highest losses.
    /// `resamples` is the number of bootstrap resamples for the intervals.
    ///
    /// # Errors
    /// When there are too few points for any law.
    pub fn fit(mut points: Vec<Point>, leave_out: usize, resamples: usize) -> Result<Self> {
        points.sort_by(|left, right| left.loss.total_cmp(&right.loss));
        points.truncate(points.len().saturating_sub(leave_out));
        points.sort_by(|left, right| left.parameters.total_cmp(&right.parameters));
        let distinct = |value: fn(&Point) -> f64| {
            let mut values: Vec<f64> = points.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values.dedup();
            values.len()
        };
        let (sizes, amounts) = (distinct(|one| one.parameters), distinct(|one| one.tokens));
        let enough = |count: usize| points.len() >= FEWEST && count >= FEWEST;
        let is_grid =
            points.len() >= FEWEST_JOINT && sizes >= FEWEST_EACH && amounts >= FEWEST_EACH;
        if !is_grid && !enough(sizes) && !enough(amounts) {
            bail!(
                "{} points of {sizes} sizes and {amounts} amounts of data determine no law: at \
                 least {FEWEST} different sizes or amounts are needed, or for L(N, D) \
                 {FEWEST_JOINT} points with {FEWEST_EACH} of each",
                points.len()
            );
        }
        let is_joint = points.len() >= FEWEST_JOINT && sizes > 1 && amounts > 1;
        let joint = is_joint
            .then(|| fitted(&points, resamples, |one| [one.parameters, one.tokens]))
            .transpose()?;
        let of_size = enough(sizes)
            .then(|| fitted(&points, resamples, |one| [one.parameters]))
            .transpose()?;
        let of_data =
            enough(amounts).then(|| fitted(&points, resamples, |one| [one.tokens])).transpose()?;
        let observe = |one: &Point| Observation { inputs: [one.parameters], loss: one.loss };
        let power = PowerLaw::fit(&points.iter().map(observe).collect::<Vec<_>>());
        Ok(Self { points, joint, of_size, of_data, power })
    }

    /// Returns lines for a terminal: the laws, and the best model for each number of FLOPs in
    /// `flops`.
    #[must_use]
    pub fn lines(&self, flops: &[f64]) -> Vec<String> {
        let mut lines = vec![format!("{} points", self.points.len())];
        if let Some((fit, intervals)) = &self.joint {
            lines.push("L(N, D) = E + A / N^α + B / D^β".to_owned());
            lines.extend(numbers(&fit.law, intervals, ["A", "B"], ["α", "β"]));
        }
        if let Some((fit, intervals)) = &self.of_size {
            lines.push("L(N) = E + A / N^α, whatever the data".to_owned());
            lines.extend(numbers(&fit.law, intervals, ["A"], ["α"]));
        }
        if let Some((fit, intervals)) = &self.of_data {
            lines.push("L(D) = E + B / D^β, whatever the size".to_owned());
            lines.extend(numbers(&fit.law, intervals, ["B"], ["β"]));
        }
        if let Some(power) = &self.power {
            lines.push("L(N) = (N_c / N)^α, of the lowest loss of each size".to_owned());
            lines.push(format!("  N_c {:.2e}  α {:.4}", power.critical, power.exponent));
        }
        if let Some((fit, _)) = self.joint.as_ref().filter(|_| !flops.is_empty()) {
            lines.push("the best model of so much training (6ND)".to_owned());
            for &flops in flops {
                let best = fit.law.compute_optimal(flops);
                lines.push(format!(
                    "  {flops:.2e} FLOPs: {:.3e} parameters, {:.3e} tokens ({:.1} each), \
                     loss {:.3}",
                    best.parameters,
                    best.tokens,
                    best.tokens / best.parameters,
                    best.loss
                ));
            }
        }
        lines
    }

    /// Returns the FLOPs of the training with the most FLOPs, and ten and a hundred times this
    /// number.
    #[must_use]
    pub fn usual_flops(&self) -> Vec<f64> {
        let most = self.points.iter().map(Point::flops).fold(0.0, f64::max);
        vec![most, 10.0 * most, 100.0 * most]
    }

    /// Returns figures of the points with the curves of the laws.
    #[must_use]
    pub fn figures(&self, language: Language) -> Vec<NamedFigure> {
        let say = |english: &'static str, chinese: &'static str| language.choose(english, chinese);
        let mut figures = match &self.joint {
            Some((fit, _)) => self.joint_figures(fit, language),
            None => Vec::new(),
        };
        let (measured, law) = (say("measured", "实测"), say("law", "拟合"));
        let loss = Axis::log(say("loss, nats a token", "损失，奈特/词元"));
        let laws = [
            (
                "scaling-size",
                say("Loss by size", "损失与规模"),
                say("parameters", "参数量"),
                &self.of_size,
                (|one: &Point| one.parameters) as fn(&Point) -> f64,
            ),
            (
                "scaling-data",
                say("Loss by data", "损失与数据"),
                say("training tokens", "训练词元"),
                &self.of_data,
                |one: &Point| one.tokens,
            ),
        ];
        for (name, title, axis, fitted, of) in laws {
            let Some((fit, _)) = fitted else { continue };
            let dots = self.points.iter().map(|one| (of(one), one.loss)).collect();
            let curve = spread(self.points.iter().map(of));
            let fitted = curve.iter().map(|&x| (x, fit.law.loss([x])));
            let mut series =
                vec![Series::dots(measured, dots), Series::line(law, fitted.collect())];
            if let ("scaling-size", Some(power)) = (name, &self.power) {
                let name = say("(N_c / N)^α, lowest losses", "(N_c / N)^α，最低损失");
                let line = curve.iter().map(|&x| (x, power.loss(x)));
                series.push(Series::dashes(name, line.collect()));
            }
            let chart = Chart::new(Axis::log(axis), loss.clone(), series);
            figures.push(NamedFigure::new(name, Figure::new(title, self.described(), chart)));
        }
        figures
    }

    /// Returns the figures of the law L(N, D).
    fn joint_figures(&self, fit: &Fit<2>, language: Language) -> Vec<NamedFigure> {
        let say = |english: &'static str, chinese: &'static str| language.choose(english, chinese);
        let measured = say("measured", "实测");
        let loss = || Axis::log(say("loss, nats a token", "损失，奈特/词元"));
        let dots = self.points.iter().map(|one| (one.flops(), one.loss)).collect();
        let ends = spread(self.points.iter().map(Point::flops));
        let best = ends.iter().map(|&flops| (flops, fit.law.compute_optimal(flops).loss));
        let series = vec![
            Series::dots(measured, dots),
            Series::line(say("the best of each amount", "每个计算量的最优"), best.collect()),
        ];
        let chart =
            Chart::new(Axis::log(say("training FLOPs (6ND)", "训练 FLOPs (6ND)")), loss(), series);
        let title = say("Loss by the arithmetic of training", "损失与训练计算量");
        let flops = NamedFigure::new("scaling-flops", Figure::new(title, self.described(), chart));
        let pairs: Vec<(f64, f64)> = self
            .points
            .iter()
            .map(|one| (fit.law.loss([one.parameters, one.tokens]), one.loss))
            .collect();
        let line = spread(pairs.iter().map(|at| at.0)).into_iter().map(|at| (at, at));
        let series = vec![
            Series::dots(measured, pairs.clone()),
            Series::dashes(say("as predicted", "与预测一致"), line.collect()),
        ];
        let chart = Chart::new(Axis::log(say("predicted loss", "预测损失")), loss(), series);
        let title = say("Measured and predicted loss", "实测与预测损失");
        vec![flops, NamedFigure::new("scaling-fit", Figure::new(title, self.described(), chart))]
    }

    fn described(&self) -> String {
        self.lines(&[]).join("; ")
    }
}

fn fitted<const K: usize>(
    points: &[Point],
    resamples: usize,
    inputs: impl Fn(&Point) -> [f64; K],
) -> Result<Fitted<K>> {
    let observe = |one: &Point| Observation { inputs: inputs(one), loss: one.loss };
    let points: Vec<Observation<K>> = points.iter().map(observe).collect();
    let fit = fit(&points, Scale::Fitted)?;
    let intervals = bootstrap(&points, &fit, resamples, CONFIDENCE, 1)?;
    Ok((fit, intervals))
}

/// Returns lines with the parameters of a law, each with its interval.
fn numbers<const K: usize>(
    law: &Law<K>,
    intervals: &Intervals<K>,
    factors: [&str; K],
    exponents: [&str; K],
) -> Vec<String> {
    // If the points are too few to determine a parameter, its value may be huge.
    let number = |value: f64, decimals: usize| match value.abs() < 1e6 {
        true => format!("{value:.decimals$}"),
        false => format!("{value:.1e}"),
    };
    let line = |name: &str, value: f64, low: f64, high: f64, decimals: usize| {
        let [value, low, high] = [value, low, high].map(|one| number(one, decimals));
        format!("  {name} {value}  [{low}, {high}]")
    };
    let irreducible = intervals.irreducible;
    let mut lines = vec![line("E", law.irreducible, irreducible.low, irreducible.high, 3)];
    for at in 0..K {
        let (factor, exponent) = (intervals.factors[at], intervals.exponents[at]);
        let term = law.terms[at];
        lines.push(line(factors[at], term.factor, factor.low, factor.high, 1));
        lines.push(line(exponents[at], term.exponent, exponent.low, exponent.high, 3));
    }
    let mut head = String::new();
    // Writing to a string does not fail.
    let _ = write!(head, "  with {:.0} % intervals", 100.0 * CONFIDENCE);
    lines.insert(0, head);
    lines
}

/// Returns 61 numbers at equal ratios, from the smallest to the largest of `values`.
fn spread(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let (low, high) = values
        .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    let steps = 60;
    (0..=steps).map(|step| low * (high / low).powf(f64::from(step) / f64::from(steps))).collect()
}
