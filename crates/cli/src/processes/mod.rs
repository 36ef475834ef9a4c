//! Training with several processes: this process connects to the other processes, or starts them.

mod children;
pub(crate) mod farewell;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use taper_run::checks::choose_threads;
use taper_run::processes::{KEY_VARIABLE, Place, take_share};
use taper_run::training::Outcome;
use taper_run::{RunObserver, TrainSettings};
use taper_trainer::{Exchange, ExchangeError, SingleProcess, Sockets};

use crate::arguments::{TrainOutput, Transport};
use crate::error::EXIT_USER;
use crate::progress;
use crate::text::say;
use children::{Children, watch_parent};
use farewell::FAREWELL;

/// Time after which this process is ended if another process is lost. This happens only to a busy
/// process, because a process that waits for others notices the loss, and ends by itself at once.
const GRACE: Duration = Duration::from_secs(5);
/// Time that a failed process waits while another process reports the reason.
const HEARING: Duration = Duration::from_secs(2);
/// Largest number of processes that one call of the program may start.
const MOST_PROCESSES: usize = 1024;

/// This process and its connection to the other processes of a training.
pub(crate) struct Processes {
    /// Connection to the other processes.
    exchange: Box<dyn Exchange>,
    /// Number of this process, counted from 0.
    rank: usize,
    /// Number of all processes.
    size: usize,
    /// Number of processes on this machine.
    local_size: usize,
    /// Processes that this process has started.
    children: Children,
}

/// Waits so that another process can report the error. This function is called when this process
/// has failed and leaves the report to another process. A launcher such as mpirun ends all
/// processes as soon as one has failed, so this process must not end before the report. Does not
/// wait if no launcher has started the processes.
pub(crate) fn let_another_speak() {
    let get = |name: &str| std::env::var(name).ok();
    let is_launched = Place::of_environment(&get).is_ok_and(|place| place.is_some());
    if is_launched && get(children::VARIABLE).is_none() {
        std::thread::sleep(HEARING);
    }
}

impl Processes {
    /// Joins the processes that a launcher has started together with this process. Without a
    /// launcher, starts as many processes as `output` requests, or uses this process alone. All
    /// processes on this machine together have `threads` threads or, if `threads` is `None`,
    /// `usual` threads; 0 means one thread for each core.
    ///
    /// # Errors
    /// When other processes do not connect or cannot be started.
    pub(crate) fn join(output: &TrainOutput, threads: Option<usize>, usual: usize) -> Result<Self> {
        let &TrainOutput { processes: wanted, exchange: transport, .. } = output;
        let get = |name: &str| std::env::var(name).ok();
        let place = Place::of_environment(&get)?;
        let is_child = get(children::VARIABLE).is_some();
        match (place, wanted) {
            (Some(place), Some(wanted)) if !is_child => bail!(
                "--processes {wanted}: this process was already started as process {} of {}; leave \
                 the option out, or unset RANK and WORLD_SIZE",
                place.rank,
                place.size
            ),
            (Some(place), _) => {
                divide_threads(&place, threads.unwrap_or(usual))?;
                let transport = transport.unwrap_or(Transport::usual(place.by_mpi));
                if transport == Transport::Mpi {
                    return Self::by_mpi(&place);
                }
                let key = get(KEY_VARIABLE).unwrap_or_default();
                Self::meet(&place, key, None, Children::default())?.over(transport)
            }
            (None, _) if transport == Some(Transport::Mpi) => bail!(
                "--exchange mpi: neither mpirun nor srun has started this process as one of \
                 several"
            ),
            (None, Some(0)) => bail!("--processes 0: there must be at least one process"),
            (None, Some(wanted)) if wanted > MOST_PROCESSES => {
                bail!("--processes {wanted}: must be at most {MOST_PROCESSES}")
            }
            (None, Some(wanted)) if wanted > 1 => {
                let (listener, key, children) = Children::start(wanted)?;
                let port =
                    listener.local_addr().context("cannot tell the port that was opened")?.port();
                let place = Place::local(0, wanted, port);
                divide_threads(&place, threads.unwrap_or(usual))?;
                Self::meet(&place, key, Some(listener), children)?
                    .over(transport.unwrap_or(Transport::Sockets))
            }
            (None, _) => {
                if let Some(threads) = threads {
                    choose_threads(threads)?;
                }
                let (exchange, children) =
                    (Box::new(SingleProcess::default()), Children::default());
                Ok(Self { exchange, rank: 0, size: 1, local_size: 1, children })
            }
        }
    }

    /// If `transport` is NCCL, exchanges computed values by NCCL. Other messages still use the
    /// existing connection.
    #[cfg(feature = "nccl")]
    fn over(self, transport: Transport) -> Result<Self> {
        Ok(match transport {
            Transport::Nccl => {
                Self { exchange: Box::new(taper_trainer::Nccl::over(self.exchange)), ..self }
            }
            Transport::Sockets | Transport::Mpi => self,
        })
    }

    #[cfg(not(feature = "nccl"))]
    fn over(self, transport: Transport) -> Result<Self> {
        match transport {
            Transport::Nccl => Err(crate::features::lacking("nccl").context("--exchange nccl")),
            Transport::Sockets | Transport::Mpi => Ok(self),
        }
    }

    /// Joins as one of the processes that MPI connects.
    #[cfg(feature = "mpi")]
    fn by_mpi(place: &Place) -> Result<Self> {
        let exchange = taper_trainer::Mpi::join(Some((place.rank, place.size)))?;
        let &Place { rank, size, local_size, .. } = place;
        let children = Children::default();
        Ok(Self { exchange: Box::new(exchange), rank, size, local_size, children })
    }

    #[cfg(not(feature = "mpi"))]
    fn by_mpi(_: &Place) -> Result<Self> {
        Err(crate::features::lacking("mpi").context("--exchange mpi"))
    }

    fn meet(
        place: &Place,
        key: String,
        listener: Option<std::net::TcpListener>,
        mut children: Children,
    ) -> Result<Self> {
        let rendezvous = place.rendezvous(key)?;
        let rank = place.rank;
        let on_loss = Box::new(move |lost, why: &str| end_soon(rank, lost, why));
        let watch = &mut || children.watch().and_then(|()| watch_parent(rank));
        let sockets =
            Sockets::meet(&rendezvous, listener, watch, on_loss).inspect_err(|error| {
                // A child process that failed by itself gets time to report its error.
                if !matches!(error, ExchangeError::Failed { .. }) {
                    children.kill();
                }
            })?;
        if let Ok(mut farewell) = FAREWELL.lock() {
            *farewell = Some(sockets.farewell());
        }
        let (size, local_size) = (place.size, place.local_size);
        Ok(Self { exchange: Box::new(sockets), rank, size, local_size, children })
    }

    /// Returns true if this is the process that prints and writes files.
    pub(crate) fn is_first(&self) -> bool {
        self.rank == 0
    }

    /// Writes the number of processes to `settings`.
    pub(crate) fn count_in(&self, settings: &mut TrainSettings) {
        (settings.processes, settings.processes_here) = (self.size, self.local_size);
    }

    /// Runs `train` with the connection to the other processes, shows the progress of training if
    /// this is the first process, and waits for child processes.
    ///
    /// # Errors
    /// Errors of `train`.
    pub(crate) fn train(
        mut self,
        output: &TrainOutput,
        train: impl FnOnce(Box<dyn Exchange>, &mut dyn RunObserver, &AtomicBool) -> Result<Outcome>,
    ) -> Result<()> {
        let exchange = self.exchange;
        let trained = progress::report(output, self.rank == 0, |observer, stop| {
            train(exchange, observer, stop)
        });
        self.children.wait();
        trained
    }
}

/// Limits this process to its share of cores and threads.
fn divide_threads(place: &Place, wanted: usize) -> Result<()> {
    choose_threads(take_share(place, wanted))
}

/// Ends this process after the time [`GRACE`], because process `lost` is gone. By then, this
/// process would have ended by itself, unless it is too busy to notice the loss. This is safe,
/// because files on disk are complete at any time.
fn end_soon(rank: usize, lost: usize, why: &str) {
    std::thread::sleep(GRACE);
    let why = why.to_owned();
    let error = ExchangeError::Lost { rank: lost, here: rank, why };
    if !error.is_told_elsewhere() {
        say(&format!("error: {error}"));
    }
    std::process::exit(i32::from(EXIT_USER));
}
