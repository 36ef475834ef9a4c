//! `taper theory rasp`: compiles a program of select and aggregate operations (RASP) to an encoder.

use anyhow::{Context, Result, bail};
use serde_json::json;
use taper_theory::rasp::{CompiledProgram, Program};

use super::{draw, read, save};
use crate::arguments::TheoryRasp;
use crate::text::print_line;

/// Default length of the longest input that an encoder can read, in characters. If the input on the
/// command line is longer, the encoder is made for its length.
const LONGEST: usize = 16;

/// Runs the command.
pub(crate) fn run(arguments: &TheoryRasp) -> Result<()> {
    let shown = || arguments.program.display().to_string();
    let program = Program::parse(&read(&arguments.program)?).with_context(shown)?;
    let length = arguments.input.as_ref().map_or(0, |input| input.chars().count());
    let longest = arguments.longest.unwrap_or(LONGEST.max(length));
    let compiled = CompiledProgram::new(&program, longest).with_context(shown)?;
    let (layers, heads, width) = compiled.shape();
    let mut record = json!({ "layers": layers, "heads": heads, "width": width });
    if !arguments.json {
        print_line(&format!(
            "an encoder of {layers} layers of {heads} heads, {width} wide, for inputs of up to \
             {longest} characters"
        ))?;
    }
    if let Some(input) = &arguments.input {
        let answer = compiled.run(&[input]).context("INPUT")?.remove(0);
        let right = program.interpret(input).with_context(shown)?;
        if answer != right {
            bail!("the encoder gives {}, and the program {}", answer.join(" "), right.join(" "));
        }
        record["result"] = json!(answer);
        if !arguments.json {
            print_line(&answer.join(" "))?;
        }
        draw(compiled.figures(input)?, &arguments.pictures)?;
    }
    if arguments.json {
        print_line(&record.to_string())?;
    }
    match &arguments.save {
        Some(folder) => save(&compiled.encoder().0, compiled.vocabulary(), folder),
        None => Ok(()),
    }
}
