//! `taper bench network`: cost of the network between processes that train together.
//!
//! Each process is simulated by threads with their own cores. A transfer arrives when a network of
//! the given speed would deliver it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use candle_core::Tensor;
use serde::Serialize;
use taper_model::{Batch, Builder, Model, TranslationModel};
use taper_run::checks::device;
use taper_run::training::TimedUpdates;
use taper_trainer::{
    DistributedConfig, Exchange, ExchangeError, Network, TrainingConfig, in_process,
    in_process_over,
};

use super::round;
use super::train::{preset_shape, read_batches};
use crate::arguments::BenchNetwork;
use crate::text::print_line;

/// Constant learning rate.
const LEARNING_RATE: f64 = 1e-4;
/// Bytes per second of a gigabit per second.
const GIGABIT: f64 = 1e9 / 8.0;
/// Largest number of simulated processes. Each needs memory for a whole model.
const MOST_PROCESSES: usize = 64;

/// Cost of an update over one network.
#[derive(Debug, Serialize)]
struct Row {
    gigabits_per_second: f64,
    /// Seconds to send the bytes of an update.
    network_seconds: f64,
    /// Lower bound of the seconds that an update takes: the longer of the time to compute and the
    /// time to send.
    bound_seconds: f64,
    /// Seconds of an update whose exchange begins when all gradients are computed.
    late_seconds: f64,
    /// Seconds of an update whose exchange begins while gradients are still being computed.
    overlapped_seconds: f64,
}

impl Row {
    /// Formats the row as a line of the table. `alone` is the number of seconds of an update
    /// without a network.
    fn line(&self, alone: f64) -> String {
        let share = |seconds: f64| 100.0 * alone / seconds;
        format!(
            "{:>6}   {:>5.3} s   {:>6.3} s ({:>3.0}%)          {:>6.3} s ({:>3.0}%)     {:>6.3} s ({:>3.0}%)",
            self.gigabits_per_second,
            self.network_seconds,
            self.bound_seconds,
            share(self.bound_seconds),
            self.late_seconds,
            share(self.late_seconds),
            self.overlapped_seconds,
            share(self.overlapped_seconds)
        )
    }
}

/// Runs the command.
pub(crate) fn run(arguments: &BenchNetwork) -> Result<()> {
    let processes = arguments.processes;
    if !(2..=MOST_PROCESSES).contains(&processes) || arguments.steps == 0 {
        bail!("--processes must be from 2 to {MOST_PROCESSES}, and --steps above 0");
    }
    let speeds = &arguments.gigabits;
    if let Some(speed) = speeds.iter().find(|&&speed| !(speed.is_finite() && speed > 0.0)) {
        bail!("--gigabits {speed}: the speed of a network must be above 0");
    }
    taper_ops::allocator::keep_freed_pages();
    let batches = read_batches(&arguments.batches, arguments.vocab)?;
    let delay = Duration::from_micros(arguments.delay);
    let alone = measure(arguments, &batches, None, false)?;
    let bytes = 2.0 * (processes - 1) as f64 / processes as f64 * 4.0 * alone.parameters as f64;
    let mut rows = Vec::new();
    for &speed in speeds {
        let network = Network { bytes_per_second: speed * GIGABIT, delay };
        let network_seconds = bytes / network.bytes_per_second;
        let [late, overlapped] =
            [true, false].map(|late| measure(arguments, &batches, Some(network), late));
        rows.push(Row {
            gigabits_per_second: speed,
            network_seconds: round(network_seconds, 4),
            bound_seconds: round(network_seconds.max(alone.seconds), 4),
            late_seconds: round(late?.seconds, 4),
            overlapped_seconds: round(overlapped?.seconds, 4),
        });
    }
    if arguments.json {
        let report = serde_json::json!({
            "parameters": alone.parameters,
            "processes": processes,
            "megabytes": round(bytes / 1e6, 1),
            "compute_seconds": round(alone.seconds, 4),
            "networks": rows,
        });
        return print_line(&report.to_string());
    }
    print_line(&format!(
        "{} parameters, {processes} processes: each sends {:.0} MB an update, and computes {:.3} s",
        alone.parameters,
        bytes / 1e6,
        alone.seconds
    ))?;
    print_line("Gbit/s   sending   max(compute, sending)   without overlap     with overlap")?;
    for row in rows {
        print_line(&row.line(alone.seconds))?;
    }
    Ok(())
}

/// Seconds of an update, and the number of parameters.
struct UpdateMetrics {
    seconds: f64,
    parameters: usize,
}

/// Measures an update over `network`; if it is `None`, transfers have no delay and no limit of
/// speed. If `late` is true, the exchange begins when all gradients are computed.
fn measure(
    arguments: &BenchNetwork,
    batches: &[Batch],
    network: Option<Network>,
    late: bool,
) -> Result<UpdateMetrics> {
    let processes = arguments.processes;
    let threads = (rayon::current_num_threads() / processes).max(1);
    let connected = match network {
        Some(network) => in_process_over(processes, network),
        None => in_process(processes),
    };
    let measured = std::thread::scope(|scope| {
        let ranks: Vec<_> = connected
            .into_iter()
            .enumerate()
            .map(|(rank, exchange)| {
                let exchange: Box<dyn Exchange> = if late {
                    Box::new(Late { inner: exchange, held: VecDeque::new() })
                } else {
                    Box::new(exchange)
                };
                scope.spawn(move || {
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
                    let pool = pool.context("cannot start threads")?;
                    pool.install(|| updates(arguments, &batches[rank % batches.len()..], exchange))
                })
            })
            .collect();
        let joined = ranks.into_iter().map(|rank| rank.join());
        joined
            .map(|rank| rank.map_err(|_| anyhow!("a process has panicked"))?)
            .collect::<Result<Vec<_>>>()
    })?;
    measured.into_iter().next().context("no process")
}

/// Makes the updates of one process and measures them.
fn updates(
    arguments: &BenchNetwork,
    batches: &[Batch],
    exchange: Box<dyn Exchange>,
) -> Result<UpdateMetrics> {
    let device = device::open("cpu")?;
    let dtype = device::dtype(&arguments.dtype, &device)?;
    let builder = Builder::seeded(1, &device, dtype);
    let shape = preset_shape(arguments.preset);
    let model = TranslationModel::new(&shape, arguments.vocab, arguments.vocab, builder)
        .context("cannot build the model")?;
    let training = TrainingConfig {
        seed: 1,
        accumulation: arguments.processes,
        distributed: DistributedConfig { bucket_mib: arguments.bucket_mib },
        ..TrainingConfig::default()
    };
    training.check()?;
    let mut updates = TimedUpdates::among(exchange, &model, &training, LEARNING_RATE)?;
    // All updates use the same batch, so that measurements differ only in the network.
    let batch = &batches[..1];
    updates.make(batch)?;
    let began = Instant::now();
    for _ in 0..arguments.steps {
        updates.make(batch)?;
    }
    let seconds = began.elapsed().as_secs_f64() / arguments.steps as f64;
    Ok(UpdateMetrics { seconds, parameters: model.parameters().len() })
}

/// An exchange of gradients between processes that begins a transfer only when its result is
/// needed.
struct Late<E> {
    inner: E,
    held: VecDeque<Vec<Tensor>>,
}

impl<E: Exchange> Exchange for Late<E> {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn begin(&mut self, parts: Vec<Tensor>) -> std::result::Result<(), ExchangeError> {
        // Copies are kept, because the tensors may change before the transfer begins.
        self.held.push_back(parts.iter().map(Tensor::copy).collect::<candle_core::Result<_>>()?);
        Ok(())
    }

    fn end(&mut self) -> std::result::Result<Vec<Tensor>, ExchangeError> {
        for parts in self.held.drain(..) {
            self.inner.begin(parts)?;
        }
        self.inner.end()
    }

    fn gather(&mut self, message: Vec<u8>) -> std::result::Result<Vec<Vec<u8>>, ExchangeError> {
        self.inner.gather(message)
    }
}
