//! Batches of linear functions.

use std::sync::Arc;

use super::config::RegressionConfig;
use super::functions::{Functions, LinearFunction};
use super::report::RegressionReport;
use crate::{
    Batch, BatchingConfig, BatchingReport, Corpora, DataConfig, Dataset, Epoch, EpochPlan, Error,
    Prepared, Report, Result, Stream, TokenizerPair,
};

/// Refuses settings that are impossible for linear functions, which are drawn and not read from
/// files.
///
/// # Errors
///
/// [`Error::Config`], with the offending key, if a setting is impossible.
pub(crate) fn validate(config: &DataConfig) -> Result<()> {
    let wrong = |key, message: &str| Err(Error::Config { key, message: message.to_owned() });
    let instead = "functions are drawn, so that their splits have names and no files";
    for (key, split) in [
        ("data.train", &config.train),
        ("data.validation", &config.validation),
        ("data.test", &config.test),
    ] {
        split.require_plain(key, instead)?;
        if split.iter().any(|corpus| corpus.stem.is_empty()) {
            return wrong(key, &format!("names a file, but {instead}"));
        }
    }
    for (key, is_set) in [
        ("data.hold_out", config.hold_out > 0),
        ("data.text.hold_out", config.text.hold_out > 0.0),
        ("data.images.hold_out", config.images.hold_out > 0),
    ] {
        if is_set {
            return wrong(key, "takes examples from a corpus; functions are drawn: set it to 0");
        }
    }
    Ok(())
}

/// Linear functions: different in each epoch for training, and always the same for measuring.
#[derive(Debug)]
pub struct RegressionDataset {
    settings: RegressionConfig,
    /// Source of the functions of a split for measuring. `None` for training, where the functions
    /// depend on the seed and the epoch.
    fixed: Option<Functions>,
    report: RegressionReport,
}

/// Prepares the functions of a run. Nothing is written.
///
/// # Errors
///
/// If the configuration is impossible.
pub(crate) fn prepare_regression(config: &DataConfig) -> Result<Prepared<RegressionDataset>> {
    config.validate()?;
    validate(config)?;
    let (settings, batching) = (&config.regression, &config.batching);
    let train = RegressionDataset::new(settings, batching, &config.train.name(), None);
    let measured = |split: &Corpora| Arc::new(RegressionDataset::of_split(config, &split.name()));
    Ok(Prepared {
        tokenizers: TokenizerPair::none(),
        train: Arc::new(train),
        validation: (!config.validation.is_empty()).then(|| measured(&config.validation)),
    })
}

impl RegressionDataset {
    /// Functions for measuring a model, determined by the name of their split.
    #[must_use]
    pub fn of_split(config: &DataConfig, name: &str) -> Self {
        let functions = Some(Functions::of_split(name));
        Self::new(&config.regression, &config.batching, name, functions)
    }

    fn new(
        settings: &RegressionConfig,
        batching: &BatchingConfig,
        split: &str,
        fixed: Option<Functions>,
    ) -> Self {
        let count = match fixed {
            None => settings.functions,
            Some(_) => settings.measured,
        };
        let most = batching.rows_of(settings.tokens());
        let report = RegressionReport {
            split: split.to_owned(),
            drawn_anew: fixed.is_none(),
            functions: count,
            dimensions: settings.dimensions,
            points: settings.points,
            noise: settings.noise,
            batching: BatchingReport::of_rows(
                count.div_ceil(most),
                most.min(count),
                settings.tokens(),
            ),
        };
        Self { settings: settings.clone(), fixed, report }
    }

    /// The number of functions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.report.functions
    }

    /// True if there are no functions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.report.functions == 0
    }

    /// Function with the index `number`. For training, this is a function of the first epoch with
    /// seed 0.
    #[must_use]
    pub fn function(&self, number: usize) -> LinearFunction {
        self.fixed.unwrap_or(Functions::of_training(Epoch::new(0, 0))).draw(number, &self.settings)
    }
}

/// Functions as input of a model. The ids are the bit patterns of `f32` numbers: the numbers of x₁,
/// then y₁, then the numbers of x₂ and so on, up to the last x. Each y is predicted at the first
/// number of its x.
#[must_use]
pub fn batch_of_functions(functions: &[LinearFunction]) -> Batch {
    let (mut stream, mut asked, mut answers) = (Stream::default(), Vec::new(), Vec::new());
    for function in functions {
        let (mut row, first) = (Vec::new(), stream.ids.len());
        for (input, answer) in function.inputs.iter().zip(&function.answers) {
            asked.push((first + row.len()) as u32);
            row.extend(input.iter().map(|x| x.to_bits()));
            row.push(answer.to_bits());
            answers.push(answer.to_bits());
        }
        // The last y is not part of the input, because nothing follows it.
        row.pop();
        stream.push(row);
    }
    let indices = vec![0; functions.len()];
    Batch { streams: vec![stream], asked: Some(asked), answers, indices, ..Batch::default() }
}

impl Dataset for RegressionDataset {
    fn plan(self: Arc<Self>, batching: &BatchingConfig, epoch: Epoch) -> Box<dyn EpochPlan> {
        let most = batching.rows_of(self.settings.tokens());
        let functions = self.fixed.unwrap_or(Functions::of_training(epoch));
        Box::new(Plan { data: self, functions, most })
    }

    fn report(&self) -> Report<'_> {
        Report::Functions(&self.report)
    }

    fn longest_row(&self) -> usize {
        self.settings.tokens()
    }

    fn most_tokens(&self) -> usize {
        self.len().saturating_mul(self.settings.tokens())
    }

    fn largest_batch(&self, tokens: usize) -> Batch {
        let most = self.report.batching.largest_sentences.max(1);
        let count = (tokens / self.settings.tokens().max(1)).clamp(1, most);
        let functions: Vec<LinearFunction> =
            (0..count).map(|number| self.function(number)).collect();
        batch_of_functions(&functions)
    }
}

/// The batches of one epoch.
struct Plan {
    data: Arc<RegressionDataset>,
    functions: Functions,
    most: usize,
}

impl EpochPlan for Plan {
    fn batches(&self) -> usize {
        self.data.len().div_ceil(self.most)
    }

    fn batch(&self, batch: usize) -> Result<Batch> {
        let first = batch * self.most;
        let numbers = first..self.data.len().min(first + self.most);
        let draw = |number| self.functions.draw(number, &self.data.settings);
        let functions: Vec<LinearFunction> = numbers.clone().map(draw).collect();
        let indices = numbers.map(|number| number + 1).collect();
        Ok(Batch { indices, ..batch_of_functions(&functions) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> DataConfig {
        let regression = RegressionConfig {
            dimensions: 2,
            points: 3,
            functions: 7,
            measured: 5,
            ..Default::default()
        };
        let batching = BatchingConfig { max_tokens: 15, ..Default::default() };
        DataConfig { regression, batching, ..Default::default() }
    }

    #[test]
    fn batches_have_the_functions_of_their_place_whatever_came_before() {
        let prepared = prepare_regression(&config()).unwrap();
        let plan = |seed, number| {
            prepared.train.clone().plan(&config().batching, Epoch::new(seed, number))
        };
        let one = plan(1, 0);
        assert_eq!(one.batches(), 3);
        let last = one.batch(2).unwrap();
        assert_eq!((last.indices.as_slice(), last.answers.len()), ([7].as_slice(), 3));
        assert_eq!(last, plan(1, 0).batch(2).unwrap());
        assert_ne!(last.answers, plan(1, 1).batch(2).unwrap().answers);
        assert_ne!(last.answers, plan(2, 0).batch(2).unwrap().answers);
        // A validation split is the same in every run and epoch.
        let validation = prepared.validation.unwrap();
        let measured =
            |seed, number| validation.clone().plan(&config().batching, Epoch::new(seed, number));
        assert_eq!(measured(1, 0).batches(), 2);
        assert_eq!(measured(1, 0).batch(1).unwrap(), measured(2, 3).batch(1).unwrap());
        let test = RegressionDataset::of_split(&config(), "test");
        assert_ne!(validation.function(0), test.function(0));
    }

    #[test]
    fn a_row_has_every_number_but_the_last_answer_and_each_point_is_asked() {
        let data = RegressionDataset::of_split(&config(), "test");
        let functions = [data.function(0), data.function(1)];
        let batch = batch_of_functions(&functions);
        let (ids, lengths) = batch.stream(0);
        assert_eq!(lengths, [8, 8]);
        assert_eq!(batch.asked.as_deref(), Some([0, 3, 6, 8, 11, 14].as_slice()));
        let number = |at: usize| f32::from_bits(ids[at]);
        let (first, second) = (&functions[0], &functions[1]);
        assert_eq!([number(0), number(1)], first.inputs[0][..]);
        assert_eq!([number(2), number(5)], first.answers[..2]);
        assert_eq!([number(14), number(15)], second.inputs[2][..]);
        let answers: Vec<f32> = batch.answers.iter().map(|&bits| f32::from_bits(bits)).collect();
        assert_eq!(answers, [first.answers.clone(), second.answers.clone()].concat());
    }

    #[test]
    fn what_is_no_function_or_no_name_is_refused() {
        let says = |change: &dyn Fn(&mut DataConfig)| {
            let mut config = config();
            change(&mut config);
            crate::Task::InContextRegression.validate(&config).unwrap_err().to_string()
        };
        assert!(says(&|data| data.regression.dimensions = 0).contains("from 1 to 4096"));
        assert!(says(&|data| data.regression.points = 1 << 20).contains("from 1 to 65536"));
        assert!(says(&|data| data.regression.noise = -0.5).contains("data.regression.noise"));
        assert!(says(&|data| data.regression.noise = f64::NAN).contains("data.regression.noise"));
        assert!(says(&|data| data.regression.functions = 0).contains("at least 1"));
        assert!(says(&|data| data.regression.measured = 0).contains("at least 1"));
        assert!(says(&|data| data.hold_out = 9).contains("data.hold_out"));
        let file = crate::Corpus { file: "pairs.tsv".into(), ..Default::default() };
        assert!(says(&|data| data.test = (&file).into()).contains("names a file"));
        crate::Task::InContextRegression.validate(&config()).unwrap();
    }
}
