//! `taper extrapolate`: measures the perplexity of language models by the length of texts, and the
//! share of passkeys that they recall. A passkey is a key that is hidden in a long text.

use anyhow::Result;
use taper_report::NamedFigure;
use taper_run::RunEvent;
use taper_run::evaluation::{
    Extrapolation, LengthMeasurement, PasskeyRecall, extrapolate, extrapolation_figure,
    passkey_figure,
};

use super::write_pictures;
use crate::arguments::Extrapolate;
use crate::text::print_line;

/// Runs the command.
pub(crate) fn run(arguments: &Extrapolate) -> Result<()> {
    let load = arguments.loading.settings();
    let settings = arguments.settings();
    let mut measured = Vec::new();
    for root in &arguments.runs {
        let mut observer = |_: &RunEvent<'_>| Ok(());
        measured.extend(extrapolate(root, &load, &settings, &mut observer)?);
    }
    if arguments.json {
        print_line(&serde_json::to_string_pretty(&measured)?)?;
    } else {
        table(&measured)?;
    }
    match (&arguments.pictures.svg, &arguments.pictures.png) {
        (None, None) => Ok(()),
        _ => write_pictures(&figures(&measured), &arguments.pictures),
    }
}

/// Returns a figure of the perplexity of all models by length. For each model that was asked for
/// passkeys, adds a figure of the share that it recalled.
fn figures(measured: &[Extrapolation]) -> Vec<NamedFigure> {
    let name = "extrapolation".to_owned();
    let mut figures = vec![NamedFigure { name, figure: extrapolation_figure(measured) }];
    for one in measured {
        let run = one.run.replace(['/', '\\'], "-");
        let name = format!("passkeys-{run}-{}", one.scaling.name());
        figures.extend(passkey_figure(one).map(|figure| NamedFigure { name, figure }));
    }
    figures
}

/// Prints two tables with a line for each model. The first has the perplexity by length. The second
/// has the share of recalled passkeys by length, wherever they were hidden in the text. Then prints
/// the reasons why lengths were refused.
fn table(measured: &[Extrapolation]) -> Result<()> {
    rows(measured, "perplexity, blocks of", |point| Some(format!("{:.3}", point.perplexity?)))?;
    if measured.iter().flat_map(|one| &one.points).any(|point| point.passkey.is_some()) {
        rows(measured, "keys found, texts of", |point| {
            let depths = point.passkey.as_ref()?;
            let count = |number: fn(&PasskeyRecall) -> usize| {
                depths.iter().map(number).sum::<usize>() as f64
            };
            let share = count(|at| at.found) / count(|at| at.keys);
            Some(format!("{share:.3}"))
        })?;
    }
    for one in measured {
        for point in &one.points {
            if let Some(why) = &point.refused {
                print_line(&format!("{}, {} tokens: {why}", one.name(), point.length))?;
            }
        }
    }
    Ok(())
}

/// Prints a table with a line for each model. A line of lengths precedes the first model. It is
/// repeated before each model that has other lengths than the model above.
fn rows(
    measured: &[Extrapolation],
    title: &str,
    cell: impl Fn(&LengthMeasurement) -> Option<String>,
) -> Result<()> {
    let mut heads = String::new();
    for one in measured {
        let lengths: String =
            one.points.iter().map(|point| format!("{:>9}", point.length)).collect();
        if lengths != heads {
            print_line(&format!("{title:<28}{lengths}  run"))?;
            heads = lengths;
        }
        let cell = |point| format!("{:>9}", cell(point).unwrap_or_else(|| "–".to_owned()));
        let cells: String = one.points.iter().map(cell).collect();
        print_line(&format!("{:<28}{cells}  {}", one.name(), one.run))?;
    }
    Ok(())
}
