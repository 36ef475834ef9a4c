//! `POST /api/translate-file`: translation of a document that a client sends as a form.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};
use taper_data::Direction;

use super::documents::{DocumentWork, StoredDocument, opened};
use super::translation::{direction, term_lines};
use crate::app::App;
use crate::engine::{Engine, Translate};
use crate::error::Refusal;
use crate::http::{EventSender, Form, event_stream, json, multipart_of};

/// Fields of the form.
const FIELDS: [&str; 6] = ["file", "run", "from", "to", "terms", "stream"];

/// Translates a document; on request, reports its progress by events.
pub(super) async fn translate_file(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Refusal> {
    let most = app.limits().document_bytes.saturating_add(app.limits().body_bytes);
    let mut form = multipart_of(request, most, app.limits()).await?;
    if let Some(name) = form.names().find(|name| !FIELDS.contains(name)) {
        let fields = FIELDS.join(", ");
        return Err(Refusal::Malformed(format!("unknown field {name:?}, expected {fields}")));
    }
    let file = form.take_file("file")?;
    let given = |name: &str| form.text(name).filter(|value| !value.is_empty());
    let engine = app.engine::<Translate>(given("run"))?;
    let asked = direction(engine, given("from"), given("to"))?;
    let direction = asked.map_or_else(|| only(engine), Ok)?;
    let (terms, is_stream) = (terms(&form)?, flag(&form, "stream")?);
    let document = opened(&app, file).await?;
    let work = DocumentWork::new(&app, document, direction, terms).await?;
    if is_stream {
        let run = engine.info.name.clone();
        return stream(app, run, work).await;
    }
    let stored = work.finish(&app, engine, |_| {}).await?;
    Ok(json(200, &described(engine, &stored)))
}

/// Returns the direction of a run that has only one.
///
/// # Errors
/// When the run has several, or does not translate.
fn only(engine: &Engine) -> Result<Direction, Refusal> {
    let all = engine.info.translation.as_ref().map_or(Vec::new(), |info| info.all());
    match all.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(Refusal::Unfit("the run does not translate: see /api/runs".to_owned())),
        several => {
            let several: Vec<String> = several.iter().map(Direction::to_string).collect();
            Err(Refusal::Unfit(format!(
                "the run translates {}: name one by from and to",
                several.join(", ")
            )))
        }
    }
}

fn terms(form: &Form) -> Result<String, Refusal> {
    let text = form.text("terms").filter(|text| !text.trim().is_empty()).unwrap_or("{}");
    let terms: BTreeMap<String, String> = serde_json::from_str(text).map_err(|error| {
        Refusal::Malformed(format!("terms is no JSON object of texts: {error}"))
    })?;
    term_lines(&terms)
}

fn flag(form: &Form, name: &str) -> Result<bool, Refusal> {
    match form.text(name) {
        None | Some("" | "false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => {
            Err(Refusal::Malformed(format!("{name} must be true or false, and not {other:?}")))
        }
    }
}

fn described(engine: &Engine, stored: &StoredDocument) -> Value {
    let mut description = stored.description();
    description["run"] = engine.info.name.as_str().into();
    description
}

/// Translates a document, and sends events with the number of finished sentences, until nobody
/// reads them.
///
/// # Errors
/// When the run refuses the first part: nothing has been sent yet, so the refusal has its own
/// status.
async fn stream(app: Arc<App>, run: String, mut work: DocumentWork) -> Result<Response, Refusal> {
    work.step(&app, app.engine::<Translate>(Some(&run))?).await?;
    let (sender, response) = event_stream();
    tell(&work, &sender);
    tokio::spawn(async move {
        let end = async {
            let engine = app.engine::<Translate>(Some(&run))?;
            let stored = work.finish(&app, engine, |work| tell(work, &sender)).await?;
            Ok::<Value, Refusal>(described(engine, &stored))
        };
        // If the client leaves, the work is dropped together with its future.
        let end = tokio::select! {
            end = end => end,
            () = sender.closed() => return,
        };
        let _ = sender.send(&match end {
            Ok(mut description) => {
                description["done"] = true.into();
                description
            }
            Err(refusal) => json!({ "error": refusal.message() }),
        });
    });
    Ok(response)
}

fn tell(work: &DocumentWork, sender: &EventSender) {
    let (translated, sentences) = work.progress();
    // The departure of a client is noticed elsewhere: see `stream`.
    let _ = sender.send(&json!({ "translated": translated, "sentences": sentences }));
}
