//! `taper languages identify|evaluate|train`: identifies the languages of texts, measures how often
//! the identified language is right, and trains a model for other languages.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Result, bail, ensure};
use serde_json::json;
use taper_data::{IdentifierTraining, LanguageIdentifier, train_identifier, write_whole};

use crate::arguments::{
    LanguageModelFile, LanguagesCommand, LanguagesEvaluate, LanguagesIdentify, LanguagesTrain,
};
use crate::text::{name_of, print_line, read_lines, say};

/// Runs the command.
pub(crate) fn run(command: &LanguagesCommand) -> Result<()> {
    match command {
        LanguagesCommand::Identify(arguments) => identify(arguments),
        LanguagesCommand::Evaluate(arguments) => evaluate(arguments),
        LanguagesCommand::Train(arguments) => train(arguments),
    }
}

fn load(file: &LanguageModelFile) -> Result<Cow<'static, LanguageIdentifier>> {
    Ok(match &file.model {
        Some(path) => Cow::Owned(LanguageIdentifier::read(path)?),
        None => Cow::Borrowed(LanguageIdentifier::bundled()),
    })
}

fn identify(arguments: &LanguagesIdentify) -> Result<()> {
    let model = load(&arguments.model)?;
    for line in read_lines(&arguments.input)? {
        let identified = model.identify(&line);
        if arguments.json {
            print_line(&json!({ "text": line, "language": identified }).to_string())?;
            continue;
        }
        // `zxx` is the ISO 639-2 code of text in no language.
        let (language, probability) = identified.map_or(("zxx".to_owned(), 1.0), |identified| {
            (identified.language, identified.probability)
        });
        print_line(&format!("{language}\t{probability:.4}\t{line}"))?;
    }
    Ok(())
}

/// Reads a file whose lines are a language, a tab and a text; returns languages with their texts.
fn texts(path: &Path) -> Result<Vec<(String, String)>> {
    let lines = read_lines(path)?;
    let text = |(number, line): (usize, &String)| match line.split_once('\t') {
        Some((language, text)) if !language.is_empty() => {
            Ok((language.to_owned(), text.to_owned()))
        }
        _ => bail!("{}, line {}: expected a language, a tab and a text", name_of(path), number + 1),
    };
    lines.iter().enumerate().map(text).collect()
}

fn evaluate(arguments: &LanguagesEvaluate) -> Result<()> {
    let model = load(&arguments.model)?;
    let mut results: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (language, text) in texts(&arguments.file)? {
        let number = model.number_of(&language);
        let known = number.map(|number| &model.languages()[number]);
        let identified = model.identify(&text).map(|identified| identified.language);
        let (right, all) = results.entry(language).or_default();
        *right += u64::from(identified.is_some() && identified.as_ref() == known);
        *all += 1;
    }
    let share = |&(right, all): &(u64, u64)| 100.0 * right as f64 / all as f64;
    let mut shares: Vec<(&String, f64, u64)> =
        results.iter().map(|(language, counts)| (language, share(counts), counts.1)).collect();
    ensure!(!shares.is_empty(), "{}: there are no lines", name_of(&arguments.file));
    shares.sort_by(|one, other| one.1.total_cmp(&other.1));
    let mean = shares.iter().map(|one| one.1).sum::<f64>() / shares.len() as f64;
    if arguments.json {
        let of_language = |(language, share, lines): &(&String, f64, u64)| json!({ "language": language, "accuracy": share, "lines": lines });
        let all: Vec<_> = shares.iter().map(of_language).collect();
        return print_line(&json!({ "mean_accuracy": mean, "languages": all }).to_string());
    }
    for (language, share, lines) in &shares {
        print_line(&format!("{language:<8}{share:>7.2} % of {lines} lines"))?;
    }
    print_line(&format!("mean of {} languages {mean:.2} %", shares.len()))
}

fn train(arguments: &LanguagesTrain) -> Result<()> {
    let texts = texts(&arguments.file)?;
    let LanguagesTrain { features, pieces, seed, .. } = *arguments;
    let settings = IdentifierTraining { features, pieces, seed, ..IdentifierTraining::default() };
    let mut report = |piece: u64, loss: f64| {
        say(&format!("piece {piece} of {pieces}  loss {loss:.4}"));
        Ok(())
    };
    let model = train_identifier(&texts, settings, &mut report)?;
    let (output, bytes) = (&arguments.output, model.to_bytes());
    write_whole(output, |file| file.write_all(&bytes))?;
    print_line(&format!(
        "{}: {} languages, {} bytes",
        output.display(),
        model.languages().len(),
        bytes.len()
    ))
}
