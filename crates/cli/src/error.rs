//! How failures leave the program: one line on standard error and an exit code.

use std::io;

use taper_model::ModelError;

/// Exit code of a request that cannot be fulfilled as given: wrong arguments,
/// configuration, files.
pub(crate) const EXIT_USER: u8 = 2;
/// Exit code of a failure inside the computation.
pub(crate) const EXIT_INTERNAL: u8 = 1;

/// Returned (as an `anyhow` error) by a command that stopped on a signal, with its exit code; what
/// was done is on disk.
#[derive(Debug)]
pub(crate) struct Interrupted(pub(crate) u8);

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
    /// A handled interruption; its message has been printed already. Exit with this code.
    Interrupted(u8),
    /// Print the message, exit with this code.
    Fail(u8),
}

/// Chooses the ending from the causes of `error`.
pub(crate) fn ending(error: &anyhow::Error) -> Ending {
    for cause in error.chain() {
        if let Some(Interrupted(code)) = cause.downcast_ref() {
            return Ending::Interrupted(*code);
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

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn endings_follow_the_cause() {
        assert_eq!(ending(&anyhow!("bad file")), Ending::Fail(EXIT_USER));
        let pipe = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(ending(&pipe.context("writing")), Ending::Silent);
        assert_eq!(ending(&anyhow::Error::from(Interrupted(143))), Ending::Interrupted(143));
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
