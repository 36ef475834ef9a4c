//! `taper import` and `taper export`: read models of the library Transformers, and write models for
//! it and for other programs that run models, such as CTranslate2.

use anyhow::{Result, bail};
use taper_run::engines::{self, ctranslate2::Ctranslate2, onnx::Onnx};
use taper_run::numbers::grouped;
use taper_run::tasks::{InputKind, PredictionEntry, entry, labels};
use taper_run::{RunEvent, RunFolder, folders};

use crate::advice::{say_notice, use_of};
use crate::arguments::{Export, Format, Import};
use crate::text::{print_line, quoted};

/// Runs `import`: makes a run from the folder of a model.
pub(crate) fn import(arguments: &Import) -> Result<()> {
    let folder = RunFolder::new(&arguments.run);
    let mut observer = |event: &RunEvent<'_>| {
        if let RunEvent::Notice(notice) = event {
            say_notice(notice);
        }
        Ok(())
    };
    let settings = folders::ImportSettings {
        source_language: arguments.source.clone(),
        target_language: arguments.target.clone(),
    };
    let (from, to) = (&arguments.folder, &folder);
    let imported = match &arguments.onto {
        Some(base) => folders::import_adapters(from, base, to, &mut observer)?,
        None => folders::import_with(from, to, &settings, &mut observer)?,
    };
    let config = &imported.config;
    let (model, task) = (&config.model, entry(config.task));
    let layers = match task.stacks.answers_by_decoder() {
        true => model.decoder_layers,
        false => model.encoder_layers,
    };
    let mut parts = vec![format!(
        "{}: {} parameters in {layers} layers",
        arguments.run.display(),
        grouped(imported.parameters)
    )];
    if config.task.reads_text() {
        let vocabulary = grouped(imported.vocabulary as u64);
        parts.push(format!("{vocabulary} tokens, {} positions", model.max_positions));
    }
    parts.extend(labels(config).map(|(labels, name)| format!("{} {name}", labels.len())));
    if config.task.reads_images() {
        let size = config.data.images.size;
        parts.push(format!("images of {size} x {size} pixels"));
    }
    let next = use_of(&quoted(&arguments.run), task.next.0);
    let lines = match &task.predicts {
        Some(PredictionEntry { reads: InputKind::Lines(name), .. }) => format!(" < {name}"),
        _ => String::new(),
    };
    print_line(&format!("{}; next: {next}{lines}", parts.join(", ")))
}

/// Runs `export`: writes the model of a run to a folder.
pub(crate) fn export(arguments: &Export) -> Result<()> {
    let settings = arguments.weights.settings(&[]);
    let Export { run, folder, external_data, .. } = arguments;
    if *external_data && !matches!(arguments.format, Format::Onnx) {
        bail!(
            "--external-data is for --format onnx: add --format onnx, or leave --external-data out"
        );
    }
    let exported = match (arguments.format, arguments.quantize) {
        (Format::Transformers, None) if arguments.adapters => {
            folders::export_adapters(run, &settings, folder)?
        }
        (Format::Transformers, None) => folders::export_run(run, &settings, folder)?,
        (Format::Transformers | Format::Onnx, Some(_)) => {
            bail!(
                "--quantize is for --format ctranslate2: add --format ctranslate2, or leave \
                 --quantize out"
            )
        }
        _ if arguments.adapters => {
            bail!("--adapters writes the format of PEFT: remove either --adapters or --format")
        }
        (Format::Ctranslate2, quantize) => {
            let engine = Ctranslate2(quantize.map(Into::into).unwrap_or_default());
            engines::export_run(run, &settings, &engine, folder)?
        }
        (Format::Onnx, None) => {
            let engine = Onnx { external_data: *external_data };
            engines::export_run(run, &settings, &engine, folder)?
        }
    };
    print_line(&format!(
        "{}: the {} of step {}, {}",
        arguments.folder.display(),
        if arguments.adapters { "adapters" } else { "weights" },
        exported.step,
        exported.checkpoint.display()
    ))?;
    let config = RunFolder::open(run)?.load_config(&[])?;
    folders::not_exported(&config).iter().for_each(say_notice);
    Ok(())
}
