//! `POST /detect`: the language of a text, among the source languages of the runs.
//!
//! The identifier inside the program ([`LanguageIdentifier`]) gives each of its languages a
//! probability, which is the confidence. This confidence is low for a text in a language that no
//! run reads.
//!
//! Some languages share one probability. There are two such groups: languages that the identifier
//! does not distinguish, such as `pt` and `pb` or `zh` and `zt`, and languages that the identifier
//! does not know. The unknown languages share `1 - p`, where `p` is the probability of the
//! identifier's likeliest language.
//!
//! A shared probability is divided among its languages by Bayes' rule. The prior of a language is
//! the share of the text's letters that the language uses. The likelihood comes from the vocabulary
//! of a run that reads the language. If all tokens of a vocabulary `V` are equally likely, a text
//! of `k` tokens has the probability `|V|^-k`. An unknown character costs as much as a choice among
//! all characters of Unicode. So the vocabulary that spells the text in the fewest bits fits best.
//!
//! The confidence of a language that the identifier does not know is also multiplied by its prior,
//! and by the share of characters that the vocabulary knows. Languages whose runs have the same
//! vocabulary, and that use the same letters of the text, cannot be distinguished, and have equal
//! confidences.

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

/// Largest number of characters of a text that are examined. From a longer text, several passages
/// are taken.
const LOOKED_AT: usize = 4000;

/// Number of passages that are taken from a longer text.
const PASSAGES: usize = 8;

/// Smallest confidence with which a language is named, on the scale of [`Detected::confidence`].
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

/// Request as an HTML form.
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

/// Detects the language of a text. Answers with the possible languages, likeliest first.
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

/// Returns the possible languages of several texts together, among all languages of the identifier,
/// likeliest first; empty for texts without letters.
fn all_languages_of(texts: &[String]) -> Vec<Detected> {
    let identifier = LanguageIdentifier::bundled();
    let probabilities = probabilities(identifier, &passages(texts));
    let all = identifier.languages().iter().cloned();
    named(all.zip(probabilities.into_iter().map(f64::from)).collect(), 0)
}

/// Returns the possible languages of several texts together, among the source languages of `runs`,
/// likeliest first. At least one language is returned, with the confidence 0 if none fits.
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
    // Languages with the runs that read them, grouped by their index in the identifier. The group
    // `None` has the languages that the identifier does not know.
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

/// Returns the passages of several texts that are examined.
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

/// Returns the probability of each language of the identifier: the mean over the passages, so that
/// a passage that quotes another language does not decide. Empty if no passage has letters.
fn probabilities(identifier: &LanguageIdentifier, passages: &[String]) -> Vec<f32> {
    let of_passages: Vec<Vec<f32>> =
        passages.iter().filter_map(|passage| identifier.probabilities(passage)).collect();
    let languages = of_passages.first().map_or(0, Vec::len);
    let mean = |language: usize| {
        of_passages.iter().map(|one| one[language]).sum::<f32>() / of_passages.len() as f32
    };
    (0..languages).map(mean).collect()
}

/// Returns the fit of a text to each of several languages, that is, to the best vocabulary among
/// the language's runs. Each run is asked once.
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

/// Converts languages with their probabilities to languages with confidences, likeliest first.
/// Languages with a confidence below [`NAMED`] are left out, except that at least `least` languages
/// are returned.
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

/// Returns two numbers for each language. The first is its probability, given that the text is in
/// one of the languages. The second is the share of the text's letters that the language uses,
/// times the share of the text's characters that the vocabulary knows.
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
        // Both languages have the same vocabulary and the same letters, so nothing distinguishes
        // them.
        let fits = [("de", fit(4.0, 8000.0, 1.0)), ("en", fit(4.0, 8000.0, 1.0))];
        assert_eq!(told(text, &fits), [of("de", 50.0), of("en", 50.0)]);
        // Languages of different scripts are distinguished.
        let fits = [("zh", fit(4.0, 8000.0, 1.0)), ("en", fit(4.0, 8000.0, 1.0))];
        assert_eq!(told(text, &fits), [of("en", 100.0)]);
        assert_eq!(told("我爱你", &fits), [of("zh", 100.0)]);
        // The language in whose script the text is written is chosen even if another vocabulary
        // spells the text in fewer tokens.
        let fits = [("zh", fit(900.0, 8000.0, 1.0)), ("en", fit(1.0, 2.0, 1.0))];
        assert_eq!(told("我爱你", &fits), [of("zh", 100.0)]);
        // The confidence is 0 for a language in whose script the text is not written.
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
