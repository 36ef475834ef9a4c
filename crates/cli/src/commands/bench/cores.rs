//! Predicts the time of a training step on more cores from times measured on one thread. An
//! operation consists of serial work and parallel regions, whose work is divided among threads.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use taper_ops::profile::{self, Prediction, Profile, Regions};
use taper_ops::threads;

use crate::text::print_line;

/// Refuses to predict from measurements on several threads.
///
/// # Errors
/// When numbers of cores are given and the pool has more than one thread.
pub(super) fn check(cores: &[NonZeroUsize]) -> Result<()> {
    let threads = rayon::current_num_threads();
    if !cores.is_empty() && threads != 1 {
        bail!(
            "--cores predicts from the time on one thread, but there are {threads} threads: add \
             --threads 1"
        );
    }
    Ok(())
}

/// Starts recording parallel regions if there are numbers of cores to predict for.
pub(super) fn start(cores: &[NonZeroUsize]) {
    if !cores.is_empty() {
        profile::predict(&cores.iter().map(|cores| cores.get()).collect::<Vec<_>>());
    }
}

/// Table of predictions: the time of each operation on each number of cores.
pub(super) struct Table<'a> {
    pub(super) cores: &'a [NonZeroUsize],
    pub(super) profile: &'a Profile,
    pub(super) regions: &'a Prediction,
    /// Measured seconds of all steps, on one thread.
    pub(super) seconds: f64,
    pub(super) steps: usize,
    /// Seconds for threads to begin and end a parallel region.
    pub(super) meeting: f64,
}

/// Measures the time of an empty parallel region, in seconds: each thread of this machine gets an
/// empty task, and the region ends when the last task has ended. The threads are awake, that is,
/// they do not sleep between the regions. Returns the median of several measurements.
pub(super) fn meeting() -> f64 {
    const LOOPS: u32 = 1000;
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let Ok(pool) = rayon::ThreadPoolBuilder::new().num_threads(threads).build() else { return 0.0 };
    let mut rounds: Vec<f64> = pool.install(|| {
        threads::in_waking_pool(&candle_core::Device::Cpu, || {
            let round = |_| {
                let start = Instant::now();
                (0..LOOPS).for_each(|_| drop(rayon::broadcast(|_| ())));
                start.elapsed().as_secs_f64() / f64::from(LOOPS)
            };
            (0..9).map(round).collect()
        })
    });
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

/// Times of one operation in all steps.
struct Row<'a> {
    name: &'static str,
    seconds: f64,
    regions: Option<&'a Regions>,
}

impl Row<'_> {
    /// Seconds outside parallel regions.
    fn serial(&self) -> f64 {
        let parallel = self.regions.map_or(0.0, |regions| regions.time.as_secs_f64());
        (self.seconds - parallel).max(0.0)
    }

    /// Returns the predicted seconds on `cores` cores, if threads take `meeting` seconds to begin
    /// and end a region. `index` is the index of `cores` in [`Table::cores`].
    fn on(&self, index: usize, cores: usize, meeting: f64) -> f64 {
        let Some(regions) = self.regions else { return self.seconds };
        let meetings = if cores == 1 { 0.0 } else { regions.count as f64 };
        self.serial()
            + regions.predicted.get(index).map_or(0.0, Duration::as_secs_f64)
            + meetings * meeting
    }
}

impl Table<'_> {
    fn rows(&self) -> Vec<Row<'_>> {
        let regions: BTreeMap<_, _> =
            self.regions.iter().map(|(name, found)| (*name, found)).collect();
        let operations =
            self.profile.operations.iter().map(|(name, one)| (*name, one.time.as_secs_f64()));
        let known: f64 = operations.clone().map(|(_, seconds)| seconds).sum();
        let between = ("other", (self.seconds - known).max(0.0));
        operations
            .chain([between])
            .map(|(name, seconds)| Row { name, seconds, regions: regions.get(name).copied() })
            .collect()
    }

    /// Returns, for each number of cores, this number, the predicted seconds of all steps, and the
    /// efficiency. The efficiency is the seconds on one core / (predicted seconds · number of
    /// cores).
    fn efficiencies(&self) -> Vec<(usize, f64, f64)> {
        let rows = self.rows();
        self.cores
            .iter()
            .enumerate()
            .map(|(index, cores)| {
                let seconds: f64 =
                    rows.iter().map(|row| row.on(index, cores.get(), self.meeting)).sum();
                (cores.get(), seconds, self.seconds / seconds / cores.get() as f64)
            })
            .collect()
    }

    pub(super) fn json(&self) -> serde_json::Value {
        let steps = self.steps as f64;
        self.efficiencies()
            .into_iter()
            .map(|(cores, seconds, efficiency)| {
                serde_json::json!({
                    "cores": cores,
                    "s_per_step": super::round(seconds / steps, 6),
                    "efficiency": super::round(efficiency, 4),
                })
            })
            .collect()
    }

    pub(super) fn print(&self) -> Result<()> {
        if self.cores.is_empty() {
            return Ok(());
        }
        let milliseconds = |seconds: f64| 1e3 * seconds / self.steps as f64;
        let names: String =
            self.cores.iter().map(|cores| format!("{:>10}", format!("{cores} cores"))).collect();
        print_line("")?;
        let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        print_line(&format!(
            "an empty region takes {:.1} µs on {threads} threads here; each region costs this more",
            1e6 * self.meeting
        ))?;
        print_line(&format!("ms a step         regions   1 core    serial{names}"))?;
        for row in self.rows() {
            let count = row.regions.map_or(0, |regions| regions.count);
            let predicted: String = self
                .cores
                .iter()
                .enumerate()
                .map(|(index, cores)| {
                    format!("{:>10.3}", milliseconds(row.on(index, cores.get(), self.meeting)))
                })
                .collect();
            print_line(&format!(
                "  {:<16}{:>7.1}{:>9.2}{:>10.3}{predicted}",
                row.name,
                count as f64 / self.steps as f64,
                milliseconds(row.seconds),
                milliseconds(row.serial()),
            ))?;
        }
        let of_all: String = self
            .efficiencies()
            .iter()
            .map(|(_, seconds, _)| format!("{:>10.3}", milliseconds(*seconds)))
            .collect();
        let used: String = self
            .efficiencies()
            .iter()
            .map(|(.., used)| format!("{:>8.1} %", 100.0 * used))
            .collect();
        print_line(&format!(
            "  {:<23}{:>9.2}{:>10}{of_all}",
            "all",
            milliseconds(self.seconds),
            ""
        ))?;
        print_line(&format!("  {:<42}{used}", "efficiency"))
    }
}
