//! `taper generate`: a language model goes on with texts.

use std::fs;
use std::io::{IsTerminal, Read, stdin};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;
use taper_model::LanguageModel;
use taper_run::LoadedRun;
use taper_run::generation::{GeneratedText, Generator};

use crate::arguments::Generate;
use crate::text::{is_standard_stream, print_line, print_piece, read_lines};

/// What stands between texts where there are several.
const RULE: &str = "---------------";

/// Runs the command. A single text is printed as it comes, several once all are there.
pub(crate) fn run(arguments: &Generate) -> Result<()> {
    let prompts = prompts(arguments)?;
    let run: LoadedRun<LanguageModel> =
        arguments.weights.load(&arguments.run, &arguments.overrides.set)?;
    let settings = arguments.settings(&run.config)?;
    let generator = Generator::new(&run, &settings)?;
    let is_single = prompts.len() <= 1 && arguments.samples.unwrap_or(1) == 1;
    if arguments.json || !is_single {
        let texts = generator.generate(&prompts, |_| {})?;
        return print_texts(arguments, &prompts, &texts);
    }
    if let [prompt] = prompts.as_slice() {
        generator.require(prompt)?;
        print_piece(prompt)?;
    }
    let mut printed = Ok(());
    generator.generate(&prompts, |piece| {
        if printed.is_ok() {
            printed = print_piece(piece.text);
        }
    })?;
    printed?;
    print_line("")
}

/// The prompts of the arguments, or of standard input unless it is a terminal.
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
    // As when nothing is piped at all.
    Ok(if text.is_empty() { Vec::new() } else { vec![text] })
}

/// The text of a file, or of standard input.
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
    texts: &[Vec<GeneratedText>],
) -> Result<()> {
    let mut is_first = true;
    for (index, texts) in texts.iter().enumerate() {
        let prompt = prompts.get(index).map_or("", String::as_str);
        for text in texts {
            if arguments.json {
                let GeneratedText { text, tokens, log_probability, .. } = text;
                let record = json!({
                    "prompt": prompt, "text": text, "tokens": tokens,
                    "log_probability": log_probability,
                });
                print_line(&record.to_string())?;
                continue;
            }
            if !std::mem::take(&mut is_first) {
                print_line(RULE)?;
            }
            print_line(&format!("{prompt}{}", text.text))?;
        }
    }
    Ok(())
}
