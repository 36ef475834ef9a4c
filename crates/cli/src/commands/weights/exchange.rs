//! `taper import` and `taper export`: models of the library Transformers.

use anyhow::Result;
use taper_data::Task;
use taper_model::{ImageClassifier, LanguageModel};
use taper_run::checks::cost::grouped;
use taper_run::{LoadedRun, RunEvent, RunFolder, hugging_face};

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
    let imported = hugging_face::import(&arguments.folder, &folder, &mut observer)?;
    let model = &imported.config.model;
    if imported.config.task == Task::ImageClassification {
        let images = &imported.config.data.images;
        return print_line(&format!(
            "{}: {} parameters in {} layers, {} labels, images of {} x {} pixels; next: taper \
             predict {} IMAGE…",
            arguments.run.display(),
            grouped(imported.parameters),
            model.encoder_layers,
            images.labels.len(),
            images.size,
            images.size,
            quoted(&arguments.run)
        ));
    }
    print_line(&format!(
        "{}: {} parameters in {} layers, {} tokens, {} positions; next: taper generate {} \
         --prompt TEXT",
        arguments.run.display(),
        grouped(imported.parameters),
        model.decoder_layers,
        grouped(imported.vocabulary as u64),
        model.max_positions,
        quoted(&arguments.run)
    ))
}

/// Makes a folder of a run.
pub(crate) fn export(arguments: &Export) -> Result<()> {
    let task = RunFolder::open(&arguments.run)?.load_config(&[])?.task;
    let (step, checkpoint) = if task == Task::ImageClassification {
        let run: LoadedRun<ImageClassifier> = arguments.weights.load(&arguments.run, &[])?;
        hugging_face::export_vit(&run, &arguments.folder)?;
        (run.state.step, run.checkpoint)
    } else {
        let run: LoadedRun<LanguageModel> = arguments.weights.load(&arguments.run, &[])?;
        hugging_face::export(&run, &arguments.folder)?;
        (run.state.step, run.checkpoint)
    };
    print_line(&format!(
        "{}: the weights of step {step}, {}",
        arguments.folder.display(),
        checkpoint.display()
    ))
}
