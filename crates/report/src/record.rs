//! Reads `metrics.jsonl`, the record of a training.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use taper_data::read_regular;
use taper_trainer::{Event, NormsPerLayer, ProcessTime, Sample, Scores};

/// Largest size of a record in bytes.
const MOST_BYTES: u64 = 1 << 32;

/// Entry of the log: averages over the updates since the previous entry.
#[derive(Debug, Clone, PartialEq)]
pub struct Logged {
    /// Number of updates made.
    pub step: u64,
    /// Number of the pass over the data, from 0.
    pub epoch: u64,
    /// Label-smoothed cross entropy per target token, in nats; for models that predict numbers, the
    /// squared error per number.
    pub loss: f64,
    /// Cross entropy per target token, in nats; for models that predict numbers, the squared error
    /// per number.
    pub nll: f64,
    /// Share of target tokens predicted correctly; `None` for models that predict numbers.
    pub accuracy: Option<f64>,
    /// Learning rate of the last update.
    pub learning_rate: f64,
    /// Mean norm of the gradients before clipping.
    pub gradient_norm: f64,
    /// Gradient noise scale in target tokens; `None` with one micro-batch per update.
    pub noise_scale: Option<f64>,
    /// Target tokens trained on since the start of the run.
    pub tokens: u64,
    /// Target tokens per second.
    pub tokens_per_second: Option<f64>,
    /// Seconds of training so far.
    pub seconds: f64,
    /// Norms of each layer, if `training.log_layers` is set.
    pub layers: BTreeMap<String, NormsPerLayer>,
    /// Times of each process, if there are several.
    pub processes: Vec<ProcessTime>,
}

/// A validation.
#[derive(Debug, Clone, PartialEq)]
pub struct Validated {
    /// Number of updates made.
    pub step: u64,
    /// Scores of the validation.
    pub scores: Scores,
    /// Whether it was the best validation so far.
    pub improved: bool,
    /// Examples of the model's output.
    pub samples: Vec<Sample>,
}

/// Record of a run's training.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record {
    /// Entries of the log. The trainer writes an entry after every `training.log_every` updates.
    pub logged: Vec<Logged>,
    /// The validations.
    pub validated: Vec<Validated>,
    /// For each skipped update: the number of updates made before it, and the reason.
    pub skipped: Vec<(u64, String)>,
    /// Number of invalid lines.
    pub unreadable: u64,
}

impl Record {
    /// Reads the record at `path`; returns an empty record if the file does not exist yet. An
    /// incomplete last line is still being written, and is left for the next read.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(path: &Path) -> Result<Self> {
        let mut record = Self::default();
        if path.exists() {
            let bytes = read_regular(path, MOST_BYTES)
                .with_context(|| format!("cannot read {}", path.display()))?;
            record.append(&bytes);
        }
        Ok(record)
    }

    /// Adds the complete lines of `bytes` to the record; returns the number of bytes of these
    /// lines.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        for line in bytes[..whole].split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(event) => self.take(event),
                Err(_) => self.unreadable += 1,
            }
        }
        whole
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Log {
                step,
                epoch,
                loss,
                nll,
                accuracy,
                learning_rate,
                gradient_norm,
                noise_scale,
                layers,
                tokens,
                timing,
                ..
            } => self.logged.push(Logged {
                step,
                epoch,
                loss,
                nll,
                accuracy,
                learning_rate,
                gradient_norm,
                noise_scale,
                tokens,
                tokens_per_second: timing.tokens_per_second,
                seconds: timing.elapsed_seconds,
                layers,
                processes: timing.processes.into_iter().map(ProcessTime::with_plain_name).collect(),
            }),
            Event::Validation { step, scores, improved, samples, .. } => {
                self.validated.push(Validated { step, scores, improved, samples });
            }
            Event::Skipped { step, reason, .. } => self.skipped.push((step, reason)),
            _ => {}
        }
    }

    /// Returns the total times of each process, over the entries of the log since the number of
    /// processes last changed; empty for a single process.
    #[must_use]
    pub fn processes(&self) -> Vec<ProcessTime> {
        let Some(last) = self.logged.last() else { return Vec::new() };
        let count = last.processes.len();
        let mut all = vec![ProcessTime::default(); count];
        for logged in self.logged.iter().rev().take_while(|one| one.processes.len() == count) {
            for (sum, one) in all.iter_mut().zip(&logged.processes) {
                if sum.host.is_empty() {
                    sum.host.clone_from(&one.host);
                }
                *sum += one;
            }
        }
        all
    }

    /// Returns the names of the validation scores, in the order in which they first appear.
    #[must_use]
    pub fn score_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in self.validated.iter().flat_map(|one| one.scores.iter()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Returns the validation score `name` by update: pairs of the number of updates and the score.
    #[must_use]
    pub fn scores(&self, name: &str) -> Vec<(f64, f64)> {
        let score = |one: &Validated| Some((one.step as f64, one.scores.get(name)?));
        self.validated.iter().filter_map(score).collect()
    }

    /// Returns the number of target tokens trained on in the first `step` updates. Between two
    /// entries of the log, it is interpolated; after the last entry, it is estimated from the mean
    /// number of tokens of an update. `None` if nothing was logged.
    #[must_use]
    pub fn tokens_at(&self, step: u64) -> Option<f64> {
        let at = |one: &Logged| (one.step as f64, one.tokens as f64);
        let step = step as f64;
        let before = self.logged.iter().map(at).rfind(|one| one.0 <= step).unwrap_or((0.0, 0.0));
        let after = self.logged.iter().map(at).find(|one| one.0 > step);
        let (from, to) = match after {
            Some(after) => (before, after),
            None => ((0.0, 0.0), before),
        };
        let span = to.0 - from.0;
        (span > 0.0).then(|| from.1 + (to.1 - from.1) * (step - from.0) / span)
    }

    /// Whether the model predicts numbers, so that its loss is the squared error.
    #[must_use]
    pub fn is_of_numbers(&self) -> bool {
        self.logged.last().is_some_and(|last| last.accuracy.is_none())
    }

    /// Returns the values that `value` reads from the entries of the log, each preceded by the
    /// number of updates. Entries without a value are left out.
    #[must_use]
    pub fn measured(&self, value: impl Fn(&Logged) -> Option<f64>) -> Vec<(f64, f64)> {
        self.logged.iter().filter_map(|one| Some((one.step as f64, value(one)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_line_by_line_and_a_torn_line_is_left() {
        let log = |step: u64| {
            format!(
                "{{\"event\":\"log\",\"step\":{step},\"epoch\":0,\"loss\":2.5,\"nll\":2.0,\
                 \"accuracy\":0.5,\"learning_rate\":0.001,\"gradient_norm\":1.5,\"tokens\":10,\
                 \"window_tokens\":10,\"timing\":{{\"elapsed_seconds\":1.0}}}}\n"
            )
        };
        let validation = "{\"event\":\"validation\",\"step\":2,\"epoch\":0,\"scores\":\
                          {\"loss\":2.0,\"bleu\":11.0},\"improved\":true,\
                          \"timing\":{\"elapsed_seconds\":1.0}}\n";
        let text = format!("{}no record\n{validation}{}{{\"event\":", log(1), log(2));
        let mut record = Record::default();
        let taken = record.append(text.as_bytes());
        assert_eq!(&text[taken..], "{\"event\":");
        assert_eq!((record.logged.len(), record.unreadable), (2, 1));
        assert_eq!(record.scores("bleu"), [(2.0, 11.0)]);
        assert_eq!(record.measured(|one| Some(one.nll)), [(1.0, 2.0), (2.0, 2.0)]);
    }

    #[test]
    fn tokens_are_those_of_the_update() {
        let log = |(step, tokens): (u64, u64)| {
            format!(
                "{{\"event\":\"log\",\"step\":{step},\"epoch\":0,\"loss\":2.5,\"nll\":2.0,\
                 \"learning_rate\":0.001,\"gradient_norm\":1.5,\"tokens\":{tokens},\
                 \"window_tokens\":10,\"timing\":{{\"elapsed_seconds\":1.0}}}}\n"
            )
        };
        let mut record = Record::default();
        assert_eq!(record.tokens_at(5), None);
        record.append([(10, 100), (20, 220)].map(log).concat().as_bytes());
        let tokens = [0, 5, 10, 15, 20, 40].map(|step| record.tokens_at(step));
        assert_eq!(tokens, [0.0, 50.0, 100.0, 160.0, 220.0, 440.0].map(Some));
    }
}
