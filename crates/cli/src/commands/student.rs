//! `taper student`: trains a small model (the student) on the translations of a large model (the
//! teacher), and makes a page that translates with the student in a browser.

use anyhow::Result;
use taper_run::checks::choose_threads;
use taper_run::numbers::grouped;
use taper_run::pipeline::Pipeline;
use taper_run::student::{
    Measurement, StudentFiles, StudentPage, StudentSettings, compare, write_pipeline,
};

use super::pipeline;
use super::weights::page::{module_file, read_module};
use crate::arguments::Student;
use crate::bars::sentence_bar;
use crate::text::{print_line, quoted, say};

/// Runs the command. `threads` is the number of threads with which the speeds of teacher and
/// student are compared. `None` means one thread, so that the ratio of speeds shows only how much
/// each model computes.
pub(crate) fn run(arguments: &Student, threads: Option<usize>) -> Result<()> {
    let Student { teachers, output, module, .. } = arguments;
    let module = (!arguments.no_page).then(|| module_file(module.as_deref()));
    if let Some(file) = &module {
        // If the module for the page is missing, this fails now, and not after the training.
        read_module(file, arguments.module.is_some())?;
    }
    let language = arguments.language.into();
    let settings = StudentSettings {
        teachers,
        folder: output,
        overrides: &arguments.overrides.set,
        page: module.as_deref().map(|module| StudentPage { module, language }),
    };
    let files = write_pipeline(&settings)?;
    let steps = Pipeline::load(&files.pipeline, None)?;
    print_line(&format!("pipeline: {}", quoted(&files.pipeline)))?;
    let is_changed = settings.overrides.iter().any(|set| set.trim_start().starts_with("training."));
    if files.teacher_was_trained_further && !is_changed {
        say("warning: the teacher began with the weights of another run, and the student begins \
             with random ones: the teacher's training may be too short for it; --set \
             training.max_updates and training.schedule.learning_rate give it another");
    }
    pipeline::execute(&steps, arguments.dry_run)?;
    if arguments.dry_run {
        return Ok(());
    }
    choose_threads(threads.unwrap_or(1))?;
    let bar = sentence_bar(None, "compared");
    let measurements = compare(teachers, &files.run, |done| bar.set_position(done as u64))?;
    bar.finish_and_clear();
    match measurements {
        Some(measurements) => print_comparison(&measurements, threads.unwrap_or(1))?,
        None => print_line(
            "teacher and student are not compared: the recipe names neither test sets nor a \
             validation set",
        )?,
    }
    print_page(&files)
}

fn print_comparison([teacher, student]: &[Measurement; 2], threads: usize) -> Result<()> {
    for (name, model) in [("teacher", teacher), ("student", student)] {
        print_line(&format!(
            "{name}: {} parameters, {}, beam {}: {:.0} words a second on {threads} thread{}",
            grouped(model.parameters as u64),
            model.weights,
            model.beam_size,
            model.words_per_second(),
            if threads == 1 { "" } else { "s" },
        ))?;
    }
    for (of_teacher, of_student) in teacher.scores.iter().zip(&student.scores) {
        print_line(&format!(
            "{}: BLEU {:.2} by the teacher, {:.2} by the student ({:+.2})",
            of_teacher.name,
            of_teacher.bleu,
            of_student.bleu,
            of_student.bleu - of_teacher.bleu
        ))?;
    }
    let times = student.words_per_second() / teacher.words_per_second();
    print_line(&format!("the student is {times:.1} times as fast"))
}

fn print_page(files: &StudentFiles) -> Result<()> {
    print_line(&format!("run: {}", quoted(&files.run)))?;
    let Some(page) = &files.page else { return Ok(()) };
    let bytes = std::fs::metadata(page).map_or(0, |page| page.len());
    print_line(&format!("page: {}, {:.1} MB", quoted(page), bytes as f64 / 1e6))
}
