//! Time that each of several processes spends with computation, and time that it waits for the
//! others.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Largest number of characters of a machine's name that are shown.
const LONGEST_NAME: usize = 64;

/// Time that one process spent in updates.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessTime {
    /// Name of the process's machine.
    pub host: String,
    /// Seconds of computation.
    pub busy_seconds: f64,
    /// Seconds of waiting for other processes, or for the network.
    pub waiting_seconds: f64,
}

impl ProcessTime {
    /// Returns the share of the process's time, from 0 to 1, in which it has waited.
    #[must_use]
    pub fn waiting(&self) -> f64 {
        let all = self.busy_seconds + self.waiting_seconds;
        if all > 0.0 { self.waiting_seconds / all } else { 0.0 }
    }

    /// Returns the rank and the time of the slowest process; `None` for a single process. The
    /// slowest process is the one that waits least, because the others wait for it.
    #[must_use]
    pub fn slowest(all: &[Self]) -> Option<(usize, &Self)> {
        let least = |one: &(usize, &Self), other: &(usize, &Self)| {
            one.1.waiting().total_cmp(&other.1.waiting())
        };
        if all.len() > 1 { all.iter().enumerate().min_by(least) } else { None }
    }

    /// Text about which process is the slowest, and how long all processes wait; `None` for a
    /// single process.
    #[must_use]
    pub fn describe(all: &[Self]) -> Option<String> {
        let (rank, slowest) = Self::slowest(all)?;
        let percent = |one: &Self| 100.0 * one.waiting();
        let others = all.iter().enumerate().filter(|(other, _)| *other != rank);
        let others: Vec<f64> = others.map(|(_, one)| percent(one)).collect();
        let (least, most) = others
            .iter()
            .fold((f64::MAX, 0.0_f64), |(least, most), &one| (one.min(least), one.max(most)));
        let of_others = if others.len() == 1 {
            format!("the other one {least:.0}%")
        } else {
            format!("the others {least:.0} to {most:.0}%")
        };
        let host = if slowest.host.is_empty() { "?" } else { &slowest.host };
        Some(format!(
            "process {rank} on {host} is the slowest: it waits {:.0}% of the time, {of_others}",
            percent(slowest)
        ))
    }

    /// Removes all characters except ASCII letters, digits and `-_.` from the machine's name, and
    /// limits its length. The name was sent by another process, so it can contain anything.
    #[must_use]
    pub fn with_plain_name(mut self) -> Self {
        self.host.retain(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter));
        self.host.truncate(LONGEST_NAME);
        self
    }
}

impl AddAssign<&Self> for ProcessTime {
    fn add_assign(&mut self, other: &Self) {
        self.busy_seconds += other.busy_seconds;
        self.waiting_seconds += other.waiting_seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(host: &str, busy_seconds: f64, waiting_seconds: f64) -> ProcessTime {
        ProcessTime { host: host.to_owned(), busy_seconds, waiting_seconds }
    }

    #[test]
    fn who_waits_least_is_the_slowest() {
        let all = [time("a", 6.0, 4.0), time("b", 9.8, 0.2), time("c", 7.0, 3.0)];
        assert_eq!(
            ProcessTime::describe(&all).expect("three"),
            "process 1 on b is the slowest: it waits 2% of the time, the others 30 to 40%"
        );
        assert_eq!(
            ProcessTime::describe(&all[..2]).expect("two"),
            "process 1 on b is the slowest: it waits 2% of the time, the other one 40%"
        );
        assert_eq!(ProcessTime::describe(&all[..1]), None);
        assert_eq!(time("", 0.0, 0.0).waiting(), 0.0);
    }

    #[test]
    fn names_from_elsewhere_are_plain() {
        let name = format!("node-1\u{1b}[31m<b>{}", "x".repeat(100));
        let plain = time(&name, 1.0, 0.0).with_plain_name().host;
        assert!(plain.starts_with("node-131mbx") && plain.len() == LONGEST_NAME, "{plain}");
    }
}
