//! A server with a run of several directions: each request names a direction, and gets the run's
//! translation in this direction.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use taper_run::{LineTranslator, LoadSettings, LoadedRun, TranslationSettings};

use crate::common::{Running, train};

const LINES: [&str; 3] = ["red cat sees two", "dogs run here", "big red dogs"];

/// Trains a run of three directions: from `aa` into `bb`, with the words in reverse order; from
/// `aa` into `cc`, in capitals; and from `bb` into `aa`.
fn trained(folder: &Path) -> PathBuf {
    const WORDS: [&str; 8] = ["red", "cat", "sees", "two", "big", "dogs", "run", "here"];
    let data = folder.join("data");
    std::fs::create_dir(&data).expect("a folder");
    let sentence = |number: usize| {
        (0..3 + number % 3).map(move |place| WORDS[(number * 5 + place * (1 + number % 7)) % 8])
    };
    let text = |turned: bool| -> String {
        let line = |number: usize| {
            let mut words: Vec<&str> = sentence(number).collect();
            if turned {
                words.reverse();
            }
            words.join(" ") + "\n"
        };
        (0..120).map(line).collect()
    };
    let texts = [("aa", text(false)), ("bb", text(true)), ("cc", text(false).to_uppercase())];
    for (language, text) in texts {
        std::fs::write(data.join(format!("pairs.{language}")), text).expect("written");
    }
    let run = folder.join("many");
    train(include_str!("directions.toml"), &data, &run);
    run
}

/// Returns the translations of [`LINES`] by the run itself, without a server.
fn expected(run: &Path, from: &str, to: &str) -> Vec<String> {
    let (from, to) = (Some(from.to_owned()), Some(to.to_owned()));
    let load = LoadSettings { from, to, ..LoadSettings::default() };
    let run = LoadedRun::open(run, &load).expect("loaded");
    let translator = LineTranslator::new(&run, &TranslationSettings::from_config(&run.config));
    let translator = translator.expect("a translator");
    let lines = LINES.map(str::to_owned);
    let found = translator.translate(&lines, &[], 1, |_| {}).expect("searched");
    found.map(|line| line.expect("translated").translations[0].text.clone()).collect()
}

#[test]
fn each_request_chooses_its_direction() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = trained(folder.path());
    let server = Running::start(vec![run.clone()]);
    let directions = [("aa", "bb"), ("aa", "cc"), ("bb", "aa")];
    let of_run = directions.map(|(from, to)| expected(&run, from, to));
    assert_ne!(of_run[0], of_run[1], "directions would not be told apart");

    let languages = server.get("/languages").expect(200);
    let targets = |code: &str| -> Value {
        let mut known = languages.as_array().expect("a list").iter();
        known.find(|one| one["code"] == code).expect("a language")["targets"].clone()
    };
    assert_eq!((targets("aa"), targets("bb")), (json!(["bb", "cc"]), json!(["aa"])));
    assert_eq!(targets("cc"), json!([]));

    let text = |line: &Value| line["translations"][0]["text"].clone();
    for ((from, to), expected) in directions.into_iter().zip(&of_run) {
        // LibreTranslate's API names the languages `source` and `target`.
        let asked = json!({ "q": LINES, "source": from, "target": to });
        let found = server.post("/translate", &asked).expect(200);
        assert_eq!(found["translatedText"], json!(expected), "{from}-{to}");
        let own = json!({ "text": LINES, "from": from, "to": to });
        let found = server.post("/api/translate", &own).expect(200);
        let lines = found["translations"].as_array().unwrap_or_else(|| panic!("{found}"));
        assert!(lines.iter().map(text).eq(expected.iter().map(|one| json!(one))), "{found}");
    }
    // The target alone is enough if only one language is translated into it.
    let found = server.post("/api/translate", &json!({ "text": LINES, "to": "cc" })).expect(200);
    assert_eq!(text(&found["translations"][0]), json!(of_run[1][0]));

    // Requests that are sent at the same time get the right answers, whether or not they share a
    // batch.
    let server = &server;
    std::thread::scope(|scope| {
        for ((from, to), expected) in directions.into_iter().zip(&of_run) {
            scope.spawn(move || {
                for _ in 0..5 {
                    let asked = json!({ "q": LINES, "source": from, "target": to });
                    let found = server.post("/translate", &asked).expect(200);
                    assert_eq!(found["translatedText"], json!(expected), "{from}-{to}");
                }
            });
        }
    });
}

#[test]
fn requests_without_a_direction_of_the_run_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Running::start(vec![trained(folder.path())]);
    let own = |change: Value| {
        let mut asked = json!({ "text": LINES });
        asked.as_object_mut().expect("an object").extend(change.as_object().cloned().expect("one"));
        server.post("/api/translate", &asked)
    };
    for change in [
        json!({}),
        json!({ "to": "dd" }),
        json!({ "from": "aa" }),
        json!({ "from": "cc", "to": "bb" }),
        json!({ "from": "bb", "to": "bb" }),
    ] {
        let reply = own(change.clone());
        assert_eq!(reply.status, 422, "{change}: {}", reply.text());
        assert!(reply.text().contains("aa-bb, aa-cc, bb-aa"), "{change}: {}", reply.text());
    }
    for (source, target) in [("aa", "dd"), ("cc", "bb"), ("bb", "cc"), ("auto", "dd")] {
        let asked = json!({ "q": LINES[0], "source": source, "target": target });
        let reply = server.post("/translate", &asked);
        assert_eq!(reply.status, 400, "{source}-{target}: {}", reply.text());
        assert!(reply.text().contains("/languages"), "{}", reply.text());
    }
}
