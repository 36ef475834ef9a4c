//! `taper embeddings`: trained, asked, compared, converted, refused.

use crate::common::{Workspace, stderr};

#[test]
fn vectors_are_trained_asked_compared_and_converted() {
    let workspace = Workspace::of_text();
    let train = ["embeddings", "train", "data/text.txt", "--output", "words", "--dimensions", "12"];
    let printed = workspace.succeed(&[&train[..], &["--min-count", "1", "--lowercase"]].concat());
    assert!(printed.contains("words/vectors.bin"), "{printed}");
    let vocabulary = std::fs::read_to_string(workspace.path("words/vocabulary.txt"));
    let vocabulary = vocabulary.expect("vocabulary");
    let words: Vec<&str> = vocabulary.lines().filter_map(|line| line.split(' ').next()).collect();
    let near = workspace.succeed(&["embeddings", "nearest", "words", words[0], "--count", "3"]);
    assert_eq!(near.lines().count(), 3, "{near}");
    let json = ["embeddings", "analogy", "words", words[0], words[1], words[2], "--json"];
    let first = workspace.succeed(&json);
    let first: serde_json::Value =
        serde_json::from_str(first.lines().next().expect("a line")).expect("JSON");
    assert!(first["cosine"].as_f64().expect("a number") <= 1.0);
    let pairs =
        format!("a,b,c\n{},{},3\n{},{},1\nx,absent,2\n", words[0], words[1], words[0], words[2]);
    workspace.write("pairs.csv", pairs);
    let compared = workspace.succeed(&["embeddings", "evaluate", "words", "pairs.csv"]);
    assert!(compared.contains("over 2 pairs; 1 more have"), "{compared}");
    workspace.succeed(&["embeddings", "convert", "words", "words.txt", "--format", "text"]);
    workspace.succeed(&["embeddings", "convert", "words.txt", "words.bin", "--format", "binary"]);
    let bytes = |name: &str| std::fs::read(workspace.path(name)).expect("vectors");
    assert!(bytes("words.bin") == bytes("words/vectors.bin"));

    workspace.fail(&train, &["words", "it has a training already"]);
    workspace.fail(&["embeddings", "nearest", "words", "Zzyzx"], &["no vector for \"Zzyzx\""]);
    workspace.fail(&["embeddings", "nearest", "data", "a"], &["data", "no vectors.bin"]);
    workspace.fail(&["embeddings", "evaluate", "tiny.toml", "pairs.csv"], &["tiny.toml, line 1"]);
    let again = workspace.run(&["embeddings", "resume", "words"]);
    assert!(again.status.success(), "{}", stderr(&again));
}
