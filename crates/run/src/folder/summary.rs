//! Summary of a run (the folder of a training) without loading its model: progress, scores, and
//! whether a process is training it.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::Value;
use taper_trainer::{LAST, Metric, State, StopReason, read_state};

use super::RunFolder;
use super::run_lock::process_in;
use crate::config::RunConfig;
use crate::one_line;

/// Number of bytes at the end of `metrics.jsonl` that are searched for the last update.
const TAIL: u64 = 1 << 16;

/// State of a run's training.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RunState {
    /// A process is training the run.
    Training {
        /// Id of that process.
        process: String,
    },
    /// Training has ended.
    Finished {
        /// Reason why training ended.
        reason: StopReason,
    },
    /// Training has not ended, and no process is training the run.
    Interrupted,
    /// The run cannot be read.
    Damaged {
        /// Error that was found when the run was read, as text.
        cause: String,
    },
}

/// Best validation score of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BestValidation {
    /// Metric that early stopping watches.
    pub metric: Metric,
    /// Best score by this metric.
    pub score: f64,
    /// Number of updates after which the score was measured.
    pub step: u64,
}

/// Score of a run on one test set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TestScore {
    /// Name of the split.
    pub split: String,
    /// Corpus BLEU.
    pub bleu: f64,
}

/// Summary of a run, which is read without loading its model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunSummary {
    /// Folder of the run.
    pub folder: PathBuf,
    /// State of the run.
    #[serde(flatten)]
    pub state: RunState,
    /// Number of updates that were made, according to the run's record.
    pub step: u64,
    /// Number of updates after which training ends; `None` if the configuration does not limit it.
    pub max_updates: Option<u64>,
    /// Number of complete epochs (passes over the data).
    pub epochs: u64,
    /// Number of epochs after which training ends; `None` if the configuration does not limit it.
    pub max_epochs: Option<u64>,
    /// Best validation; `None` if there has been none.
    pub best: Option<BestValidation>,
    /// Scores on the test sets that were translated when training ended; empty if there are none.
    pub tests: Vec<TestScore>,
}

impl RunSummary {
    /// Summarises the run in `folder`. If the run cannot be read, the error is in its state,
    /// [`RunState::Damaged`]. If a process is training the run, the state is [`RunState::Training`]
    /// in any case.
    #[must_use]
    pub fn read(folder: &RunFolder) -> Self {
        let mut summary = Self {
            folder: folder.root().to_owned(),
            state: RunState::Interrupted,
            step: 0,
            max_updates: None,
            epochs: 0,
            max_epochs: None,
            best: None,
            tests: Vec::new(),
        };
        if let Err(error) = summary.look_into(folder) {
            summary.state = RunState::Damaged { cause: one_line(&error) };
        }
        if let Some(process) = process_in(folder.root()) {
            summary.state = RunState::Training { process };
        }
        summary
    }

    fn look_into(&mut self, folder: &RunFolder) -> Result<()> {
        let config = folder.load_config(&[])?;
        let given = |limit: u64| (limit > 0).then_some(limit);
        self.max_updates = given(config.training.max_updates);
        self.max_epochs = given(config.training.max_epochs);
        self.step = last_recorded_step(&folder.metrics())?;
        self.tests = test_scores(&folder.scores())?;
        if folder.has_checkpoint()? {
            self.take_state(&read_state(&folder.checkpoint(Some(LAST))?)?, &config);
        }
        Ok(())
    }

    fn take_state(&mut self, state: &State, config: &RunConfig) {
        self.step = self.step.max(state.step);
        self.epochs = state.position.epoch;
        self.best = state.early_stopping.best.map(|best| BestValidation {
            metric: state.early_stopping.metric.unwrap_or(config.training.early_stopping.metric),
            score: best.score,
            step: best.step,
        });
        if let Some(reason) = state.reason_to_stop(&config.training) {
            self.state = RunState::Finished { reason };
        }
    }
}

/// Summaries of the runs in `folder`, ordered by name. If `folder` is itself a run, there is only
/// the summary of this run.
///
/// # Errors
/// When the folder cannot be read.
pub fn list_runs(folder: &Path) -> Result<Vec<RunSummary>> {
    let is_run = |path: &Path| RunFolder::new(path).config().is_file();
    if is_run(folder) {
        return Ok(vec![RunSummary::read(&RunFolder::new(folder))]);
    }
    if !folder.is_dir() {
        bail!("{}: no such folder; name the one that holds your runs", folder.display());
    }
    let mut folders = Vec::new();
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let path = entry.with_context(|| format!("cannot read {}", folder.display()))?.path();
        if is_run(&path) {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders.iter().map(|path| RunSummary::read(&RunFolder::new(path))).collect())
}

/// Number of updates (`step`) in the last valid line of `metrics.jsonl`; 0 if there is no such
/// line.
fn last_recorded_step(path: &Path) -> Result<u64> {
    let Ok(mut file) = File::open(path) else { return Ok(0) };
    let mut tail = Vec::new();
    let mut read = || {
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        file.read_to_end(&mut tail)
    };
    read().with_context(|| format!("cannot read {}", path.display()))?;
    let step = |line: &[u8]| serde_json::from_slice::<Value>(line).ok()?.get("step")?.as_u64();
    Ok(tail.rsplit(|&byte| byte == b'\n').find_map(step).unwrap_or(0))
}

/// BLEU scores in the file `path`, a `scores.json`; empty if there is no such file.
fn test_scores(path: &Path) -> Result<Vec<TestScore>> {
    let Ok(text) = fs::read(path) else { return Ok(Vec::new()) };
    let records: Vec<Value> = serde_json::from_slice(&text)
        .with_context(|| format!("{} does not hold scores", path.display()))?;
    let score = |record: &Value| {
        let bleu = record.pointer("/bleu/score")?.as_f64()?;
        Some(TestScore { split: record.get("split")?.as_str()?.to_owned(), bleu })
    };
    Ok(records.iter().filter_map(score).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_line_tells_how_far_a_run_has_come() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("metrics.jsonl");
        assert_eq!(last_recorded_step(&path).expect("none"), 0);
        let lines: String = (1..9000).map(|step| format!("{{\"step\":{step}}}\n")).collect();
        fs::write(&path, format!("{lines}{{\"step\":9000,\"lo")).expect("write");
        assert_eq!(last_recorded_step(&path).expect("read"), 8999);
    }
}
