//! `taper pipeline`: runs the steps that a file lists, each as a process of this program. A step is
//! a command, for example a training or the translation of a text.

mod child;

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail};
use taper_run::pipeline::{Pipeline, Status, Step};

use crate::arguments;
use crate::bars::clock;
use crate::error::Interrupted;
use crate::text::{print_line, quoted};
use child::{Child, ENDED};
pub(crate) use child::{STEP_LOCK, end_with_parent};

/// Runs the command.
pub(crate) fn run(arguments: &arguments::Pipeline) -> Result<()> {
    let pipeline = Pipeline::load(&arguments.file, arguments.folder.as_deref())?;
    execute(&pipeline, arguments.dry_run)
}

/// Runs the steps that are not finished, or only prints their commands if it is a dry run.
pub(super) fn execute(pipeline: &Pipeline, is_dry_run: bool) -> Result<()> {
    if is_dry_run {
        for step in &pipeline.steps {
            let words: Vec<String> =
                step.arguments.iter().map(|word| quoted(Path::new(word))).collect();
            print_line(&format!("{}: taper {}", step.name, words.join(" ")))?;
        }
        return Ok(());
    }
    pipeline.make_folder()?;
    // Checks all steps before the first begins: `status` fails for a step that has changed.
    for step in &pipeline.steps {
        pipeline.status(step)?;
    }
    let (child, count) = (Child::new(&pipeline.folder)?, pipeline.steps.len());
    for (number, step) in (1..).zip(&pipeline.steps) {
        let name = &step.name;
        if let Status::Done(seconds) = pipeline.status(step)? {
            let took = clock(std::time::Duration::from_secs_f64(seconds));
            print_line(&format!("[{number}/{count}] {name}: done already, in {took}"))?;
            continue;
        }
        print_line(&format!("[{number}/{count}] {name}: taper {}", step.arguments[0]))?;
        let began = Instant::now();
        let must_end = child.run(name, &step.arguments)?;
        pipeline.finish(step, began.elapsed().as_secs_f64())?;
        print_line(&format!("[{number}/{count}] {name}: done in {}", clock(began.elapsed())))?;
        if must_end {
            return Err(Interrupted(ENDED).into());
        }
    }
    report(pipeline, &child)
}

/// Writes a page about the trained run, or a page that compares several trained runs. If the page
/// cannot be written, the process that writes it has reported the error, and this function says
/// what to do.
fn report(pipeline: &Pipeline, child: &Child) -> Result<()> {
    let trained: Vec<&Step> = pipeline.steps.iter().filter(|step| step.trains).collect();
    let folders = || trained.iter().map(|step| step.output.display().to_string());
    let page = pipeline.folder.join("report.html");
    let shown = page.display().to_string();
    let arguments: Vec<String> = match trained.len() {
        0 => Vec::new(),
        1 => {
            let words = ["report".to_owned(), "--output".to_owned(), shown];
            words.into_iter().chain(folders()).collect()
        }
        _ => {
            let words = ["compare".to_owned(), "--html".to_owned(), shown];
            words.into_iter().chain(folders()).collect()
        }
    };
    if arguments.is_empty() {
        return Ok(());
    }
    // A comparison fails if the runs have no test sentences in common, for example because they
    // translate in opposite directions. A report of a single run is still possible then.
    match child.run("report", &arguments) {
        Err(error) if error.is::<Interrupted>() => bail!(error),
        Err(_) if trained.len() == 1 => print_line(
            "no report was written, for the reason above; all steps are done: after this is \
             mended, the same command writes the report",
        ),
        Err(_) => print_line(&format!(
            "the runs are not compared; taper report {} writes a page about one",
            quoted(&trained[trained.len() - 1].output)
        )),
        Ok(must_end) => {
            print_line(&format!("report: {}", quoted(&page)))?;
            if must_end { Err(Interrupted(ENDED).into()) } else { Ok(()) }
        }
    }
}
