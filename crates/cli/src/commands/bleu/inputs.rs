//! Reads translations and references.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use taper_metrics::trim_end;

use crate::arguments;
use crate::text::{is_standard_stream, read_lines, standard_input};

/// Translations by one system.
#[derive(Debug)]
pub(super) struct System {
    /// Name of the system in reports.
    pub(super) name: String,
    /// Translations, one sentence per line, without whitespace at their ends.
    pub(super) lines: Vec<String>,
}

/// All translations and references that are scored.
#[derive(Debug)]
pub(super) struct Inputs {
    /// The systems, at least one; in a paired test the baseline comes first.
    pub(super) systems: Vec<System>,
    /// Sets of reference translations. Each set has one line for each line of a system.
    pub(super) references: Vec<Vec<String>>,
}

impl Inputs {
    /// Reads the files that the arguments name.
    ///
    /// # Errors
    /// When a file cannot be read, has the wrong number of lines, or is named twice.
    pub(super) fn read(arguments: &arguments::Bleu) -> Result<Self> {
        let (systems, references): (Vec<&PathBuf>, &[PathBuf]) =
            match (&arguments.input[..], &arguments.files[..]) {
                ([], [reference]) => (Vec::new(), std::slice::from_ref(reference)),
                ([], [hypothesis, references @ ..]) => (vec![hypothesis], references),
                (systems, references) => (systems.iter().collect(), references),
            };
        let paired = arguments.trials.paired_ar || arguments.trials.paired_bs;
        let piped = match &systems[..] {
            [] => true,
            [only] => is_standard_stream(only),
            _ => false,
        };
        let systems =
            if piped { from_standard_input(paired)? } else { from_files(&systems, paired)? };
        let streams = read_references(references, arguments.num_refs.get())?;
        let [first, ..] = &systems[..] else { bail!("there is no translation to score") };
        ensure!(!first.lines.is_empty(), "{}: the file has no lines", first.name);
        for system in &systems {
            for (index, stream) in streams.iter().enumerate() {
                ensure!(
                    stream.len() == system.lines.len(),
                    "{} has {} lines but {} has {}: line i of each must belong to the same \
                         sentence",
                    system.name,
                    system.lines.len(),
                    references[index.min(references.len() - 1)].display(),
                    stream.len()
                );
            }
        }
        Ok(Self { systems, references: streams })
    }
}

/// Reads one file for each system. In a paired test, naming the baseline again changes nothing.
/// Naming any other file twice is an error, because reports would be ambiguous.
fn from_files(paths: &[&PathBuf], paired: bool) -> Result<Vec<System>> {
    let mut systems: Vec<System> = Vec::with_capacity(paths.len());
    for (index, path) in paths.iter().enumerate() {
        if let Some(earlier) = paths[..index].iter().position(|other| other == path) {
            if paired && earlier == 0 {
                continue;
            }
            bail!("{}: the file is named twice; name each system once", path.display());
        }
        let name = path.display().to_string();
        systems.push(System { name, lines: read_trimmed(path)? });
    }
    if let (true, [baseline, _, ..]) = (paired, &mut systems[..]) {
        baseline.name = format!("Baseline: {}", baseline.name);
    }
    Ok(systems)
}

/// Reads one or more systems from standard input: each line has a field for each system, separated
/// by tabs.
fn from_standard_input(paired: bool) -> Result<Vec<System>> {
    let lines = standard_input().collect::<Result<Vec<String>, _>>()?;
    let columns = lines.first().map_or(1, |line| trim_end(line).split('\t').count());
    let name = |index: usize| match (paired, index) {
        (true, 0) => "Baseline".to_owned(),
        (true, _) => format!("System {index}"),
        (false, _) if columns == 1 => "standard input".to_owned(),
        (false, _) => format!("System {}", index + 1),
    };
    let mut systems: Vec<System> =
        (0..columns).map(|index| System { name: name(index), lines: Vec::new() }).collect();
    for (number, line) in lines.iter().enumerate() {
        let fields: Vec<&str> = trim_end(line).split('\t').collect();
        ensure!(
            fields.len() == columns,
            "standard input, line {}: {} fields separated by tabs where the first line has \
                 {columns}",
            number + 1,
            fields.len()
        );
        for (system, field) in systems.iter_mut().zip(fields) {
            // Like sacreBLEU, this removes whitespace at the end of each field; in the first line,
            // only at the end of the last field.
            let field = if number == 0 { field } else { trim_end(field) };
            system.lines.push(field.to_owned());
        }
    }
    Ok(systems)
}

/// Reads one file for each reference, or one file whose lines hold `count` references, separated by
/// tabs.
fn read_references(paths: &[PathBuf], count: usize) -> Result<Vec<Vec<String>>> {
    if count == 1 {
        return paths.iter().map(|path| read_trimmed(path)).collect();
    }
    let [path] = paths else {
        bail!(
            "--num-refs {count} splits the lines of one reference file, but {} are named",
            paths.len()
        );
    };
    let mut streams: Vec<Vec<String>> = Vec::new();
    for (number, line) in read_trimmed(path)?.iter().enumerate() {
        let fields: Vec<&str> = line.splitn(count, '\t').collect();
        ensure!(
            fields.len() == count,
            "{}:{}: {} references separated by tabs where --num-refs says {count}",
            path.display(),
            number + 1,
            fields.len()
        );
        // The sets of references (`streams`) are made only when a line with `count` fields has been
        // read. Before that, `count` could be so large that memory does not suffice.
        streams.resize(count, Vec::new());
        for (stream, field) in streams.iter_mut().zip(fields) {
            stream.push(field.to_owned());
        }
    }
    // If the file has no lines, adds an empty set, so that its number of lines, 0, is compared with
    // that of the translations.
    streams.resize(streams.len().max(1), Vec::new());
    Ok(streams)
}

/// Reads the lines of a file without whitespace at their ends.
fn read_trimmed(path: &Path) -> Result<Vec<String>> {
    let mut lines = read_lines(path)?;
    for line in &mut lines {
        line.truncate(trim_end(line).len());
    }
    Ok(lines)
}
