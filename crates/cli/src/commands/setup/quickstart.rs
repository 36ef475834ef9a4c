//! `taper quickstart`: trains a first model on a corpus inside the program.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use taper_run::folder::files::write_atomically;

use crate::arguments::{Quickstart, Train};
use crate::commands::training::train;
use crate::text::print_line;

/// Embeds files of the repository, with their names and contents.
macro_rules! bundled {
    ($($name:literal,)*) => {
        [$(($name, include_bytes!(concat!(env!("TAPER_BUNDLED"), "/", $name)))),*]
    };
}

/// Names and contents of the files of the recipe (the settings of the training) and of its corpus.
pub(super) const FILES: [(&str, &[u8]); 7] = bundled![
    "configs/quickstart.toml",
    "data/everyday-en-zh/train.en",
    "data/everyday-en-zh/train.zh",
    "data/everyday-en-zh/val.en",
    "data/everyday-en-zh/val.zh",
    "data/everyday-en-zh/test.en",
    "data/everyday-en-zh/test.zh",
];

/// Runs the command: unpacks missing files, and trains or continues the run.
pub(crate) fn run(arguments: &Quickstart, threads: Option<usize>) -> Result<()> {
    let Quickstart { folder, run, overrides, training } = arguments;
    unpack(folder)?;
    if !training.json {
        print_line(&format!("the recipe and its corpus are in {}", folder.display()))?;
    }
    let train = Train {
        config: folder.join("configs/quickstart.toml"),
        run: Some(run.clone().unwrap_or_else(|| folder.join("runs/quickstart"))),
        overrides: overrides.clone(),
        from: None,
        only: Vec::new(),
        own_tokenizer: false,
        freeze: Vec::new(),
        resume: true,
        dry_run: false,
        output: training.clone(),
    };
    train::run(&train, threads)
}

/// Writes the recipe and its corpus to a folder. Existing files are kept.
pub(super) fn unpack(folder: &Path) -> Result<()> {
    for (name, content) in FILES {
        let path = folder.join(name);
        if path.exists() {
            continue;
        }
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        write_atomically(&path, content)?;
    }
    Ok(())
}
