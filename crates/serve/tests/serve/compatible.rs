//! Routes that have the form of OpenAI's and LibreTranslate's APIs, used as clients of these APIs
//! do. `scripts/check/serve` runs the clients themselves.

use serde_json::{Value, json};

use taper_model::{LanguageModel, Sequences};
use taper_run::{LoadSettings, LoadedRun};

use crate::common::{Running, copied, frozen, lines, singly, trained};

#[test]
fn completions_are_openais() {
    let server = Running::start(vec![trained().path("text"), frozen()]);
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
    // OpenAI's API does not have the following parameters, but other servers accept them: `top_k`,
    // and keys whose values have no effect here.
    let text = |change: Value| {
        let mut asked = json!({ "model": "text", "prompt": "the quick", "max_tokens": 12 });
        let changes = change.as_object().expect("an object").clone();
        asked.as_object_mut().expect("an object").extend(changes);
        server.post("/v1/completions", &asked).expect(200)["choices"][0]["text"].clone()
    };
    let likeliest = text(json!({ "temperature": 0 }));
    assert_eq!(text(json!({ "temperature": 5, "seed": 1, "top_k": 1 })), likeliest);
    assert_ne!(text(json!({ "temperature": 5, "seed": 1, "top_k": -1 })), likeliest);
    let neutral = json!({ "temperature": 0, "min_p": 0, "repetition_penalty": 1, "bad_words": [] });
    assert_eq!(text(neutral), likeliest);
    assert_ne!(text(json!({ "temperature": 0, "repetition_penalty": 100 })), likeliest);
    for (change, fragment) in [
        (json!({ "logprobs": 21 }), "logprobs must be at most 20"),
        (json!({ "logprobs": 1, "stream": true }), "a stream has no logprobs"),
        (json!({ "logit_bias": { "5": 1 } }), "logit_bias is not supported"),
        (json!({ "suffix": "end" }), "suffix is not supported"),
        (json!({ "min_p": 0.1 }), "min_p is not supported"),
        (json!({ "stop_token_ids": [5] }), "stop_token_ids is not supported"),
        (json!({ "repetition_penalty": -1 }), "repetition_penalty = -1"),
        (json!({ "presence_penalty": 3 }), "presence_penalty"),
        (json!({ "best_of": 4 }), "best_of"),
        (json!({ "stream": true, "n": 2 }), "a stream is of one text"),
        (json!({ "max_tokens": 1_000_000 }), "max_tokens must be from 1 to 1024"),
        (json!({ "n": 2, "temperature": 0 }), "temperature above 0"),
        (json!({ "prompt": [1, 2000] }), "token 2000"),
        (json!({ "prompt": [[]] }), "is empty"),
        (json!({ "prompt": [] }), "empty list"),
        (json!({ "prompt": [-1] }), "a string, a list of strings, a list of tokens"),
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
    let server = Running::start(vec![frozen()]);
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
    // An empty line has only one translation, so the whole text has no alternatives.
    assert!(alternatives.is_empty(), "{alternatives:?}");
    let asked = json!({ "q": lines[0], "source": "aa", "target": "bb", "alternatives": 2 });
    let found = server.post("/translate", &asked).expect(200);
    assert_eq!(found["alternatives"].as_array().expect("alternatives").len(), 2);
    for asked in [
        json!({ "q": "a", "source": "bb", "target": "aa" }),
        json!({ "q": "a", "source": "aa", "target": "bb", "format": "xml" }),
        json!({ "source": "aa", "target": "bb" }),
    ] {
        server.post("/translate", &asked).expect(400);
    }
}

#[test]
fn markup_stays_around_what_is_translated() {
    let server = Running::start(vec![frozen()]);
    let (lines, expected) = (lines(), singly(&lines()[..2]));
    let page =
        |texts: &[String]| format!("<p class=\"a\">{}</p>\n<p>{}</p>&copy;", texts[0], texts[1]);
    let asked = json!({
        "q": [page(&lines), lines[0], ""], "source": "auto", "target": "bb", "format": "html",
        "alternatives": 1,
    });
    let found = server.post("/translate", &asked).expect(200);
    assert_eq!(found["translatedText"], json!([page(&expected), expected[0], ""]));
    assert_eq!(found["alternatives"], json!([[], [], []]));
    assert_eq!(found["detectedLanguage"][2]["language"], "aa");
    let form = "q=%3Cb%3E%3C/b%3E&source=aa&target=bb&format=html";
    let kind = "Content-Type: application/x-www-form-urlencoded\r\n";
    let found = server.send("POST", "/translate", kind, form.as_bytes()).expect(200);
    assert_eq!(found, json!({ "translatedText": "<b></b>" }));
}

/// Ways to end a line, each of which every route must accept.
const LINE_ENDS: [&str; 3] = ["\n", "\r\n", "\r"];

#[test]
fn line_ends_of_every_kind_end_lines_in_every_route() {
    let server = Running::start(vec![frozen(), trained().path("reviews"), trained().path("text")]);
    let (lines, expected) = (lines(), singly(&lines()[..2]));
    let kind = "Content-Type: application/x-www-form-urlencoded\r\n";
    for end in LINE_ENDS {
        let text = format!("{}{end}{end}{}{end}", lines[0], lines[1]);
        let translated = format!("{}\n\n{}\n", expected[0], expected[1]);
        let asked = json!({ "q": text, "source": "aa", "target": "bb" });
        let found = server.post("/translate", &asked).expect(200);
        assert_eq!(found["translatedText"], translated, "{end:?}");
        let asked = json!({ "q": [text, text], "source": "aa", "target": "bb" });
        let found = server.post("/translate", &asked).expect(200);
        assert_eq!(found["translatedText"], json!([translated, translated]), "{end:?}");
        let form: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let form = format!("q={form}&source=aa&target=bb");
        let found = server.send("POST", "/translate", kind, form.as_bytes()).expect(200);
        assert_eq!(found["translatedText"], translated, "{end:?} in a form");
        let found = server.post("/api/translate", &json!({ "text": text })).expect(200);
        let found = found["translations"].as_array().expect("a list").clone();
        let sources: Vec<&str> =
            found.iter().map(|line| line["source"].as_str().expect("text")).collect();
        assert_eq!(sources, [lines[0].as_str(), "", &lines[1]], "{end:?}");
        assert_eq!(found[2]["translations"][0]["text"], expected[1], "{end:?}");
        let text = format!("red birds sing 2{end}old stones fall 3{end}");
        let found = server.post("/api/classify", &json!({ "text": text })).expect(200);
        assert_eq!(found["predictions"].as_array().expect("a list").len(), 2, "{end:?}");
        // Line ends of a prompt are converted to `\n`, as in the training text.
        let asked = json!({
            "model": "text", "prompt": format!("a seä.{end}"), "max_tokens": 9, "temperature": 0,
        });
        let found = server.post("/v1/completions", &asked).expect(200);
        assert_eq!(found["choices"][0]["text"], "the quick", "{end:?}");
        let asked = json!({
            "prompt": format!("a seä.{end}"), "max_tokens": 9, "temperature": 0, "run": "text",
        });
        let found = server.post("/api/generate", &asked).expect(200);
        assert_eq!(found["texts"][0]["text"], "the quick", "{end:?}");
        // A text whose attention is requested, or a line of a list, may not contain a line end.
        let asked = json!({ "text": format!("{}{end}", lines[0]) });
        server.post("/api/attention", &asked).expect(422);
        server.post("/api/translate", &json!({ "text": [lines[0].clone() + end] })).expect(422);
    }
    let text = format!("\u{feff}{}\u{2028}{}", lines[0], lines[1]);
    let found = server.post("/api/translate", &json!({ "text": text })).expect(200);
    let found = found["translations"].as_array().expect("a list");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["source"], text[3..]);
}

#[test]
fn tokens_have_their_probabilities() {
    let path = trained().path("text");
    let run: LoadedRun<LanguageModel> =
        LoadedRun::open(&path, &LoadSettings::default()).expect("loaded");
    let tokenizer = run.tokenizers.target();
    let prompt = tokenizer.encode("the quick").expect("tokens");
    let server = Running::start(vec![path]);
    let ask = |change: Value| {
        let mut asked = json!({
            "model": "text", "prompt": "the quick", "max_tokens": 8, "temperature": 0,
        });
        let changes = change.as_object().expect("an object").clone();
        asked.as_object_mut().expect("an object").extend(changes);
        server.post("/v1/completions", &asked).expect(200)["choices"][0].clone()
    };
    let plain = ask(json!({}));
    let text = plain["text"].as_str().expect("text").to_owned();
    assert_eq!(plain["logprobs"], Value::Null);
    // A prompt of token ids gives the same answer as its text.
    assert_eq!(ask(json!({ "prompt": prompt })), plain);
    assert_eq!(ask(json!({ "prompt": [prompt] })), plain);
    let echoed = ask(json!({ "prompt": prompt, "echo": true }));
    assert_eq!(echoed["text"], format!("the quick{text}"));
    // The model itself computes, in one pass, the log-probability of each token after all tokens
    // before it.
    let ids = [prompt.clone(), tokenizer.encode(&text).expect("tokens")].concat();
    let (read, answers) = (Sequences::pack(&[&ids[..ids.len() - 1]]), &ids[1..]);
    let expected = run.model.log_probabilities(&read, answers).expect("log-probabilities");
    let is_close = |found: &Value, expected: &[f64]| {
        let found: Vec<f64> =
            found.as_array().expect("a list").iter().filter_map(Value::as_f64).collect();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-3, "{found} {expected}");
        }
    };
    let found = ask(json!({ "logprobs": 3 }))["logprobs"].clone();
    is_close(&found["token_logprobs"], &expected[8..]);
    let tokens: Vec<&str> =
        found["tokens"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(tokens.concat(), text);
    assert_eq!(found["text_offset"][0], 9);
    assert_eq!(found["text_offset"][7], 16);
    for (place, token) in tokens.iter().enumerate() {
        let likeliest = found["top_logprobs"][place].as_object().expect("tokens");
        assert_eq!(likeliest.len(), 3);
        // The likeliest token was taken, and is reported with the same log-probability.
        assert_eq!(likeliest[*token], found["token_logprobs"][place]);
        assert!(likeliest.values().all(|other| other.as_f64() <= likeliest[*token].as_f64()));
    }
    let whole = ask(json!({ "logprobs": 0, "echo": true }))["logprobs"].clone();
    assert_eq!(whole["tokens"].as_array().expect("a list").len(), 17);
    assert_eq!((&whole["token_logprobs"][0], &whole["text_offset"][0]), (&Value::Null, &0.into()));
    is_close(&whole["token_logprobs"], &expected);
    // The log-probabilities of a stopped text are those of the tokens before the stop text.
    let stopped = ask(json!({ "logprobs": 1, "stop": "ow" }));
    let tokens = stopped["logprobs"]["tokens"].as_array().expect("a list");
    let tokens: String = tokens.iter().filter_map(Value::as_str).collect();
    assert_eq!(tokens, stopped["text"].as_str().expect("text"));
    // Penalties make repeated tokens less likely; negative penalties make them more likely.
    let penalised = ask(json!({ "frequency_penalty": 2, "presence_penalty": 2, "max_tokens": 14 }));
    let rewarded =
        ask(json!({ "frequency_penalty": -2, "presence_penalty": -2, "max_tokens": 14 }));
    let kinds = |choice: &Value| {
        let text = choice["text"].as_str().expect("text");
        text.chars().collect::<std::collections::BTreeSet<_>>().len()
    };
    assert!(kinds(&penalised) > kinds(&rewarded), "{penalised} {rewarded}");
}

#[test]
fn conversations_are_openais() {
    let folder = tempfile::tempdir().expect("a folder");
    let chat = copied(&trained().path("text"), folder.path(), "chat");
    let template = "{% for message in messages %}\n\
                    {% if message.role == 'system' %}{{ raise_exception('no system') }}{% endif %}\n\
                    {{ message.content | trim }}\n{% endfor %}";
    std::fs::write(chat.join("chat_template.jinja"), template).expect("written");
    let broken = copied(&trained().path("text"), folder.path(), "broken");
    std::fs::write(broken.join("chat_template.jinja"), "{% if %}").expect("written");
    let server = Running::start(vec![chat, broken, trained().path("text")]);
    let said = |text: &str| json!([{ "role": "user", "content": text }]);
    let asked = json!({
        "model": "chat", "messages": said(" the quick "), "max_tokens": 8, "temperature": 0,
        "n": 1, "tools": [], "response_format": { "type": "text" }, "user": "somebody",
    });
    let found = server.post("/v1/chat/completions", &asked).expect(200);
    assert_eq!(found["object"], "chat.completion");
    let choice = &found["choices"][0];
    assert_eq!(choice["message"]["role"], "assistant");
    let text = choice["message"]["content"].as_str().expect("text");
    // The answer continues the message's text and a line end, which the template adds.
    let plain = json!({
        "model": "text", "prompt": "the quick\n", "max_tokens": 8, "temperature": 0,
    });
    let plain = server.post("/v1/completions", &plain).expect(200);
    assert_eq!(plain["choices"][0]["text"], text);
    assert_eq!(found["usage"], plain["usage"]);
    let with = |change: Value| {
        let mut asked = asked.clone();
        let changes = change.as_object().expect("an object").clone();
        asked.as_object_mut().expect("an object").extend(changes);
        server.post("/v1/chat/completions", &asked)
    };
    let parts = json!([{ "role": "user", "content": [{ "type": "text", "text": "the quick" }] }]);
    let found = with(json!({ "messages": parts })).expect(200);
    assert_eq!(found["choices"][0]["message"]["content"], text);
    let found = with(json!({ "logprobs": true, "top_logprobs": 2 })).expect(200);
    let content = found["choices"][0]["logprobs"]["content"].as_array().expect("a list").clone();
    assert_eq!(content.len(), 8);
    assert_eq!(content[0]["top_logprobs"].as_array().expect("a list").len(), 2);
    assert_eq!(content[0]["top_logprobs"][0]["token"], content[0]["token"]);
    let events =
        with(json!({ "stream": true, "stream_options": { "include_usage": true } })).events();
    let (end, chunks) = events.split_last().expect("events");
    assert_eq!(end, "[DONE]");
    let chunks: Vec<Value> =
        chunks.iter().map(|chunk| serde_json::from_str(chunk).expect("JSON")).collect();
    assert!(chunks.iter().all(|chunk| chunk["object"] == "chat.completion.chunk"));
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let pieces: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(pieces, text);
    let (usage, chunks) = chunks.split_last().expect("chunks");
    assert_eq!(usage["usage"]["completion_tokens"], 8);
    assert_eq!(chunks.last().expect("chunks")["choices"][0]["finish_reason"], "length");
    for (change, status, fragment) in [
        (json!({ "messages": [{ "role": "system", "content": "a" }] }), 400, "no system"),
        (json!({ "messages": [] }), 400, "messages is empty"),
        (json!({ "messages": said("a</s>the") }), 422, "message 1 has the special token"),
        (json!({ "model": "text" }), 422, "no chat template"),
        (json!({ "model": "broken" }), 422, "the chat template"),
        (json!({ "tools": [{ "type": "function" }] }), 400, "tools is not supported"),
        (json!({ "top_logprobs": 2 }), 400, "logprobs: true"),
        (json!({ "logprobs": true, "stream": true }), 400, "a stream has no logprobs"),
        (
            json!({ "messages": [{ "role": "user", "content": [{ "type": "image_url" }] }] }),
            400,
            "only text",
        ),
    ] {
        let message = with(change.clone()).expect(status)["error"]["message"].clone();
        assert!(message.as_str().expect("text").contains(fragment), "{change}: {message}");
    }
}

/// Serves copies of the run of [`frozen`], as if they translated between English, Chinese and
/// Portuguese.
fn languages(folder: &std::path::Path) -> Running {
    let run = |name: &str, source: &str, target: &str| {
        let path = copied(&frozen(), folder, name);
        let config = path.join("config.toml");
        let text = std::fs::read_to_string(&config).expect("config.toml");
        let text = text.replace("\"aa\"", &format!("{source:?}"));
        std::fs::write(&config, text.replace("\"bb\"", &format!("{target:?}"))).expect("written");
        path
    };
    Running::start(vec![
        run("one", "en", "zh"),
        run("two", "zh", "en"),
        run("three", "en", "zt"),
        run("four", "pb", "zh"),
    ])
}

#[test]
fn languages_are_told_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = languages(folder.path());
    let kind = "Content-Type: application/x-www-form-urlencoded\r\n";
    let detected = |text: &str| server.post("/detect", &json!({ "q": text })).expect(200);
    let found = detected("汤姆是学生。");
    assert_eq!(found[0]["language"], "zh");
    assert!(found[0]["confidence"].is_number());
    let line = &lines()[0];
    let english = "This is a short text in English, and nobody would take it for another language.";
    let found = detected(english);
    assert_eq!(found[0]["language"], "en", "{found}");
    assert!(found[0]["confidence"].as_f64().expect("a number") > 80.0, "{found}");
    let form = format!("q={}", english.replace(' ', "+"));
    assert_eq!(server.send("POST", "/detect", kind, form.as_bytes()).expect(200), found);
    // The language identifier knows only one kind of Portuguese; the answer has the run's code,
    // `pb`.
    let portuguese = "Este é um texto curto em português.\nNão sei o que dizer,\nmas está bem.";
    let found = detected(portuguese);
    assert_eq!(found[0]["language"], "pb", "{found}");
    assert!(found[0]["confidence"].as_f64().expect("a number") > 80.0, "{found}");
    // The language of several texts, or of a long text, is the language of most of its parts.
    let asked = json!({ "q": ["汤姆是学生。", "", "今天天气很好，我们去公园吧。", "OK"] });
    assert_eq!(server.post("/detect", &asked).expect(200)[0]["language"], "zh");
    let long = format!("{}{}", "我爱你。\n".repeat(50), format!("{english}\n").repeat(500));
    assert_eq!(detected(&long)[0]["language"], "en");
    // No run reads German, so German is named only if all languages are requested.
    let german = "Das ist ein kurzer Text auf Deutsch, den hier niemand übersetzen kann.";
    let found = detected(german);
    assert!(found[0]["confidence"].as_f64().expect("a number") < 10.0, "{found}");
    let asked = json!({ "q": german, "all_languages": true });
    let found = server.post("/detect", &asked).expect(200);
    assert_eq!(found[0]["language"], "de", "{found}");
    for text in ["123", " \n", "?!"] {
        let found = detected(text);
        assert_eq!(found, json!([{ "confidence": 0.0, "language": "en" }]), "{text:?}");
    }
    server.post("/detect", &json!({ "q": "" })).expect(400);
    server.post("/detect", &json!({ "q": [] })).expect(400);
    server.post("/detect", &json!({})).expect(400);
    // Codes may have other spellings, and the source may be `auto`.
    let translated = |source: &str, target: &str| {
        let asked = json!({ "q": line, "source": source, "target": target });
        server.post("/translate", &asked)
    };
    let expected = singly(std::slice::from_ref(line)).remove(0);
    for (source, target) in
        [("en", "zh"), ("EN", "zh-Hans"), ("en-US", "ZH"), ("en", "zh-Hant"), ("pt-BR", "zh_CN")]
    {
        let found = translated(source, target).expect(200);
        assert_eq!(found["translatedText"], expected, "{source} {target}");
        assert!(found.get("detectedLanguage").is_none());
    }
    for (source, target) in [("pt", "zh"), ("zt", "en"), ("de", "zh"), ("en", "fr"), ("en", "en")] {
        translated(source, target).expect(400);
    }
    let asked = json!({ "q": english, "source": "auto", "target": "zh" });
    let found = server.post("/translate", &asked).expect(200);
    assert_eq!(found["detectedLanguage"]["language"], "en");
    // Only languages for which a run translates into the target are considered, and an empty text
    // has no language (confidence 0).
    let asked = json!({ "q": portuguese, "source": "auto", "target": "zt" });
    let found = server.post("/translate", &asked).expect(200);
    assert_eq!(found["detectedLanguage"]["language"], "en");
    let asked = json!({ "q": "", "source": "auto", "target": "zh" });
    let found = server.post("/translate", &asked).expect(200);
    assert_eq!(
        (&found["translatedText"], &found["detectedLanguage"]["confidence"]),
        (&"".into(), &0.0.into())
    );
    let asked = json!({ "q": ["汤姆"], "source": "auto", "target": "en" });
    let found = server.post("/translate", &asked).expect(200);
    assert_eq!(found["detectedLanguage"][0]["language"], "zh");
}
