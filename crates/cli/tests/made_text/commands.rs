//! Tests of `backtranslate`, `distill`, `diversify` and `filter`.

use std::fs;

#[cfg(unix)]
use crate::common::wait_for;
use crate::common::{Workspace, mentions, set};

fn lines(workspace: &Workspace, name: &str) -> Vec<String> {
    let text = fs::read_to_string(workspace.path(name)).unwrap_or_else(|_| panic!("{name}"));
    text.lines().map(str::to_owned).collect()
}

/// Reads the bytes of a file.
fn bytes(workspace: &Workspace, name: &str) -> Vec<u8> {
    fs::read(workspace.path(name)).unwrap_or_else(|_| panic!("{name}"))
}

#[test]
fn sources_are_what_translate_gives() {
    let workspace = Workspace::of_frozen_run();
    workspace.write("mono.aa", "two dogs run\nbig cat\n\ntwo dogs run\nred cat sees two dogs\n");
    let translated = |options: &str| -> Vec<String> {
        let all = format!("translate run --input mono.aa {options}");
        workspace.succeed(&all).lines().map(str::to_owned).collect()
    };
    for (method, options) in [("beam", ""), ("sampling", "--sample --temperature 1 --seed 5")] {
        let output = format!("of-{method}");
        let arguments =
            format!("backtranslate run mono.aa --output {output} --method {method} --seed 5");
        let shown = workspace.succeed(&arguments);
        mentions(&shown, &["1 were there already, 1 have an empty side", "tag = \"<BT>\""]);
        let found = translated(options);
        assert_eq!(
            lines(&workspace, &format!("{output}/train.aa")),
            ["two dogs run", "big cat", "red cat sees two dogs"]
        );
        assert_eq!(
            lines(&workspace, &format!("{output}/train.bb")),
            [found[0].clone(), found[1].clone(), found[4].clone()]
        );
        let origins = lines(&workspace, &format!("{output}/train.origins.tsv"));
        assert!(origins[2].starts_with("run\t5\t-"), "{origins:?}");
        // The same command again changes nothing.
        let before = bytes(&workspace, &format!("{output}/made.json"));
        assert_eq!(workspace.succeed(&arguments), shown);
        assert_eq!(bytes(&workspace, &format!("{output}/made.json")), before);
    }
    // Another text for the same folder, and a damaged file, are errors.
    workspace.write("other.aa", "big cat\n");
    workspace.fail("backtranslate run other.aa --output of-beam", &["of-beam", "another folder"]);
    workspace.write("of-beam/train.bb", "x\n");
    let again = "backtranslate run mono.aa --output of-beam --seed 5";
    workspace.fail(again, &["train.bb", "made.json"]);
    workspace.fail("backtranslate run none.aa --output x", &["none.aa"]);

    workspace.succeed("backtranslate run mono.aa --output noisy --method noised-beam");
    assert_eq!(lines(&workspace, "noisy/train.bb").len(), 3);
}

#[test]
fn a_damaged_translation_is_told() {
    let workspace = Workspace::of_frozen_run();
    workspace.write("mono.aa", "two dogs run\nbig cat\n");
    let make = |output: &str| format!("backtranslate run mono.aa --output {output} --cache cache");
    workspace.succeed(make("one"));
    let entry = fs::read_dir(workspace.path("cache"))
        .expect("cache")
        .map(|entry| entry.expect("entry").path())
        .find(|path| path.extension().is_some_and(|end| end == "jsonl"))
        .expect("an entry");
    let text = fs::read_to_string(&entry).expect("text");
    fs::write(&entry, text.replace("text", "tax")).expect("write");
    workspace.fail(make("two"), &["checksum", ".jsonl"]);
    fs::write(&entry, text).expect("write");
    workspace.succeed(make("two"));
    assert_eq!(bytes(&workspace, "one/train.bb"), bytes(&workspace, "two/train.bb"));
}

#[cfg(unix)]
#[test]
fn what_was_killed_goes_on_to_the_same_bytes() {
    let workspace = Workspace::of_frozen_run();
    let text: String = (0..4000).map(|number| format!("two dogs run {number}\n")).collect();
    workspace.write("mono.aa", text);
    let make = |output: &str, cache: &str| {
        format!("backtranslate run mono.aa --output {output} --cache {cache} --threads 1")
    };
    workspace.succeed(make("whole", "cache-of-whole"));
    for _ in 0..3 {
        let size = || {
            let entries = fs::read_dir(workspace.path("cache")).into_iter().flatten();
            let sizes =
                entries.map(|entry| entry.expect("entry").metadata().map_or(0, |m| m.len()));
            sizes.sum::<u64>()
        };
        let before = size();
        let mut child = workspace.spawn(make("killed", "cache"));
        let mut ended = false;
        wait_for("more lines", || {
            ended = child.try_wait().expect("a status").is_some();
            ended || size() > before
        });
        child.kill().expect("killed");
        child.wait().expect("ended");
        assert!(!ended, "nothing was left to kill");
    }
    workspace.succeed(make("killed", "cache"));
    for name in ["train.aa", "train.bb", "train.origins.tsv", "made.json"] {
        let [whole, killed] =
            ["whole", "killed"].map(|run| bytes(&workspace, &format!("{run}/{name}")));
        assert!(whole == killed, "{name} differs");
    }
}

#[test]
fn a_student_learns_what_its_teachers_say() {
    let workspace = Workspace::of_frozen_run();
    workspace.succeed("distill run --data val --output plain");
    let translated = workspace.succeed("translate run --input data/val.aa");
    assert_eq!(lines(&workspace, "plain/train.bb").join("\n") + "\n", translated);
    assert_eq!(bytes(&workspace, "plain/train.aa"), bytes(&workspace, "data/val.aa"));
    // With `--interpolate`, the translation nearest to the reference is chosen among the three
    // best. The two teachers are the same run, so they agree.
    workspace.succeed("distill run run --data val --interpolate --output near");
    let listed = workspace.succeed("translate run --n-best 3 --input data/val.aa");
    let near = lines(&workspace, "near/train.bb");
    for (number, chosen) in (1..).zip(&near) {
        let number = format!("{number}\t");
        let of_line = listed.lines().filter(|line| line.starts_with(&number));
        let texts: Vec<&str> = of_line.filter_map(|line| line.split('\t').nth(2)).collect();
        assert!(texts.contains(&chosen.as_str()), "{chosen} is not in {texts:?}");
    }
    workspace.fail("distill run --data none --output x", &["none.aa"]);
}

#[test]
fn a_model_that_chooses_is_part_of_what_is_cached() {
    let workspace = Workspace::of_frozen_run();
    let make = |output: &str| {
        let choosing = set("decoding.reranking.candidates=3 decoding.reranking.reverse=back");
        workspace
            .succeed(format!("distill run --data val --output {output} --cache cache {choosing}"))
    };
    let entries = || fs::read_dir(workspace.path("cache")).expect("cache").count();
    let train = |seed: usize| {
        let turned = set("data.source_language=bb data.target_language=aa training.max_updates=2");
        let seed = format!("--set training.seed={seed}");
        workspace.succeed(format!("train tiny.toml --run back {turned} {seed}"));
    };
    train(1);
    make("one");
    let of_one = entries();
    make("same");
    assert_eq!(entries(), of_one);
    fs::remove_dir_all(workspace.path("back")).expect("removed");
    train(2);
    make("other");
    assert_eq!(entries(), 2 * of_one, "translations that another model has chosen");
}

#[test]
fn both_sides_can_have_one_language() {
    let workspace = Workspace::new();
    let one_language = "data.source_language=aa data.target_language=aa \
         data.train={source='data/train.aa',target='data/train.bb'} \
         data.validation={source='data/val.aa',target='data/val.bb'} data.test=[]";
    let one_language = set(one_language);
    workspace.succeed(format!("train tiny.toml --run run {one_language}"));
    workspace.succeed("distill run --output made");
    assert_eq!(bytes(&workspace, "made/train.aa.source"), bytes(&workspace, "data/train.aa"));
    assert_eq!(lines(&workspace, "made/train.aa.target").len(), 200);
    workspace.write(
        "steps.toml",
        "[steps.text.distill]\nruns = [\"run\"]\n\
         [steps.train.train]\nrecipe = \"one.toml\"\ntext = [\"text\"]\n",
    );
    let recipe = workspace.read("run/config.toml");
    workspace.write("one.toml", recipe.replace("max_updates = 12", "max_updates = 2"));
    workspace.succeed("pipeline steps.toml");
    assert_eq!(
        bytes(&workspace, "pipelines/steps/text/train.aa.target"),
        bytes(&workspace, "made/train.aa.target")
    );
}

#[test]
fn both_sides_are_translated_and_nothing_comes_twice() {
    let workspace = Workspace::of_frozen_run();
    let turned = "--set data.source_language=bb --set data.target_language=aa";
    workspace.succeed(format!("train tiny.toml --run back {turned}"));
    let make = |forward: &str, backward: &str| {
        format!("diversify --forward {forward} --backward {backward} --data val --output all")
    };
    workspace.fail(make("run", "run"), &["run: the run translates aa to bb", "bb to aa"]);
    workspace.succeed(make("run", "back"));
    let (sources, targets) = (lines(&workspace, "all/train.aa"), lines(&workspace, "all/train.bb"));
    let origins = lines(&workspace, "all/train.origins.tsv");
    assert_eq!((sources.len(), targets.len()), (origins.len(), origins.len()));
    let pairs: Vec<(&String, &String)> = sources.iter().zip(&targets).collect();
    for (index, pair) in pairs.iter().enumerate() {
        assert!(!pairs[..index].contains(pair), "{pair:?} comes twice");
    }
    let of = |run: &str, file: &str| -> Vec<String> {
        let text = workspace.succeed(format!("translate {run} --input {file}"));
        text.lines().map(str::to_owned).collect()
    };
    let (forward, backward) = (of("run", "data/val.aa"), of("back", "data/val.bb"));
    let (aa, bb) = (lines(&workspace, "data/val.aa"), lines(&workspace, "data/val.bb"));
    let mut seen = [false; 3];
    for (pair, origin) in pairs.iter().zip(&origins) {
        let fields: Vec<&str> = origin.split('\t').collect();
        let line = fields[1].parse::<usize>().expect("a line") - 1;
        let (number, expected) = match fields[0] {
            "original" => (0, (&aa[line], &bb[line])),
            "run" => (1, (&aa[line], &forward[line])),
            _ => (2, (&backward[line], &bb[line])),
        };
        seen[number] = true;
        assert_eq!(*pair, expected, "{origin}");
    }
    assert_eq!(seen, [true; 3]);
}

#[test]
fn pairs_that_both_models_find_unlikely_are_left_out() {
    let workspace = Workspace::of_frozen_run();
    let turned = "--set data.source_language=bb --set data.target_language=aa";
    workspace.succeed(format!("train tiny.toml --run back {turned}"));
    let make = |options: &str| format!("filter --forward run --backward back --data val {options}");
    let shown = workspace.succeed(make("--keep 0.5 --output half"));
    let (aa, bb) = (lines(&workspace, "data/val.aa"), lines(&workspace, "data/val.bb"));
    // Returns the negative mean log-probability of a token in each pair, computed by `score`.
    let scores = |run: &str, source: &str, target: &str| -> Vec<f64> {
        let all = format!("score {run} --source {source} --target {target} --json");
        let mean = |line: &str| {
            let record: serde_json::Value = serde_json::from_str(line).expect("a record");
            let all = record["token_log_probabilities"].as_array().expect("scores");
            -all.iter().filter_map(serde_json::Value::as_f64).sum::<f64>() / all.len() as f64
        };
        workspace.succeed(&all).lines().map(mean).collect()
    };
    let there = scores("run", "data/val.aa", "data/val.bb");
    let back = scores("back", "data/val.bb", "data/val.aa");
    let score = |index: usize| {
        let (there, back) = (there[index], back[index]);
        (-((there - back).abs() + (there + back) / 2.0)).exp()
    };
    let mut sorted: Vec<f64> = (0..aa.len()).map(score).collect();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let least = sorted[(aa.len() as f64 / 2.0).round() as usize - 1];
    let kept: Vec<usize> = (0..aa.len()).filter(|&index| score(index) >= least - 1e-9).collect();
    let of = |lines: &[String]| kept.iter().map(|&index| lines[index].clone()).collect::<Vec<_>>();
    assert_eq!(lines(&workspace, "half/train.aa"), of(&aa));
    assert_eq!(lines(&workspace, "half/train.bb"), of(&bb));
    mentions(&shown, &[&format!("below a score of {least:.4}"), "left out: line "]);
    // The same command again changes nothing. Another share to keep gives other pairs, so it needs
    // another folder.
    let before = bytes(&workspace, "half/made.json");
    assert_eq!(workspace.succeed(make("--keep 0.5 --output half")), shown);
    assert_eq!(bytes(&workspace, "half/made.json"), before);
    workspace.fail(make("--keep 0.6 --output half"), &["half", "another folder"]);
    workspace.succeed(make("--least 0 --output all"));
    assert_eq!(lines(&workspace, "all/train.aa"), aa);
    workspace.fail(make("--keep 1.5 --output x"), &["1.5", "between 0 and 1"]);
    let same = "filter --forward run --backward run --output x";
    workspace.fail(same, &["run: the run translates aa to bb", "bb to aa"]);
}
