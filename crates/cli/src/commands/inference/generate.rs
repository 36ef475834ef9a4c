//! `taper generate`: continues texts with a language model.

use std::fs;
use std::io::{IsTerminal, Read, stdin};
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use taper_model::LanguageModel;
use taper_run::generation::{GeneratedText, Generator, Prompt, PromptContent};
use taper_run::{LoadSettings, LoadedRun, answer_each};

use crate::arguments::Generate;
use crate::items::{Faults, SpelledLines};
use crate::text::{is_standard_stream, print_line, print_piece, read_lines};

/// Separator between several texts.
const RULE: &str = "---------------";

/// Runs the command. A single text is printed while it is generated; several texts are printed once
/// all are complete.
pub(crate) fn run(arguments: &Generate) -> Result<()> {
    let prompts = prompts(arguments)?;
    let run: LoadedRun<LanguageModel> = load(arguments)?;
    let settings = arguments.settings(&run.config)?;
    let generator = Generator::new(&run, &settings)?;
    let place = |index: usize| match prompts.len() {
        1 => "the prompt".to_owned(),
        _ => format!("prompt {}", index + 1),
    };
    let mut spelled = SpelledLines::new(run.tokenizers.target(), arguments.items.special_tokens);
    for (index, prompt) in prompts.iter().enumerate() {
        spelled.look(prompt, || place(index));
    }
    let is_single = prompts.len() <= 1 && arguments.samples.unwrap_or(1) == 1;
    if prompts.is_empty() && (arguments.json || !is_single) {
        let texts = generator.generate(&[], |_| {})?.into_iter().map(Ok).collect();
        return print_texts(arguments, &prompts, texts);
    }
    if arguments.json || !is_single {
        let read = |(number, text): (usize, &'_ String)| {
            let ids = generator.read(PromptContent::Text(text)).with_context(|| place(number))?;
            Ok((number as u64, ids))
        };
        let texts = answer_each(prompts.iter().enumerate().map(read), |read| {
            let prompts = read.iter().map(|(number, ids)| Prompt {
                content: PromptContent::Tokens(ids),
                number: *number,
            });
            let prompts: Vec<Prompt<'_>> = prompts.collect();
            generator.generate_until(&prompts, |_| ControlFlow::Continue(()))
        })?;
        return print_texts(arguments, &prompts, texts);
    }
    let text = prompts.first().map_or(PromptContent::Beginning, |text| PromptContent::Text(text));
    let ids = generator.read(text).with_context(|| place(0))?;
    print_piece(prompts.first().map_or("", String::as_str))?;
    let mut printed = Ok(());
    let prompt = Prompt { content: PromptContent::Tokens(&ids), number: 0 };
    generator.generate_until(&[prompt], |piece| {
        if printed.is_ok() {
            printed = print_piece(piece.text);
        }
        ControlFlow::Continue(())
    })?;
    printed?;
    print_line("")
}

/// Loads the run for decoding only, which takes half of the memory.
fn load(arguments: &Generate) -> Result<LoadedRun<LanguageModel>> {
    let settings = LoadSettings { only_decodes: true, ..arguments.loading.settings() };
    LoadedRun::open(&arguments.run, &settings)
}

/// Returns the prompts of the arguments. If there are none, standard input is the prompt, unless it
/// is a terminal.
fn prompts(arguments: &Generate) -> Result<Vec<String>> {
    if let Some(path) = &arguments.prompts {
        return read_lines(path);
    }
    if let Some(path) = &arguments.prompt_file {
        return Ok(vec![read(path)?]);
    }
    if !arguments.prompt.is_empty() || stdin().is_terminal() {
        return Ok(arguments.prompt.clone());
    }
    let text = read(Path::new("-"))?;
    // Empty standard input is no prompt.
    Ok(if text.is_empty() { Vec::new() } else { vec![text] })
}

/// Reads the text of a file, or of standard input.
fn read(path: &Path) -> Result<String> {
    if is_standard_stream(path) {
        let mut text = String::new();
        stdin().read_to_string(&mut text).context("cannot read standard input as UTF-8")?;
        return Ok(text);
    }
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn print_texts(
    arguments: &Generate,
    prompts: &[String],
    texts: Vec<Result<Vec<GeneratedText>>>,
) -> Result<()> {
    let (mut faults, all, mut is_first) = (Faults::new(arguments.items.strict), texts.len(), true);
    let mut print = |record: Value, text: String| -> Result<()> {
        if arguments.json {
            return print_line(&record.to_string());
        }
        if !std::mem::take(&mut is_first) {
            print_line(RULE)?;
        }
        print_line(&text)
    };
    for (index, texts) in texts.into_iter().enumerate() {
        let prompt = prompts.get(index).map_or("", String::as_str);
        match texts {
            Ok(texts) => {
                for text in texts {
                    let mut record = serde_json::to_value(&text)?;
                    record["prompt"] = prompt.into();
                    print(record, format!("{prompt}{}", text.text))?;
                }
            }
            Err(error) => {
                let message = faults.note(error)?;
                print(json!({ "prompt": prompt, "error": message }), String::new())?;
            }
        }
    }
    faults.end(all)
}
