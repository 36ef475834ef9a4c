//! `POST /detect`: the language of a text, among the source languages of the runs.
//!
//! There is no model for this. A language is recognised by its script and by the vocabularies of
//! the runs that read it. If all tokens of a vocabulary are equally likely, a text of `k` tokens
//! has the probability `|V|^-k`, so the vocabulary that spells it in the fewest bits fits it best;
//! each unknown character costs as much as one of Unicode's. Bayes' rule, with the share of the
//! language's own letters as prior, gives a probability for each language. The confidence is this
//! probability times both shares, of own letters and of known characters: it is low for a text in a
//! language that no run reads. Languages of one script whose runs share one vocabulary cannot be
//! distinguished, and have equal confidences.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use taper_data::{Direction, own_letters};

use super::{allowed, directions};
use crate::app::App;
use crate::engine::{Engine, Fit, Measure};
use crate::error::Refusal;
use crate::http::{form_or_json_of, json};
use crate::routes::translation::Texts;

/// Number of characters of a text that are examined.
const LOOKED_AT: usize = 2000;

/// Possible language of a text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Detected {
    /// Confidence from 0 to 100.
    pub(super) confidence: f64,
    /// Code of the language in a run.
    pub(super) language: String,
}

/// Request in JSON.
#[derive(Debug, Deserialize)]
struct DetectRequest {
    q: Texts,
    api_key: Option<String>,
}

/// Request as a form.
#[derive(Debug, Deserialize)]
struct DetectForm {
    q: String,
    api_key: Option<String>,
}

impl From<DetectForm> for DetectRequest {
    fn from(form: DetectForm) -> Self {
        Self { q: Texts::One(form.q), api_key: form.api_key }
    }
}

/// Detects the language of a text, the likeliest first.
pub(in crate::routes) async fn detect(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Refusal> {
    let headers = request.headers().clone();
    let asked: DetectRequest =
        form_or_json_of::<DetectRequest, DetectForm>(request, app.limits()).await?;
    allowed(&app, &headers, asked.api_key.as_deref())?;
    let texts = asked.q.into_vec();
    if texts.iter().all(String::is_empty) {
        return Err(Refusal::Malformed("q is empty: there is nothing to detect".to_owned()));
    }
    Ok(json(200, &languages_of(&app, &texts, directions(&app)).await?))
}

/// Possible languages of some texts together, among those that `runs` read, the likeliest first; at
/// least one, which has the confidence 0 if none fits.
///
/// # Errors
/// When there is no run, and for the errors of [`App::ask`].
pub(super) async fn languages_of<'a>(
    app: &App,
    texts: &[String],
    runs: impl Iterator<Item = (&'a Engine, Direction)>,
) -> Result<Vec<Detected>, Refusal> {
    let text: String = texts.join("\n").chars().take(LOOKED_AT).collect();
    let mut fits: BTreeMap<String, Fit> = BTreeMap::new();
    for (engine, Direction { from, .. }) in runs {
        let fit = app.ask(engine, Measure { text: text.clone() }).await?;
        let best = fits.entry(from).or_insert(fit);
        if fit.cost < best.cost {
            *best = fit;
        }
    }
    if fits.is_empty() {
        return Err(Refusal::Missing("no run that translates is served".to_owned()));
    }
    Ok(judged(&text, &fits))
}

/// Confidence in each language.
fn judged(text: &str, fits: &BTreeMap<String, Fit>) -> Vec<Detected> {
    let letters = |language: &str| own_letters(language, text);
    let costs = fits.iter().filter(|(language, _)| letters(language) > 0.0);
    let least = costs.map(|(_, fit)| fit.cost).fold(f64::INFINITY, f64::min);
    let mut weighed: Vec<(&str, f64, f64)> = fits
        .iter()
        .map(|(language, fit)| match letters(language) {
            0.0 => (language.as_str(), 0.0, 0.0),
            letters => (language.as_str(), letters * (least - fit.cost).exp(), letters * fit.known),
        })
        .collect();
    // If no character is known, scripts still count.
    weighed.sort_by(|one, other| other.1.total_cmp(&one.1));
    let total: f64 = weighed.iter().map(|(_, weight, _)| weight).sum();
    let detected = |&(language, weight, share): &(&str, f64, f64)| Detected {
        // Rounded to a tenth of a percent.
        confidence: (1e3 * share * weight / total.max(f64::MIN_POSITIVE)).round() / 10.0,
        language: language.to_owned(),
    };
    let mut found: Vec<Detected> = weighed.iter().map(detected).collect();
    found.sort_by(|one, other| other.confidence.total_cmp(&one.confidence));
    let likely = found.iter().filter(|one| one.confidence > 0.0).count();
    found.truncate(likely.max(1));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(tokens: f64, vocabulary: f64, known: f64) -> Fit {
        Fit { cost: tokens * vocabulary.ln(), known }
    }

    #[test]
    fn a_text_is_in_the_language_whose_vocabulary_spells_it_shortest() {
        let told = |text: &str, fits: &[(&'static str, Fit)]| -> Vec<(String, f64)> {
            let owned = fits.iter().map(|&(language, fit)| (language.to_owned(), fit));
            let found = judged(text, &owned.collect());
            found.into_iter().map(|one| (one.language, one.confidence)).collect()
        };
        let of = |language: &str, confidence: f64| (language.to_owned(), confidence);
        let text = "Ich liebe dich";
        let fits = [("de", fit(4.0, 8000.0, 1.0)), ("en", fit(9.0, 8000.0, 1.0))];
        assert_eq!(told(text, &fits), [of("de", 100.0)]);
        // One vocabulary for both: nothing distinguishes them.
        let fits = [("de", fit(4.0, 8000.0, 1.0)), ("en", fit(4.0, 8000.0, 1.0))];
        assert_eq!(told(text, &fits), [of("de", 50.0), of("en", 50.0)]);
        // But scripts do.
        let fits = [("zh", fit(4.0, 8000.0, 1.0)), ("en", fit(4.0, 8000.0, 1.0))];
        assert_eq!(told(text, &fits), [of("en", 100.0)]);
        assert_eq!(told("我爱你", &fits), [of("zh", 100.0)]);
        // Even if the spelling in another vocabulary is short.
        let fits = [("zh", fit(900.0, 8000.0, 1.0)), ("en", fit(1.0, 2.0, 1.0))];
        assert_eq!(told("我爱你", &fits), [of("zh", 100.0)]);
        // A language that no run reads is not claimed.
        assert_eq!(told("我爱你", &[("en", fit(9.0, 8000.0, 1.0))]), [of("en", 0.0)]);
        let fits = [("en", fit(9.0, 8000.0, 0.0)), ("zh", fit(9.0, 8000.0, 0.0))];
        assert_eq!(told("我爱你", &fits), [of("zh", 0.0)]);
        assert_eq!(told("1 + 1", &[("en", fit(9.0, 8000.0, 1.0))]), [of("en", 0.0)]);
        assert_eq!(told("ab", &[("xx", fit(9.0, 80.0, 0.25))]), [of("xx", 25.0)]);
    }
}
