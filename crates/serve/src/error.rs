//! Reasons why a request is not fulfilled.

use std::time::Duration;

use taper_decoding::DecodingError;

/// Reason why a request is not fulfilled, for the client.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Refusal {
    /// The request is malformed: 400.
    Malformed(String),
    /// The API key is missing or wrong: 401.
    Key,
    /// The client calls the server by a name that the server does not have: 403.
    Host,
    /// A page of another site has sent the request: 403.
    Origin,
    /// There is no such resource: 404.
    Missing(String),
    /// The resource does not have this method: 405.
    Method,
    /// The client was too slow to send: 408.
    Slow,
    /// The request exceeds a limit of the server: 413.
    Large(String),
    /// The body has the wrong media type: 415.
    MediaType(&'static str),
    /// The request is understood, but cannot be fulfilled: 422.
    Unfit(String),
    /// The server failed: 500.
    Failed(String),
    /// Too much work is waiting, or the server stops; the client may try again after a while: 503.
    Busy(Duration),
    /// The run has failed and is loaded again; the client may try again after a while: 503.
    Down(String, Duration),
    /// The request took too long: 504.
    Late,
}

impl Refusal {
    /// Status code in HTTP.
    #[must_use]
    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::Key => 401,
            Self::Host | Self::Origin => 403,
            Self::Missing(_) => 404,
            Self::Method => 405,
            Self::Slow => 408,
            Self::Large(_) => 413,
            Self::MediaType(_) => 415,
            Self::Unfit(_) => 422,
            Self::Failed(_) => 500,
            Self::Busy(_) | Self::Down(..) => 503,
            Self::Late => 504,
        }
    }

    /// Message for the client.
    #[must_use]
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Malformed(message)
            | Self::Missing(message)
            | Self::Large(message)
            | Self::Unfit(message)
            | Self::Failed(message) => message.clone(),
            Self::Key => "this server needs a key: send it as `Authorization: Bearer KEY`, or as \
                          `api_key` in LibreTranslate's API"
                .to_owned(),
            Self::Host => "this server listens on the loopback address and is called by another \
                           name: start it with --host NAME to allow that"
                .to_owned(),
            Self::Origin => "a page of another site has sent this: start the server with --cors \
                             ORIGIN to allow that"
                .to_owned(),
            Self::Method => "not with this method: see /openapi.json".to_owned(),
            Self::Slow => "the request did not arrive in time".to_owned(),
            Self::MediaType(wanted) => format!("the body must be {wanted}"),
            Self::Busy(_) => "too much is waiting: try again later".to_owned(),
            Self::Down(run, _) => {
                format!("the run {run} has failed and is loaded again: try again later")
            }
            Self::Late => "the answer would have come too late; ask for less".to_owned(),
        }
    }
}

/// Returns the error and its causes on one line. It leaves out the advice for the operator of the
/// server, which clients could not follow.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    taper_run::one_line_with(error, |_| None)
}

/// Makes the refusal for an error of a run. Errors in tensor operations and values that are not
/// finite are failures of the server; all other errors mean that the request cannot be fulfilled.
pub(crate) fn refusal(error: &anyhow::Error) -> Refusal {
    let is_internal = error.chain().any(|cause| {
        let of_search = matches!(
            cause.downcast_ref(),
            Some(DecodingError::NotADistribution { .. } | DecodingError::NotFinite { .. })
        );
        cause.is::<candle_core::Error>()
            || cause.is::<taper_run::NotFinite>()
            || cause.downcast_ref().is_some_and(taper_run::BadItem::is_not_finite)
            || of_search
            || matches!(cause.downcast_ref(), Some(taper_model::ModelError::Tensor(_)))
    });
    let message = one_line(error);
    if is_internal { Refusal::Failed(message) } else { Refusal::Unfit(message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_not_finite_is_no_fault_of_the_request() {
        let status = |error: DecodingError| {
            refusal(&anyhow::Error::new(error).context("decoding failed")).status()
        };
        assert_eq!(status(DecodingError::NotADistribution { sentence: 0, position: 2 }), 500);
        let quantity = "the alignment";
        assert_eq!(status(DecodingError::NotFinite { quantity, sentence: 0 }), 500);
        assert_eq!(status(DecodingError::DeadEnd { sentence: 0 }), 422);
        let of_line = |error: DecodingError| {
            let error = anyhow::Error::new(error).context("decoding failed at line 1");
            refusal(&taper_run::BadItem::from_error(&error)).status()
        };
        assert_eq!(of_line(DecodingError::NotADistribution { sentence: 1, position: 2 }), 500);
        assert_eq!(of_line(DecodingError::DeadEnd { sentence: 1 }), 422);
    }
}
