//! `taper align`: links between words of sentences and of their translations.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use taper_data::{WordLink, check_links, parse_links, read_pairs};
use taper_metrics::{AlignmentCounts, AlignmentScore};
use taper_run::LoadedRun;
use taper_run::attention::{WordAligner, count_links};

use crate::arguments::{Align, AlignCommand, AlignEvaluate};
use crate::bars::sentence_bar;
use crate::text::{print_line, read_lines, say};

/// Number of sentence pairs that are aligned together before their links are written.
const WINDOW: usize = 256;

/// Runs the command: writes a line of links for each sentence pair, or scores a file of links.
pub(crate) fn run(arguments: &Align) -> Result<()> {
    match (&arguments.command, &arguments.run) {
        (Some(AlignCommand::Evaluate(arguments)), _) => evaluate(arguments),
        (None, Some(run)) => align(run, arguments),
        (None, None) => bail!("name a run, or `evaluate` with two files of links"),
    }
}

fn align(run: &Path, arguments: &Align) -> Result<()> {
    let run: LoadedRun = arguments.weights.load(run, &[])?;
    let reverse: Option<LoadedRun> = match &arguments.reverse {
        Some(reverse) => {
            let mut settings = arguments.weights.settings(&[]);
            if settings.from.is_some() || settings.to.is_some() {
                let data = &run.config.data;
                settings.from = Some(data.target_language.clone());
                settings.to = Some(data.source_language.clone());
            }
            let opened = LoadedRun::open(reverse, &settings);
            Some(opened.with_context(|| format!("--reverse {}", reverse.display()))?)
        }
        None => None,
    };
    let settings = arguments.settings();
    let mut aligner = WordAligner::new(&run, &settings)?;
    if let Some(reverse) = &reverse {
        let back = WordAligner::new(reverse, &settings)?;
        aligner = aligner.with_reverse(back, arguments.symmetrization.into());
    }
    let mut reference = arguments.reference.as_deref().map(read_links).transpose()?;
    let (sources, targets) = texts(&run, arguments, &mut reference)?;
    if let (Some(reference), Some(path)) = (&reference, &arguments.reference) {
        let of_text = arguments.source.as_deref().unwrap_or(Path::new("the split"));
        require_equal((of_text, sources.len()), (path, reference.len()))?;
        for (index, links) in reference.iter().enumerate() {
            check_links(links, &sources[index], &targets[index])
                .map_err(|message| anyhow!("{}, line {}: {message}", path.display(), index + 1))?;
        }
    }
    let bar = sentence_bar(Some(sources.len() as u64), "aligning");
    let mut counts = AlignmentCounts::default();
    for first in (0..sources.len()).step_by(WINDOW) {
        let window = first..sources.len().min(first + WINDOW);
        let found = aligner.align(&sources[window.clone()], &targets[window.clone()], first + 1)?;
        for links in &found {
            let links: Vec<String> =
                links.iter().map(|(source, target)| format!("{source}-{target}")).collect();
            print_line(&links.join(" "))?;
        }
        if let Some(reference) = &reference {
            counts += count_links(&found, &reference[window.clone()]);
        }
        bar.set_position(window.end as u64);
    }
    bar.finish_and_clear();
    if let Some(score) = reference.and_then(|_| counts.score()) {
        say(&line(&score));
    }
    Ok(())
}

/// Returns the source and target sentences to align: the lines of two files, or the pairs of a
/// split of the run's data, such as its test set. If `reference` is `None` and the corpora of the
/// split have word links, stores these links in `reference`.
fn texts(
    run: &LoadedRun,
    arguments: &Align,
    reference: &mut Option<Vec<Vec<WordLink>>>,
) -> Result<(Vec<String>, Vec<String>)> {
    Ok(match (&arguments.source, &arguments.target) {
        (Some(source), Some(target)) => {
            let (sources, targets) = (read_lines(source)?, read_lines(target)?);
            require_equal((source, sources.len()), (target, targets.len()))?;
            (sources, targets)
        }
        _ => {
            let data = &run.config.data;
            let name = arguments.split.clone().or_else(|| data.test.first().map(|one| one.name()));
            let Some(name) = name else {
                bail!("nothing to align: give --source and --target, or --split")
            };
            let split = run.corpora(&name)?;
            let has_links = split.iter().any(|corpus| corpus.has_links());
            let pairs = read_pairs(data, split)?;
            if has_links && reference.is_none() {
                *reference = Some(pairs.iter().map(|pair| pair.links.clone()).collect());
            }
            pairs.into_iter().map(|pair| (pair.source, pair.target)).unzip()
        }
    })
}

fn evaluate(arguments: &AlignEvaluate) -> Result<()> {
    let (found, reference) = (read_links(&arguments.found)?, read_links(&arguments.reference)?);
    require_equal((&arguments.found, found.len()), (&arguments.reference, reference.len()))?;
    let found: Vec<_> = found
        .iter()
        .map(|links| links.iter().map(|link| (link.source, link.target)).collect())
        .collect();
    let Some(score) = count_links(&found, &reference).score() else {
        bail!(
            "neither {} nor {} has a link",
            arguments.found.display(),
            arguments.reference.display()
        );
    };
    print_line(&match arguments.json {
        true => serde_json::to_string(&score)?,
        false => line(&score),
    })
}

/// Formats the scores as a line of text.
fn line(score: &AlignmentScore) -> String {
    format!(
        "AER {:.2}  precision {:.2}  recall {:.2}  ({} links, {} sure ones to be found)",
        score.error_rate, score.precision, score.recall, score.found, score.sure
    )
}

fn require_equal(one: (&Path, usize), other: (&Path, usize)) -> Result<()> {
    ensure!(
        one.1 == other.1,
        "{} has {} lines but {} has {}: line i of one must belong to line i of the other",
        one.0.display(),
        one.1,
        other.0.display(),
        other.1
    );
    Ok(())
}

/// Reads the links of each line of a file.
fn read_links(path: &Path) -> Result<Vec<Vec<WordLink>>> {
    let links = |(index, line): (usize, &String)| {
        parse_links(line)
            .map_err(|message| anyhow!("{}, line {}: {message}", path.display(), index + 1))
    };
    read_lines(path)?.iter().enumerate().map(links).collect()
}
