//! Routes of the server. `openapi.json` in this folder describes the routes for machines; a test
//! compares it with the routes.

mod attention;
mod documents;
mod generation;
mod labels;
mod libretranslate;
mod openai;
mod operations;
mod pictures;
mod translate_file;
mod translation;
mod words;

use std::sync::Arc;

use axum::routing::{MethodRouter, get, post};
use axum::{Router, middleware};

use crate::app::App;
use crate::error::Refusal;
use crate::http::guard;

/// Method, path, and handler.
type Route = (&'static str, &'static str, MethodRouter<Arc<App>>);

/// All routes.
pub(crate) fn routes() -> Vec<Route> {
    vec![
        ("get", "/", get(operations::page)),
        ("get", "/health", get(operations::health)),
        ("get", "/metrics", get(operations::metrics)),
        ("get", "/openapi.json", get(operations::description)),
        ("get", "/api/runs", get(operations::runs)),
        ("post", "/api/translate", post(translation::translate)),
        ("post", "/api/translate-file", post(translate_file::translate_file)),
        ("post", "/api/attention", post(attention::attention)),
        ("post", "/api/generate", post(generation::generate)),
        ("post", "/api/classify", post(labels::classify)),
        ("post", "/api/occlusion", post(labels::occlusion)),
        ("post", "/api/classify-image", post(labels::classify_image)),
        ("post", "/api/tag", post(words::tag)),
        ("post", "/api/answer", post(words::answer)),
        ("post", "/api/caption", post(pictures::caption)),
        ("post", "/api/match", post(labels::match_image)),
        ("get", "/v1/models", get(openai::models)),
        ("get", "/v1/models/{model}", get(openai::model)),
        ("post", "/v1/completions", post(openai::completions)),
        ("post", "/v1/chat/completions", post(openai::chat)),
        ("get", "/languages", get(libretranslate::languages)),
        ("post", "/translate", post(libretranslate::translate)),
        ("post", "/detect", post(libretranslate::detect)),
        ("post", "/translate_file", post(libretranslate::translate_file)),
        ("get", "/download_file/{name}", get(libretranslate::download_file)),
    ]
}

/// Makes the router, with the checks of every request.
pub(crate) fn router(app: &Arc<App>) -> Router {
    let mut router = Router::new();
    for (_, path, handler) in routes() {
        router = router.route(path, handler);
    }
    router
        .fallback(|| async { Refusal::Missing("nothing is served here".to_owned()) })
        .method_not_allowed_fallback(|| async { Refusal::Method })
        .layer(middleware::from_fn_with_state(Arc::clone(app), guard))
        .with_state(Arc::clone(app))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_description_names_every_route() {
        let described: serde_json::Value =
            serde_json::from_str(operations::DESCRIPTION).expect("JSON");
        let paths = described["paths"].as_object().expect("paths");
        let described: BTreeSet<(String, String)> = paths
            .iter()
            .flat_map(|(path, methods)| {
                let methods = methods.as_object().expect("methods").keys();
                methods.map(|method| (method.clone(), path.clone()))
            })
            .collect();
        let served = routes().into_iter().map(|(method, path, _)| (method.into(), path.into()));
        assert_eq!(described, served.collect());
    }
}
