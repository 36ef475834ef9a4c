//! `taper runs`: lists the runs in a folder, with their progress and their scores. A run is the
//! folder that a training writes.

use anyhow::Result;
use taper_run::folder::{RunState, RunSummary, list_runs};

use crate::arguments::Runs;
use crate::text::{print_line, visible, visible_json};

/// Runs the command.
pub(crate) fn run(arguments: &Runs) -> Result<()> {
    let runs = list_runs(&arguments.folder)?;
    if arguments.json {
        return print_line(&visible_json(&serde_json::to_string_pretty(&runs)?));
    }
    if runs.is_empty() {
        return print_line(&visible(&format!("{}: no runs", arguments.folder.display())));
    }
    let rows: Vec<[String; 5]> = std::iter::once(
        ["run", "state", "updates", "best validation", "test BLEU"].map(str::to_owned),
    )
    .chain(runs.iter().map(row))
    .collect();
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths: [usize; 5] = std::array::from_fn(width);
    for row in &rows {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        print_line(cells.join("  ").trim_end())?;
    }
    for run in &runs {
        if let RunState::Damaged { cause } = &run.state {
            print_line(&visible(&format!("{}: {cause}", run.folder.display())))?;
        }
    }
    Ok(())
}

/// Returns the table cells of a run.
fn row(run: &RunSummary) -> [String; 5] {
    let name = run.folder.file_name().unwrap_or(run.folder.as_os_str());
    let state = match &run.state {
        RunState::Training { process } => format!("training (process {process})"),
        RunState::Finished { .. } => "finished".to_owned(),
        RunState::Interrupted => "interrupted".to_owned(),
        RunState::Damaged { .. } => "damaged".to_owned(),
    };
    let updates = match (run.max_updates, run.max_epochs) {
        (Some(last), _) => format!("{} of {last}", run.step),
        (None, Some(last)) => format!("{}, {} of {last} epochs", run.step, run.epochs),
        (None, None) => run.step.to_string(),
    };
    let best = run.best.as_ref().map_or_else(String::new, |best| {
        format!("{} {:.4} (step {})", best.metric, best.score, best.step)
    });
    let tests: Vec<String> =
        run.tests.iter().map(|test| format!("{} {:.2}", test.split, test.bleu)).collect();
    let cells = [name.to_string_lossy().into_owned(), state, updates, best, tests.join(", ")];
    cells.map(|cell| visible(&cell).into_owned())
}
