//! Tests of `taper embeddings`, and of models that begin with word vectors.

use crate::common::{Workspace, mentions};

#[test]
fn vectors_are_trained_asked_compared_and_converted() {
    let workspace = Workspace::of_text();
    let train = "embeddings train data/text.txt --output words --dimensions 12";
    let said = workspace.succeed(format!("{train} --min-count 1 --lowercase"));
    mentions(&said, &["words/vectors.bin"]);
    let vocabulary = std::fs::read_to_string(workspace.path("words/vocabulary.txt"));
    let vocabulary = vocabulary.expect("vocabulary");
    let words: Vec<&str> = vocabulary.lines().filter_map(|line| line.split(' ').next()).collect();
    let near = workspace.succeed(format!("embeddings nearest words {} --count 3", words[0]));
    assert_eq!(near.lines().count(), 3, "{near}");
    let json = format!("embeddings analogy words {} {} {} --json", words[0], words[1], words[2]);
    let first = workspace.succeed(&json);
    let first: serde_json::Value =
        serde_json::from_str(first.lines().next().expect("a line")).expect("JSON");
    assert!(first["cosine"].as_f64().expect("a number") <= 1.0);
    let pairs =
        format!("a,b,c\n{},{},3\n{},{},1\nx,absent,2\n", words[0], words[1], words[0], words[2]);
    workspace.write("pairs.csv", pairs);
    let said = workspace.succeed("embeddings evaluate words pairs.csv");
    mentions(&said, &["over 2 pairs; 1 more have"]);
    let pair = format!("embeddings similarities words {} {}", words[0], words[1]);
    let table = workspace.succeed(&pair);
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.lines().nth(1).expect("a row").contains("1.00"), "{table}");
    let json = workspace.json(format!("{pair} --svg pair.svg --json"));
    assert_eq!(json["cosines"][0][1], json["cosines"][1][0]);
    let drawn = workspace.read("pair.svg");
    assert!(drawn.starts_with("<svg") && drawn.contains(words[1]), "{drawn}");
    workspace.succeed("embeddings convert words words.txt --format text");
    workspace.succeed("embeddings convert words.txt words.bin --format binary");
    let bytes = |name: &str| std::fs::read(workspace.path(name)).expect("vectors");
    assert!(bytes("words.bin") == bytes("words/vectors.bin"));

    workspace.fail(train, &["words", "it has a training already"]);
    workspace.fail("embeddings nearest words Zzyzx", &["no vector for \"Zzyzx\""]);
    workspace.fail("embeddings nearest data a", &["data", "no vectors.bin"]);
    workspace.fail("embeddings evaluate tiny.toml pairs.csv", &["tiny.toml, line 1"]);
    workspace.succeed("embeddings resume words");
}

/// Returns the rows of the embedding table in a checkpoint.
fn embeddings(workspace: &Workspace, checkpoint: &str) -> Vec<Vec<f32>> {
    let bytes = std::fs::read(workspace.path(&format!("{checkpoint}/model.safetensors")));
    let bytes = bytes.expect("weights");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let table = tensors.tensor("embedding.weight").expect("embeddings");
    let (numbers, _) = table.data().as_chunks::<4>();
    let numbers: Vec<f32> = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    numbers.chunks(table.shape()[1]).map(<[f32]>::to_vec).collect()
}

#[test]
fn a_model_begins_with_vectors_of_words_and_keeps_those_that_are_frozen() {
    let workspace = Workspace::new();
    let words = "embeddings train data/train.aa data/train.bb --output words";
    workspace.succeed(format!("{words} --dimensions 16 --min-count 1"));
    let with = "--set model.embeddings.file=words";
    let frozen = format!("{with} --set model.embeddings.frozen=true");
    let train = |run: &str, options: &str| {
        workspace.succeed(format!("train tiny.toml --run {run} {options}"))
    };
    mentions(train("frozen", &frozen), &["embedding.weight begins with", "and stays so"]);
    // `embeddings.tsv` lists all tokens, and the word whose vector a token took.
    let list = workspace.read("frozen/embeddings.tsv");
    let taken: Vec<(usize, &str)> = list
        .lines()
        .skip(1)
        .enumerate()
        .filter_map(|(id, line)| Some((id, line.rsplit_once('\t')?.1)))
        .filter(|(_, word)| !word.is_empty())
        .collect();
    assert!(taken.len() > 4, "{list}");
    workspace.succeed("embeddings convert words words.txt --format text");
    let text = workspace.read("words.txt");
    let vector = |word: &str| -> Vec<f32> {
        let line = text.lines().find(|line| line.starts_with(&format!("{word} ")));
        line.expect("a word").split(' ').skip(1).map(|x| x.parse().expect("a number")).collect()
    };
    let cosine = |a: &[f32], b: &[f32]| {
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
    };
    let last = embeddings(&workspace, "frozen/checkpoints/step-00000012");
    for (id, word) in &taken {
        assert!(cosine(&last[*id], &vector(word)) > 1.0 - 1e-6, "{word} has its vector");
    }
    // The frozen table is the same in every checkpoint, bit for bit, also in the average.
    assert!(last == embeddings(&workspace, "frozen/checkpoints/averaged"));
    train("part", &format!("{frozen} --set training.max_updates=6"));
    assert!(last == embeddings(&workspace, "part/checkpoints/step-00000006"));
    workspace.succeed("resume part --set training.max_updates=12");
    let weights = |run: &str| {
        let file = format!("{run}/checkpoints/step-00000012/model.safetensors");
        std::fs::read(workspace.path(&file)).expect("weights")
    };
    assert!(weights("frozen") == weights("part"));
    // If the table is not frozen, training begins with the vectors and changes them.
    train("free", with);
    let free = embeddings(&workspace, "free/checkpoints/step-00000012");
    assert!(last != free);
    assert!(taken.iter().all(|(id, word)| cosine(&free[*id], &vector(word)) > 0.8));

    let fail = |options: &str, fragments: &[&str]| {
        workspace.fail(format!("train tiny.toml --run refused {options}"), fragments);
        assert!(!workspace.path("refused").exists());
    };
    fail("--set model.embeddings.frozen=true", &["model.embeddings.frozen", "by chance"]);
    fail(&format!("{with} --set model.d_model=32"), &["have 16 dimensions", "model.d_model is 32"]);
    fail("--set model.embeddings.file=absent", &["absent", "no such file"]);
    fail("--set model.embeddings.one_hot=true", &["model.d_model = 16 has no place for each"]);
    let target = "--set model.embeddings.target_file=words";
    fail(target, &["model.embeddings.target_file", "one table"]);
}

#[test]
fn one_hot_embeddings_stay_one_hot_where_they_are_frozen() {
    let workspace = Workspace::of_text();
    let options = "--set model.embeddings.one_hot=true --set model.embeddings.frozen=true";
    let train = "train tiny.toml --run run --set model.d_model=64";
    mentions(workspace.succeed(format!("{train} {options}")), &["is one-hot"]);
    for (id, row) in embeddings(&workspace, "run/checkpoints/step-00000012").iter().enumerate() {
        let expected = |place: usize| if place == id { 1.0 } else { 0.0 };
        assert!(row.iter().enumerate().all(|(place, value)| *value == expected(place)), "{id}");
    }
}
