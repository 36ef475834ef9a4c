//! Formats advice as commands of this program. The libraries give advice as an [`Action`], because
//! they do not know the program's commands.

use std::path::{Path, PathBuf};

use anyhow::Error;
use taper_run::advice::{Action, Resume, Setting, Train, Verb, words};
use taper_run::{Notice, one_line_with};

use crate::text::{quoted, say};

/// Formats an error and its causes on one line, with the commands that help in backticks.
pub(crate) fn one_line(error: &Error) -> String {
    one_line_with(error, in_backticks)
}

/// Prints a message of a run, with the commands that help in backticks.
pub(crate) fn say_notice(notice: &Notice) {
    say(&format!("{notice}{}", words(notice.advice().as_slice(), in_backticks)));
}

fn in_backticks(action: &Action) -> Option<String> {
    Some(format!("`{}`", command(action)))
}

/// Returns the shell command for an action. Words in capitals are placeholders, which the user
/// replaces.
#[must_use]
pub fn command(action: &Action) -> String {
    match action {
        Action::Use(verb) => use_of("RUN", *verb),
        Action::Choose(setting) => option(*setting).to_owned(),
        Action::Train(Train { recipe, from, run, change }) => {
            let recipe = recipe.as_deref().map_or_else(|| "CONFIG".to_owned(), quoted);
            let run = match (run, from) {
                (None, None) => " --run DIR".to_owned(),
                (run, _) => path_option("--run", run),
            };
            let from = path_option("--from", from);
            format!("taper train {recipe}{from}{run}{}", set(change))
        }
        Action::Resume(Resume { run, from, change, accepts_changes }) => {
            let from = from.as_ref().map_or_else(String::new, |start| format!(" --from {start}"));
            let accepted = if *accepts_changes { " --accept-changes" } else { "" };
            format!("taper resume {}{from}{}{accepted}", quoted(run), set(change))
        }
        Action::Average(run) => format!("taper average {}", quoted(run)),
        Action::Merge(run) => format!("taper merge {}", quoted(run)),
        Action::Import(folder) => format!("taper import {} RUN", quoted(folder)),
        Action::Tune => "taper tune RUN".to_owned(),
        Action::Shortlist(run) => format!("taper shortlist {}", quoted(run)),
    }
}

/// Returns the option of the command line for a setting.
fn option(setting: Setting) -> &'static str {
    match setting {
        Setting::DivideLines => "--overlong split",
        Setting::MostSourceTokens => "--max-source-tokens N",
        Setting::MostTokens => "--max-tokens N",
        Setting::Checkpoint => "--checkpoint NAME",
        Setting::Split => "--split NAME",
        Setting::Prompts => "--prompt TEXT",
        Setting::RescueFolder => "--rescue DIR",
        Setting::Parts => "--only PARTS",
        Setting::AcceptChanges => "--accept-changes",
    }
}

fn path_option(option: &str, path: &Option<PathBuf>) -> String {
    path.as_ref().map_or_else(String::new, |path| format!(" {option} {}", quoted(path)))
}

fn set(key: &Option<String>) -> String {
    key.as_ref().map_or_else(String::new, |key| format!(" --set {key}=…"))
}

/// Returns the command that does `verb` with a run. `run` is the run's folder, already quoted for a
/// shell.
pub(crate) fn use_of(run: &str, verb: Verb) -> String {
    match verb {
        Verb::Translate => format!("taper translate {run}"),
        Verb::ScorePairs => format!("taper score {run} --source FILE --target FILE"),
        Verb::ScoreTexts => format!("taper score {run} --text FILE"),
        Verb::Generate => format!("taper generate {run} --prompt TEXT"),
        Verb::Evaluate => format!("taper evaluate {run}"),
        Verb::Predict => format!("taper predict {run}"),
        Verb::PredictImages => format!("taper predict {run} IMAGE…"),
        Verb::MatchTexts => format!("taper predict {run} IMAGE… --prompt TEXT --prompt TEXT"),
        Verb::DrawAttention => format!("taper predict {run} IMAGE --attention FOLDER"),
        Verb::BeginWith => format!("taper train CONFIG --from {run}"),
        Verb::Report => format!("taper report {run}"),
    }
}

/// Returns the commands that use a recipe (a TOML file with all settings of a training), for the
/// comment at the head of this file.
pub(crate) fn usage(recipe: &Path, from: Option<&Path>) -> Vec<String> {
    let recipe = quoted(recipe);
    let from = from.map_or_else(String::new, |run| format!(" --from {}", quoted(run)));
    vec![
        format!(
            "taper train {recipe}{from} --dry-run    # checks everything, and measures how long it \
             will take"
        ),
        format!("taper train {recipe}{from}"),
        format!("taper config show {recipe}    # every key that may be set, with its default"),
    ]
}

/// Returns the commands that train, evaluate and report a run again, for the run's page.
pub(crate) fn again(run: &Path) -> String {
    let run = quoted(run);
    format!("taper train {run}/config.toml --run NEW\ntaper evaluate {run}\ntaper report {run}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use taper_run::advice::Start;

    #[test]
    fn commands_are_quoted_for_a_shell() {
        let run = PathBuf::from("my run");
        let resume = |from, key: Option<&str>, accepts_changes| {
            let change = key.map(str::to_owned);
            command(&Action::Resume(Resume { run: run.clone(), from, change, accepts_changes }))
        };
        assert_eq!(resume(None, None, true), "taper resume 'my run' --accept-changes");
        assert_eq!(
            resume(Some(Start::Named("step-1".into())), Some("training.seed"), false),
            "taper resume 'my run' --from step-1 --set training.seed=…"
        );
        assert_eq!(
            resume(Some(Start::Chosen), None, false),
            "taper resume 'my run' --from CHECKPOINT"
        );
        let train = |recipe: Option<&str>, from: Option<&str>, run: Option<&str>| {
            let [recipe, from, run] = [recipe, from, run].map(|path| path.map(PathBuf::from));
            command(&Action::Train(Train { recipe, from, run, change: None }))
        };
        assert_eq!(train(None, None, None), "taper train CONFIG --run DIR");
        assert_eq!(train(None, None, Some("my run")), "taper train CONFIG --run 'my run'");
        assert_eq!(train(Some("a.toml"), Some("b"), None), "taper train a.toml --from b");
        assert_eq!(command(&Action::Average(run)), "taper average 'my run'");
        assert_eq!(command(&Action::Use(Verb::Predict)), "taper predict RUN");
        assert_eq!(command(&Action::Choose(Setting::MostTokens)), "--max-tokens N");
    }
}
