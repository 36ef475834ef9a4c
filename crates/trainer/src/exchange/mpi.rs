//! Processes started by `mpirun`, or by a cluster's launcher of MPI processes. The MPI library
//! carries the data between them, over any network that it supports.
//!
//! Only operations that move data are used: all-to-all and all-gather. The library's reductions
//! (sums over processes) are not used, because the order of summation depends on the number of
//! processes and on the network.
//!
//! One thread initialises the library, makes all calls and finalises it, so that an exchange
//! continues while other threads compute. The blocking calls of MPI libraries wait in a busy loop,
//! which occupies a core that is needed for computation. So only non-blocking calls are used here,
//! and their completion is checked at growing intervals.
//!
//! Before each call, each process sends the kind of the call to all others. A process that must end
//! sends a notice of its end instead, and the others end as well. If a process is killed before it
//! can send the notice, `mpirun` ends the others.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use candle_core::{Device, Tensor};
use mpi::Threading;
use mpi::datatype::{Partition, PartitionMut};
use mpi::request::{LocalScope, Request};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives};

use super::{Exchange, ExchangeError};

/// Longest time that a process waits, before it ends, for the others to receive the notice of its
/// end.
const FAREWELL: Duration = Duration::from_secs(10);
/// Time after the beginning of a call during which its completion is checked without pauses.
const EAGER: Duration = Duration::from_micros(100);
/// Longest pause between two checks for the completion of a call.
const LONGEST_PAUSE: Duration = Duration::from_micros(500);

/// Request to the thread that calls the library. All processes must make the same requests in the
/// same order.
#[derive(Debug)]
enum Call {
    /// Sends each process another part: the part at the index of its rank.
    Parts(Vec<Vec<f32>>),
    /// Sends the same bytes to every process.
    Fact(Vec<u8>),
}

/// Answer to a [`Call`]: the data that each process sent to this one, by rank.
#[derive(Debug)]
enum Answer {
    Parts(Vec<Vec<f32>>),
    Facts(Vec<Vec<u8>>),
}

type Answers = Receiver<Result<Answer, ExchangeError>>;

/// Connection of one of several processes that MPI connects.
#[derive(Debug)]
pub struct Mpi {
    rank: usize,
    size: usize,
    /// Channel to the thread that calls the library; `None` when this process is ending.
    calls: Option<Sender<Call>>,
    answers: Answers,
    thread: Option<JoinHandle<()>>,
    /// For each exchange that was begun and not ended, the device for its result.
    begun: std::collections::VecDeque<Device>,
}

impl Mpi {
    /// Connects to the other processes; this must be called only once in a process. `expected`:
    /// rank of this process and number of processes, if the launcher has set them.
    ///
    /// # Errors
    /// If the library cannot be initialised, or has another rank or number of processes than
    /// `expected`.
    pub fn join(expected: Option<(usize, usize)>) -> Result<Self, ExchangeError> {
        let (calls, requested) = channel();
        let (answer_sender, answers) = channel();
        let (place_sender, place) = channel();
        let thread = std::thread::Builder::new()
            .name("mpi".to_owned())
            .spawn(move || serve(&requested, &answer_sender, &place_sender))
            .map_err(|error| {
                ExchangeError::Rendezvous(format!("cannot start a thread for MPI: {error}"))
            })?;
        let cannot = || {
            let why = "MPI cannot be initialised: was this process started by mpirun or srun?";
            ExchangeError::Rendezvous(why.to_owned())
        };
        let (rank, size) = place.recv().map_err(|_| cannot())?;
        let (calls, thread) = (Some(calls), Some(thread));
        let this = Self { rank, size, calls, answers, thread, begun: Default::default() };
        match expected {
            Some(expected) if expected != (rank, size) => Err(ExchangeError::Rendezvous(format!(
                "this process was started as process {} of {}, but MPI says {rank} of {size}: \
                 start the program with the mpirun of the MPI library that the program is linked \
                 to, or exchange by sockets",
                expected.0, expected.1
            ))),
            _ => Ok(this),
        }
    }

    fn send(&self, call: Call) -> Result<(), ExchangeError> {
        let calls = self.calls.as_ref().ok_or(ExchangeError::Failed { rank: self.rank })?;
        calls.send(call).map_err(|_| self.silent())
    }

    /// Waits for the answer to the earliest call that has not been answered yet.
    fn answer(&self) -> Result<Answer, ExchangeError> {
        self.answers.recv().map_err(|_| self.silent())?
    }

    /// Returns the error of a call that is made after the MPI thread has ended. The thread ended
    /// because of an error that it returned to an earlier call. So this process need not report the
    /// later error.
    const fn silent(&self) -> ExchangeError {
        ExchangeError::Failed { rank: self.rank }
    }
}

impl Exchange for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn begin(&mut self, parts: Vec<Tensor>) -> Result<(), ExchangeError> {
        if parts.len() != self.size {
            return Err(ExchangeError::Garbled { rank: self.rank });
        }
        let device = parts.first().map_or(Device::Cpu, |part| part.device().clone());
        let parts = parts.iter().map(Tensor::to_vec1).collect::<candle_core::Result<_>>()?;
        self.send(Call::Parts(parts))?;
        self.begun.push_back(device);
        Ok(())
    }

    fn end(&mut self) -> Result<Vec<Tensor>, ExchangeError> {
        let garbled = ExchangeError::Garbled { rank: self.rank };
        let Some(device) = self.begun.pop_front() else { return Err(garbled) };
        let Answer::Parts(parts) = self.answer()? else { return Err(garbled) };
        let tensor = |part: Vec<f32>| {
            let length = part.len();
            Ok(Tensor::from_vec(part, length, &device)?)
        };
        parts.into_iter().map(tensor).collect()
    }

    fn gather(&mut self, message: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        self.send(Call::Fact(message))?;
        match self.answer()? {
            Answer::Facts(facts) => Ok(facts),
            Answer::Parts(_) => Err(ExchangeError::Garbled { rank: self.rank }),
        }
    }
}

impl Drop for Mpi {
    /// Sends the other processes a message that this one ends, and finalises the library.
    fn drop(&mut self) {
        self.calls = None;
        let deadline = Instant::now() + FAREWELL;
        let Some(thread) = self.thread.take() else { return };
        while !thread.is_finished() {
            if Instant::now() > deadline {
                // This process ends without finalising the library, so that mpirun ends the others.
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = thread.join();
    }
}

/// Main function of the thread that calls the library.
fn serve(
    calls: &Receiver<Call>,
    answers: &Sender<Result<Answer, ExchangeError>>,
    place: &Sender<(usize, usize)>,
) {
    let Some((universe, _)) = mpi::initialize_with_threading(Threading::Funneled) else { return };
    let world = World::new(universe.world());
    let _ = place.send((world.rank, world.size));
    for call in calls {
        let answer = world.perform(call);
        let has_failed = answer.is_err();
        if answers.send(answer).is_err() || has_failed {
            // The other processes have noticed the failure, too, or cannot be reached any more.
            return;
        }
    }
    // An error is ignored, because it means that another process ends at the same time.
    let _ = world.agree_on(Action::Leave, &vec![0; world.size]);
}

/// Next action of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum Action {
    Parts = 1,
    Fact = 2,
    Leave = 3,
    /// The process has parts with more values than can be sent.
    TooLarge = 4,
}

/// Makes the calls of the library, all of which involve all processes.
///
/// Each buffer is allocated with one element more than is used, so that its address is always that
/// of an allocation. An empty vector has an arbitrary address, which an MPI library could take for
/// a constant such as `MPI_IN_PLACE`.
struct World {
    communicator: SimpleCommunicator,
    rank: usize,
    size: usize,
}

impl World {
    fn new(communicator: SimpleCommunicator) -> Self {
        let number = |number: i32| usize::try_from(number).unwrap_or(0);
        let (rank, size) = (number(communicator.rank()), number(communicator.size()).max(1));
        Self { communicator, rank, size }
    }

    fn perform(&self, call: Call) -> Result<Answer, ExchangeError> {
        match call {
            Call::Parts(parts) => {
                let counts: Vec<usize> = parts.iter().map(Vec::len).collect();
                let is_small = counts.iter().all(|&count| count <= most_values(self.size));
                let action = if is_small { Action::Parts } else { Action::TooLarge };
                let received = self.agree_on(action, &counts)?;
                let mut sent = parts.concat();
                let length = sent.len();
                sent.push(0.0);
                let sent = &sent[..length];
                let parts = self.all_to_all(sent, &counts, &received)?;
                Ok(Answer::Parts(parts))
            }
            Call::Fact(mut fact) => {
                let length = fact.len();
                let received = self.agree_on(Action::Fact, &vec![length; self.size])?;
                fact.push(0);
                Ok(Answer::Facts(self.all_gather(&fact[..length], &received)?))
            }
        }
    }

    /// Tells each process `r` the next action of this process, and `counts[r]`, the number of
    /// values that this process will send to it. Returns the number of values that each process
    /// will send to this one, by rank.
    ///
    /// # Errors
    /// If a process has another action than the others, or [`Action::TooLarge`]. All processes then
    /// get an error.
    fn agree_on(&self, action: Action, counts: &[usize]) -> Result<Vec<usize>, ExchangeError> {
        let sent: Vec<u64> =
            counts.iter().flat_map(|&count| [action as u64, count as u64]).collect();
        let mut received = vec![0_u64; 2 * self.size];
        mpi::request::scope(|scope| {
            let call = self.communicator.immediate_all_to_all_into(
                scope,
                sent.as_slice(),
                &mut received[..],
            );
            wait(call);
        });
        let actions = received.as_chunks::<2>().0;
        let first_with = |action: Action| actions.iter().position(|pair| pair[0] == action as u64);
        if action == Action::TooLarge {
            return Err(too_large());
        }
        let ending = first_with(Action::Leave).or_else(|| first_with(Action::TooLarge));
        if let Some(rank) = ending.filter(|_| action != Action::Leave) {
            return Err(ExchangeError::Failed { rank });
        }
        let number = |&[theirs, count]: &[u64; 2]| {
            usize::try_from(count).ok().filter(|_| theirs == action as u64)
        };
        let garbled = |rank| ExchangeError::Garbled { rank };
        actions.iter().enumerate().map(|(rank, pair)| number(pair).ok_or(garbled(rank))).collect()
    }

    fn all_to_all(
        &self,
        sent: &[f32],
        counts: &[usize],
        received: &[usize],
    ) -> Result<Vec<Vec<f32>>, ExchangeError> {
        let (counts, starts) = layout(counts)?;
        let (received_counts, received_starts) = layout(received)?;
        let total = received.iter().sum();
        let mut values = vec![0_f32; total + 1];
        let parts = Partition::new(sent, counts, starts);
        let mut output = PartitionMut::new(&mut values[..total], received_counts, received_starts);
        mpi::request::scope(|scope| {
            wait(self.communicator.immediate_all_to_all_varcount_into(scope, &parts, &mut output));
        });
        Ok(divided(&values[..total], received))
    }

    fn all_gather(&self, fact: &[u8], counts: &[usize]) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let (received, starts) = layout(counts)?;
        let total = counts.iter().sum();
        let mut bytes = vec![0_u8; total + 1];
        let mut output = PartitionMut::new(&mut bytes[..total], received, starts);
        mpi::request::scope(|scope| {
            wait(self.communicator.immediate_all_gather_varcount_into(scope, fact, &mut output));
        });
        Ok(divided(&bytes[..total], counts))
    }
}

/// Largest number of values that a process sends to another one at once, if there are `size`
/// processes. So no process sends or receives more values than the library can count. (If only the
/// receiver checked this, the other processes would wait for it without end.)
const fn most_values(size: usize) -> usize {
    i32::MAX as usize / size
}

fn too_large() -> ExchangeError {
    ExchangeError::Rendezvous(
        "more than 2^31 values would be sent at once: make distributed.bucket_mib smaller"
            .to_owned(),
    )
}

/// Returns two lists with a number for each process, in the library's integer type: the number of
/// elements of the process, and the offset of its first element in the buffer of all elements.
fn layout(counts: &[usize]) -> Result<(Vec<i32>, Vec<i32>), ExchangeError> {
    let mut start = 0_i32;
    let mut starts = Vec::with_capacity(counts.len());
    let mut numbers = Vec::with_capacity(counts.len());
    for &count in counts {
        let count = i32::try_from(count).ok();
        let end = count.and_then(|count| start.checked_add(count));
        let (Some(count), Some(end)) = (count, end) else { return Err(too_large()) };
        starts.push(start);
        numbers.push(count);
        start = end;
    }
    Ok((numbers, starts))
}

/// Divides `all` into consecutive parts with the lengths `counts`.
fn divided<T: Copy>(all: &[T], counts: &[usize]) -> Vec<Vec<T>> {
    let mut rest = all;
    let mut parts = Vec::with_capacity(counts.len());
    for &count in counts {
        let (part, after) = rest.split_at(count.min(rest.len()));
        parts.push(part.to_vec());
        rest = after;
    }
    parts
}

/// Waits for the completion of a call, with pauses so that other threads can use the core.
fn wait<'a, D: ?Sized>(mut call: Request<'a, D, &LocalScope<'a>>) {
    let began = Instant::now();
    loop {
        match call.test() {
            Ok(_) => return,
            Err(unfinished) => call = unfinished,
        }
        let waited = began.elapsed();
        if waited < EAGER {
            std::thread::yield_now();
        } else {
            std::thread::sleep((waited / 8).min(LONGEST_PAUSE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_joined_is_divided_again() {
        let counts = [2, 0, 3];
        let (numbers, starts) = layout(&counts).expect("few");
        assert_eq!((numbers, starts), (vec![2, 0, 3], vec![0, 2, 2]));
        assert_eq!(divided(&[1, 2, 3, 4, 5], &counts), [vec![1, 2], vec![], vec![3, 4, 5]]);
        assert!(layout(&[1 << 30, 1 << 30]).is_err(), "more than the library can count");
        for size in [1, 2, 3, 7, 1000] {
            assert!(layout(&vec![most_values(size); size]).is_ok(), "{size} processes");
        }
    }
}
