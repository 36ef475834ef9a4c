//! `taper import` and `taper export`: models of the library Transformers.

use anyhow::Result;
use taper_data::Task;
use taper_run::checks::cost::grouped;
use taper_run::{RunEvent, RunFolder, folders};

use crate::arguments::{Export, Import};
use crate::text::{print_line, quoted, say};

/// Makes a run of a folder.
pub(crate) fn import(arguments: &Import) -> Result<()> {
    let folder = RunFolder::new(&arguments.run);
    let mut observer = |event: &RunEvent<'_>| {
        if let RunEvent::Notice(notice) = event {
            say(&notice.to_string());
        }
        Ok(())
    };
    let imported = folders::import(&arguments.folder, &folder, &mut observer)?;
    let model = &imported.config.model;
    let (run, name) = (arguments.run.display(), quoted(&arguments.run));
    let size = format!("{run}: {} parameters", grouped(imported.parameters));
    let tokens = format!(
        "{} tokens, {} positions",
        grouped(imported.vocabulary as u64),
        model.max_positions
    );
    print_line(&match imported.config.task {
        Task::ImageClassification => {
            let images = &imported.config.data.images;
            format!(
                "{size} in {} layers, {} labels, images of {} x {} pixels; next: taper predict \
                 {name} IMAGE…",
                model.encoder_layers,
                images.labels.len(),
                images.size,
                images.size,
            )
        }
        Task::MaskedLanguageModel => format!(
            "{size} in {} layers, {tokens}; next: taper train CONFIG --from {name}",
            model.encoder_layers
        ),
        Task::Classification => format!(
            "{size} in {} layers, {tokens}, {} labels; next: taper predict {name} < TEXTS",
            model.encoder_layers,
            imported.config.data.labelled.labels.len()
        ),
        Task::Tagging => format!(
            "{size} in {} layers, {tokens}, {} tags; next: taper predict {name} < TEXTS",
            model.encoder_layers,
            imported.config.data.labelled.labels.len()
        ),
        Task::QuestionAnswering => format!(
            "{size} in {} layers, {tokens}; next: taper predict {name} < QUESTIONS",
            model.encoder_layers
        ),
        _ => format!(
            "{size} in {} layers, {tokens}; next: taper generate {name} --prompt TEXT",
            model.decoder_layers
        ),
    })
}

/// Makes a folder of a run.
pub(crate) fn export(arguments: &Export) -> Result<()> {
    let settings = arguments.weights.settings(&[]);
    let exported = folders::export_run(&arguments.run, &settings, &arguments.folder)?;
    print_line(&format!(
        "{}: the weights of step {}, {}",
        arguments.folder.display(),
        exported.step,
        exported.checkpoint.display()
    ))
}
