//! How failures leave the program: one line on standard error and an exit code.

use std::io;

use taper_model::ModelError;

/// Exit code of a request that cannot be fulfilled as given: wrong arguments,
/// configuration, files.
pub(crate) const EXIT_USER: u8 = 2;
/// Exit code of a failure inside the computation.
pub(crate) const EXIT_INTERNAL: u8 = 1;
/// Exit code after an interruption that was handled: what was done is on disk.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

/// Returned (as an `anyhow` error) by a command that stopped on a signal.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// What the program should do about an error.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The reader of our output went away (`taper … | head`): nothing to say.
    Silent,
    /// A handled interruption; its message has been printed already.
    Interrupted,
    /// Print the message, exit with this code.
    Fail(u8),
}

/// Chooses the ending from the causes of `error`.
pub(crate) fn ending(error: &anyhow::Error) -> Ending {
    for cause in error.chain() {
        if cause.is::<Interrupted>() {
            return Ending::Interrupted;
        }
        if let Some(io_error) = cause.downcast_ref::<io::Error>()
            && io_error.kind() == io::ErrorKind::BrokenPipe
        {
            return Ending::Silent;
        }
        // The transparent variant is not among the causes by itself.
        let is_of_model = matches!(cause.downcast_ref::<ModelError>(), Some(ModelError::Tensor(_)));
        if is_of_model || cause.is::<candle_core::Error>() {
            return Ending::Fail(EXIT_INTERNAL);
        }
    }
    Ending::Fail(EXIT_USER)
}

/// The chain of causes on one line. A cause that its parent already quotes is
/// not repeated, and line breaks become semicolons.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        let lines = text.lines().map(str::trim).filter(|part| !part.is_empty());
        // Where RUST_BACKTRACE is set, Candle's messages end with a backtrace, whose frames count
        // from 0.
        let text = lines.take_while(|line| !line.starts_with("0: ")).collect::<Vec<_>>().join("; ");
        if line.is_empty() {
            line = text;
        } else if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
    }
    line
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
            "no such tensor\n   0: candle_core::error::Error::bt\n             at /src/error.rs:1\n   1: main"
        );
        assert_eq!(one_line(&error), "no such tensor");
        let error = anyhow!("inner").context("outer: inner");
        assert_eq!(one_line(&error), "outer: inner");
    }

    #[test]
    fn endings_follow_the_cause() {
        assert_eq!(ending(&anyhow!("bad file")), Ending::Fail(EXIT_USER));
        let pipe = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(ending(&pipe.context("writing")), Ending::Silent);
        assert_eq!(ending(&anyhow::Error::from(Interrupted)), Ending::Interrupted);
        let computation = || candle_core::Error::Msg("no memory".to_owned());
        assert_eq!(
            ending(&anyhow::Error::from(computation()).context("training")),
            Ending::Fail(EXIT_INTERNAL)
        );
        assert_eq!(
            ending(&anyhow::Error::from(ModelError::Tensor(computation())).context("training")),
            Ending::Fail(EXIT_INTERNAL)
        );
    }
}
