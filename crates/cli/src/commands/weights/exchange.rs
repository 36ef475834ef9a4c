//! `taper import` and `taper export`: models of the library Transformers.

use std::path::Path;

use anyhow::Result;
use taper_data::Task;
use taper_run::checks::cost::grouped;
use taper_run::tasks::TaskModel;
use taper_run::{LoadedRun, RunEvent, RunFolder, folders};

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
    let task = RunFolder::open(&arguments.run)?.load_config(&[])?.task;
    match task {
        Task::ImageClassification => write(arguments, folders::export_vit),
        Task::MaskedLanguageModel => write(arguments, folders::export_bert),
        Task::Classification => write(arguments, folders::export_bert_classifier),
        Task::QuestionAnswering => write(arguments, folders::export_bert_span_extractor),
        Task::LanguageModel | Task::Translation => write(arguments, folders::export_gpt2),
        Task::Captions | Task::ImageText | Task::Tagging | Task::InContextRegression => {
            anyhow::bail!("a run of the task {task} cannot be exported yet")
        }
    }
}

fn write<M: TaskModel>(
    arguments: &Export,
    export: impl Fn(&LoadedRun<M>, &Path) -> Result<()>,
) -> Result<()> {
    let run: LoadedRun<M> = arguments.weights.load(&arguments.run, &[])?;
    export(&run, &arguments.folder)?;
    print_line(&format!(
        "{}: the weights of step {}, {}",
        arguments.folder.display(),
        run.state.step,
        run.checkpoint.display()
    ))
}
