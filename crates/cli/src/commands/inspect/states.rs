//! `taper inspect --state-gradients`: shows how far gradients reach back in time through recurrent
//! layers.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use taper_plots::{Axis, Chart, Figure, Series};
use taper_run::evaluation::{LayerGradients, state_gradients};
use taper_run::folder::files::write_atomically;
use taper_run::{LoadSettings, LoadedRun};

use crate::arguments::Inspect;
use crate::text::print_line;

/// Divisor of the smallest number of sentences for which a mean is drawn.
///
/// For each layer and each number of steps that follow a state, there is the mean norm of the
/// gradients over all sentences that are long enough. Let n be the largest number of sentences
/// among the means of a layer. Means over fewer than n / `LEAST` sentences are unreliable, so they
/// are not drawn.
const LEAST: usize = 20;

/// Measures the gradients, prints them and, if requested, draws them.
pub(super) fn run(arguments: &Inspect, target: &Path, split: &str) -> Result<()> {
    if !target.is_dir() {
        bail!("--state-gradients needs a run, but {} is not a folder", target.display());
    }
    ensure!(arguments.sentences != 0, "--sentences must be at least 1");
    let settings =
        LoadSettings { overrides: arguments.overrides.set.clone(), ..LoadSettings::default() };
    let run: LoadedRun = LoadedRun::open(target, &settings)?;
    let layers = state_gradients(&run, split, arguments.sentences)
        .with_context(|| target.display().to_string())?;
    if let Some(path) = &arguments.figure {
        let svg = figure(&run.config.name, &layers).draw()?.standalone();
        write_atomically(path, svg.as_bytes())?;
    }
    if arguments.json {
        let record = serde_json::json!({
            "run": target, "checkpoint": run.checkpoint, "split": split, "layers": layers,
        });
        return print_line(&serde_json::to_string_pretty(&record)?);
    }
    for LayerGradients { layer, norms, sentences } in &layers {
        print_line(&format!("{layer}, by the steps that follow a state"))?;
        for (behind, (norm, count)) in norms.iter().zip(sentences).enumerate() {
            print_line(&format!("  {behind:>4}  {norm:<12.6e}  {count} sentences"))?;
        }
    }
    Ok(())
}

/// Draws a line for each layer of the encoder and of the decoder.
fn figure(name: &str, layers: &[LayerGradients]) -> Figure {
    let line = |layer: &LayerGradients| {
        let most = layer.sentences.iter().copied().max().unwrap_or(0);
        let enough = |count: usize| count * LEAST >= most;
        let points = layer.norms.iter().zip(&layer.sentences).enumerate();
        let points = points
            .filter(|(_, (_, count))| enough(**count))
            .map(|(behind, (norm, _))| (behind as f64, *norm))
            .collect();
        Series::line(&layer.layer, points)
    };
    let chart = Chart::new(
        Axis::linear("steps that follow a state"),
        Axis::log("length of the gradient by it"),
        layers.iter().map(line).collect(),
    );
    let description = "The mean length of the gradient of a sentence's loss by the states of each \
                       recurrent layer, by the number of steps that follow the state.";
    Figure::new(format!("How far learning reaches back: {name}"), description, chart)
}
