//! `taper bleu`: scores translations with the options and the output of sacreBLEU.

mod inputs;
mod report;
mod table;

use anyhow::{Context, Result, bail, ensure};
use taper_metrics::resampling::{DEFAULT_SEED, paired_bootstrap, paired_randomization};
use taper_metrics::{
    Bleu, Chrf, Metric, Score, Signature, Smoothing, Statistics, Ter, Tokenizer, Trials, segments,
};

use crate::arguments::{self, MetricName, OutputFormat};
use crate::text::{print_line, say};
use inputs::Inputs;
use report::{Report, SystemReport};

/// Runs the command.
pub(crate) fn run(arguments: &arguments::Bleu) -> Result<()> {
    refuse_absent(arguments)?;
    let style = Style::new(arguments);
    let metrics = metrics(arguments)?;
    let inputs = Inputs::read(arguments)?;
    let metrics: Vec<&dyn Metric> = metrics.iter().map(|metric| &**metric).collect();
    if arguments.sentence_level {
        return sentences(arguments, &metrics, &inputs, style);
    }
    let warn = !arguments.report.quiet && !arguments.bleu.force;
    let mut counted = Vec::with_capacity(metrics.len());
    for &metric in &metrics {
        let mut systems = Vec::with_capacity(inputs.systems.len());
        for system in &inputs.systems {
            let statistics =
                Statistics::count(metric, &segments(&system.lines, &inputs.references)?)?;
            if warn && metric.name() == "BLEU" && statistics.look_tokenized() {
                let name = &system.name;
                say(&format!(
                    "warning: {name} looks tokenized; detokenize it, or the score is not \
                     comparable (--force if that is meant)"
                ));
            }
            systems.push(statistics);
        }
        counted.push((metric, systems));
    }
    match &inputs.systems[..] {
        [_] => one_system(arguments, &counted, style),
        _ => several_systems(arguments, &counted, &inputs, style),
    }
}

/// Statistics of each system under one metric.
type Counted<'a> = (&'a dyn Metric, Vec<Statistics>);

/// Style of printed results.
#[derive(Debug, Clone, Copy)]
struct Style {
    format: OutputFormat,
    decimals: usize,
    short: bool,
    score_only: bool,
}

impl Style {
    /// Takes the style from the arguments. If the command is called like sacreBLEU, that is, with
    /// `--input` or with a single file, settings that are not given have sacreBLEU's defaults.
    fn new(arguments: &arguments::Bleu) -> Self {
        let like_sacrebleu = !arguments.input.is_empty() || arguments.files.len() == 1;
        let report = &arguments.report;
        let usual = if like_sacrebleu { OutputFormat::Json } else { OutputFormat::Text };
        let format =
            match std::env::var("SACREBLEU_FORMAT").unwrap_or_default().to_lowercase().as_str() {
                // `--json` exists only in Taper, so sacreBLEU's variable does not affect it.
                _ if report.json => OutputFormat::Json,
                "json" => OutputFormat::Json,
                "text" => OutputFormat::Text,
                "latex" => OutputFormat::Latex,
                _ => report.format.unwrap_or(usual),
            };
        let decimals = report.width.map_or(if like_sacrebleu { 1 } else { 2 }, usize::from);
        Self { format, decimals, short: report.short, score_only: report.score_only }
    }
}

/// Refuses options that need sacreBLEU's collection of test sets, or another encoding.
fn refuse_absent(arguments: &arguments::Bleu) -> Result<()> {
    let absent = &arguments.absent;
    let named = [
        ("--test-set", absent.test_set.is_some()),
        ("--origlang", absent.origlang.is_some()),
        ("--subset", absent.subset.is_some()),
        ("--detail", absent.detail),
        ("--echo", !absent.echo.is_empty()),
        ("--download", absent.download.is_some()),
        ("--list", absent.list),
        ("--citation", absent.citation),
    ];
    if let Some((name, _)) = named.into_iter().find(|(_, given)| *given) {
        bail!(
            "{name}: taper carries no test sets; write the references out with `sacrebleu -t … \
             -l … --echo ref` and name the file"
        );
    }
    ensure!(
        ["utf-8", "utf8"].contains(&arguments.encoding.to_lowercase().as_str()),
        "--encoding {}: only UTF-8 is read; convert the files with iconv",
        arguments.encoding
    );
    Ok(())
}

/// Returns the requested metrics without repetitions: in the requested order for a paired test,
/// otherwise in a fixed order.
fn metrics(arguments: &arguments::Bleu) -> Result<Vec<Box<dyn Metric>>> {
    let mut names = Vec::new();
    for &name in &arguments.metrics {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if !arguments.trials.paired_ar && !arguments.trials.paired_bs {
        names.sort();
    }
    let chrf = &arguments.chrf;
    let chrf = Chrf {
        char_order: chrf.chrf_char_order,
        word_order: chrf.chrf_word_order,
        beta: chrf.chrf_beta,
        lowercase: chrf.chrf_lowercase,
        whitespace: chrf.chrf_whitespace,
        eps_smoothing: chrf.chrf_eps_smoothing,
    };
    let ter = Ter {
        normalized: arguments.ter.ter_normalized,
        no_punct: arguments.ter.ter_no_punct,
        asian_support: arguments.ter.ter_asian_support,
        case_sensitive: arguments.ter.ter_case_sensitive,
    };
    let metric = |name| -> Result<Box<dyn Metric>> {
        Ok(match name {
            MetricName::Bleu => Box::new(bleu(arguments)?),
            MetricName::Chrf => Box::new(chrf.clone()),
            MetricName::Chrfpp if ![0, 2].contains(&chrf.word_order) => {
                bail!(
                    "--metrics chrfpp is chrF with a word order of 2: for another, give chrf and \
                     --chrf-word-order"
                )
            }
            MetricName::Chrfpp => Box::new(Chrf { word_order: 2, ..chrf.clone() }),
            MetricName::Ter => Box::new(ter.clone()),
        })
    };
    let mut metrics: Vec<Box<dyn Metric>> = Vec::with_capacity(names.len());
    for name in names {
        let metric = metric(name)?;
        // Two requested names may mean the same metric: `chrf` with a word order of 2 is `chrfpp`.
        // Then it is computed only once.
        if metrics.iter().all(|other| other.name() != metric.name()) {
            metrics.push(metric);
        }
    }
    Ok(metrics)
}

/// Makes BLEU with the requested options.
fn bleu(arguments: &arguments::Bleu) -> Result<Bleu> {
    let options = &arguments.bleu;
    let language = match options.language_pair.as_deref() {
        Some(pair) => Some(pair.split('-').nth(1).with_context(|| {
            format!("--language-pair {pair}: give both languages, as in en-zh")
        })?),
        None => None,
    };
    let tokenizer = match (options.tokenize.as_deref(), language) {
        (Some(name), _) => name,
        (None, Some("zh")) => "zh",
        (None, Some("ja")) => "ja-mecab",
        (None, Some("ko")) => "ko-mecab",
        (None, _) => "13a",
    };
    let tokenizer: Tokenizer =
        tokenizer.parse().with_context(|| format!("--tokenize {tokenizer}"))?;
    let smoothing: Smoothing = options
        .smooth_method
        .parse()
        .with_context(|| format!("--smooth-method {}", options.smooth_method))?;
    Ok(Bleu {
        tokenizer,
        smoothing: options.smooth_value.map_or(smoothing, |value| smoothing.with_value(value)),
        effective_order: arguments.sentence_level,
        lowercase: options.lowercase,
        force: options.force,
        ..Bleu::default()
    })
}

/// Returns the seed of trials: the value of `SACREBLEU_SEED`, or sacreBLEU's default.
fn seed() -> Result<u64> {
    match std::env::var("SACREBLEU_SEED") {
        Ok(seed) => seed
            .parse()
            .with_context(|| format!("SACREBLEU_SEED={seed}: give a whole number below 2^64; without one, results could not be repeated")),
        Err(_) => Ok(DEFAULT_SEED),
    }
}

/// Prints a line with the score of each sentence.
fn sentences(
    arguments: &arguments::Bleu,
    metrics: &[&dyn Metric],
    inputs: &Inputs,
    style: Style,
) -> Result<()> {
    let ([metric], [system]) = (metrics, &inputs.systems[..]) else {
        bail!("--sentence-level takes one metric and one system");
    };
    ensure!(
        !arguments.trials.confidence && !arguments.trials.paired_ar && !arguments.trials.paired_bs,
        "--sentence-level: confidence and significance are properties of a corpus; leave one \
             of the options out"
    );
    for segment in segments(&system.lines, &inputs.references)? {
        let score =
            Score::new(*metric, &Statistics::count(*metric, std::slice::from_ref(&segment))?)?;
        print_line(&if style.score_only {
            score.number(style.decimals)
        } else {
            score.line(style.decimals, style.short)
        })?;
    }
    Ok(())
}

/// Prints the scores of one system.
fn one_system(arguments: &arguments::Bleu, counted: &[Counted<'_>], style: Style) -> Result<()> {
    let trials = &arguments.trials;
    if trials.paired_ar || trials.paired_bs {
        bail!("a paired test compares several systems: give their translations to --input");
    }
    let mut scores = Vec::with_capacity(counted.len());
    for (metric, systems) in counted {
        // With fewer than two resamples, no interval is computed, as in sacreBLEU.
        scores.push(if trials.confidence && trials.confidence_n > 1 {
            Score::with_confidence(*metric, &systems[0], trials.confidence_n, seed()?)?
        } else {
            Score::new(*metric, &systems[0])?
        });
    }
    print_line(&report::one_system(&scores, style)?)
}

/// Prints the scores of several systems, compared with the first if requested.
fn several_systems(
    arguments: &arguments::Bleu,
    counted: &[Counted<'_>],
    inputs: &Inputs,
    style: Style,
) -> Result<()> {
    let trials = &arguments.trials;
    if trials.confidence {
        bail!("--confidence takes one system; --paired-bs compares several");
    }
    let (resamples, shuffles) = (
        trials.paired_bs.then_some(trials.paired_bs_n),
        trials.paired_ar.then_some(trials.paired_ar_n),
    );
    // 0 trials mean the default number, as in sacreBLEU.
    let resamples = resamples.map(|count| if count == 0 { 1000 } else { count });
    let shuffles = shuffles.map(|count| if count == 0 { 10_000 } else { count });
    let mut reports = Vec::with_capacity(counted.len());
    for (metric, systems) in counted {
        let systems: Vec<&Statistics> = systems.iter().collect();
        let (results, trials) = match (resamples, shuffles) {
            (Some(count), _) => {
                let seed = seed()?;
                let results = paired_bootstrap(*metric, &systems, count, seed)?;
                (
                    Report::Compared(results),
                    Trials { bootstrap: Some(count), seed: Some(seed), ..Trials::default() },
                )
            }
            (None, Some(count)) => {
                let seed = seed()?;
                let results = paired_randomization(*metric, &systems, count, seed)?;
                (
                    Report::Compared(results),
                    Trials { randomization: Some(count), seed: Some(seed), ..Trials::default() },
                )
            }
            (None, None) => {
                let scores = systems
                    .iter()
                    .map(|statistics| Ok(Score::new(*metric, statistics)?.number(style.decimals)));
                (Report::Scores(scores.collect::<Result<_>>()?), Trials::default())
            }
        };
        let signature = Signature::new(*metric, systems[0].references(), trials);
        reports.push(SystemReport { metric: metric.name(), results, signature });
    }
    let names: Vec<&str> = inputs.systems.iter().map(|system| system.name.as_str()).collect();
    print_line(&report::several_systems(&names, &reports, style)?)
}
