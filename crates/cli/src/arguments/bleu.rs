//! Arguments of `bleu`, which have sacreBLEU's names.

use std::ffi::OsString;
use std::num::NonZero;
use std::path::PathBuf;

use clap::{Args, CommandFactory, ValueEnum};

use super::Arguments;

/// sacreBLEU's options with one dash and several letters, each with the corresponding long option.
/// `clap` would read `-nr` as the two options `-n` and `-r`.
const LONG_NAMES: [(&str, &str); 16] = [
    ("-nr", "--num-refs"),
    ("-sl", "--sentence-level"),
    ("-sv", "--smooth-value"),
    ("-tok", "--tokenize"),
    ("-lc", "--lowercase"),
    ("-cc", "--chrf-char-order"),
    ("-cw", "--chrf-word-order"),
    ("-ci", "--confidence"),
    ("-cin", "--confidence-n"),
    ("-par", "--paired-ar"),
    ("-pbs", "--paired-bs"),
    ("-parn", "--paired-ar-n"),
    ("-pbsn", "--paired-bs-n"),
    ("-sh", "--short"),
    ("-nc", "--no-color"),
    ("-ol", "--origlang"),
];

/// Returns `arguments`, the words of a command line. For `taper bleu`, sacreBLEU's short options of
/// several letters are replaced by the long options.
pub(super) fn spell_out(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
    let Some(at) = command_index(&arguments).filter(|&at| arguments[at] == "bleu") else {
        return arguments;
    };
    for argument in arguments[at + 1..].iter_mut().take_while(|argument| *argument != "--") {
        let Some(text) = argument.to_str() else { continue };
        let (name, value) =
            text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        if let Some((_, long)) = LONG_NAMES.into_iter().find(|(short, _)| *short == name) {
            *argument = value.map_or_else(|| long.into(), |value| format!("{long}={value}").into());
        }
    }
    arguments
}

/// Returns the index of the command in `arguments`, the words of a command line: options of the
/// program, which may have values, can come before it. `None` if there is no command.
fn command_index(arguments: &[OsString]) -> Option<usize> {
    let program = Arguments::command();
    let takes_value = |word: &str| {
        word.strip_prefix("--").is_some_and(|name| {
            let option = program.get_arguments().find(|one| one.get_long() == Some(name));
            option.is_some_and(|option| option.get_action().takes_values())
        })
    };
    let mut at = 1;
    while let Some(word) = arguments.get(at)?.to_str().filter(|word| word.starts_with('-')) {
        at += if takes_value(word) { 2 } else { 1 };
    }
    Some(at)
}

/// A metric that `bleu` computes, in the order of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum MetricName {
    /// BLEU
    Bleu,
    /// chrF2, unless --chrf-word-order and similar options change it
    Chrf,
    /// chrF2++: chrF with word n-grams up to 2
    Chrfpp,
    /// Translation edit rate
    Ter,
}

/// Format of printed results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// sacreBLEU's JSON
    Json,
    /// Lines, or a table of several systems
    Text,
    /// A LaTeX table of several systems
    Latex,
}

/// Upper bound of n-gram lengths, which is larger than any useful length.
const LONGEST_NGRAM: usize = 1000;

/// Upper bound of the number of trials, because the scores of all trials are in memory at once. No
/// interval or p-value needs as many.
const MOST_TRIALS: usize = 10_000_000;

/// Parses an integer from 0 to `MOST`.
fn at_most<const MOST: usize>(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(number) if number <= MOST => Ok(number),
        _ => Err(format!("expected a whole number from 0 to {MOST}")),
    }
}

/// Arguments of `bleu`.
#[derive(Debug, Args)]
pub(crate) struct Bleu {
    /// HYPOTHESIS REFERENCE…: a file of translations, then files of references. Or, as in
    /// sacreBLEU, only references; translations are then read from --input or, for a single
    /// reference, from standard input
    #[arg(required_unless_present = "test_set", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Files of translations, one per system, - for standard input; several systems are compared
    #[arg(long, short, value_name = "FILE", num_args = 1..)]
    pub(crate) input: Vec<PathBuf>,
    /// Split each line of the reference file at tabs into this many references [sacreBLEU: -nr]
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) num_refs: NonZero<usize>,
    /// Encoding of the files; only UTF-8 is read
    #[arg(long, short, value_name = "NAME", default_value = "utf-8")]
    pub(crate) encoding: String,
    /// Metrics to compute
    #[arg(long, short, value_enum, value_delimiter = ',', num_args = 1.., default_value = "bleu")]
    pub(crate) metrics: Vec<MetricName>,
    /// Score each sentence instead of the corpus [sacreBLEU: -sl]
    #[arg(long)]
    pub(crate) sentence_level: bool,

    #[command(flatten)]
    pub(crate) bleu: BleuOptions,
    #[command(flatten)]
    pub(crate) chrf: ChrfOptions,
    #[command(flatten)]
    pub(crate) ter: TerOptions,
    #[command(flatten)]
    pub(crate) trials: TrialOptions,
    #[command(flatten)]
    pub(crate) report: ReportOptions,
    #[command(flatten)]
    pub(crate) absent: AbsentOptions,
}

/// Options of BLEU.
#[derive(Debug, Args)]
#[command(next_help_heading = "BLEU")]
pub(crate) struct BleuOptions {
    /// Smoothing: exp, floor, add-k or none
    #[arg(long, short, value_name = "NAME", default_value = "exp")]
    pub(crate) smooth_method: String,
    /// Value for floor [default: 0.1] and add-k [default: 1] [sacreBLEU: -sv]
    #[arg(long, value_name = "VALUE")]
    pub(crate) smooth_value: Option<f64>,
    /// Tokenizer: 13a, none, char, zh or intl [default: zh for --language-pair *-zh, else 13a]
    /// [sacreBLEU: -tok]
    #[arg(long, value_name = "NAME")]
    pub(crate) tokenize: Option<String>,
    /// Language pair, such as en-zh; the second language chooses the tokenizer
    #[arg(long, short, value_name = "PAIR")]
    pub(crate) language_pair: Option<String>,
    /// Ignore case in BLEU [sacreBLEU: -lc]
    #[arg(long)]
    pub(crate) lowercase: bool,
    /// Accept translations that look tokenized without a warning
    #[arg(long)]
    pub(crate) force: bool,
}

/// Options of chrF.
#[derive(Debug, Args)]
#[command(next_help_heading = "chrF")]
pub(crate) struct ChrfOptions {
    /// Longest character n-gram [sacreBLEU: -cc]
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = at_most::<LONGEST_NGRAM>)]
    pub(crate) chrf_char_order: usize,
    /// Longest word n-gram; 2 makes chrF++ [sacreBLEU: -cw]
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = at_most::<LONGEST_NGRAM>)]
    pub(crate) chrf_word_order: usize,
    /// Weight of recall against precision
    #[arg(long, value_name = "BETA", default_value_t = 2)]
    pub(crate) chrf_beta: u32,
    /// Count whitespace as characters
    #[arg(long)]
    pub(crate) chrf_whitespace: bool,
    /// Ignore case in chrF
    #[arg(long)]
    pub(crate) chrf_lowercase: bool,
    /// Smooth as chrF++.py, NLTK and Moses do
    #[arg(long)]
    pub(crate) chrf_eps_smoothing: bool,
}

/// Options of TER.
#[derive(Debug, Args)]
#[command(next_help_heading = "TER")]
pub(crate) struct TerOptions {
    /// Distinguish case
    #[arg(long)]
    pub(crate) ter_case_sensitive: bool,
    /// With --ter-no-punct, also remove Asian punctuation; with --ter-normalized, treat each
    /// Chinese character as a word
    #[arg(long)]
    pub(crate) ter_asian_support: bool,
    /// Remove punctuation
    #[arg(long)]
    pub(crate) ter_no_punct: bool,
    /// Separate punctuation and undo markup
    #[arg(long)]
    pub(crate) ter_normalized: bool,
}

/// Options of confidence and significance. The random numbers are sacreBLEU's, with the seed
/// `SACREBLEU_SEED` or by default 12345.
#[derive(Debug, Args)]
#[command(next_help_heading = "Confidence and significance")]
pub(crate) struct TrialOptions {
    /// Confidence interval of one system by bootstrap resampling [sacreBLEU: -ci]
    #[arg(long)]
    pub(crate) confidence: bool,
    /// Resamples for --confidence [sacreBLEU: -cin]
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = at_most::<MOST_TRIALS>)]
    pub(crate) confidence_n: usize,
    /// Compare systems with the first by approximate randomisation [sacreBLEU: -par]
    #[arg(long, conflicts_with = "paired_bs")]
    pub(crate) paired_ar: bool,
    /// Compare systems with the first by bootstrap resampling [sacreBLEU: -pbs]
    #[arg(long)]
    pub(crate) paired_bs: bool,
    /// Trials for --paired-ar [sacreBLEU: -parn]
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = at_most::<MOST_TRIALS>)]
    pub(crate) paired_ar_n: usize,
    /// Resamples for --paired-bs [sacreBLEU: -pbsn]
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = at_most::<MOST_TRIALS>)]
    pub(crate) paired_bs_n: usize,
    /// Accepted for compatibility with sacreBLEU; all processors are used in any case
    #[arg(long, short = 'j', value_name = "N", hide = true)]
    pub(crate) paired_jobs: Option<usize>,
}

/// Options of the report. If the command is called like sacreBLEU, with --input or standard input,
/// it has sacreBLEU's defaults.
#[derive(Debug, Args)]
#[command(next_help_heading = "Report")]
pub(crate) struct ReportOptions {
    /// Suppress warnings
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Short signatures [sacreBLEU: -sh]
    #[arg(long)]
    pub(crate) short: bool,
    /// Print the score alone
    #[arg(long, short = 'b')]
    pub(crate) score_only: bool,
    /// Decimals of scores [default: 2; 1 when called as sacreBLEU]
    #[arg(long, short, value_name = "DECIMALS")]
    pub(crate) width: Option<u16>,
    /// Output format [default: text; json when called as sacreBLEU]
    #[arg(long, short, value_enum)]
    pub(crate) format: Option<OutputFormat>,
    /// The same as --format json
    #[arg(long, conflicts_with_all = ["format", "sentence_level"])]
    pub(crate) json: bool,
    /// Accepted for compatibility with sacreBLEU; nothing is coloured
    #[arg(long, hide = true)]
    pub(crate) no_color: bool,
}

/// Options of sacreBLEU that are refused, with advice on what to do instead.
#[derive(Debug, Args)]
pub(crate) struct AbsentOptions {
    #[arg(long, short = 't', hide = true)]
    pub(crate) test_set: Option<String>,
    #[arg(long, hide = true)]
    pub(crate) origlang: Option<String>,
    #[arg(long, hide = true)]
    pub(crate) subset: Option<String>,
    #[arg(long, short, hide = true)]
    pub(crate) detail: bool,
    #[arg(long, num_args = 1.., hide = true)]
    pub(crate) echo: Vec<String>,
    #[arg(long, hide = true)]
    pub(crate) download: Option<String>,
    #[arg(long, hide = true)]
    pub(crate) list: bool,
    #[arg(long, alias = "cite", hide = true)]
    pub(crate) citation: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(line: &str) -> String {
        let arguments = spell_out(line.split(' ').map(OsString::from));
        arguments.iter().map(|argument| argument.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn short_options_of_several_letters_are_spelled_out() {
        assert_eq!(
            spelled("taper bleu r -i a -tok=zh -lc -w 2"),
            "taper bleu r -i a --tokenize=zh --lowercase -w 2"
        );
        assert_eq!(spelled("taper bleu -- -lc"), "taper bleu -- -lc");
        assert_eq!(spelled("taper train -lc"), "taper train -lc");
        for before in ["--threads 1", "--threads=1", "--version", "--threads bleu"] {
            let line = format!("taper {before} bleu r");
            assert_eq!(spelled(&format!("{line} -lc")), format!("{line} --lowercase"));
        }
        for other in ["taper", "taper --threads", "taper --threads bleu train -lc"] {
            assert_eq!(spelled(other), other);
        }
    }
}
