//! `taper evaluate`: the test sets, decoded and scored.

use anyhow::{Result, bail};
use taper_data::read_pairs;

use crate::arguments::Evaluate;
use crate::progress::TestReporter;
use crate::text::print_line;
use taper_run::evaluation::TestSetResult;
use taper_run::translation::for_the_best;

/// Runs the command.
pub(crate) fn run(arguments: &Evaluate) -> Result<()> {
    let mut run = arguments.weights.load(&arguments.run, &arguments.overrides.set)?;
    arguments.search.apply(&mut run.config.decoding, None)?;
    let splits = if arguments.split.is_empty() {
        run.config.data.test.clone()
    } else {
        arguments.split.clone()
    };
    if splits.is_empty() {
        bail!("the run has no test sets (data.test is empty): name a split with --split");
    }
    for split in &splits {
        // Better now than after the others.
        read_pairs(&run.config.data, split)?;
    }
    if !arguments.json {
        print_line(&format!("weights of step {}, {}", run.state.step, run.checkpoint.display()))?;
    }
    let mut reporter = TestReporter::default();
    let mut results = Vec::with_capacity(splits.len());
    for split in &splits {
        let result =
            TestSetResult::of(split, &run.config, &run.tokenizers, &run.model, &mut reporter)?;
        if !arguments.json {
            for line in result.lines() {
                print_line(&line)?;
            }
        }
        results.push(result);
    }
    if arguments.json {
        let decoding = for_the_best(&run.config.decoding);
        let record = serde_json::json!({
            "run": arguments.run,
            "checkpoint": run.checkpoint,
            "step": run.state.step,
            // None where translations are drawn.
            "beam_size": (!decoding.sampling.is_active()).then_some(decoding.beam_size),
            "length_penalty": decoding.length_penalty,
            "decoding": decoding,
            "results": results,
        });
        print_line(&serde_json::to_string_pretty(&record)?)?;
    }
    Ok(())
}
