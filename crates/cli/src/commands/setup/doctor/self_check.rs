//! `taper doctor`: the hardware of this machine, and a check that it computes correctly.

use std::num::NonZero;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use taper_ops::{Kernel, Products};
use taper_run::checks::{device, memory};
use taper_run::numbers::bytes;
use taper_run::training::{self, Outcome};
use taper_run::{RunConfig, RunEvent, RunFolder, TrainSettings};

use super::quickstart::{FILES, unpack};
use crate::text::print_line;

/// Loss of the reduced quickstart after its last update in f32. Kernels add in different orders, so
/// the loss differs between them in its last digits.
const LOSS: f64 = 6.4177;
/// Largest difference from this loss.
const MOST: f64 = 0.01;

/// Changes of the quickstart that reduce it to seconds.
const SMALL: [&str; 9] = [
    "device=cpu",
    "dtype=f32",
    "model.d_model=64",
    "model.d_ff=128",
    "training.max_updates=20",
    "training.log_every=20",
    "training.validate_every=1000",
    "training.schedule.warmup=5",
    "evaluation.test_after_training=false",
];

/// Runs the command: prints a line for each fact, and the check at the end.
pub(crate) fn run() -> Result<()> {
    print_line(&format!("taper      {}", crate::arguments::about_build()))?;
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    print_line(&format!("processor  {}, {cores} cores", std::env::consts::ARCH))?;
    for (name, products) in [("f32", Products::F32), ("bf16", Products::Bf16)] {
        let kernel = Kernel::best(products);
        print_line(&format!("{name:<9}  by {}", kernel.instructions()))?;
    }
    let free = memory::available().map_or_else(|| "unknown".to_owned(), bytes);
    print_line(&format!("memory     {free} available"))?;
    let chosen = device::open("auto")?;
    print_line(&format!("device     {} (device = \"auto\")", device::describe(&chosen)))?;
    let began = Instant::now();
    let loss = trained().context("the check failed: this machine cannot train")?;
    let seconds = began.elapsed().as_secs_f64();
    if (loss - LOSS).abs() > MOST {
        bail!(
            "the check failed: after a short training the loss is {loss:.4}, and should be \
             {LOSS:.4}; report it, with the lines above"
        );
    }
    print_line(&format!("check      passed: loss {loss:.4} after {seconds:.1} s of training"))
}

/// Returns the loss after a short training, in a folder that is removed afterwards.
fn trained() -> Result<f64> {
    let folder = std::env::temp_dir().join(format!("taper-doctor-{}", std::process::id()));
    let mut loss = f64::NAN;
    let mut train = || -> Result<()> {
        unpack(&folder)?;
        let set = SMALL.map(str::to_owned);
        let config = RunConfig::load(&folder.join(FILES[0].0), &set)?;
        let run = RunFolder::new(&folder.join("run"));
        let mut observe = |event: &RunEvent<'_>| {
            if let RunEvent::Training(taper_trainer::Event::Log { nll, .. }) = event {
                loss = *nll;
            }
            Ok(())
        };
        let (settings, stop) = (TrainSettings::default(), AtomicBool::new(false));
        match training::start(&run, &config, &settings, &mut observe, &stop)? {
            Outcome::Complete { .. } => Ok(()),
            Outcome::Interrupted { .. } => bail!("interrupted"),
        }
    };
    let done = train();
    let _ = std::fs::remove_dir_all(&folder);
    done.map(|()| loss)
}
