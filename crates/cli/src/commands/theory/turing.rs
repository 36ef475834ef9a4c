//! `taper theory turing`: runs a Turing machine on a decoder.

use anyhow::{Context, Result, bail};
use serde_json::json;
use taper_theory::turing::{Configuration, Machine, TuringDecoder, precision, precision_figure};

use super::{draw, read, save};
use crate::arguments::TheoryTuring;
use crate::text::{print_line, say};

/// Number of bits of the significand of an f32, including the implicit bit.
const BITS: f64 = 24.0;

/// Runs the command.
pub(crate) fn run(arguments: &TheoryTuring) -> Result<()> {
    let shown = || arguments.machine.display().to_string();
    let machine = Machine::parse(&read(&arguments.machine)?).with_context(shown)?;
    let input = machine.read(&arguments.input).context("INPUT")?;
    let positions = input.len().saturating_add(arguments.steps).saturating_add(2);
    let decoder = TuringDecoder::new(&machine, positions)?;
    let needed = precision(&machine, &input, arguments.steps);
    let narrow = needed.iter().find(|step| step.bits() > BITS);
    if let Some(step) = narrow {
        say(&format!(
            "warning: from step {} on, scores need {:.1} bits, and f32 has {BITS}",
            step.step,
            step.bits()
        ));
    }
    let actions = decoder.run(&input, arguments.steps)?;
    let right = machine.simulate(&input, arguments.steps);
    if !arguments.json {
        print_steps(&machine, &input, &actions)?;
    }
    if let Some(step) = (0..actions.len().max(right.actions().len()))
        .find(|step| actions.get(*step) != right.actions().get(*step))
    {
        bail!("step {} differs from the machine's: the scores lack precision", step + 1);
    }
    let state = &machine.states()[right.last.state];
    if arguments.json {
        let step = |action: &taper_theory::turing::Action| {
            json!({
                "state": machine.states()[action.state],
                "written": machine.symbols()[action.symbol],
                "move": action.shift.letter(),
            })
        };
        print_line(&serde_json::to_string(&json!({
            "steps": actions.iter().map(step).collect::<Vec<_>>(),
            "halted": right.halted,
            "state": state,
            "tape": right.last.shown(&machine),
        }))?)?;
    } else {
        let how = if right.halted { "halted" } else { "stopped" };
        print_line(&format!(
            "{how} after {} steps in the state {state}; a direct simulation agrees on every step",
            actions.len()
        ))?;
    }
    if let Some(folder) = &arguments.save {
        let model = &decoder.decoder().0;
        save(model, &decoder.vocabulary(), folder)?;
    }
    draw(vec![("precision".to_owned(), precision_figure(&needed))], &arguments.pictures)
}

/// Prints state and tape after each step, with the cell under the head in brackets.
fn print_steps(
    machine: &Machine,
    input: &[usize],
    actions: &[taper_theory::turing::Action],
) -> Result<()> {
    let width = machine.states().iter().map(|state| state.chars().count()).max().unwrap_or(0);
    let mut now = Configuration::first(machine, input);
    let line = |step: usize, now: &Configuration| {
        format!("{step:>5}  {:<width$}  {}", machine.states()[now.state], now.shown(machine))
    };
    print_line(&line(0, &now))?;
    for (step, action) in (1..).zip(actions) {
        now.act(*action);
        print_line(&line(step, &now))?;
    }
    Ok(())
}
