//! Agreement among the processes that train one model together, before the training begins.
//!
//! Only process 0, the first process, locks the run (the folder of the training), trains the
//! tokenizer, and checks memory and disk, while the others wait. All processes that can read the
//! folder in which process 0 trains (on a shared disk) tokenise the text together. Then process 0
//! sends its decisions to the others, and all processes open the same data. Training begins only if
//! all have the same program, recipe (settings of the training), tokenizer and data.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use taper_data::{Share, hold_out};
use taper_trainer::{Exchange, everyone, machine, read_state, require_same};

use crate::processes;

use super::origin::Origin;
use super::preparation::{ReadyRun, observed};
use super::{Outcome, TrainSettings, train};
use crate::checks::use_threads;
use crate::config::{RunConfig, described, training_differences};
use crate::event::{RunEvent, RunObserver};
use crate::folder::{RunFolder, TOKENIZERS};
use crate::tasks::{TaskModel, with_model};
use crate::word_vectors;

/// Message from process 0 to the other processes, which wait for it.
#[derive(Serialize, Deserialize)]
enum Said {
    /// Request to tokenise the text together.
    Tokenise(Box<Request>),
    /// Decisions of process 0, sent after it has prepared the data.
    Decided(Box<Decided>),
}

/// Request of process 0 to tokenise the text. It is meant for all processes that find the file
/// `mark` in the run's folder.
#[derive(Serialize, Deserialize)]
struct Request {
    #[serde(with = "crate::config::text")]
    config: RunConfig,
    mark: String,
}

/// Decisions of process 0, and files that other processes need.
#[derive(Serialize, Deserialize)]
struct Decided {
    #[serde(with = "crate::config::text")]
    config: RunConfig,
    /// Checkpoint from which training continues, and the settings on which its validation scores
    /// depend.
    origin: Option<(PathBuf, Map<String, Value>)>,
    /// Names and contents of the tokenizer files, for processes that cannot read the folder of
    /// process 0.
    tokenizers: Vec<(String, String)>,
}

/// Takes part in a training as a process other than the first. `given`: recipe with which this
/// process was started, or `None` if it was started to resume a run.
///
/// # Errors
/// See [`start`](super::start). An error of another process is an error, too.
pub fn follow(
    mut exchange: Box<dyn Exchange>,
    folder: &RunFolder,
    given: Option<&RunConfig>,
    settings: &TrainSettings,
    observer: &mut dyn RunObserver,
    stop: &AtomicBool,
) -> Result<Outcome> {
    observer.observe(&RunEvent::Locked { folder: folder.root() })?;
    meet(&mut *exchange, given)?;
    let decided = decision(&mut *exchange, folder, given, observer)?;
    let origin = match decided.origin {
        Some((checkpoint, validation)) => {
            let state = read_state(&checkpoint)?;
            Some(Origin { checkpoint, state, validation })
        }
        None => None,
    };
    let config = &with_own_paths(decided.config, given, folder)?;
    with_model!(config.task, M => {
        let mut open = || -> Result<ReadyRun<M>> {
            let root = folder.root();
            std::fs::create_dir_all(root)
                .with_context(|| format!("cannot make {}", root.display()))?;
            for (name, text) in &decided.tokenizers {
                if !root.join(name).exists() {
                    crate::folder::files::write_atomically(&root.join(name), text.as_bytes())?;
                }
            }
            ReadyRun::opened(folder, config, settings, observer)
        };
        // On each machine, the process with the lowest rank makes missing files, and the others
        // wait for it.
        let machines = everyone(&mut *exchange, machine())?;
        let rank = exchange.rank();
        let ready = if machines[..rank].contains(&machines[rank]) {
            exchange.barrier()?;
            open()?
        } else {
            let ready = open()?;
            exchange.barrier()?;
            ready
        };
        if origin.is_none() {
            ready.take_vectors()?;
        }
        same_data(&mut *exchange, &ready)?;
        train(exchange, folder, settings, origin.as_ref(), ready, observer, stop)
    })
}

/// Waits for the decisions of process 0. Before that, tokenises this process's share of the text if
/// process 0 requests it.
fn decision(
    exchange: &mut dyn Exchange,
    folder: &RunFolder,
    given: Option<&RunConfig>,
    observer: &mut dyn RunObserver,
) -> Result<Decided> {
    loop {
        match everyone(exchange, None)?.swap_remove(0) {
            Some(Said::Decided(decided)) => return Ok(*decided),
            Some(Said::Tokenise(request)) => {
                let Request { config, mark } = *request;
                let config = match folder.root().join(&mark).is_file() {
                    true => with_own_paths(config, given, folder)?,
                    false => config,
                };
                use_threads(config.threads)?;
                tokenise_share(exchange, folder, &config, &mark, observer)?;
            }
            None => bail!("process 0 has decided nothing"),
        }
    }
}

/// Copy of the recipe `decided` with the paths, the device and the number of threads of `given`,
/// because these can differ between machines. `given`: recipe with which this process was started.
fn with_own_paths(
    decided: RunConfig,
    given: Option<&RunConfig>,
    folder: &RunFolder,
) -> Result<RunConfig> {
    let Some(given) = given else { return Ok(decided) };
    let mut data = hold_out(&given.data, decided.training.seed, &folder.absolute_root())?;
    data.batching = decided.data.batching;
    data.tokenizer = decided.data.tokenizer;
    (data.nfkc, data.lowercase) = (decided.data.nfkc, decided.data.lowercase);
    let device = given.device.clone();
    Ok(RunConfig { data, device, threads: given.threads, ..decided })
}

/// If the text is not tokenised yet, tokenises it together with all processes that can read
/// `folder`. Only process 0 calls this, before it prepares the data.
///
/// # Errors
/// If the text cannot be tokenised, or a process has ended.
pub(super) fn tokenise(
    exchange: &mut dyn Exchange,
    folder: &RunFolder,
    config: &RunConfig,
    observer: &mut dyn RunObserver,
) -> Result<()> {
    if exchange.size() == 1 {
        return Ok(());
    }
    let mut config = config.clone();
    config.data = hold_out(&config.data, config.training.seed, &folder.absolute_root())?;
    if !config.task.begin_tokenising(&config.data, folder.root())? {
        return Ok(());
    }
    let mark = Mark::put_in(folder)?;
    let request = Request { config: config.clone(), mark: mark.name.clone() };
    everyone(exchange, Some(Said::Tokenise(Box::new(request))))?;
    tokenise_share(exchange, folder, &config, &mark.name, observer)
}

/// File that process 0 puts in a run's folder. A process that finds it there uses the same folder.
struct Mark {
    path: PathBuf,
    name: String,
}

impl Mark {
    fn put_in(folder: &RunFolder) -> Result<Self> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_nanos());
        // Files with the ending `.partial` are removed when the run is resumed. So the file does
        // not remain after a crash either.
        let name = format!("together-{}-{now}.partial", std::process::id());
        let path = folder.root().join(&name);
        std::fs::write(&path, []).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path, name })
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Tokenises this process's share of the text, if it finds the file `mark` in `folder`, and waits
/// for the other processes. If several processes fail, only the one with the lowest rank returns
/// its own error.
fn tokenise_share(
    exchange: &mut dyn Exchange,
    folder: &RunFolder,
    config: &RunConfig,
    mark: &str,
    observer: &mut dyn RunObserver,
) -> Result<()> {
    let sees = everyone(exchange, folder.root().join(mark).is_file())?;
    let rank = exchange.rank();
    let count = |processes: &[bool]| processes.iter().filter(|sees| **sees).count();
    let share = Share { place: count(&sees[..rank]), of: count(&sees) };
    let tokenised = match sees[rank] {
        true => observed(observer, |observe| {
            config.task.tokenise_share(&config.data, folder.root(), share, observe)
        }),
        false => Ok(()),
    };
    let failed = everyone(exchange, tokenised.is_err())?;
    match failed.iter().position(|failed| *failed) {
        Some(first) if first != rank => {
            Err(taper_trainer::ExchangeError::Failed { rank: first }.into())
        }
        _ => tokenised,
    }
}

/// Sends the decisions of process 0, which are in `ready`, to the other processes, and waits until
/// all are ready to train.
///
/// # Errors
/// If a process cannot train, or has other data.
pub(super) fn lead<M: TaskModel>(
    exchange: &mut dyn Exchange,
    folder: &RunFolder,
    ready: &ReadyRun<M>,
    origin: Option<&Origin>,
) -> Result<()> {
    if exchange.size() == 1 {
        return Ok(());
    }
    let text = |name: &&str| {
        let text = std::fs::read_to_string(folder.root().join(name)).ok()?;
        Some(((*name).to_owned(), text))
    };
    let decided = Decided {
        config: ready.config.clone(),
        origin: origin.map(|origin| {
            let path = origin.checkpoint.canonicalize();
            (path.unwrap_or_else(|_| origin.checkpoint.clone()), origin.validation.clone())
        }),
        tokenizers: TOKENIZERS.iter().filter_map(text).collect(),
    };
    everyone(exchange, Some(Said::Decided(Box::new(decided))))?;
    everyone(exchange, machine())?;
    exchange.barrier()?;
    same_data(exchange, ready)
}

/// Checks that all processes run the same program and were started with the same recipe. `given`:
/// recipe with which this process was started, or `None` if it was started to resume a run.
///
/// # Errors
/// If processes differ. The message names the process and the difference.
pub(super) fn meet(exchange: &mut dyn Exchange, given: Option<&RunConfig>) -> Result<()> {
    if exchange.size() == 1 {
        return Ok(());
    }
    let same = |_: &String, _: &String| "; start the same on each machine".to_owned();
    require_same(exchange, "version of this program", program(), same)?;
    let kind = if given.is_some() { "train" } else { "resume" };
    require_same(exchange, "command", kind.to_owned(), |first, other| {
        format!(": {other} instead of {first}")
    })?;
    if let Some(given) = given {
        let here = exchange.rank();
        let all = everyone(exchange, given.clone())?;
        for (rank, other) in all.iter().enumerate() {
            let differences = training_differences(&all[0], other)?;
            if !differences.is_empty() {
                let details = described(&differences).replace(" but was ", " instead of ");
                let (subject, details) = ("recipe", format!(": {details}"));
                return Err(
                    taper_trainer::ExchangeError::Differs { rank, here, subject, details }.into()
                );
            }
        }
    }
    Ok(())
}

/// Returns an error if processes have different tokenizers, data or word vectors.
fn same_data<M: TaskModel>(exchange: &mut dyn Exchange, ready: &ReadyRun<M>) -> Result<()> {
    let prepared = &ready.prepared;
    let difference = |first: &String, other: &String| format!(": {other} instead of {first}");
    let same_files = |_: &String, _: &String| {
        "; give each the same files, or one folder that all of them see".to_owned()
    };
    require_same(exchange, "tokenizer", prepared.tokenizers.hash(), difference)?;
    for (subject, split) in [
        ("training text", Some(&prepared.train)),
        ("validation text", prepared.validation.as_ref()),
    ] {
        let report = split.map(|split| split.report());
        let report = serde_json::to_vec(&report).context("the data report is not JSON")?;
        require_same(exchange, subject, hash(&report), same_files)?;
    }
    let embeddings = &ready.config.model.embeddings;
    let begin = (embeddings, &prepared.tokenizers, ready.model.parameters());
    let vectors = word_vectors::sha256(begin.0, begin.1, begin.2)?;
    Ok(require_same(exchange, "vectors of words", vectors, same_files)?)
}

/// Identity of this program: the hash of its file, or its version if the file cannot be read.
fn program() -> String {
    let file = processes::code().and_then(std::fs::read);
    file.map_or_else(|_| env!("CARGO_PKG_VERSION").to_owned(), |bytes| hash(&bytes))
}

fn hash(bytes: &[u8]) -> String {
    taper_data::hexadecimal(&Sha256::digest(bytes))
}
