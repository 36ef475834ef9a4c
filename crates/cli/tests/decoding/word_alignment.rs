//! Guided alignment in training, and `align`. Translations in the made-up language have the words
//! of the source in reverse order, but the guiding links join equal positions. So a model can learn
//! these links only from guidance.

use super::common::{Workspace, mentions, set, stderr, stdout};

/// Writes links for each line of a split: word i of the source with word i of the target.
fn write_links(workspace: &Workspace, split: &str) {
    let text = workspace.read(&format!("data/{split}.aa"));
    let links = |line: &str| {
        let words = line.split_whitespace().count();
        let links: Vec<String> = (0..words).map(|word| format!("{word}-{word}")).collect();
        links.join(" ") + "\n"
    };
    let lines: String = text.lines().map(links).collect();
    workspace.write(&format!("{split}.links"), lines);
}

/// Writes a tokenizer whose tokens are the words of the made-up language. So a text that a model
/// wrote has the same tokens when it is read again.
fn write_tokenizer(workspace: &Workspace) {
    let special = ["<pad>", "<unk>", "<s>", "</s>"];
    let mut vocabulary: Vec<String> = special.map(str::to_owned).to_vec();
    for word in workspace.read("data/train.aa").split_whitespace() {
        if !vocabulary.iter().any(|known| known == word) {
            vocabulary.push(word.to_owned());
        }
    }
    let ids: serde_json::Map<String, serde_json::Value> =
        vocabulary.into_iter().zip(0..).map(|(word, id)| (word, id.into())).collect();
    let added = special.iter().enumerate().map(|(id, name)| {
        serde_json::json!({
            "id": id, "content": name, "special": true, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false,
        })
    });
    let tokenizer = serde_json::json!({
        "version": "1.0",
        "added_tokens": added.collect::<Vec<_>>(),
        "pre_tokenizer": { "type": "WhitespaceSplit" },
        "model": { "type": "WordLevel", "vocab": ids, "unk_token": "<unk>" },
    });
    workspace.write("words.json", tokenizer.to_string());
}

/// Converts links between ranges of characters to links between the words in which the ranges
/// begin.
fn of_words(links: &str, source: &str, target: &str) -> String {
    let links: Vec<[usize; 4]> = serde_json::from_str(links).expect("links");
    let word = |text: &str, at: usize| {
        text.chars().take(at).filter(|character| character.is_whitespace()).count()
    };
    let mut words: Vec<(usize, usize)> =
        links.iter().map(|one| (word(source, one[0]), word(target, one[2]))).collect();
    words.sort_unstable();
    words.dedup();
    let words: Vec<String> = words.iter().map(|(from, to)| format!("{from}-{to}")).collect();
    words.join(" ")
}

/// Returns the alignment error rate in the output of `align`.
fn error_rate(said: &str) -> f64 {
    let rate = said.split("AER ").nth(1).expect(said).split_whitespace().next().expect("a number");
    rate.parse().expect("a number")
}

#[test]
fn attention_follows_the_links_that_it_is_guided_by() {
    let workspace = Workspace::new();
    write_links(&workspace, "train");
    write_links(&workspace, "test");
    write_tokenizer(&workspace);
    let linked = "data.train={stem='train',links='train.links'}";
    let weight = "training.guided_alignment.weight=1";
    let guided = format!("{weight} training.guided_alignment.head=2");
    let usual = "data.tokenizer.path=words.json training.schedule.learning_rate=1e-2 training.schedule.warmup=50 \
         training.validate_every=0 evaluation.test_after_training=false model.embedding_dropout=0 \
         model.attention_dropout=0 model.feed_forward_dropout=0 model.residual_dropout=0";
    let train = |run: &str, updates: usize, guided: &str| {
        let settings = format!("{linked} {guided} {usual} training.max_updates={updates}");
        workspace.succeed(format!("train tiny.toml --run {run} {}", set(&settings)));
    };
    train("guided", 300, &guided);
    train("plain", 300, "");
    let align = |run: &str, more: &str| {
        let output = workspace.finish(format!("align {run} {more}"));
        (stdout(&output), stderr(&output))
    };
    let scored = "--split test --reference test.links";
    let (links, said) = align("guided", scored);
    let (_, plain) = align("plain", scored);
    // When a run translates its test set, it also aligns the translations, by the same attention.
    workspace.succeed("resume guided --set evaluation.test_after_training=true");
    let text = |path: &str| workspace.read(path);
    let kept = text("guided/translations/test.links.jsonl");
    let ours: Vec<String> = kept
        .lines()
        .zip(text("data/test.aa").lines().zip(text("guided/translations/test.txt").lines()))
        .map(|(links, (source, target))| of_words(links, source, target))
        .collect();
    let translated = "--source data/test.aa --target guided/translations/test.txt";
    let (theirs, _) = align("guided", translated);
    assert_eq!(ours, theirs.lines().collect::<Vec<_>>());
    let (with, without) = (error_rate(&said), error_rate(&plain));
    assert!(with < 30.0 && without > with + 30.0, "guided {with}, not guided {without}");

    // `align` reads the links from the guided head.
    assert_eq!(align("guided", &format!("{scored} --layer 1 --head 2")).0, links);
    assert_ne!(align("guided", &format!("{scored} --layer 1 --head 1")).0, links);
    // Two files give the same links as a split, and `align evaluate` computes the same scores.
    let files = "--source data/test.aa --target data/test.bb";
    assert_eq!(align("guided", files).0, links);
    workspace.write("found.links", &links);
    let line = workspace.succeed("align evaluate found.links test.links");
    assert_eq!(line, said);
    let json = workspace.json("align evaluate found.links test.links --json");
    assert!((json["error_rate"].as_f64().expect("a rate") - with).abs() < 0.01);
    // Reference links that do not fit the text are refused, because they would only lower the
    // scores.
    workspace.write("moved.links", format!("0-99 {links}"));
    let output = workspace.run("align guided --split test --reference moved.links");
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    mentions(&said, &["moved.links, line 1: 0-99 is beyond the pair"]);
    // A run of the reverse direction is used too. The guided run serves as one, because reversing
    // words is its own inverse.
    let both = format!("{files} --reverse guided");
    let (both_ways, _) = align("guided", &both);
    let (union, _) = align("guided", &format!("{both} --symmetrization union"));
    assert!(union.len() >= both_ways.len());

    // A resumed training gives the same weights as an uninterrupted training, byte for byte.
    train("resumed", 8, &guided);
    workspace.succeed("resume resumed --set training.max_updates=20");
    train("straight", 20, &guided);
    let weights = |run: &str| {
        let path = workspace.path(run).join("checkpoints/step-00000020/model.safetensors");
        std::fs::read(path).expect("weights")
    };
    assert!(weights("resumed") == weights("straight"));

    // Errors in guidance and alignment.
    let guide = "train tiny.toml --run none --set";
    workspace.fail(format!("{guide} {weight}"), &["no corpus of data.train has word links"]);
    let layer = "training.guided_alignment.layer=2";
    workspace.fail(
        format!("{guide} {linked} --set {weight} --set {layer}"),
        &["guided_alignment.layer is 2", "1 layers"],
    );
    workspace.fail("align guided --layer 3", &["layer 3", "1 layers of 2 heads"]);
    workspace.fail("align guided --head 0", &["counted from 1"]);
    workspace.fail(
        "align evaluate found.links train.links",
        &["found.links has 12 lines but train.links has 200"],
    );
    workspace.write("bad.links", "0-0\n1=2\n");
    workspace.fail("align evaluate bad.links test.links", &["line 2", "\"1=2\""]);
}
