//! `taper tokenizer train|encode|decode|pieces`: trains a tokenizer, converts text to tokens and
//! tokens to text, and writes a SentencePiece model that divides text in the same way.

use anyhow::{Context, Result, bail, ensure};
use taper_data::{Tokenizer, TokenizerPair};

use crate::arguments::{
    TokenizerCommand, TokenizerEncode, TokenizerFile, TokenizerPieces, TokenizerTrain,
};
use crate::items::SpelledLines;
use crate::text::{print_line, standard_input};
use taper_run::config::RunConfig;
use taper_run::folder::files::write_atomically;
use taper_run::folders::sentence_piece_model;
use taper_run::translation::single_line;

/// Runs the command.
pub(crate) fn run(command: &TokenizerCommand) -> Result<()> {
    match command {
        TokenizerCommand::Train(arguments) => train(arguments),
        TokenizerCommand::Encode(arguments) => encode(arguments),
        TokenizerCommand::Decode(arguments) => decode(arguments),
        TokenizerCommand::Pieces(arguments) => pieces(arguments),
    }
}

fn train(arguments: &TokenizerTrain) -> Result<()> {
    let config = RunConfig::load(&arguments.config, &arguments.overrides.set)?;
    let folder = &arguments.output;
    ensure!(
        !TokenizerPair::exists(folder),
        "{} holds a tokenizer already, which is left as it is: choose another --output",
        folder.display()
    );
    if !config.task.reads_text() {
        bail!("the task is {}, which has no text to make a tokenizer of", config.task);
    }
    let tokenizers = config.task.train_tokenizers(&config.data)?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    tokenizers.save(folder)?;
    print_line(&format!(
        "{}: {} source and {} target tokens{}, sha256 {}",
        folder.display(),
        tokenizers.source().vocabulary_size(),
        tokenizers.target().vocabulary_size(),
        if tokenizers.is_joint() { " (joint)" } else { "" },
        tokenizers.hash()
    ))
}

fn load(file: &TokenizerFile) -> Result<Tokenizer> {
    let path = &file.tokenizer;
    if !path.is_dir() {
        ensure!(
            !file.target,
            "--target: {} is one tokenizer; give the folder of a run with two, or leave --target \
             out",
            path.display()
        );
        return Ok(Tokenizer::load(path)?);
    }
    let tokenizers = TokenizerPair::load(path)?;
    if file.target && tokenizers.is_joint() {
        bail!("--target: {} has one tokenizer for both sides; leave --target out", path.display());
    }
    Ok(if file.target { tokenizers.target().clone() } else { tokenizers.source().clone() })
}

fn encode(arguments: &TokenizerEncode) -> Result<()> {
    let special = arguments.special_tokens;
    let tokenizer = load(&arguments.file)?.with_spelled(special.rule.into());
    let mut spelled = SpelledLines::new(&tokenizer, special);
    for_each_line(|number, line| {
        let place = || format!("standard input, line {number}");
        spelled.look(line, place);
        tokenizer.check_spelled(line).with_context(place)?;
        let words = if arguments.pieces {
            tokenizer.tokens(line)?
        } else {
            tokenizer.encode(line)?.iter().map(u32::to_string).collect()
        };
        print_line(&words.join(" "))
    })
}

fn decode(arguments: &TokenizerFile) -> Result<()> {
    let tokenizer = load(arguments)?;
    let size = tokenizer.vocabulary_size();
    for_each_line(|number, line| {
        let mut ids = Vec::new();
        for word in line.split_whitespace() {
            match word.parse::<u32>() {
                Ok(id) if (id as usize) < size => ids.push(id),
                _ => bail!(
                    "standard input, line {number}: `{word}` is not a token id from 0 to {}",
                    size.saturating_sub(1)
                ),
            }
        }
        print_line(&single_line(tokenizer.decode(&ids)?))
    })
}

fn pieces(arguments: &TokenizerPieces) -> Result<()> {
    let (path, tokenizer) = (&arguments.output, load(&arguments.file)?);
    ensure!(!path.exists(), "{} exists already: choose another --output", path.display());
    let from = || arguments.file.tokenizer.display().to_string();
    let model = sentence_piece_model(&tokenizer).with_context(from)?;
    write_atomically(path, &model)?;
    print_line(&format!("{}: {} pieces", path.display(), tokenizer.vocabulary_size()))
}

fn for_each_line(mut act: impl FnMut(usize, &str) -> Result<()>) -> Result<()> {
    for (line, number) in standard_input().zip(1..) {
        act(number, &line?)?;
    }
    Ok(())
}
