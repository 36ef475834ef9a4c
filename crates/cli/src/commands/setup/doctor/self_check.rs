//! Computations with known results: products of integers, a Turing machine on a decoder, and a
//! short training.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use taper_ops::products::{Factor, multiply};
use taper_ops::{Kernel, Products};
use taper_run::training::{self, Outcome};
use taper_run::{RunConfig, RunEvent, RunFolder, TrainSettings};
use taper_theory::turing::{Machine, TuringDecoder};

use super::super::quickstart::{FILES, unpack};
use super::finding::Finding;

/// Expected loss after the last update of the small training that [`SMALL`] describes, in nats per
/// token, for each data type. Kernels add in different orders, so their losses differ in the last
/// digits.
const LOSSES: [(&str, f64); 2] = [("f32", 6.4177), ("bf16", 6.4177)];
/// Largest accepted difference from the expected loss.
const MOST: f64 = 0.01;

/// Changes to the recipe (the settings of the training) of `taper quickstart`, so that the training
/// takes only a few seconds.
const SMALL: [&str; 8] = [
    "device=cpu",
    "model.d_model=64",
    "model.d_ff=128",
    "training.max_updates=20",
    "training.log_every=20",
    "training.validate_every=1000",
    "training.schedule.warmup=5",
    "evaluation.test_after_training=false",
];

/// Rows, summed dimension and columns of the products. They are not multiples of any kernel's block
/// sizes, so that whole and partial blocks are computed.
const SHAPE: (usize, usize, usize) = (97, 211, 131);

/// A Turing machine that adds one to a binary number.
const COUNTER: &str = "blank _\nstart right\nhalt done
right 0 -> right 0 R\nright 1 -> right 1 R\nright _ -> carry _ L
carry 1 -> carry 0 L\ncarry 0 -> done 1 S\ncarry _ -> done 1 S\n";
/// Input of the counter.
const INPUT: &str = "1011011111";
/// Expected tape at the end: the input plus one.
const COUNTED: &str = "1011100000";

/// Advice if this machine computes wrong results.
const REPORT: &str = "another kernel may compute correctly (TAPER_KERNEL=gemm taper doctor); \
                      report it, with all of these lines";

/// Checks the products of small integers by each kernel of this processor. They must be exact in
/// f32 and in bf16.
pub(super) fn products() -> Vec<Finding> {
    let (m, k, n) = SHAPE;
    let whole = |count: usize, step: usize| -> Vec<i32> {
        (0..count).map(|at| (at * step % 9) as i32 - 4).collect()
    };
    let (a, b) = (whole(m * k, 7), whole(k * n, 5));
    let cell = |at: usize| -> i32 {
        let (row, column) = (at / n, at % n);
        (0..k).map(|inner| a[row * k + inner] * b[inner * n + column]).sum()
    };
    let right: Vec<f32> = (0..m * n).map(|at| cell(at) as f32).collect();
    let as_f32 = |values: &[i32]| values.iter().map(|value| *value as f32).collect::<Vec<_>>();
    let (a, b) = (as_f32(&a), as_f32(&b));
    let (mut exact, mut wrong) = (Vec::new(), Vec::new());
    for (name, products) in [("f32", Products::F32), ("bf16", Products::Bf16)] {
        for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.serves(products)) {
            let mut out = vec![f32::NAN; m * n];
            let [left, right_factor] = [&a, &b].map(|values| Factor { values, transposed: false });
            let served = multiply((kernel, products), SHAPE, left, right_factor, &mut out);
            let list = if served && out == right { &mut exact } else { &mut wrong };
            list.push(format!("{} {name}", kernel.name()));
        }
    }
    vec![if wrong.is_empty() {
        Finding::ok("products", format!("exact by {}", exact.join(", ")))
    } else {
        Finding::fail("products", format!("wrong by {}", wrong.join(", ")), REPORT)
    }]
}

/// Checks decoding with a Turing machine whose final tape is known, and training with its final
/// loss.
pub(super) fn models() -> Vec<Finding> {
    let mut findings = vec![timed("decoding", || {
        let tape = counted()?;
        if tape != COUNTED {
            bail!("a Turing machine on a decoder wrote {tape}, which should be {COUNTED}");
        }
        Ok("a Turing machine on a decoder, every step as it should be".to_owned())
    })];
    findings.extend(LOSSES.map(|(dtype, right)| {
        timed("training", || {
            let loss = trained(dtype)?;
            if loss.is_nan() || (loss - right).abs() > MOST {
                bail!("in {dtype} the loss is {loss:.4}, and should be {right:.4}");
            }
            Ok(format!("20 updates in {dtype}, loss {loss:.4}"))
        })
    }));
    findings
}

/// Runs a check; reports its result and how long it took, or its error.
fn timed(topic: &'static str, check: impl FnOnce() -> Result<String>) -> Finding {
    let began = Instant::now();
    match check() {
        Ok(description) => {
            Finding::ok(topic, format!("{description} ({:.1} s)", began.elapsed().as_secs_f64()))
        }
        Err(error) => Finding::fail(topic, crate::advice::one_line(&error), REPORT),
    }
}

/// Runs the counter on a decoder; returns the tape at the end, without blanks.
fn counted() -> Result<String> {
    let machine = Machine::parse(COUNTER)?;
    let input = machine.read(INPUT)?;
    let steps = 3 * INPUT.len();
    let decoder = TuringDecoder::new(&machine, input.len() + steps + 2)?;
    let mut now = taper_theory::turing::Configuration::first(&machine, &input);
    for action in decoder.run(&input, steps)? {
        now.act(action);
    }
    Ok(now.shown(&machine).chars().filter(|symbol| matches!(symbol, '0' | '1')).collect())
}

/// Trains the reduced quickstart in a temporary folder; returns the loss after the last update.
fn trained(dtype: &str) -> Result<f64> {
    let folder = tempfile::Builder::new().prefix("taper-doctor-").tempdir();
    let folder = folder.context("no temporary folder")?;
    let (folder, mut loss) = (folder.path(), f64::NAN);
    let mut train = || -> Result<()> {
        unpack(folder)?;
        let mut set = SMALL.map(str::to_owned).to_vec();
        set.push(format!("dtype={dtype}"));
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
    train().context("a short training failed")?;
    Ok(loss)
}
