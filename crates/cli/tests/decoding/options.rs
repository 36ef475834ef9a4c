//! Effects of the options of a search, and combinations that are refused.

use serde_json::Value;

use super::common::{Workspace, refused, set, stderr, stdout};
use super::{best, records};

pub(super) fn greedy_sampling_and_seeds(workspace: &Workspace, input: &str) {
    let greedy = records(workspace, "--beam 1", input);
    assert_eq!(records(workspace, "--top-k 1", input), greedy);
    assert_eq!(records(workspace, "--temperature 1e-6", input), greedy);
    let drawn = records(workspace, "--temperature 2 --seed 7", input);
    // Scores may differ in their last digits, because products of another size are rounded
    // differently, but the drawn translations must be the same.
    let one_by_one =
        records(workspace, "--temperature 2 --seed 7 --set decoding.batch_rows=1", input);
    assert!(one_by_one.iter().map(best).eq(drawn.iter().map(best)), "{one_by_one:?} {drawn:?}");
    assert_ne!(records(workspace, "--temperature 2 --seed 8", input), drawn);
    let refused = workspace.run_with_input("translate run --top-p 0", input.as_bytes());
    super::common::refused(&refused, &["decoding.sampling.top_p = 0"]);
    let single = records(workspace, "--no-repeat-ngram 1 --beam 1 --alignments", input);
    for record in single {
        let tokens =
            record["translations"][0]["alignment"]["target_tokens"].as_array().expect("tokens");
        assert!(
            tokens.iter().enumerate().all(|(place, token)| !tokens[..place].contains(token)),
            "{record}"
        );
    }
}

pub(super) fn prefixes_and_n_best(workspace: &Workspace, input: &str) {
    workspace.write("prefixes", "dog\n\nhere\nbig dogs\n");
    let found = records(workspace, "--prefix prefixes --n-best 3", input);
    for (record, prefix) in found.iter().zip(["dog", "", "here", "big dogs"]) {
        let translations = record["translations"].as_array().expect("translations");
        assert!(
            translations.iter().all(|one| one["text"].as_str().expect("text").starts_with(prefix)),
            "{record}"
        );
        let scores: Vec<f64> =
            translations.iter().map(|one| one["score"].as_f64().expect("score")).collect();
        assert!(scores.is_sorted_by(|a, b| a >= b), "{record}");
    }
    // Blanks around a prefix make no difference.
    workspace.write("prefixes", "  dog \n \nhere \n\tbig dogs\t\n");
    assert_eq!(records(workspace, "--prefix prefixes --n-best 3", input), found);
    let with_prefixes = "translate run --prefix prefixes";
    let output = workspace.run_with_input("translate run --prefix -", input.as_bytes());
    refused(&output, &["--prefix -"]);
    workspace.write("prefixes", "dog\n");
    let output = workspace.run_with_input(with_prefixes, input.as_bytes());
    refused(&output, &["prefixes ends after line 1, but standard input has a line 2"]);
    workspace.write("prefixes", "dog\n".repeat(6));
    let output = workspace.run_with_input(with_prefixes, input.as_bytes());
    refused(&output, &["standard input ends after line 4, but prefixes has a line 5"]);
    // A character that the vocabulary cannot spell would be missing from the translation, so the
    // prefix is refused.
    workspace.succeed("train tiny.toml --run characters --set data.tokenizer.byte_fallback=false");
    workspace.write("prefixes", "dog\n\n\u{6f22} dog\n\n");
    let output =
        workspace.run_with_input("translate characters --prefix prefixes", input.as_bytes());
    refused(&output, &["line 3", "prefix", "vocabulary cannot spell", "leave them out"]);
    workspace.write("prefixes", "dog\n".repeat(6));
    // For files, the numbers of lines are compared before the model is loaded.
    workspace.write("in.txt", input);
    workspace.fail(
        "translate nowhere --prefix prefixes -i in.txt",
        &["prefixes has 6 lines, but in.txt has 4"],
    );
}

pub(super) fn ensembles(workspace: &Workspace, input: &str) {
    let alone = records(workspace, "--checkpoint last", input);
    let last = workspace.read("run/checkpoints/last");
    let checkpoint = format!("run/checkpoints/{}", last.trim());
    assert_eq!(
        records(workspace, &format!("--checkpoint last --ensemble {checkpoint}"), input),
        alone
    );
    let first = "run/checkpoints/step-00000006";
    assert_ne!(
        records(workspace, &format!("--checkpoint last --ensemble {first} {checkpoint}"), input),
        alone
    );
    // An ensemble member that was trained in another data type computes in the type of the run.
    workspace.succeed("train tiny.toml --run halves --set dtype=bf16");
    let both = |dtype: &str| records(workspace, &format!("--ensemble halves --set {dtype}"), input);
    assert_ne!(both("dtype=f32"), both("dtype=bf16"));
    let as_run = workspace.run_with_input(format!("translate {first}"), input.as_bytes());
    refused(&as_run, &[first, "a checkpoint, not a run", "--checkpoint", "--from"]);

    workspace.succeed("train tiny.toml --run other --set data.tokenizer.vocabulary_size=290");
    let refused = workspace.run_with_input("translate run --ensemble other", input.as_bytes());
    super::common::refused(&refused, &["the ensemble's other: ", "another tokenizer"]);
}

pub(super) fn bench(workspace: &Workspace, input: &str) {
    workspace.write("in.txt", input);
    let report =
        workspace.json("bench decode run --input in.txt --beam 2 --threads 1 --repeats 2 --json");
    assert_eq!(
        (&report["sentences"], &report["threads"], &report["beam_size"]),
        (&4.into(), &1.into(), &2.into())
    );
    assert_eq!(report["seconds"].as_array().expect("seconds").len(), 2);
    let drawing = "--repeats 1 --set decoding.sampling.temperature=0.7 --json";
    let drawn = workspace.json(format!("bench decode run --input in.txt {drawing}"));
    assert_eq!(
        (&drawn["beam_size"], &drawn["decoding"]["sampling"]["temperature"]),
        (&Value::Null, &0.7.into())
    );
    for rate in ["sentences_per_second", "tokens_per_second", "first_translation_seconds"] {
        assert!(report[rate].as_f64().expect(rate) > 0.0, "{report}");
    }
    // Overlong lines are divided into the same parts as by `translate`.
    let long = "red cat sees. two big dogs run here. red cat sees.\ndogs run\n";
    workspace.write("long.txt", long);
    let short = "--set data.cleaning.max_tokens=8";
    let report =
        workspace.json(format!("bench decode run --input long.txt --repeats 1 --json {short}"));
    let tokens: u64 = records(workspace, &format!("--alignments {short}"), long)
        .iter()
        .map(|record| {
            let tokens = record["translations"][0]["alignment"]["target_tokens"]
                .as_array()
                .expect("tokens")
                .len() as u64;
            tokens + record["overlong"]["parts"].as_u64().unwrap_or(1)
        })
        .sum();
    assert_eq!(report["tokens"], tokens);
    workspace.write("empty.txt", "");
    workspace.fail("bench decode run --input empty.txt", &["empty.txt", "no line"]);
}

pub(super) fn options_without_effect(workspace: &Workspace, input: &str) {
    for (arguments, name) in [
        ("--seed 7", "--seed"),
        ("--temperature 0 --sample", "--sample"),
        ("--temperature 0 --top-k 3", "--top-k"),
        ("--top-p 0.5 --temperature 0", "--top-p"),
        ("--sample --beam 3", "--beam"),
    ] {
        let output =
            workspace.run_with_input(format!("translate run {arguments}"), input.as_bytes());
        refused(&output, &[name, "no effect if", "sampled"]);
    }
    let output = workspace.run_with_input("translate run --sample --beam 3", input.as_bytes());
    refused(&output, &["leave out --beam, or the options of sampling"]);
    // Options of sampling are accepted if the recipe of the run samples.
    assert_eq!(
        records(workspace, "--set decoding.sampling.temperature=2 --seed 7", input).len(),
        4
    );
    workspace.fail(
        "evaluate run --set decoding.sampling.temperature=2 --beam 3",
        &["--beam", "sampled"],
    );
    // Values that need too much memory, or lead to numbers that are not finite, are refused.
    for (option, value) in [
        ("--n-best", "18446744073709551615"),
        ("--repetition-penalty", "1e-50"),
        ("--repetition-penalty", "1e39"),
    ] {
        let output = workspace
            .run_with_input(format!("translate run --sample {option} '{value}'"), input.as_bytes());
        refused(&output, &["decoding."]);
    }
    // An unknown split is reported before other splits are decoded.
    workspace.fail("evaluate run --split test --split tset", &["tset"]);
}

pub(super) fn choosing_among_candidates(workspace: &Workspace, input: &str) {
    let text = |one: &Value| one["text"].as_str().expect("text").to_owned();
    let translations = |record: &Value| record["translations"].as_array().expect("a list").clone();
    let chosen = records(workspace, "--mbr 8", input);
    assert_eq!(records(workspace, "--mbr 8 --threads 3", input), chosen);
    // Candidates are drawn as without reranking, and the candidate with the best total is chosen.
    let drawn = records(workspace, "--sample --epsilon 0.02 --n-best 8", input);
    let all = records(workspace, "--mbr 8 --n-best 8", input);
    for ((drawn, all), chosen) in drawn.iter().zip(&all).zip(&chosen) {
        let (drawn, all) = (translations(drawn), translations(all));
        assert_eq!(translations(chosen), all[..1]);
        let sorted = |list: &[Value]| {
            let mut texts: Vec<String> = list.iter().map(text).collect();
            texts.sort();
            texts
        };
        assert_eq!(sorted(&drawn), sorted(&all));
        let totals: Vec<f64> =
            all.iter().map(|one| one["total"].as_f64().expect("a total")).collect();
        assert!(totals.is_sorted_by(|a, b| a >= b), "{totals:?}");
        assert!(drawn.iter().all(|one| one.get("total").is_none()), "{drawn:?}");
    }
    // The seed chooses the candidates that are drawn.
    let seeded =
        |seed: usize| records(workspace, &format!("--mbr 8 --n-best 8 --seed {seed}"), input);
    assert_eq!(seeded(1), records(workspace, "--mbr 8 --n-best 8", input));
    assert_ne!(seeded(2), seeded(1));
    // With the model's score as the only criterion, the order is that of a search.
    let own = "--beam 4 --mbr 4 --set decoding.reranking.utility_weight=0 \
         --set decoding.reranking.model_weight=1";
    let best = |list: &[Value]| -> Vec<String> {
        list.iter().map(|record| text(&translations(record)[0])).collect()
    };
    let searched = records(workspace, "--beam 4 --n-best 4", input);
    assert_eq!(best(&records(workspace, own, input)), best(&searched));
    for utility in ["aggregated-chrf", "bleu"] {
        let utility = format!("decoding.reranking.utility={utility}");
        assert_eq!(records(workspace, &format!("--mbr 4 --set {utility}"), input).len(), 4);
    }
    // With a confidence of 1 nothing is pruned. With less, the translations that are returned have
    // totals, and depend neither on threads nor on windows.
    let pruned = |confidence: &str, more: &str| {
        let key = format!("decoding.reranking.pruning.confidence={confidence}");
        let all = format!("--mbr 16 --set decoding.reranking.pruning.references=4 --set {key}");
        records(workspace, &format!("{all} {more}"), input)
    };
    assert_eq!(pruned("1", "--n-best 3"), records(workspace, "--mbr 16 --n-best 3", input));
    let two = pruned("0.9", "--n-best 2");
    assert_eq!(pruned("0.9", "--n-best 2 --threads 3 --window 1"), two);
    let totals = |record: &Value| translations(record).iter().all(|one| one["total"].is_f64());
    assert!(two.iter().all(totals), "{two:?}");
    // The chosen candidate has the terms.
    workspace.write("terms.tsv", "red\tscarlet\n");
    for record in records(workspace, "--mbr 4 --terms terms.tsv", "red cat sees\n") {
        assert!(text(&translations(&record)[0]).contains("scarlet"), "{record}");
    }
    for (arguments, parts) in [
        ("--mbr 8 --beam 4", &["a beam of 4", "the 8 translations of --mbr"][..]),
        ("--mbr 1", &["decoding.reranking.candidates = 1", "from 2"]),
        ("--mbr 8 --temperature 0", &["--temperature 0", "--mbr", "--beam"]),
        ("--mbr 4 --beam 4 --seed 3", &["--seed has no effect"]),
        ("--sample --epsilon 1", &["decoding.sampling.epsilon = 1", "below 1"]),
        (
            "--mbr 4 --beam 4 --set decoding.reranking.pruning.confidence=0.9",
            &["decoding.reranking.pruning.confidence = 0.9", "decoding.sampling.temperature"],
        ),
        (
            "--mbr 4 --set decoding.reranking.utility=aggregated-chrf \
             --set decoding.reranking.pruning.confidence=0.9",
            &["decoding.reranking.pruning.confidence = 0.9", "decoding.reranking.utility"],
        ),
    ] {
        let output =
            workspace.run_with_input(format!("translate run {arguments}"), input.as_bytes());
        refused(&output, parts);
    }
    // `evaluate` chooses among candidates too.
    let record = workspace.json("evaluate run --mbr 8 --json");
    assert_eq!(record["decoding"]["reranking"]["candidates"], 8, "{record}");
}

/// Checks that the total score of a candidate includes the weighted log-probability that a reverse
/// model gives to it, as `score` computes it.
pub(super) fn reranking_by_other_models(workspace: &Workspace, input: &str) {
    let swapped = "data.source_language=bb data.target_language=aa \
         data.train=[{source='data/train.bb',target='data/train.aa'}] \
         data.validation=[] data.test=[]";
    workspace.succeed(format!("train tiny.toml --run back {}", set(swapped)));
    let weights = "decoding.reranking.reverse=back decoding.reranking.reverse_weight=0.7 \
         decoding.reranking.utility_weight=0 decoding.reranking.model_weight=0.5";
    let options = format!("--beam 3 --mbr 3 --n-best 3 {}", set(weights));
    let found = records(workspace, &options, input);
    let (mut sources, mut candidates) = (String::new(), String::new());
    let mut totals = Vec::new();
    for record in &found {
        for one in record["translations"].as_array().expect("a list") {
            sources += &format!("{}\n", record["source"].as_str().expect("a source"));
            candidates += &format!("{}\n", one["text"].as_str().expect("text"));
            totals.push((one["total"].as_f64().expect("a total"), one["score"].as_f64()));
        }
    }
    workspace.write("sources", sources);
    workspace.write("candidates", candidates);
    let score = "score back --source candidates --target sources --json";
    let scored = workspace.succeed(score);
    assert_eq!(scored.lines().count(), totals.len());
    for (line, (total, score)) in scored.lines().zip(totals) {
        let record: Value = serde_json::from_str(line).expect("JSON");
        let length = record["token_log_probabilities"].as_array().expect("a list").len();
        let back = record["log_probability"].as_f64().expect("a number") / length.max(1) as f64;
        let expected = 0.5 * score.expect("a score") + 0.7 * back;
        assert!((total - expected).abs() < 1e-4, "{total} and not {expected}: {line}");
    }
    // A page has only one run.
    workspace.write("module.wasm", b"\0asm\x01\0\0\0");
    let choosing = "decoding.reranking.candidates=3 decoding.reranking.reverse=back";
    workspace.succeed(format!("train tiny.toml --run choosing {}", set(choosing)));
    workspace.fail(
        "page choosing page.html --module module.wasm",
        &["choosing", "decoding.reranking.candidates = 0"],
    );
    let run = "translate run --mbr 3 --set";
    for (set, parts) in [
        ("decoding.reranking.reverse=run", &["translates aa to bb", "bb back to aa"][..]),
        ("decoding.reranking.reverse=nowhere", &["decoding.reranking.reverse", "nowhere"]),
        ("decoding.reranking.language_model=run", &["decoding.reranking.language_model", "run"]),
    ] {
        let output = workspace.run_with_input(format!("{run} {set}"), input.as_bytes());
        refused(&output, parts);
    }
}

/// Checks that `evaluate` draws the same translations as `translate`: both number the lines in the
/// same way.
pub(super) fn evaluation_draws_as_translate(workspace: &Workspace) {
    let evaluated = |arguments: &str| {
        let record = workspace.json(format!("evaluate run --json {arguments}"));
        (record["results"][0]["chrf"]["score"].as_f64().expect("a score"), record)
    };
    // If several translations are drawn, the best is scored.
    for draws in ["decoding.n_best=1", "decoding.n_best=3"] {
        let drawing = format!("--set decoding.sampling.temperature=0.7 --set {draws}");
        let file = format!("{draws}.txt");
        workspace.succeed(format!("translate run -i data/test.aa -o {file} {drawing}"));
        let scored = workspace.succeed(format!("bleu {file} data/test.bb -m chrf -b -w 10"));
        let (score, record) = evaluated(&drawing);
        assert_eq!(format!("{score:.10}"), scored.trim(), "{draws}");
        assert_ne!(score, evaluated(&format!("{drawing} --set decoding.sampling.seed=2")).0);
        // The record says how the translations were made.
        assert_eq!(
            (&record["beam_size"], &record["decoding"]["sampling"]["temperature"]),
            (&Value::Null, &0.7.into())
        );
    }
    let (_, searched) = evaluated("--set decoding.length_reward=0.5");
    assert_eq!(
        (&searched["beam_size"], &searched["length_penalty"]),
        (&2.into(), &searched["decoding"]["length_penalty"])
    );
    assert_eq!(
        (&searched["decoding"]["length_reward"], &searched["decoding"]["n_best"]),
        (&0.5.into(), &1.into())
    );
}

/// Checks that outputs are no longer than the learned positions: in validation, in tests and in
/// every command.
pub(super) fn learned_positions(workspace: &Workspace, input: &str) {
    let long = "decoding.max_length=200 decoding.max_length_offset=200 decoding.min_length=100";
    let shape = "model.positions=learned model.max_positions=40";
    workspace.succeed(format!("train tiny.toml --run learned {} {}", set(long), set(shape)));
    workspace.write("in.txt", input);
    workspace.succeed("evaluate learned");
    workspace.succeed("bench decode learned --input in.txt --repeats 1");
    for arguments in ["--beam 1", "--beam 3", "--sample", "--ensemble learned"] {
        let arguments = format!("translate learned --json --alignments {arguments}");
        let output = workspace.run_with_input(&arguments, b"red cat sees\n");
        assert!(output.status.success(), "{}", stderr(&output));
        let record: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        let tokens =
            record["translations"][0]["alignment"]["target_tokens"].as_array().expect("tokens");
        assert_eq!(tokens.len(), 39, "{arguments:?}");
    }
    // In an ensemble, the limit of a line is that of the member with the fewest positions.
    let long_line = "red cat sees. ".repeat(30);
    let output = workspace.run_with_input("translate run --ensemble learned", long_line.as_bytes());
    assert!(
        output.status.success() && stderr(&output).contains("more than 39: translated in"),
        "{}",
        stderr(&output)
    );
    // If positions are the limit, the error does not advise an option that cannot raise it.
    workspace.write("long.aa", &long_line);
    let strict = "translate learned -i long.aa --overlong error --max-source-tokens 50";
    let message = workspace.fail(strict, &["line 1 has", "more than 39", "model.max_positions"]);
    assert!(!message.contains("--max-source-tokens"), "{message}");
    for (source, target) in [("long.aa", "short.bb"), ("short.bb", "long.aa")] {
        workspace.write("short.bb", "cat\n");
        let score = format!("score learned --source {source} --target {target} --max-tokens 5000");
        workspace.fail(&score, &["long.aa, line 1", "more than 39", "model.max_positions"]);
    }
    // An error names the right line, even if lines before it were divided into parts.
    workspace.write("prefixes", format!("\n\n{}\n", "dog ".repeat(60)));
    let input = format!("{long_line}\n\ncat\n");
    let output = workspace.run_with_input("translate learned --prefix prefixes", input.as_bytes());
    refused(&output, &["line 3: the prefix of sentence 3 has", "outputs of 39", "shorten it"]);
}
