//! LibreTranslate's API: `GET /languages` and `POST /translate`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::translation::{Texts, translated};
use crate::app::App;
use crate::engine::{Engine, LineAnswer, TranslateOptions, TranslationInfo};
use crate::error::Refusal;
use crate::http::{form_or_json_of, is_key, json};

/// A request in JSON.
#[derive(Debug, Deserialize)]
struct Asked {
    q: Texts,
    source: String,
    target: String,
    format: Option<String>,
    #[serde(default)]
    alternatives: usize,
    api_key: Option<String>,
}

/// The same as a form, where a number is text and there is one `q`.
#[derive(Debug, Deserialize)]
struct AskedByForm {
    q: String,
    source: String,
    target: String,
    format: Option<String>,
    #[serde(default)]
    alternatives: usize,
    api_key: Option<String>,
}

impl From<AskedByForm> for Asked {
    fn from(form: AskedByForm) -> Self {
        let AskedByForm { q, source, target, format, alternatives, api_key } = form;
        Self { q: Texts::One(q), source, target, format, alternatives, api_key }
    }
}

/// The runs that translate.
fn translators(app: &App) -> impl Iterator<Item = (&Engine, &TranslationInfo)> {
    app.engines.iter().filter_map(|engine| Some((engine, engine.info.translation.as_ref()?)))
}

/// The languages that are read, and those that each is translated into.
pub(super) async fn languages(State(app): State<Arc<App>>) -> Response {
    let mut targets: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (_, info) in translators(&app) {
        targets.entry(&info.source).or_default().push(&info.target);
        // Clients look up the name of a target too.
        targets.entry(&info.target).or_default();
    }
    let language = |(code, mut targets): (&str, Vec<&str>)| -> Value {
        targets.sort_unstable();
        targets.dedup();
        json!({ "code": code, "name": name(code), "targets": targets })
    };
    json(200, &targets.into_iter().map(language).collect::<Vec<_>>())
}

/// Translates a text, or several.
pub(super) async fn translate(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Refusal> {
    let headers = request.headers().clone();
    // Without a key nothing is read but where the body may have it.
    let asked: Asked = form_or_json_of::<Asked, AskedByForm>(request, app.limits()).await?;
    let own = asked.api_key.as_deref().filter(|key| !key.is_empty());
    if !is_key(&app, &headers, own) {
        return Err(Refusal::Key);
    }
    if asked.format.as_deref().is_some_and(|format| format != "text") {
        return Err(Refusal::Malformed("format must be text".to_owned()));
    }
    let (engine, info) = chosen(&app, &asked.source, &asked.target)?;
    let texts = match &asked.q {
        Texts::One(text) => std::slice::from_ref(text),
        Texts::Several(texts) => texts.as_slice(),
    };
    // Each line is a sentence; line breaks come back where they were.
    let lines_of = |text: &String| text.split('\n').map(str::to_owned).collect::<Vec<_>>();
    let lines: Vec<Vec<String>> = texts.iter().map(lines_of).collect();
    let options = TranslateOptions {
        alternatives: asked.alternatives + 1,
        beam: None,
        length_penalty: None,
        alignment: false,
    };
    let found = translated(&app, engine, lines.concat(), options).await?;
    let mut found = found.into_iter();
    let (mut best, mut others) = (Vec::new(), Vec::new());
    for text in &lines {
        let own: Vec<LineAnswer> = found.by_ref().take(text.len()).collect();
        let ranks = own.iter().map(|line| line.translations.len()).min().unwrap_or(0);
        let rank = |rank: usize| {
            let texts: Vec<&str> =
                own.iter().map(|line| line.translations[rank].text.as_str()).collect();
            texts.join("\n")
        };
        best.push(if ranks == 0 { String::new() } else { rank(0) });
        others.push((1..ranks).map(rank).collect::<Vec<_>>());
    }
    let mut answer = match &asked.q {
        Texts::One(_) => json!({ "translatedText": best[0] }),
        Texts::Several(_) => json!({ "translatedText": best }),
    };
    if asked.alternatives > 0 {
        answer["alternatives"] = match &asked.q {
            Texts::One(_) => json!(others[0]),
            Texts::Several(_) => json!(others),
        };
    }
    if asked.source == "auto" {
        // The only language that is read for this target.
        let detected = json!({ "language": info.source, "confidence": 100 });
        answer["detectedLanguage"] = match &asked.q {
            Texts::One(_) => detected,
            Texts::Several(texts) => json!(vec![detected; texts.len()]),
        };
    }
    Ok(json(200, &answer))
}

/// The run that translates from one language into another, the first of several.
fn chosen<'a>(
    app: &'a App,
    source: &str,
    target: &str,
) -> Result<(&'a Engine, &'a TranslationInfo), Refusal> {
    let own: Vec<_> = translators(app).filter(|(_, info)| info.target == target).collect();
    if source == "auto" {
        let mut sources: Vec<&str> = own.iter().map(|(_, info)| info.source.as_str()).collect();
        sources.dedup();
        if sources.len() > 1 {
            return Err(Refusal::Malformed(format!(
                "several languages are translated into {target}: name one as `source`"
            )));
        }
    }
    let found = own.into_iter().find(|(_, info)| source == "auto" || info.source == source);
    found.ok_or_else(|| {
        Refusal::Malformed(format!(
            "nothing here translates {source} into {target}: see /languages"
        ))
    })
}

/// The English name of a language, or its code where it is none of these.
fn name(code: &str) -> &str {
    const NAMES: [(&str, &str); 24] = [
        ("ar", "Arabic"),
        ("bg", "Bulgarian"),
        ("cs", "Czech"),
        ("da", "Danish"),
        ("de", "German"),
        ("el", "Greek"),
        ("en", "English"),
        ("es", "Spanish"),
        ("fi", "Finnish"),
        ("fr", "French"),
        ("he", "Hebrew"),
        ("hi", "Hindi"),
        ("it", "Italian"),
        ("ja", "Japanese"),
        ("ko", "Korean"),
        ("nl", "Dutch"),
        ("pl", "Polish"),
        ("pt", "Portuguese"),
        ("ro", "Romanian"),
        ("ru", "Russian"),
        ("sv", "Swedish"),
        ("tr", "Turkish"),
        ("uk", "Ukrainian"),
        ("zh", "Chinese"),
    ];
    NAMES.iter().find(|(own, _)| *own == code).map_or(code, |(_, name)| name)
}
