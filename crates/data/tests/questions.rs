//! Tests questions about texts: SQuAD's files, conversion between characters and tokens, and
//! windows.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use taper_data::{
    Context, DataConfig, Dataset, Epoch, LabelOf, LabelledDataset, Paragraph, QuestionWindow,
    QuestionsConfig, Result, Task, Tokenizer, TokenizerKind, best_windows, read_questions, windows,
};

const CONTEXT: &str = "北京是中华人民共和国的首都🇨🇳，人口两千万。 The café of Ünal 😀 opened in 1998; ﬁve people e\u{301}taient là.";

/// JSON of the answer `text`, which is a part of [`CONTEXT`].
fn answer(text: &str) -> Value {
    let before = &CONTEXT[..CONTEXT.find(text).unwrap()];
    json!({ "text": text, "answer_start": before.chars().count() })
}

fn question(id: &str, text: &str, answers: &[&str]) -> Value {
    let answers: Vec<Value> = answers.iter().map(|text| answer(text)).collect();
    json!({ "id": id, "question": text, "answers": answers, "plausible_answers": [] })
}

/// Two articles in the format of version 1.1 or, if `unanswerable` is true, 2.0.
fn squad(unanswerable: bool) -> Value {
    let mut asked = vec![
        question("1", "What is the capital?", &["北京", "北京是"]),
        question("2", "首都有什么旗？", &["🇨🇳"]),
        question("3", "What opened in 1998?", &["café of Ünal 😀"]),
        question("4", "Who opened it?", &["Ünal"]),
    ];
    if unanswerable {
        let mut none = question("5", "What is on the moon?", &[]);
        none["is_impossible"] = true.into();
        asked.push(none);
    }
    let paragraph = json!({ "context": CONTEXT, "qas": asked, "document_id": 3 });
    let other = json!({ "qas": [question("6", "When?", &["1998"])], "context": CONTEXT });
    json!({ "version": "x", "data": [
        { "title": "one", "paragraphs": [paragraph] }, { "paragraphs": [other, { "context": "Nothing.", "qas": [] }] },
    ] })
}

fn config(folder: &Path, unanswerable: bool) -> DataConfig {
    let mut config =
        DataConfig { dir: folder.to_owned(), validation: "".into(), ..DataConfig::default() };
    fs::write(folder.join("train.json"), squad(unanswerable).to_string()).unwrap();
    config.questions = QuestionsConfig {
        unanswerable,
        max_tokens: 40,
        document_stride: 7,
        max_question_tokens: 12,
        ..QuestionsConfig::default()
    };
    config.tokenizer.kind = TokenizerKind::Char;
    config
}

fn paragraphs(config: &DataConfig) -> Result<Vec<Paragraph>> {
    let mut found = Vec::new();
    read_questions(config, &config.train, |paragraph| {
        found.push(paragraph);
        Ok(())
    })?;
    Ok(found)
}

fn tokenizer(config: &DataConfig) -> Tokenizer {
    Task::QuestionAnswering.train_tokenizers(config).unwrap().target().clone()
}

#[test]
fn both_versions_are_read_plain_and_compressed() {
    let folder = tempfile::tempdir().unwrap();
    for unanswerable in [false, true] {
        let config = config(folder.path(), unanswerable);
        let found = paragraphs(&config).unwrap();
        assert_eq!(found.len(), 3);
        assert_eq!(found[0].questions.len(), 4 + usize::from(unanswerable));
        assert_eq!(found[0].questions[0].answers[1].text, "北京是");
        assert_eq!(found[0].context, CONTEXT);
        assert!(found[0].questions.last().unwrap().answers.is_empty() == unanswerable);
        let plain = fs::read(folder.path().join("train.json")).unwrap();
        fs::remove_file(folder.path().join("train.json")).unwrap();
        let packed = fs::File::create(folder.path().join("train.json.gz")).unwrap();
        let mut packed = flate2::write::GzEncoder::new(packed, flate2::Compression::fast());
        packed.write_all("\u{feff}".as_bytes()).unwrap();
        packed.write_all(&plain).unwrap();
        packed.finish().unwrap();
        assert_eq!(paragraphs(&config).unwrap(), found);
        fs::remove_file(folder.path().join("train.json.gz")).unwrap();
    }
}

#[test]
fn characters_become_tokens_and_tokens_characters_in_every_script() {
    let folder = tempfile::tempdir().unwrap();
    let plain = config(folder.path(), false);
    let parts = [
        "北京",
        "首都",
        "🇨🇳",
        "两千万",
        "café",
        "Ünal",
        "😀",
        "1998",
        "ﬁve",
        "e\u{301}taient",
        "là",
    ];
    for kind in
        [TokenizerKind::Char, TokenizerKind::Bpe, TokenizerKind::Unigram, TokenizerKind::Bytes]
    {
        for changed in [false, true] {
            let mut config = DataConfig { nfkc: changed, lowercase: changed, ..plain.clone() };
            config.tokenizer.kind = kind;
            config.tokenizer.vocabulary_size = 330;
            let tokenizer = tokenizer(&config);
            let encoded = tokenizer.encode_text(CONTEXT).unwrap();
            let (ids, bytes) = (encoded.ids(), encoded.bytes());
            assert_eq!(ids, tokenizer.encode(CONTEXT).unwrap(), "{kind:?}");
            assert_eq!(ids.len(), bytes.len());
            assert!(bytes.windows(2).all(|pair| pair[0].start <= pair[1].start), "{bytes:?}");
            // Every character except white space belongs to a token.
            let mut is_read = vec![false; CONTEXT.len()];
            bytes.iter().cloned().for_each(|range| is_read[range].fill(true));
            for (at, character) in CONTEXT.char_indices() {
                assert!(is_read[at] || character.is_whitespace(), "{kind:?}: {character:?}");
            }
            let context = Context::new(&tokenizer, CONTEXT).unwrap();
            for part in parts {
                let start = CONTEXT.find(part).unwrap();
                let wanted = start..start + part.len();
                let tokens = context.tokens_of(&wanted).unwrap();
                let found = context.bytes_of(CONTEXT, tokens);
                assert!(found.start <= wanted.start && found.end >= wanted.end, "{part} {kind:?}");
                // Other kinds may have tokens that are longer than the part.
                if kind == TokenizerKind::Char || tokens.0 == tokens.1 && found == wanted {
                    assert_eq!(&CONTEXT[found], part, "{kind:?} {changed}");
                }
            }
        }
    }
}

#[test]
fn windows_cover_a_context_and_each_start_is_told_where_most_is_around() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), false);
    let tokenizer = tokenizer(&config);
    // In the long text, the last window is more than 100 tokens shorter than the one before it.
    let long = CONTEXT.repeat(8);
    for (text, stride, max_tokens) in [
        (CONTEXT, 1, 20),
        (CONTEXT, 7, 40),
        (CONTEXT, 100, 30),
        (CONTEXT, 5, 400),
        (&long, 200, 401),
    ] {
        let context = Context::new(&tokenizer, text).unwrap();
        let all = text.chars().count();
        let settings =
            QuestionsConfig { document_stride: stride, max_tokens, ..config.questions.clone() };
        let made = windows(&tokenizer, "What is the capital?", &context, &settings).unwrap();
        // The question has twelve tokens, and the row has three special tokens.
        let room = max_tokens - 15;
        assert_eq!(made.len(), 1 + all.saturating_sub(room).div_ceil(stride.min(room)));
        assert_eq!((made[0].tokens.start, made.last().unwrap().tokens.end), (0, all));
        for (number, window) in made.iter().enumerate() {
            assert_eq!(window.tokens.start, number * stride.min(room));
            assert!(window.row.ids.len() <= max_tokens && window.row.second == 14);
            let first = window.tokens.start;
            let part: String = text.chars().skip(first).take(window.tokens.len()).collect();
            let ids = &window.row.ids[14..window.row.ids.len() - 1];
            assert_eq!(ids, tokenizer.encode(&part).unwrap());
            assert_eq!(window.place(first), 14);
        }
        // Score of a window by the formula of BERT's program.
        let score = |window: &QuestionWindow, token: usize| {
            let sides = (token - window.tokens.start).min(window.tokens.end - 1 - token);
            sides as f64 + 0.01 * window.tokens.len() as f64
        };
        for (token, &best) in best_windows(&made).iter().enumerate() {
            let has = |window: &&QuestionWindow| window.tokens.contains(&token);
            let most =
                made.iter().filter(has).map(|window| score(window, token)).fold(0.0, f64::max);
            assert_eq!(score(&made[best], token), most, "{token}");
            let before = made[..best].iter().filter(has);
            assert!(before.map(|window| score(window, token)).all(|other| other < most));
        }
    }
    let nothing = Context::new(&tokenizer, "").unwrap();
    let made = windows(&tokenizer, "What?", &nothing, &config.questions).unwrap();
    assert_eq!((made.len(), made[0].row.ids.len(), best_windows(&made).len()), (1, 5 + 3, 0));
}

#[test]
fn rows_answer_with_places_and_with_the_first_token_where_they_lack_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), true);
    let tokenizer = tokenizer(&config);
    let dataset =
        LabelledDataset::read(LabelOf::Question, &config, &tokenizer, &config.train).unwrap();
    let places = dataset.classes();
    let dataset = Arc::new(dataset);
    let plan = dataset.clone().plan(&config.batching, Epoch::new(1, 0));
    let (mut found, mut without) = (Vec::new(), 0);
    for batch in (0..plan.batches()).map(|at| plan.batch(at).unwrap()) {
        let [segments, text] = batch.streams.as_slice() else { panic!("two streams") };
        let mut first = 0;
        for (row, &length) in text.lengths.iter().enumerate() {
            let asked = &batch.asked.as_ref().unwrap()[2 * row..2 * row + 2];
            assert_eq!(asked, [first as u32; 2]);
            let [start, end] = [0, 1].map(|end| batch.answers[2 * row + end] as usize);
            if end > 0 {
                assert!(
                    start <= end
                        && segments.ids[first + start..=first + end].iter().all(|&of| of == 1)
                );
                found.push(tokenizer.decode(&text.ids[first + start..=first + end]).unwrap());
            } else {
                assert_eq!(start, 0);
                without += 1;
            }
            first += length;
        }
    }
    assert_eq!(2 * (found.len() + without), places.len());
    found.sort();
    found.dedup();
    assert_eq!(found, ["1998", "café of Ünal 😀", "Ünal", "北京", "🇨🇳"]);
    assert!(without > 5, "the question without an answer, and windows that lack one");
    assert_eq!(dataset.longest_row(), 40);
    let largest = dataset.largest_batch(100);
    assert_eq!((largest.asked.unwrap(), largest.answers.len()), (vec![0, 0, 40, 40], 4));
}

#[test]
fn what_is_wrong_with_a_file_is_told_with_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), false);
    let says = |text: &str| {
        fs::write(folder.path().join("train.json"), text).unwrap();
        let error = paragraphs(&config).unwrap_err().to_string();
        assert!(error.contains("train.json"), "{error}");
        error
    };
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut file = squad(false);
        change(&mut file);
        says(&file.to_string())
    };
    let question = |file: &mut Value| file["data"][0]["paragraphs"][0]["qas"][1].take();
    for (key, value, said) in [
        (
            "answer_start",
            json!(3),
            "question \"2\" has the answer \"🇨🇳\" at character 3 of its context",
        ),
        ("answer_start", json!(3), "but there is \"中华\""),
        ("answer_start", json!(9999), "but there is \"\""),
        ("answer_start", json!(-1), "invalid value: integer `-1`"),
        ("answer_start", json!("3"), "invalid type: string"),
        ("text", json!(" "), "has an empty answer"),
        ("text", Value::Null, "article 1, paragraph 1: "),
    ] {
        let error = changed(&|file| {
            file["data"][0]["paragraphs"][0]["qas"][1]["answers"][0][key] = value.clone();
        });
        assert!(error.contains("article 1, paragraph 1: ") && error.contains(said), "{error}");
    }
    let second = |change: &dyn Fn(&mut Value)| {
        changed(&|file| change(&mut file["data"][1]["paragraphs"][0]))
    };
    for (change, said) in [
        (
            &(|of: &mut Value| of["context"] = " ".into()) as &dyn Fn(&mut Value),
            "has an empty context",
        ),
        (&|of| drop(of["context"].take()), "article 2, paragraph 1: invalid type: null"),
        (&|of| drop(of.as_object_mut().unwrap().remove("qas")), "missing field `qas`"),
        (&|of| of["qas"][0]["answers"] = json!([]), "set data.questions.unanswerable = true"),
        (&|of| of["qas"][0]["question"] = "".into(), "question \"6\" has no text"),
        (
            &|of| of["qas"][0]["is_impossible"] = true.into(),
            "said to be impossible, but has an answer",
        ),
    ] {
        let error = second(change);
        assert!(error.contains("article 2, paragraph 1") && error.contains(said), "{error}");
    }
    let error = changed(&|file| drop(question(file)));
    assert!(error.contains("article 1, paragraph 1: invalid type: null"), "{error}");
    let error = says("[]");
    assert!(error.contains("expected an object with the key \"data\" at line 1"), "{error}");
    assert!(says("{}").contains("missing field `data` at line 1"));
    assert!(says("{\"data\": [{}]}").contains("article 1: missing field `paragraphs` at line 1"));
    assert!(says("{\"data\": [], \"data\": []}").contains("duplicate field `data`"));
    assert!(says("{\"data\": []} x").contains("trailing characters at line 1 column 14"));
    assert!(
        says("{\"data\": [\n{\"paragraphs\": [")
            .contains("article 1, paragraph 1: EOF while parsing")
    );
    assert!(says("{\"data\": []}").contains("hold no question"));
    let whole = squad(false).to_string();
    assert!(says(&whole[..whole.len() - 1]).contains("EOF while parsing an object"));
    assert!(says(&whole.replace("Who", "\u{1}")).contains("control character"));

    let refused = |settings: QuestionsConfig| {
        let config = DataConfig { questions: settings, ..config.clone() };
        Task::QuestionAnswering.validate(&config).unwrap_err().to_string()
    };
    let usual = || config.questions.clone();
    let error = refused(QuestionsConfig { max_tokens: 15, ..usual() });
    assert!(
        error.contains("data.questions.max_tokens") && error.contains("at least 16"),
        "{error}"
    );
    let error = refused(QuestionsConfig { document_stride: 0, ..usual() });
    assert!(error.contains("data.questions.document_stride"), "{error}");
    assert!(
        refused(QuestionsConfig { max_answer_tokens: 0, ..usual() }).contains("max_answer_tokens")
    );
}
