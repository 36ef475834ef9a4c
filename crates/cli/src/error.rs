//! Reporting of failures: one line on standard error and an exit code.

use std::io;

use taper_model::ModelError;
use taper_trainer::{ExchangeError, TrainError};

/// Exit code of a request that cannot be fulfilled because of its arguments, configuration or
/// files.
pub(crate) const EXIT_USER: u8 = 2;
/// Exit code of a failure inside the computation.
pub(crate) const EXIT_INTERNAL: u8 = 1;

/// Error of a command that was stopped by a signal. The value is the exit code of the process. The
/// work that was done before is on disk.
#[derive(Debug)]
pub(crate) struct Interrupted(pub(crate) u8);

impl std::fmt::Display for Interrupted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Error whose cause is the machine, and not an argument or a file.
#[derive(Debug)]
pub(crate) struct Unfit(pub(crate) String);

impl std::fmt::Display for Unfit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Unfit {}

/// Reaction of the program to an error.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The reader of the output is gone (`taper … | head`): print nothing.
    Silent,
    /// A handled interruption, whose message has been printed. The process exits with this code.
    Interrupted(u8),
    /// Another process of the training prints the message. This process exits with this code.
    ToldElsewhere(u8),
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
        let between = cause.downcast_ref::<TrainError>().and_then(TrainError::between_processes);
        if let Some(error) = between.or_else(|| cause.downcast_ref::<ExchangeError>()) {
            return match error {
                ExchangeError::Tensor(_) => Ending::Fail(EXIT_INTERNAL),
                error if error.is_told_elsewhere() => Ending::ToldElsewhere(EXIT_USER),
                _ => Ending::Fail(EXIT_USER),
            };
        }
        // `ModelError::Tensor` is transparent, so Candle's error inside it is not among the causes.
        let is_of_model = matches!(cause.downcast_ref::<ModelError>(), Some(ModelError::Tensor(_)));
        if is_of_model || cause.is::<candle_core::Error>() || cause.is::<Unfit>() {
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
        let lost = |rank, here| {
            let error = ExchangeError::Lost { rank, here, why: "it was killed".to_owned() };
            ending(&anyhow::Error::from(TrainError::from(error)).context("training ended"))
        };
        assert_eq!(lost(2, 0), Ending::Fail(EXIT_USER));
        assert_eq!(lost(0, 1), Ending::Fail(EXIT_USER));
        assert_eq!(lost(2, 1), Ending::ToldElsewhere(EXIT_USER));
        let failed = anyhow::Error::from(ExchangeError::Failed { rank: 3 });
        assert_eq!(ending(&failed), Ending::ToldElsewhere(EXIT_USER));
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
