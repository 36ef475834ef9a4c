//! `taper evaluate`: scores the test sets of a run. Depending on the task, the model first writes
//! or predicts an output for each example, or, as a language model, only computes the probability
//! of the text.

use anyhow::{Result, bail};
use taper_run::evaluation::{evaluate, evaluate_hostile};
use taper_run::tasks::entry;
use taper_run::{RunConfig, RunEvent, RunObserver};

use crate::arguments::Evaluate;
use crate::progress::TestReporter;
use crate::text::print_line;

/// Runs the command. Without `--json`, each result is printed as soon as it is computed.
pub(crate) fn run(arguments: &Evaluate) -> Result<()> {
    let load = arguments.loading.settings();
    let search = |config: &mut RunConfig| match config.task {
        task if arguments.search.mbr.is_some() && !entry(task).translates => {
            bail!("--mbr is only for translations: leave it out")
        }
        task if arguments.search.shortlist && !entry(task).translates => {
            bail!("--shortlist is only for translations: leave it out")
        }
        task if entry(task).writes => arguments.search.apply(&mut config.decoding, None),
        _ if arguments.search.beam.is_some() || arguments.search.length_penalty.is_some() => {
            bail!("--beam and --length-penalty only affect text that is written: leave them out")
        }
        _ => Ok(()),
    };
    let mut reporter = TestReporter::default();
    let mut observer = |event: &RunEvent<'_>| match event {
        RunEvent::Measuring { .. } | RunEvent::Measured(_) | RunEvent::MeasuredHostile(_)
            if arguments.json =>
        {
            Ok(())
        }
        RunEvent::Measuring { checkpoint, step } => {
            print_line(&format!("weights of step {step}, {}", checkpoint.display()))
        }
        RunEvent::Measured(result) => result.lines().iter().try_for_each(|line| print_line(line)),
        RunEvent::MeasuredHostile(set) => set.lines().iter().try_for_each(|line| print_line(line)),
        event => reporter.observe(event),
    };
    let (run, splits) = (&arguments.run, &arguments.split);
    let record = match arguments.hostile {
        true => evaluate_hostile(run, &load, splits, search, &mut observer)?.record(run)?,
        false => evaluate(run, &load, splits, search, &mut observer)?.record(run)?,
    };
    if !arguments.json {
        return Ok(());
    }
    print_line(&serde_json::to_string_pretty(&record)?)
}
