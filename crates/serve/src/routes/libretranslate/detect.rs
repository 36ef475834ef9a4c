//! `POST /detect`: the language of a text, among the source languages of the runs.
//!
//! The identifier inside the program ([`LanguageIdentifier`]) gives each of its languages a
//! probability, which is the confidence. This confidence is low for a text in a language that no
//! run reads.
//!
//! Languages that the identifier does not distinguish, such as `pt` and `pb` or `zh` and `zt`,
//! share a probability; languages that it does not know share the probability that its likeliest
//! language leaves. Shared probabilities are divided among their languages by the vocabularies of
//! the runs. If all tokens of a vocabulary are equally likely, a text of `k` tokens has the
//! probability `|V|^-k`, so the vocabulary that spells it in the fewest bits fits it best; each
//! unknown character costs as much as one out of Unicode. Bayes' rule, with the share of the
//! language's own letters as prior, determines each part. If nothing else is known of a language,
//! the shares of own letters and of known characters also count. Languages whose runs share one
//! vocabulary cannot be distinguished, and have equal confidences.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use taper_data::{Direction, LanguageIdentifier, own_letters};

use super::{allowed, directions};
use crate::app::App;
use crate::engine::{Engine, Fit, Measure};
use crate::error::Refusal;
use crate::http::{form_or_json_of, json};
use crate::routes::translation::Texts;

/// Number of characters of a text that are examined: a whole short text, or passages from all of a
/// longer one.
const LOOKED_AT: usize = 4000;

/// Number of these passages.
const PASSAGES: usize = 8;

/// Smallest confidence with which a language is named.
const NAMED: f64 = 0.1;

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
    /// Whether to name languages that no run reads; LibreTranslate does not.
    #[serde(default)]
    all_languages: bool,
}

/// Request in the form of an HTML form.
#[derive(Debug, Deserialize)]
struct DetectForm {
    q: String,
    api_key: Option<String>,
    #[serde(default)]
    all_languages: bool,
}

impl From<DetectForm> for DetectRequest {
    fn from(form: DetectForm) -> Self {
        let DetectForm { q, api_key, all_languages } = form;
        Self { q: Texts::One(q), api_key, all_languages }
    }
}

/// Detects the language of a text; likeliest first.
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
    match asked.all_languages {
        true => Ok(json(200, &all_languages_of(&texts))),
        false => Ok(json(200, &languages_of(&app, &texts, directions(&app)).await?)),
    }
}

/// Possible languages of several texts together, out of all that the identifier knows, likeliest
/// first; empty for texts without letters.
fn all_languages_of(texts: &[String]) -> Vec<Detected> {
    let identifier = LanguageIdentifier::bundled();
    let probabilities = probabilities(identifier, &passages(texts));
    let all = identifier.languages().iter().cloned();
    named(all.zip(probabilities.into_iter().map(f64::from)).collect(), 0)
}

/// Possible languages of several texts together, out of those that `runs` read, likeliest first. At
/// least one is returned, with the confidence 0 if none fits.
///
/// # Errors
/// When there is no run, and errors of [`App::ask`].
pub(super) async fn languages_of<'a>(
    app: &App,
    texts: &[String],
    runs: impl Iterator<Item = (&'a Engine, Direction)>,
) -> Result<Vec<Detected>, Refusal> {
    let (identifier, passages) = (LanguageIdentifier::bundled(), passages(texts));
    let text = passages.join("\n");
    // Languages grouped by their equivalents in the identifier, each with the runs that read it.
    let mut groups: BTreeMap<Option<usize>, BTreeMap<String, Vec<&Engine>>> = BTreeMap::new();
    for (engine, Direction { from, .. }) in runs {
        let group = groups.entry(identifier.number_of(&from)).or_default();
        group.entry(from).or_default().push(engine);
    }
    if groups.is_empty() {
        return Err(Refusal::Missing("no run that translates is served".to_owned()));
    }
    let probabilities = probabilities(identifier, &passages);
    let likeliest = probabilities.iter().copied().reduce(f32::max);
    let mut found = Vec::new();
    for (number, languages) in groups {
        let probability = match number {
            Some(number) => probabilities.get(number).copied(),
            None => likeliest.map(|likeliest| 1.0 - likeliest),
        };
        let probability = f64::from(probability.unwrap_or(0.0));
        if probability == 0.0 || (number.is_some() && languages.len() == 1) {
            found.extend(languages.into_keys().map(|language| (language, probability)));
            continue;
        }
        let fits = fits(app, &text, languages).await?;
        found.extend(shares(&text, &fits).into_iter().map(|(language, part, share)| {
            let share = if number.is_some() { 1.0 } else { share };
            (language, probability * part * share)
        }));
    }
    Ok(named(found, 1))
}

/// Passages of several texts that are examined.
fn passages(texts: &[String]) -> Vec<String> {
    let text = texts.join("\n");
    let characters = text.chars().count();
    if characters <= LOOKED_AT {
        return vec![text];
    }
    let passage = |number| {
        let passage = text.chars().skip(number * (characters / PASSAGES));
        passage.take(LOOKED_AT / PASSAGES).collect()
    };
    (0..PASSAGES).map(passage).collect()
}

/// Probability of each language of the identifier: the mean over the passages, so that a passage
/// that quotes another language does not decide. Empty if no passage has letters.
fn probabilities(identifier: &LanguageIdentifier, passages: &[String]) -> Vec<f32> {
    let of_passages: Vec<Vec<f32>> =
        passages.iter().filter_map(|passage| identifier.probabilities(passage)).collect();
    let languages = of_passages.first().map_or(0, Vec::len);
    let mean = |language: usize| {
        of_passages.iter().map(|one| one[language]).sum::<f32>() / of_passages.len() as f32
    };
    (0..languages).map(mean).collect()
}

/// Fit of a text to the best vocabulary of each of several languages. Each run is asked once.
///
/// # Errors
/// See [`App::ask`].
async fn fits(
    app: &App,
    text: &str,
    languages: BTreeMap<String, Vec<&Engine>>,
) -> Result<BTreeMap<String, Fit>, Refusal> {
    let mut by_run: BTreeMap<&str, Fit> = BTreeMap::new();
    let mut fits: BTreeMap<String, Fit> = BTreeMap::new();
    for (language, engines) in languages {
        for engine in engines {
            let fit = match by_run.get(engine.info.name.as_str()) {
                Some(fit) => *fit,
                None => app.ask(engine, Measure { text: text.to_owned() }).await?,
            };
            by_run.insert(&engine.info.name, fit);
            let best = fits.entry(language.clone()).or_insert(fit);
            if fit.cost < best.cost {
                *best = fit;
            }
        }
    }
    Ok(fits)
}

/// Languages with their confidences, likeliest first; at least `least` are named.
fn named(mut found: Vec<(String, f64)>, least: usize) -> Vec<Detected> {
    found.sort_by(|(one, confidence), (other, its)| {
        its.total_cmp(confidence).then_with(|| one.cmp(other))
    });
    let detected = |(language, probability): (String, f64)| Detected {
        // Rounded to a tenth of a percent.
        confidence: (1e3 * probability).round() / 10.0,
        language,
    };
    let mut found: Vec<Detected> = found.into_iter().map(detected).collect();
    let likely = found.iter().filter(|one| one.confidence >= NAMED).count();
    found.truncate(likely.max(least));
    found
}

/// Probability of each language if the text is in one of them, and the share of the text in letters
/// that the language uses and its vocabulary knows.
fn shares(text: &str, fits: &BTreeMap<String, Fit>) -> Vec<(String, f64, f64)> {
    let letters = |language: &str| own_letters(language, text);
    let costs = fits.iter().filter(|(language, _)| letters(language) > 0.0);
    let least = costs.map(|(_, fit)| fit.cost).fold(f64::INFINITY, f64::min);
    let weighed = fits.iter().map(|(language, fit)| match letters(language) {
        0.0 => (language.clone(), 0.0, 0.0),
        letters => (language.clone(), letters * (least - fit.cost).exp(), letters * fit.known),
    });
    let mut weighed: Vec<(String, f64, f64)> = weighed.collect();
    let total: f64 = weighed.iter().map(|(_, weight, _)| weight).sum();
    weighed.iter_mut().for_each(|(_, weight, _)| *weight /= total.max(f64::MIN_POSITIVE));
    weighed
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
            let shares = shares(text, &owned.collect());
            let found = shares.into_iter().map(|(language, part, share)| (language, part * share));
            let found = named(found.collect(), 1).into_iter();
            found.map(|one| (one.language, one.confidence)).collect()
        };
        let of = |language: &str, confidence: f64| (language.to_owned(), confidence);
        let text = "Ich liebe dich";
        let fits = [("de", fit(4.0, 8000.0, 1.0)), ("en", fit(9.0, 8000.0, 1.0))];
        assert_eq!(told(text, &fits), [of("de", 100.0)]);
        // Both have the same vocabulary, so nothing distinguishes them.
        let fits = [("de", fit(4.0, 8000.0, 1.0)), ("en", fit(4.0, 8000.0, 1.0))];
        assert_eq!(told(text, &fits), [of("de", 50.0), of("en", 50.0)]);
        // Scripts do distinguish them.
        let fits = [("zh", fit(4.0, 8000.0, 1.0)), ("en", fit(4.0, 8000.0, 1.0))];
        assert_eq!(told(text, &fits), [of("en", 100.0)]);
        assert_eq!(told("我爱你", &fits), [of("zh", 100.0)]);
        // This holds even if the spelling in another vocabulary is short.
        let fits = [("zh", fit(900.0, 8000.0, 1.0)), ("en", fit(1.0, 2.0, 1.0))];
        assert_eq!(told("我爱你", &fits), [of("zh", 100.0)]);
        // A language that the text cannot be in is not named.
        assert_eq!(told("我爱你", &[("en", fit(9.0, 8000.0, 1.0))]), [of("en", 0.0)]);
        assert_eq!(told("1 + 1", &[("en", fit(9.0, 8000.0, 1.0))]), [of("en", 0.0)]);
        assert_eq!(told("ab", &[("xx", fit(9.0, 80.0, 0.25))]), [of("xx", 25.0)]);
    }

    #[test]
    fn long_texts_are_examined_throughout() {
        let texts = |text: &str| [text.to_owned()];
        assert_eq!(passages(&[texts("a"), texts("b")].concat()), ["a\nb"]);
        assert_eq!(passages(&texts("")), [""]);
        let long = "我".repeat(LOOKED_AT) + &"a".repeat(3 * LOOKED_AT);
        let looked_at = passages(&texts(&long)).concat();
        let count = |wanted: char| looked_at.chars().filter(|&one| one == wanted).count();
        assert_eq!((count('我'), count('a')), (LOOKED_AT / 4, 3 * LOOKED_AT / 4));
        let found =
            all_languages_of(&texts(&"The cat sat on the mat with a friend. ".repeat(9000)));
        assert_eq!(found[0].language, "en");
        assert!(found[0].confidence > 50.0, "{found:?}");
        assert_eq!(all_languages_of(&texts(" 12\n")), []);
    }
}
