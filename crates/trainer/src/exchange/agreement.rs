//! Common decisions of processes that train together. A decision depends only on values that every
//! process has received, so that all processes decide alike.

use serde::{Deserialize, Serialize};

use super::{Exchange, ExchangeError};
use crate::TrainError;

/// Returns the values of `fact` in all processes, by rank.
///
/// # Errors
/// If a process has ended.
pub fn everyone<T: Serialize + for<'de> Deserialize<'de>>(
    exchange: &mut dyn Exchange,
    fact: T,
) -> Result<Vec<T>, ExchangeError> {
    if exchange.size() == 1 {
        return Ok(vec![fact]);
    }
    let rank = exchange.rank();
    let message = serde_json::to_vec(&fact).map_err(|_| ExchangeError::Garbled { rank })?;
    let answers = exchange.gather(message)?.into_iter().enumerate();
    answers
        .map(|(rank, answer)| {
            serde_json::from_slice(&answer).map_err(|_| ExchangeError::Garbled { rank })
        })
        .collect()
}

/// Returns `result` if no process has an error. If one process has an error, all processes get an
/// error.
///
/// # Errors
/// If `result` is an error in a process. That process gets this error, and the others get
/// [`ExchangeError::Failed`].
pub(crate) fn agree<T>(
    exchange: &mut dyn Exchange,
    result: Result<T, TrainError>,
) -> Result<T, TrainError> {
    let failed = everyone(exchange, result.is_err())?;
    match (result, failed.iter().position(|&failed| failed)) {
        (Ok(_), Some(rank)) => Err(ExchangeError::Failed { rank }.into()),
        (result, _) => result,
    }
}

/// Calls `work` in process 0 only, and returns its result in all processes.
///
/// # Errors
/// If `work` fails. Process 0 gets its error, and the others get [`ExchangeError::Failed`].
pub(crate) fn by_the_first<T: Serialize + for<'de> Deserialize<'de>>(
    exchange: &mut dyn Exchange,
    work: impl FnOnce() -> Result<T, TrainError>,
) -> Result<T, TrainError> {
    if exchange.size() == 1 {
        return work();
    }
    // The result is sent as a list of one element, or of none: in JSON, `Some(())` and `None` would
    // be the same.
    let done = if exchange.rank() == 0 { work().map(|done| vec![done]) } else { Ok(Vec::new()) };
    let done = agree(exchange, done)?;
    let decision = everyone(exchange, done)?.swap_remove(0).pop();
    decision.ok_or_else(|| ExchangeError::Garbled { rank: 0 }.into())
}

/// Returns an error unless all processes have the same `fact`. `subject`: name of the fact in the
/// error. `details` describes the difference between the fact of process 0 and another fact.
///
/// # Errors
/// If a process has another fact than process 0. The error names the first such process.
pub fn require_same<T: PartialEq + Serialize + for<'de> Deserialize<'de>>(
    exchange: &mut dyn Exchange,
    subject: &'static str,
    fact: T,
    details: impl FnOnce(&T, &T) -> String,
) -> Result<(), ExchangeError> {
    let here = exchange.rank();
    let all = everyone(exchange, fact)?;
    match all.iter().position(|one| *one != all[0]) {
        Some(rank) => {
            let details = details(&all[0], &all[rank]);
            Err(ExchangeError::Differs { rank, here, subject, details })
        }
        None => Ok(()),
    }
}

/// Name of this machine. Processes with the same name run on the same machine.
#[must_use]
pub fn machine() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let variables = ["HOSTNAME", "COMPUTERNAME"].into_iter();
    let name = kernel.or_else(|| variables.filter_map(|name| std::env::var(name).ok()).next());
    name.unwrap_or_default().trim().to_owned()
}
