//! A finding: its subject, the result, and advice.

use std::fmt;

use serde::Serialize;

/// Judgement of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// Everything is right.
    Ok,
    /// The program works, but more slowly or with fewer abilities than possible.
    Warn,
    /// Training or translating will not work.
    Fail,
}

/// A line of the report.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    /// Subject, in one word.
    pub(super) topic: &'static str,
    pub(super) verdict: Verdict,
    pub(super) found: String,
    /// Advice; `None` if the verdict is `Ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<String>,
}

impl Finding {
    pub(super) fn ok(topic: &'static str, found: impl Into<String>) -> Self {
        Self { topic, verdict: Verdict::Ok, found: found.into(), advice: None }
    }

    pub(super) fn warn(
        topic: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Warn, advice: Some(advice.into()), ..Self::ok(topic, found) }
    }

    pub(super) fn fail(
        topic: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Fail, ..Self::warn(topic, found, advice) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
        };
        write!(formatter, "{verdict:<5} {:<10} {}", self.topic, self.found)?;
        match &self.advice {
            Some(advice) => write!(formatter, "\n{:17}{advice}", ""),
            None => Ok(()),
        }
    }
}
