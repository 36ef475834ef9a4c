//! `taper extrapolate`: perplexity by the length of blocks.

use anyhow::Result;
use taper_report::NamedFigure;
use taper_run::RunEvent;
use taper_run::evaluation::{Extrapolation, extrapolate, extrapolation_figure};

use super::write_pictures;
use crate::arguments::Extrapolate;
use crate::text::print_line;

/// Runs the command.
pub(crate) fn run(arguments: &Extrapolate) -> Result<()> {
    let load = arguments.weights.settings(&arguments.overrides.set);
    let mut found = Vec::new();
    for root in &arguments.runs {
        let mut observer = |_: &RunEvent<'_>| Ok(());
        found.extend(extrapolate(root, &load, &arguments.lengths, &mut observer)?);
    }
    if arguments.json {
        print_line(&serde_json::to_string_pretty(&found)?)?;
    } else {
        table(&found, &arguments.lengths)?;
    }
    let figure = extrapolation_figure(&found);
    let figures = [NamedFigure { name: "extrapolation".into(), figure }];
    match (&arguments.pictures.svg, &arguments.pictures.png) {
        (None, None) => Ok(()),
        _ => write_pictures(&figures, &arguments.pictures),
    }
}

/// Prints a line for each model, with its run.
fn table(found: &[Extrapolation], lengths: &[usize]) -> Result<()> {
    let heads = lengths.iter().map(|length| format!("{length:>9}")).collect::<String>();
    print_line(&format!("{:<28}{heads}  run", "perplexity, blocks of"))?;
    for one in found {
        let cells = one.points.iter().map(|point| match point.perplexity {
            Some(perplexity) => format!("{perplexity:>9.3}"),
            None => format!("{:>9}", "–"),
        });
        let cells = cells.collect::<String>();
        print_line(&format!("{:<28}{cells}  {}", one.name(), one.run))?;
    }
    let refused = found.iter().flat_map(|one| one.points.iter().map(move |point| (one, point)));
    for (one, point) in refused {
        if let Some(why) = &point.refused {
            print_line(&format!("{}, {} tokens: {why}", one.name(), point.length))?;
        }
    }
    Ok(())
}
