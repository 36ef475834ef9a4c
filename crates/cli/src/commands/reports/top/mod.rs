//! `taper top`: progress of runs, on the whole terminal.

mod screen;
mod watched;

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use taper_run::RunFolder;

use crate::arguments::Top;
use screen::View;
use watched::WatchedRun;

/// Interval at which the files of runs are read again.
const REFRESH: Duration = Duration::from_millis(1000);
/// Longest time to wait for a key before the screen is drawn again.
const TICK: Duration = Duration::from_millis(200);

/// Runs the command.
pub(crate) fn run(arguments: &Top) -> Result<()> {
    let mut runs = find(arguments)?;
    if !std::io::stdout().is_terminal() {
        bail!("`top` draws on a terminal; `taper runs` prints the same as lines, or as JSON");
    }
    let mut terminal = ratatui::try_init().context("the terminal cannot be drawn on")?;
    let mut view = View::default();
    let mut refreshed = Instant::now();
    let ended = loop {
        if let Err(error) = terminal.draw(|frame| screen::draw(frame, &runs, &view)) {
            break Err(error).context("the terminal cannot be drawn on");
        }
        match key(TICK) {
            Ok(None) => {}
            Ok(Some(Key::Quit)) => break Ok(()),
            Ok(Some(Key::Step(step))) => view.choose(step, runs.len()),
            Ok(Some(Key::Chart(step))) => view.turn(step),
            Err(error) => break Err(error).context("the terminal gives no keys"),
        }
        if refreshed.elapsed() >= REFRESH {
            runs.iter_mut().for_each(WatchedRun::refresh);
            refreshed = Instant::now();
        }
    };
    ratatui::restore();
    ended
}

/// Returns the named runs, or the runs of the folder `runs`.
fn find(arguments: &Top) -> Result<Vec<WatchedRun>> {
    let folders = match arguments.runs.as_slice() {
        [] => vec![Path::new("runs").to_owned()],
        named => named.to_vec(),
    };
    let mut runs = Vec::new();
    for folder in &folders {
        for summary in taper_run::list_runs(folder)? {
            runs.push(WatchedRun::new(RunFolder::new(&summary.folder)));
        }
    }
    ensure!(!runs.is_empty(), "no runs; name one, or the folder that holds yours");
    Ok(runs)
}

/// Action that a key requests.
enum Key {
    Quit,
    /// Choose another run: the next (1) or the previous (-1).
    Step(isize),
    /// Choose another chart: the next (1) or the previous (-1).
    Chart(isize),
}

/// Waits at most `wait` for a key, and returns the action that it requests, if any.
fn key(wait: Duration) -> std::io::Result<Option<Key>> {
    if !event::poll(wait)? {
        return Ok(None);
    }
    let Event::Key(key) = event::read()? else { return Ok(None) };
    if key.kind == KeyEventKind::Release {
        return Ok(None);
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Ok(match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
        KeyCode::Char('c') if control => Some(Key::Quit),
        KeyCode::Up | KeyCode::Char('k') => Some(Key::Step(-1)),
        KeyCode::Down | KeyCode::Char('j') => Some(Key::Step(1)),
        KeyCode::Left | KeyCode::BackTab => Some(Key::Chart(-1)),
        KeyCode::Right | KeyCode::Tab => Some(Key::Chart(1)),
        _ => None,
    })
}
