//! `taper predict`: labels for texts.

use anyhow::{Context, Result};
use taper_model::TextClassifier;
use taper_run::LoadedRun;
use taper_run::prediction::predict;

use crate::arguments::Predict;
use crate::progress::sentence_bar;
use crate::text::{print_line, read_lines};

/// Runs the command: one line for each text, the label and its probability.
pub(crate) fn run(arguments: &Predict) -> Result<()> {
    let run: LoadedRun<TextClassifier> = arguments.weights.load(&arguments.run, &[])?;
    let texts = read_lines(&arguments.input)?;
    let bar = sentence_bar(Some(texts.len() as u64), "labelling");
    let found = predict(&run, &texts, |done| bar.set_position(done as u64))
        .with_context(|| arguments.input.display().to_string())?;
    bar.finish_and_clear();
    for prediction in found {
        if arguments.json {
            print_line(&serde_json::to_string(&prediction)?)?;
        } else {
            print_line(&format!("{}\t{:.4}", prediction.label, prediction.probability))?;
        }
    }
    Ok(())
}
