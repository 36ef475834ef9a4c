//! Tests that training with several processes (here threads) gives files that are identical byte
//! for byte to those of a single process.

mod common;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use candle_core::Tensor;

use common::{Generated, HeldOut, Task, contents, model, record, short_run, tiny};
use taper_model::{Batch, Transformer};
use taper_trainer::{
    BoxError, Checkpoints, DistributedConfig, Event, Exchange, ExchangeError, Identity, InProcess,
    MODEL_FILE, Network, OPTIMIZER_FILE, OptimizerKind, Position, Rendezvous, Scores, Sockets,
    Source, State, StopReason, TrainError, Trainer, TrainingConfig, Validator, in_process,
    in_process_over, read_state,
};

/// Source of sentences that fails from the position `from` on, unless this is `None`.
struct Failing {
    data: Generated,
    from: Option<Position>,
}

impl Source for Failing {
    fn batches(&mut self, epoch: u64) -> Result<u64, BoxError> {
        self.data.batches(epoch)
    }

    fn batch(&mut self, position: Position) -> Result<Batch, BoxError> {
        match self.from {
            Some(from) if position >= from => Err("the disk is gone".into()),
            _ => self.data.batch(position),
        }
    }
}

/// Validator of the process with this rank. Checks that it is only called in process 0.
struct Measuring(usize);

impl Validator<Transformer> for Measuring {
    fn validate(&mut self, model: &Transformer, step: u64) -> Result<Scores, BoxError> {
        assert_eq!(self.0, 0, "one process validates");
        HeldOut(Generated::new(Task::Reverse)).validate(model, step)
    }
}

type Ended = Result<StopReason, TrainError>;

/// Connections of `size` processes: within this process, or by sockets.
fn connected(size: usize, by_sockets: bool) -> Vec<Box<dyn Exchange>> {
    if !by_sockets {
        return in_process(size).into_iter().map(|one| Box::new(one) as _).collect();
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // This stands for another program that connects to the port. It must not count as a process of
    // the training.
    TcpStream::connect(("127.0.0.1", port)).unwrap().write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let meet = |rank: usize, listener: Option<TcpListener>| {
        let (host, key) = ("127.0.0.1".to_owned(), "secret".to_owned());
        let patience = Duration::from_secs(60);
        let meeting = Rendezvous { rank, size, host, port, key, patience };
        let on_loss = Box::new(|rank, why: &str| panic!("{rank} is gone: {why}"));
        Box::new(Sockets::meet(&meeting, listener, &mut || Ok(()), on_loss).unwrap())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> =
            (1..size).map(|rank| scope.spawn(move || meet(rank, None) as _)).collect();
        let first: Box<dyn Exchange> = meet(0, Some(listener));
        std::iter::once(first).chain(others.into_iter().map(|it| it.join().unwrap())).collect()
    })
}

/// Trains in `size` processes, from the last checkpoint if there is one. If `failing` is a
/// position, the source of the last process fails from this position on. Returns the outcome of
/// each process, and the events of process 0.
fn train(
    size: usize,
    directory: &Path,
    config: &TrainingConfig,
    failing: Option<Position>,
) -> (Vec<Ended>, Vec<Event>) {
    train_among(connected(size, false), directory, config, failing)
}

/// Trains like [`train`], in one process for each of these connections.
fn train_among(
    processes: Vec<Box<dyn Exchange>>,
    directory: &Path,
    config: &TrainingConfig,
    failing: Option<Position>,
) -> (Vec<Ended>, Vec<Event>) {
    let (last, size) = (Checkpoints::new(directory).find("last").unwrap(), processes.len());
    let one = |exchange: Box<dyn Exchange>, rank: usize| {
        let (model, identity) = (model(&tiny(0.2)), Identity::default());
        let mut trainer = match &last {
            Some(path) => {
                Trainer::resume_among(exchange, model, config.clone(), identity, directory, path)
            }
            None => Trainer::begin_among(exchange, model, config.clone(), identity, directory),
        }
        .unwrap();
        let from = failing.filter(|_| rank == size - 1);
        let mut source = Failing { data: Generated::new(Task::Reverse), from };
        let mut events = Vec::new();
        let mut observer = |event: &Event| {
            events.push(event.clone());
            Ok(())
        };
        let stop = AtomicBool::new(false);
        let ended = trainer.train(&mut source, &mut Measuring(rank), &mut observer, &stop);
        assert!(rank == 0 || events.is_empty(), "one process tells");
        (ended, events)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = processes
            .into_iter()
            .enumerate()
            .map(|(rank, exchange)| scope.spawn(move || one(exchange, rank)))
            .collect();
        let mut all = Vec::new();
        let mut events = Vec::new();
        for thread in threads {
            let (ended, of_one) = thread.join().unwrap();
            all.push(ended);
            events.extend(of_one);
        }
        (all, events)
    })
}

/// State of a checkpoint without times and checksum.
fn timeless(checkpoint: &Path) -> State {
    let mut state = read_state(checkpoint).unwrap();
    (state.training_seconds, state.window.seconds) = (0.0, 0.0);
    state.checksum.clear();
    state
}

fn assert_same(expected: &Path, got: &Path, what: &str) {
    let path = |directory: &Path, which: &str| Checkpoints::new(directory).resolve(which).unwrap();
    for which in ["last", "best"] {
        let (expected, got) = (path(expected, which), path(got, which));
        assert_eq!(expected.file_name(), got.file_name(), "{what}");
        let (left, right) = (contents(&expected), contents(&got));
        for file in [MODEL_FILE, OPTIMIZER_FILE] {
            assert!(left[file] == right[file], "{what}: {file} of {which} differs");
        }
        assert_eq!(timeless(&expected), timeless(&got), "{what}");
    }
}

/// Returns `config` with buckets (ranges of parameters whose gradients are exchanged at once) that
/// are so small that there are several of them.
fn in_buckets(config: TrainingConfig) -> TrainingConfig {
    TrainingConfig { distributed: DistributedConfig { bucket_mib: 0.05 }, ..config }
}

#[test]
fn any_number_of_processes_trains_the_same() {
    let mut lion = TrainingConfig { accumulation: 5, ..short_run(7) };
    lion.optimizer.kind = OptimizerKind::Lion;
    // Gradients are summed along a binary tree whose leaves are the micro-batches. The numbers of
    // processes include these cases: each process sums exactly one subtree; processes sum several
    // subtrees; there are more processes than micro-batches.
    let adam = TrainingConfig { accumulation: 4, ..short_run(12) };
    let mut muon = TrainingConfig { accumulation: 4, ..short_run(7) };
    muon.optimizer.kind = OptimizerKind::Muon;
    for (config, sizes) in [(adam, [2, 3, 4].as_slice()), (lion, &[2, 6]), (muon, &[2, 3, 5])] {
        let whole = tempfile::tempdir().unwrap();
        let (ended, expected) = train(1, whole.path(), &config, None);
        assert_eq!(
            ended.into_iter().map(Result::unwrap).collect::<Vec<_>>(),
            [StopReason::MaxUpdates]
        );
        assert!(record(&expected).len() > 1);
        for &size in sizes {
            let parts = tempfile::tempdir().unwrap();
            let config = in_buckets(config.clone());
            let (ended, events) = train(size, parts.path(), &config, None);
            assert!(ended.iter().all(|ended| matches!(ended, Ok(StopReason::MaxUpdates))));
            assert_eq!(record(&events), record(&expected), "{size} processes");
            assert_same(whole.path(), parts.path(), &format!("{size} processes"));
        }
    }
}

/// Exchange that records when the exchange of a bucket is begun, and when it is waited for.
struct Noting {
    inner: InProcess,
    begun: Arc<Mutex<Vec<&'static str>>>,
}

impl Exchange for Noting {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn begin(&mut self, parts: Vec<Tensor>) -> Result<(), ExchangeError> {
        self.begun.lock().unwrap().push("begin");
        self.inner.begin(parts)
    }

    fn end(&mut self) -> Result<Vec<Tensor>, ExchangeError> {
        self.begun.lock().unwrap().push("end");
        self.inner.end()
    }

    fn gather(&mut self, message: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        self.inner.gather(message)
    }
}

/// Checks that the exchange of several buckets is begun before the first of them is waited for, and
/// that training over a slow network gives the same result. (That an exchange begins before the
/// last gradient is computed is shown by the tests of `GradientTree::sum_told` and of the models.)
#[test]
fn buckets_are_on_their_way_together() {
    let config = in_buckets(TrainingConfig { accumulation: 4, ..short_run(6) });
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_, expected) = train(1, whole.path(), &config, None);
    let network = Network { bytes_per_second: 20e6, delay: Duration::from_millis(2) };
    let begun: Arc<Mutex<Vec<_>>> = Arc::default();
    let processes = in_process_over(2, network).into_iter().enumerate().map(|(rank, inner)| {
        let begun = if rank == 0 { Arc::clone(&begun) } else { Arc::default() };
        Box::new(Noting { inner, begun }) as Box<dyn Exchange>
    });
    let (ended, events) = train_among(processes.collect(), parts.path(), &config, None);
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    assert_eq!(record(&events), record(&expected));
    assert_same(whole.path(), parts.path(), "a slow network");
    let begun = begun.lock().unwrap();
    let first = begun.iter().position(|what| *what == "end").unwrap();
    assert!(first > 1, "one bucket is waited for before the next is begun");
}

#[test]
fn processes_that_are_connected_by_tcp_train_the_same() {
    let config = TrainingConfig { accumulation: 4, ..short_run(7) };
    let whole = tempfile::tempdir().unwrap();
    let (_, expected) = train(1, whole.path(), &config, None);
    for size in [2, 3] {
        let parts = tempfile::tempdir().unwrap();
        let (ended, events) = train_among(connected(size, true), parts.path(), &config, None);
        assert!(ended.iter().all(Result::is_ok), "{ended:?}");
        assert_eq!(record(&events), record(&expected), "{size} processes");
        assert_same(whole.path(), parts.path(), &format!("{size} processes"));
    }
}

#[test]
fn whatever_is_sent_arrives_whole() {
    // The parts are larger than the buffers of a connection, and are sent in both directions at
    // once.
    let length = |from: usize, to: usize| (from * 3 + to) * 700_000 + from;
    let part = |from: usize, to: usize| {
        let values: Vec<f32> = (0..length(from, to)).map(|at| (at * 31 + to) as f32).collect();
        candle_core::Tensor::from_vec(values, length(from, to), &candle_core::Device::Cpu).unwrap()
    };
    let (size, part) = (3, &part);
    std::thread::scope(|scope| {
        for (rank, mut exchange) in connected(size, true).into_iter().enumerate() {
            scope.spawn(move || {
                let parts = (0..size).map(|to| part(rank, to)).collect();
                let received = exchange.exchange(parts).unwrap();
                for (from, received) in received.iter().enumerate() {
                    let expected = part(from, rank).to_vec1::<f32>().unwrap();
                    assert!(received.to_vec1::<f32>().unwrap() == expected, "{from} {rank}");
                }
                let facts = exchange.gather(vec![rank as u8; rank * 100_000]).unwrap();
                assert!((0..size).all(|from| facts[from] == vec![from as u8; from * 100_000]));
                exchange.barrier().unwrap();
            });
        }
    });
}

/// Each process ends as soon as it has received the messages of the other processes. The other
/// processes have possibly not received its last message yet. They must still be able to read it,
/// and must not take the process for killed.
#[test]
fn processes_that_end_together_are_all_heard() {
    for round in 0..80 {
        let processes = connected(3, true);
        let ended: Vec<_> = std::thread::scope(|scope| {
            let end = |mut exchange: Box<dyn Exchange>| exchange.gather(vec![7]);
            let all: Vec<_> =
                processes.into_iter().map(|one| scope.spawn(move || end(one))).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(ended.iter().all(Result::is_ok), "round {round}: {ended:?}");
    }
}

#[test]
fn a_process_that_ends_is_told_from_one_that_is_gone() {
    let mut processes = connected(2, true);
    drop(processes.pop());
    let ended = processes[0].barrier().unwrap_err();
    assert!(matches!(ended, ExchangeError::Failed { rank: 1 }), "{ended}");
    assert!(ended.is_told_elsewhere());
}

#[test]
fn a_run_goes_on_with_another_number_of_processes() {
    // Not only the number of processes changes, but also the number of buckets, because a single
    // process has only one bucket.
    let config = |updates| in_buckets(TrainingConfig { accumulation: 4, ..short_run(updates) });
    let whole = tempfile::tempdir().unwrap();
    train(1, whole.path(), &config(18), None);
    let parts = tempfile::tempdir().unwrap();
    for (size, updates) in [(4, 6), (1, 12), (2, 18)] {
        let (ended, _) = train(size, parts.path(), &config(updates), None);
        assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    }
    assert_same(whole.path(), parts.path(), "4, 1 and 2 processes");
}

#[test]
fn where_one_cannot_read_on_all_of_them_save_and_end() {
    let config = TrainingConfig { accumulation: 4, ..short_run(12) };
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    train(1, whole.path(), &config, None);
    let (ended, _) = train(4, parts.path(), &config, Some(Position { epoch: 4, index: 0 }));
    for (rank, ended) in ended.iter().enumerate() {
        let error = ended.as_ref().unwrap_err();
        match rank {
            3 => assert!(matches!(error, TrainError::Source { .. }), "{error}"),
            _ => {
                assert_eq!(error.to_string(), "process 3 of the training has ended: see its output")
            }
        }
    }
    let saved = Checkpoints::new(parts.path()).resolve("last").unwrap();
    assert!(read_state(&saved).unwrap().interim);
    let (ended, _) = train(2, parts.path(), &config, None);
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    assert_same(whole.path(), parts.path(), "after the failure");
}

/// Process 0 is interrupted during the update after which process 1 reaches the time limit. The
/// clock of process 1 is ahead, because it begins earlier.
#[test]
fn a_run_at_its_time_limit_does_not_count_as_interrupted() {
    let (ahead, limit) = (Duration::from_secs(2), Duration::from_millis(1500));
    let max_minutes = limit.as_secs_f64() / 60.0;
    let config = TrainingConfig { max_minutes, log_every: 1, ..short_run(1000) };
    let directory = tempfile::tempdir().unwrap();
    let one = |exchange: InProcess| {
        let (rank, root) = (exchange.rank(), directory.path());
        let (model, identity) = (model(&tiny(0.2)), Identity::default());
        let mut trainer =
            Trainer::begin_among(Box::new(exchange), model, config.clone(), identity, root)
                .unwrap();
        if rank == 0 {
            std::thread::sleep(ahead);
        }
        let stop = AtomicBool::new(false);
        let mut observer = |event: &Event| {
            stop.fetch_or(matches!(event, Event::Log { .. }), Ordering::Relaxed);
            Ok(())
        };
        let mut source = Generated::new(Task::Reverse);
        trainer.train(&mut source, &mut Measuring(rank), &mut observer, &stop).unwrap()
    };
    let reasons: Vec<StopReason> = std::thread::scope(|scope| {
        let threads = in_process(2).into_iter().map(|exchange| scope.spawn(move || one(exchange)));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(reasons, [StopReason::MaxMinutes; 2]);
    let last = Checkpoints::new(directory.path()).resolve("last").unwrap();
    assert!(!read_state(&last).unwrap().interim);
}
