//! Advice: what a reader can do about an error or a message, as data. The command line writes each
//! action as a command and the Python package writes it as a call. The server leaves actions out,
//! because its clients cannot do them.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Error;
use taper_decoding::DecodingError;

/// What a reader can do with a run, which is a folder with a trained model. Each verb stands for a
/// command of the command line and, if Python has one, for a method in Python.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Translate sentences.
    Translate,
    /// Score pairs of sentences.
    ScorePairs,
    /// Score texts.
    ScoreTexts,
    /// Continue texts.
    Generate,
    /// Measure the model on its test sets.
    Evaluate,
    /// Predict the answer of the run's task for each text.
    Predict,
    /// Predict the answer of the run's task for each image.
    PredictImages,
    /// Find the text that matches an image best.
    MatchTexts,
    /// Draw the patches of an image that a model attends to.
    DrawAttention,
    /// Begin a new run with the weights of the trained run.
    BeginWith,
    /// Draw plots of the numbers that the run has recorded.
    Report,
}

impl Verb {
    const fn name(self) -> &'static str {
        match self {
            Self::Translate => "translate",
            Self::ScorePairs | Self::ScoreTexts => "score",
            Self::Generate => "generate",
            Self::Evaluate => "evaluate",
            Self::Predict | Self::PredictImages | Self::MatchTexts | Self::DrawAttention => {
                "predict"
            }
            Self::BeginWith => "train",
            Self::Report => "report",
        }
    }
}

/// Training of a new run. A field is `None` if the reader has to choose its value, unless the field
/// says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Train {
    /// File of the recipe: a TOML file with the settings of the training.
    pub recipe: Option<PathBuf>,
    /// Run that gives the new run its first weights; `None` if the first weights are random.
    pub from: Option<PathBuf>,
    /// Folder of the new run.
    pub run: Option<PathBuf>,
    /// Key of the recipe whose value is to be changed; `None` if the recipe stays as it is.
    pub change: Option<String>,
}

/// Further training of an existing run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resume {
    /// Folder of the run.
    pub run: PathBuf,
    /// Checkpoint to continue from; `None` for the last one.
    pub from: Option<Start>,
    /// Key of the recipe whose value is to be changed; `None` if the recipe stays as it is.
    pub change: Option<String>,
    /// Whether to accept changes of recipe keys that otherwise must stay the same when training
    /// continues.
    pub accepts_changes: bool,
}

/// Checkpoint from which training continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// Checkpoint of this name.
    Named(String),
    /// Checkpoint that the reader is to choose; it is shown as a placeholder.
    Chosen,
}

impl fmt::Display for Start {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Named(name) => name,
            Self::Chosen => "CHECKPOINT",
        })
    }
}

/// Setting of a request that a reader can choose. It stands for an option of the command line and,
/// if Python has it, for an argument in Python.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// Division of lines that have too many tokens.
    DivideLines,
    /// Largest number of tokens of a line to translate.
    MostSourceTokens,
    /// Largest number of tokens of a line to score or align.
    MostTokens,
    /// Checkpoint whose weights are used.
    Checkpoint,
    /// Split whose examples are read.
    Split,
    /// Texts to compare with images.
    Prompts,
    /// Folder in which the state is saved if training cannot write to the folder of the run.
    RescueFolder,
    /// Parts of the model that are taken from another run.
    Parts,
    /// Acceptance of changes of recipe keys that otherwise must stay the same.
    AcceptChanges,
}

impl Setting {
    const fn name(self) -> &'static str {
        match self {
            Self::DivideLines => "dividing overlong lines",
            Self::MostSourceTokens | Self::MostTokens => "a larger limit of tokens",
            Self::Checkpoint => "the name of a checkpoint",
            Self::Split => "the name of a split",
            Self::Prompts => "a list of prompts",
            Self::RescueFolder => "another folder for the state",
            Self::Parts => "a list of parts",
            Self::AcceptChanges => "accepting the changes",
        }
    }
}

/// Something that a reader can do.
///
/// `Display` describes it without the syntax of the command line or of Python. It is used where
/// neither of the two has replaced the description by a command or a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Use a run.
    Use(Verb),
    /// Repeat the request with this setting.
    Choose(Setting),
    /// Train a new run.
    Train(Train),
    /// Train a run further.
    Resume(Resume),
    /// Average the weights of the checkpoints of this run.
    Average(PathBuf),
    /// Merge the adapters of this run into its weights.
    Merge(PathBuf),
    /// Import this folder of another library.
    Import(PathBuf),
    /// Tune the settings of the search with which a run translates.
    Tune,
    /// Make the shortlist of this run: for each source token, the target tokens that translations
    /// may contain.
    Shortlist(PathBuf),
}

impl Action {
    /// Action that continues the training of `run` from its last checkpoint.
    #[must_use]
    pub fn resume(run: &Path) -> Self {
        Self::Resume(Resume { run: run.to_owned(), ..Resume::default() })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let change = |key: &Option<String>| {
            key.as_ref().map_or_else(String::new, |key| format!(" with another {key}"))
        };
        match self {
            Self::Use(verb) => write!(formatter, "`{}`", verb.name()),
            Self::Choose(setting) => formatter.write_str(setting.name()),
            Self::Train(Train { recipe, from, run, change: key }) => {
                let part = |before: &str, path: &Option<PathBuf>| {
                    let path = path.as_ref().map(|path| format!(" {before}{}", path.display()));
                    path.unwrap_or_default()
                };
                let (from, run) = (part("from ", from), part("into ", run));
                let recipe = match recipe {
                    Some(path) => path.display().to_string(),
                    None => "a recipe".to_owned(),
                };
                write!(formatter, "training {recipe}{from}{run}{}", change(key))
            }
            Self::Resume(Resume { run, from, change: key, accepts_changes }) => {
                let from = from.as_ref().map_or_else(String::new, |start| format!(" from {start}"));
                let accepted = if *accepts_changes { " and accepting the change" } else { "" };
                write!(formatter, "resuming {}{from}{}{accepted}", run.display(), change(key))
            }
            Self::Average(run) => {
                write!(formatter, "averaging the checkpoints of {}", run.display())
            }
            Self::Merge(run) => write!(formatter, "merging the adapters of {}", run.display()),
            Self::Import(folder) => write!(formatter, "importing {}", folder.display()),
            Self::Tune => formatter.write_str("tuning the run"),
            Self::Shortlist(run) => write!(formatter, "a shortlist of {}", run.display()),
        }
    }
}

/// Action and its effect. Together they form a sentence, such as "`evaluate` measures it".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// Action: the subject of the sentence.
    pub action: Action,
    /// Effect: the predicate, in the third person.
    pub effect: &'static str,
}

impl Advice {
    /// Advice to do `action`, which has `effect`.
    #[must_use]
    pub const fn new(action: Action, effect: &'static str) -> Self {
        Self { action, effect }
    }

    /// Adds the advice to an error.
    #[must_use]
    pub fn about(self, error: Error) -> Error {
        advised(error, vec![self])
    }

    /// Advice about `cause`, an error from a crate that knows nothing about runs and therefore
    /// cannot give advice itself. `None` if there is no advice about this error.
    fn of(cause: &(dyn std::error::Error + 'static)) -> Option<Self> {
        match cause.downcast_ref()? {
            DecodingError::UnknownLength => Some(Self::new(Action::Tune, "measures them")),
            _ => None,
        }
    }
}

/// Text that can follow a message: a semicolon, and then a sentence for each piece of advice.
/// `name` returns the name of an action in the reader's terms. Advice whose action has no name
/// (`None`) is left out; the text is empty if no advice is left.
#[must_use]
pub fn words(advice: &[Advice], name: impl Fn(&Action) -> Option<String>) -> String {
    let sentence = |one: &Advice| Some(format!("{} {}", name(&one.action)?, one.effect));
    let sentences: Vec<String> = advice.iter().filter_map(sentence).collect();
    if sentences.is_empty() { String::new() } else { format!("; {}", sentences.join(", ")) }
}

/// Name of an action in plain words, as `Display` writes it.
fn plain(action: &Action) -> Option<String> {
    Some(action.to_string())
}

/// Error with advice on what to do about it. [`one_line_with`] finds the advice among the causes of
/// an error.
#[derive(Debug)]
struct Advised {
    error: Error,
    advice: Vec<Advice>,
}

impl fmt::Display for Advised {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}", self.error, words(&self.advice, plain))
    }
}

impl std::error::Error for Advised {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.error)
    }
}

/// Adds `advice` on what to do about `error`.
#[must_use]
pub fn advised(error: Error, advice: Vec<Advice>) -> Error {
    Advised { error, advice }.into()
}

/// Chain of an error's causes on one line, with advice at its end. A cause whose message is already
/// contained in the line is omitted, and line breaks become semicolons.
#[must_use]
pub fn one_line(error: &Error) -> String {
    one_line_with(error, plain)
}

/// The same as [`one_line`], but with the names that `name` returns for actions. `name` returns
/// `None` for an action that the readers cannot do; the advice to do it is left out.
#[must_use]
pub fn one_line_with(error: &Error, name: impl Fn(&Action) -> Option<String>) -> String {
    let (line, advice) = line_and_advice(error);
    line + &words(&advice, name)
}

/// Error without the causes of `error`, but with their text on one line, and with their advice.
pub(crate) fn without_causes(error: &Error) -> Error {
    let (line, advice) = line_and_advice(error);
    advised(Error::msg(line), advice)
}

/// Chain of an error's causes on one line, and the advice about them.
fn line_and_advice(error: &Error) -> (String, Vec<Advice>) {
    let (mut line, mut all_advice) = (String::new(), Vec::new());
    for cause in error.chain() {
        if let Some(Advised { advice, .. }) = cause.downcast_ref() {
            all_advice.extend(advice.iter().cloned());
            continue;
        }
        all_advice.extend(Advice::of(cause));
        let text = cause.to_string();
        let lines = text.lines().map(str::trim).filter(|part| !part.is_empty());
        // With RUST_BACKTRACE, Candle's messages end with a backtrace, whose first line begins with
        // `0: `.
        let text = lines.take_while(|line| !line.starts_with("0: ")).collect::<Vec<_>>().join("; ");
        if line.is_empty() {
            line = text;
        } else if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
    }
    (line, all_advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn causes_are_chained_once() {
        let error = anyhow!("file a.toml is\nbroken").context("cannot train");
        assert_eq!(one_line(&error), "cannot train: file a.toml is; broken");
        let error = anyhow!(
            "no such tensor\n   0: candle_core::error::Error::bt\n             at \
             /src/error.rs:1\n   1: main"
        );
        assert_eq!(one_line(&error), "no such tensor");
        let error = anyhow!("inner").context("outer: inner");
        assert_eq!(one_line(&error), "outer: inner");
    }

    #[test]
    fn advice_ends_the_line_in_the_words_of_the_reader_and_hides_no_cause() {
        let cause = Error::from(DecodingError::DeadEnd { sentence: 0 }).context("training ended");
        let resume = Advice::new(Action::resume(Path::new("runs/a")), "begins again");
        let error = resume.about(cause).context("in b");
        let causes = "in b: training ended: ";
        let line = one_line(&error);
        assert!(line.starts_with(causes), "{line}");
        assert!(line.ends_with("; resuming runs/a begins again"), "{line}");
        assert_eq!(line.matches("training ended").count(), 1, "{line}");
        assert!(one_line_with(&error, |_| Some("this".into())).ends_with("; this begins again"));
        assert!(!one_line_with(&error, |_| None).contains("begins again"));
        assert!(error.chain().any(|cause| cause.is::<DecodingError>()));

        let error = Error::from(DecodingError::UnknownLength).context("cannot translate");
        assert!(one_line(&error).ends_with("; tuning the run measures them"));
    }
}
