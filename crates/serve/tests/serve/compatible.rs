//! The routes of others' APIs, as their clients use them. `scripts/check/serve.py` tries the clients.

use serde_json::{Value, json};

use crate::common::{Running, frozen, lines, singly, trained};

#[test]
fn completions_are_openais() {
    let server = Running::of(vec![trained().path("text"), frozen()]);
    let models = server.get("/v1/models").expect(200);
    assert_eq!(models["object"], "list");
    assert_eq!(models["data"].as_array().expect("models").len(), 1);
    assert_eq!(models["data"][0]["id"], "text");
    assert_eq!(server.get("/v1/models/text").expect(200)["object"], "model");
    let missing = server.get("/v1/models/none").expect(404);
    assert_eq!(missing["error"]["type"], "not_found_error");
    let asked = json!({
        "model": "text", "prompt": ["the quick", "and a"], "max_tokens": 12, "temperature": 0,
        "user": "somebody", "echo": true,
    });
    let found = server.post("/v1/completions", &asked).expect(200);
    assert_eq!(found["object"], "text_completion");
    let choices = found["choices"].as_array().expect("choices");
    assert_eq!(choices.len(), 2);
    assert!(choices[0]["text"].as_str().expect("text").starts_with("the quick brown fox"));
    assert_eq!((&choices[1]["index"], &choices[1]["finish_reason"]), (&1.into(), &"length".into()));
    let usage = json!({ "prompt_tokens": 14, "completion_tokens": 24, "total_tokens": 38 });
    assert_eq!(found["usage"], usage);
    let asked = json!({
        "model": "text", "prompt": "the quick", "max_tokens": 30, "temperature": 0, "stop": ",",
        "stream": true, "stream_options": { "include_usage": true },
    });
    let events = server.post("/v1/completions", &asked).events();
    let (end, chunks) = events.split_last().expect("events");
    assert_eq!(end, "[DONE]");
    let chunks: Vec<Value> =
        chunks.iter().map(|chunk| serde_json::from_str(chunk).expect("JSON")).collect();
    let (usage, chunks) = chunks.split_last().expect("chunks");
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["prompt_tokens"], 9);
    let texts = chunks.iter().map(|chunk| chunk["choices"][0]["text"].as_str().expect("text"));
    assert_eq!(texts.collect::<String>(), " brown fox");
    assert_eq!(chunks.last().expect("chunks")["choices"][0]["finish_reason"], "stop");
    for (change, fragment) in [
        (json!({ "logprobs": 5 }), "logprobs is not supported"),
        (json!({ "best_of": 4 }), "best_of"),
        (json!({ "stream": true, "n": 2 }), "a stream is of one text"),
        (json!({ "max_tokens": 1_000_000 }), "max_tokens must be from 1 to 1024"),
        (json!({ "n": 2, "temperature": 0 }), "temperature above 0"),
        (json!({ "prompt": [1, 2] }), "a string, or a list of strings"),
    ] {
        let mut asked = json!({ "model": "text", "prompt": "the", "max_tokens": 4 });
        let changes = change.as_object().expect("an object").clone();
        asked.as_object_mut().expect("an object").extend(changes);
        let reply = server.post("/v1/completions", &asked);
        assert!([400, 422].contains(&reply.status), "{change}: {}", reply.status);
        let error = reply.json()["error"].clone();
        assert_eq!(error["type"], "invalid_request_error");
        assert!(error["message"].as_str().expect("text").contains(fragment), "{change}: {error}");
    }
}

#[test]
fn translations_are_libretranslates() {
    let server = Running::of(vec![frozen()]);
    let languages = server.get("/languages").expect(200);
    assert_eq!(
        languages,
        json!([
            { "code": "aa", "name": "aa", "targets": ["bb"] },
            { "code": "bb", "name": "bb", "targets": [] },
        ])
    );
    let (lines, expected) = (lines(), singly(&lines()[..2]));
    let form = format!("q={}&source=aa&target=bb", lines[0].replace(' ', "+"));
    let kind = "Content-Type: application/x-www-form-urlencoded\r\n";
    let found = server.send("POST", "/translate", kind, form.as_bytes()).expect(200);
    assert_eq!(found, json!({ "translatedText": expected[0] }));
    let asked = json!({ "q": &lines[..2], "source": "auto", "target": "bb", "format": "text" });
    let found = server.post("/translate", &asked).expect(200);
    assert_eq!(found["translatedText"], json!(expected));
    assert_eq!(found["detectedLanguage"][1]["language"], "aa");
    let text = format!("{}\n\n{}", lines[0], lines[1]);
    let asked = json!({ "q": text, "source": "aa", "target": "bb", "alternatives": 2 });
    let found = server.post("/translate", &asked).expect(200);
    assert_eq!(found["translatedText"], format!("{}\n\n{}", expected[0], expected[1]));
    let alternatives = found["alternatives"].as_array().expect("alternatives");
    // An empty line has one translation, so the text has no more.
    assert!(alternatives.is_empty(), "{alternatives:?}");
    let asked = json!({ "q": lines[0], "source": "aa", "target": "bb", "alternatives": 2 });
    let found = server.post("/translate", &asked).expect(200);
    assert_eq!(found["alternatives"].as_array().expect("alternatives").len(), 2);
    for asked in [
        json!({ "q": "a", "source": "bb", "target": "aa" }),
        json!({ "q": "a", "source": "aa", "target": "bb", "format": "html" }),
        json!({ "source": "aa", "target": "bb" }),
    ] {
        server.post("/translate", &asked).expect(400);
    }
}
