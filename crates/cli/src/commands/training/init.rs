//! `taper init`: writes a recipe (a TOML file with all settings of a training) for a user's text.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use taper_data::FieldsConfig;
use taper_run::init::{Corpus, InitSettings, Machine, WrittenRecipe, init};
use taper_run::numbers::grouped;
use taper_run::{RunFolder, TrainSettings};

use crate::advice::usage;
use crate::arguments::Init;
use crate::estimate::estimate;
use crate::text::{print_line, quoted, say, standard_input};

/// Runs the command.
pub(crate) fn run(arguments: &Init) -> Result<()> {
    let settings = settings(arguments)?;
    let written = init(&settings, &Machine::here())?;
    for line in lines(&written) {
        print_line(&line)?;
    }
    if !arguments.no_measure {
        let run = RunFolder::new(&Path::new("runs").join(&written.config.name));
        estimate(&run, &written.config, &TrainSettings::default(), false)?;
    }
    print_line(&format!("\nnext:\n  taper train {}", quoted(&written.recipe)))
}

/// Returns the settings from the arguments, and asks the user for missing settings.
fn settings(arguments: &Init) -> Result<InitSettings> {
    let mut questions = Questions { answers: standard_input() };
    let files = if arguments.files.is_empty() {
        let first = questions.ask("File of sentences, or table (.tsv, .csv, .jsonl, .parquet)")?;
        let is_table =
            Corpus::from_files(&[PathBuf::from(&first)], FieldsConfig::default()).is_ok();
        let second =
            if is_table { None } else { Some(questions.ask("File of their translations")?) };
        std::iter::once(first).chain(second).map(PathBuf::from).collect()
    } else {
        arguments.files.clone()
    };
    let columns = match &arguments.columns {
        Some(columns) => {
            let (source, target) = columns
                .split_once(',')
                .with_context(|| format!("--columns {columns}: give two, as in 1,2 or en,de"))?;
            FieldsConfig {
                source: source.to_owned(),
                target: target.to_owned(),
                ..FieldsConfig::default()
            }
        }
        None => FieldsConfig::default(),
    };
    let corpus = Corpus::from_files(&files, columns)?;
    let [source, target] = match corpus.languages() {
        Some(known) => known.map(Some),
        None => [None, None],
    };
    let mut language = |given: &Option<String>, known: Option<String>, side: &str| match given
        .clone()
        .or(known)
    {
        Some(language) => Ok(language),
        None => questions.ask(&format!("Language of the {side}, such as en")).map_err(|error| {
            error.context(format!(
                "the names of the files do not show the language of the {side}: \
                     give --source-language and --target-language"
            ))
        }),
    };
    let languages = [
        language(&arguments.source_language, source, "sentences")?,
        language(&arguments.target_language, target, "translations")?,
    ];
    if languages[0] == languages[1] {
        bail!("both languages are `{}`: their names have to differ", languages[0]);
    }
    Ok(InitSettings {
        corpus,
        languages,
        recipe: arguments.output.clone(),
        divided: arguments.data.clone(),
        usage,
    })
}

/// Questions on standard error, answered by lines of standard input.
struct Questions {
    answers: taper_data::LineReader,
}

impl Questions {
    /// Asks a question and returns the answer.
    ///
    /// # Errors
    /// When there is no answer.
    fn ask(&mut self, question: &str) -> Result<String> {
        // Input is read even if the question cannot be shown.
        let _ = write!(std::io::stderr(), "{question}: ");
        let answer = self.answers.next_line()?;
        if answer.is_none() || !std::io::stdin().is_terminal() {
            // Ends the line of the question. At a terminal, the user's answer has ended it.
            say("");
        }
        match answer {
            Some(answer) if !answer.trim().is_empty() => Ok(answer.trim().to_owned()),
            _ => bail!(
                "no answer to: {question}; `taper init --help` lists the arguments that answer"
            ),
        }
    }
}

/// Describes the text that was found and the files that were written.
fn lines(written: &WrittenRecipe) -> Vec<String> {
    let (config, facts) = (&written.config, &written.facts);
    let [source, target] = facts.mean_characters();
    let blank = match facts.blank {
        0 => String::new(),
        blank => format!("; {} have a blank side and are omitted", grouped(blank)),
    };
    let mut lines = vec![format!(
        "text: {} pairs, {source:.0} and {target:.0} characters on average{blank}",
        grouped(facts.pairs)
    )];
    match &written.divided {
        Some(folder) => lines.push(format!(
            "divided into train, val and test in {}; no sentence stands in two of them",
            folder.display()
        )),
        None if config.data.test.is_empty() => {
            let validation = config.data.validation.name();
            lines.push(format!("validated on `{validation}`; there is no test set"));
        }
        None => {
            let tests: Vec<String> = config.data.test.iter().map(|set| set.name()).collect();
            lines.push(format!(
                "validated on `{}`, tested on `{}`",
                config.data.validation.name(),
                tests.join("`, `")
            ));
        }
    }
    let model = &config.model;
    lines.push(format!(
        "{}: {} + {} layers, {} wide, a vocabulary of {}, for {}",
        written.recipe.display(),
        model.encoder_layers,
        model.decoder_layers,
        model.d_model,
        grouped(config.data.tokenizer.vocabulary_size as u64),
        written.machine
    ));
    lines
}
