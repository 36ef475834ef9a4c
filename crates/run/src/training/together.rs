//! Agreement among the processes of a training before it begins.
//!
//! Process 0 alone locks the run, trains the tokenizer, and checks memory and disk, while the
//! others wait. All processes that see the folder of process 0 tokenise the text together. Then
//! process 0 announces its decisions, and all processes open the same data. Training begins only if
//! all have the same program, recipe, tokenizer and data.

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
use crate::folder::RunFolder;
use crate::tasks::{TaskModel, with_model};
use crate::word_vectors;

/// Message of process 0 to the others, which wait for it.
#[derive(Serialize, Deserialize)]
enum Said {
    /// All processes that see the file `mark` in the run's folder are to tokenise the text.
    Tokenise { config: Box<RunConfig>, mark: String },
    /// The data is prepared, and everything is decided.
    Decided(Box<Decided>),
}

/// Facts and decisions of process 0, which the other processes receive.
#[derive(Serialize, Deserialize)]
struct Decided {
    config: RunConfig,
    /// Checkpoint from which training continues, and the properties on which its validation scores
    /// depend.
    origin: Option<(PathBuf, Map<String, Value>)>,
    /// Names and contents of the tokenizer files, which processes that do not share the folder
    /// lack.
    tokenizers: Vec<(String, String)>,
}

/// Names of the tokenizer files, which are the same wherever a run's data is prepared.
const TOKENIZERS: [&str; 6] = [
    "tokenizer.json",
    "tokenizer.special.json",
    "tokenizer.source.json",
    "tokenizer.source.special.json",
    "tokenizer.target.json",
    "tokenizer.target.special.json",
];

/// Takes part in a training as a process other than the first. `given` is the recipe with which
/// this process was started; `None` if it resumes a run.
///
/// # Errors
/// Errors of [`start`](super::start), in this process or in another.
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
        // The first process of each machine makes missing files, and the others wait for it.
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

/// Waits for the decisions of process 0, and tokenises this process's share of the text if asked
/// to.
fn decision(
    exchange: &mut dyn Exchange,
    folder: &RunFolder,
    given: Option<&RunConfig>,
    observer: &mut dyn RunObserver,
) -> Result<Decided> {
    loop {
        match everyone(exchange, None)?.swap_remove(0) {
            Some(Said::Decided(decided)) => return Ok(*decided),
            Some(Said::Tokenise { config, mark }) => {
                let config = match folder.root().join(&mark).is_file() {
                    true => with_own_paths(*config, given, folder)?,
                    false => *config,
                };
                use_threads(config.threads)?;
                tokenise_share(exchange, folder, &config, &mark, observer)?;
            }
            None => bail!("process 0 has decided nothing"),
        }
    }
}

/// Copy of the recipe `decided` with the paths, the device and the threads of `given`, the recipe
/// of this process, because these may differ between machines.
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

/// Tokenises the text, if necessary, together with all processes that see `folder`. Only the first
/// process calls this, before it prepares the data.
///
/// # Errors
/// When the text cannot be tokenised, or a process has ended.
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
    let instruction = Said::Tokenise { config: Box::new(config.clone()), mark: mark.name.clone() };
    everyone(exchange, Some(instruction))?;
    tokenise_share(exchange, folder, &config, &mark.name, observer)
}

/// File that process 0 puts in a run's folder: a process that finds it there sees the same folder.
struct Mark {
    path: PathBuf,
    name: String,
}

impl Mark {
    fn put_in(folder: &RunFolder) -> Result<Self> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_nanos());
        // The ending makes sure that the file is removed after a crash, like all incomplete files.
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

/// Tokenises the share of this process, if it sees the file `mark` in `folder`, and waits for the
/// others. If several processes fail, only the first of them reports its error.
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

/// Announces the decisions of process 0, which are in `ready`, to the others, and waits until all
/// are ready to train.
///
/// # Errors
/// When a process cannot train, or has other data.
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

/// Refuses to begin unless all processes run the same program and were started with the same
/// recipe. `given` is the recipe of this process; `None` if it resumes a run.
///
/// # Errors
/// When processes differ; the message names the process and the difference.
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

/// Refuses to train if processes have different data or different word vectors.
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
