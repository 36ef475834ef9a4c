//! The options of `translate` and `bench decode`, in the real binary on a small trained run.

mod common;

use std::fs;

use common::{Workspace, refused, stderr, stdout};
use serde_json::Value;

/// The lines of a window of `translate`.
const WINDOW: usize = 128 + 256 + 512 + 1024 + 2048;

/// The JSON record of each line that `translate` prints for `input`.
fn records(workspace: &Workspace, arguments: &[&str], input: &str) -> Vec<Value> {
    let output = workspace
        .run_with_input(&[&["translate", "run", "--json"], arguments].concat(), input.as_bytes());
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn best(record: &Value) -> &str {
    record["translations"][0]["text"].as_str().expect("text")
}

/// One training serves all checks; it takes most of the time.
#[test]
fn decoding_options() {
    let workspace = Workspace::new();
    workspace.train("run");
    let input = "red cat sees\ntwo big dogs run here\n\nred cat sees\n";
    greedy_sampling_and_seeds(&workspace, input);
    prefixes_and_n_best(&workspace, input);
    ensembles(&workspace, input);
    alignments(&workspace, input);
    overlong_lines(&workspace);
    lines_without_blanks(&workspace);
    #[cfg(target_os = "linux")]
    alignments_of_long_lines_take_little_memory(&workspace);
    bench(&workspace, input);
    options_without_effect(&workspace, input);
    evaluation_draws_as_translate(&workspace);
    marks_and_pipes(&workspace, input);
    endless(&workspace, input);
    windows(&workspace);
    one_line_at_a_time(&workspace, input);
    output_files(&workspace, input);
    learned_positions(&workspace, input);
}

fn greedy_sampling_and_seeds(workspace: &Workspace, input: &str) {
    let greedy = records(workspace, &["--beam", "1"], input);
    assert_eq!(records(workspace, &["--top-k", "1"], input), greedy);
    assert_eq!(records(workspace, &["--temperature", "1e-6"], input), greedy);
    let drawn = records(workspace, &["--temperature", "2", "--seed", "7"], input);
    // Scores may differ in their last digits, since products of other sizes round otherwise; draws
    // may not.
    let one_by_one = records(
        workspace,
        &["--temperature", "2", "--seed", "7", "--set", "decoding.batch_rows=1"],
        input,
    );
    assert!(one_by_one.iter().map(best).eq(drawn.iter().map(best)), "{one_by_one:?} {drawn:?}");
    assert_ne!(records(workspace, &["--temperature", "2", "--seed", "8"], input), drawn);
    let refused = workspace.run_with_input(&["translate", "run", "--top-p", "0"], input.as_bytes());
    common::refused(&refused, &["decoding.sampling.top_p = 0"]);
    let single =
        records(workspace, &["--no-repeat-ngram", "1", "--beam", "1", "--alignments"], input);
    for record in single {
        let tokens =
            record["translations"][0]["alignment"]["target_tokens"].as_array().expect("tokens");
        assert!(
            tokens.iter().enumerate().all(|(place, token)| !tokens[..place].contains(token)),
            "{record}"
        );
    }
}

fn prefixes_and_n_best(workspace: &Workspace, input: &str) {
    workspace.write("prefixes", "dog\n\nhere\nbig dogs\n");
    let found = records(workspace, &["--prefix", "prefixes", "--n-best", "3"], input);
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
    // A blank is no word.
    workspace.write("prefixes", "  dog \n \nhere \n\tbig dogs\t\n");
    assert_eq!(records(workspace, &["--prefix", "prefixes", "--n-best", "3"], input), found);
    let with_prefixes = ["translate", "run", "--prefix", "prefixes"];
    let output = workspace.run_with_input(&["translate", "run", "--prefix", "-"], input.as_bytes());
    refused(&output, &["--prefix -"]);
    workspace.write("prefixes", "dog\n");
    let output = workspace.run_with_input(&with_prefixes, input.as_bytes());
    refused(&output, &["prefixes ends after line 1, but standard input has a line 2"]);
    workspace.write("prefixes", "dog\n".repeat(6));
    let output = workspace.run_with_input(&with_prefixes, input.as_bytes());
    refused(&output, &["standard input ends after line 4, but prefixes has a line 5"]);
    // What cannot be spelled would be left out without a word.
    workspace.succeed(&[
        "train",
        "tiny.toml",
        "--run",
        "characters",
        "--set",
        "data.tokenizer.byte_fallback=false",
    ]);
    workspace.write("prefixes", "dog\n\n\u{6f22} dog\n\n");
    let output = workspace
        .run_with_input(&["translate", "characters", "--prefix", "prefixes"], input.as_bytes());
    refused(&output, &["line 3", "prefix", "vocabulary cannot spell", "leave them out"]);
    workspace.write("prefixes", "dog\n".repeat(6));
    // Of files it is known before the model is loaded.
    workspace.write("in.txt", input);
    workspace.fail(
        &["translate", "nowhere", "--prefix", "prefixes", "-i", "in.txt"],
        &["prefixes has 6 lines, but in.txt has 4"],
    );
}

fn ensembles(workspace: &Workspace, input: &str) {
    let alone = records(workspace, &["--checkpoint", "last"], input);
    let last = std::fs::read_to_string(workspace.path("run/checkpoints/last")).expect("last");
    let checkpoint = format!("run/checkpoints/{}", last.trim());
    assert_eq!(
        records(workspace, &["--checkpoint", "last", "--ensemble", &checkpoint], input),
        alone
    );
    let first = "run/checkpoints/step-00000006";
    assert_ne!(
        records(workspace, &["--checkpoint", "last", "--ensemble", first, &checkpoint], input),
        alone
    );
    // One that was trained in another type computes in that of the run.
    workspace.succeed(&["train", "tiny.toml", "--run", "halves", "--set", "dtype=bf16"]);
    let both = |dtype: &str| records(workspace, &["--ensemble", "halves", "--set", dtype], input);
    assert_ne!(both("dtype=f32"), both("dtype=bf16"));
    let as_run = workspace.run_with_input(&["translate", first], input.as_bytes());
    refused(&as_run, &[first, "a checkpoint, not a run", "--checkpoint", "--from"]);

    workspace.succeed(&[
        "train",
        "tiny.toml",
        "--run",
        "other",
        "--set",
        "data.tokenizer.vocabulary_size=290",
    ]);
    let refused =
        workspace.run_with_input(&["translate", "run", "--ensemble", "other"], input.as_bytes());
    common::refused(&refused, &["--ensemble other", "tokenizer"]);
}

fn alignments(workspace: &Workspace, input: &str) {
    let plain = workspace.run_with_input(&["translate", "run", "--alignments"], input.as_bytes());
    let plain = stdout(&plain);
    let records = records(workspace, &["--alignments"], input);
    assert_eq!((plain.lines().count(), records.len()), (4, 4));
    for (line, record) in plain.lines().zip(records) {
        let (text, pairs) = line.split_once('\t').expect("a tab");
        assert_eq!(text, best(&record));
        let alignment = &record["translations"][0]["alignment"];
        let from_json: Vec<String> = alignment["pairs"]
            .as_array()
            .expect("pairs")
            .iter()
            .map(|pair| format!("{}-{}", pair[0], pair[1]))
            .collect();
        assert_eq!(pairs, from_json.join(" "));
        let sources = alignment["source_tokens"].as_array().expect("tokens").len();
        for row in alignment["weights"].as_array().expect("weights") {
            assert_eq!(row.as_array().expect("row").len(), sources);
        }
    }
}

fn overlong_lines(workspace: &Workspace) {
    let long = "red cat sees. two big dogs run here. red cat sees.\n";
    let output = workspace.run_with_input(
        &["translate", "run", "--max-source-tokens", "8", "--json", "--alignments"],
        long.as_bytes(),
    );
    assert!(stderr(&output).starts_with("line 1: "), "{}", stderr(&output));
    let record: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(record["overlong"]["rule"], "split");
    let parts = record["overlong"]["parts"].as_u64().expect("parts");
    assert!(parts > 1, "{record}");
    let alignment = &record["translations"][0]["alignment"];
    // The tokens are those of the line, however it was divided.
    let whole = records(workspace, &["--alignments"], long);
    let sources = alignment["source_tokens"].as_array().expect("tokens");
    assert_eq!(
        sources,
        whole[0]["translations"][0]["alignment"]["source_tokens"].as_array().expect("tokens")
    );
    let weights = alignment["weights"].as_array().expect("weights");
    assert_eq!(weights.len(), alignment["target_tokens"].as_array().expect("tokens").len());
    for row in weights {
        let row: Vec<f64> = row
            .as_array()
            .expect("row")
            .iter()
            .map(|weight| weight.as_f64().expect("a number"))
            .collect();
        assert_eq!(row.len(), sources.len());
        assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-4, "{row:?}");
    }
    // Of the last part, no pair points beyond the words of the line.
    let pairs = alignment["pairs"].as_array().expect("pairs");
    assert!(
        pairs.iter().all(|pair| pair[0].as_u64().expect("a position") + 1 < sources.len() as u64),
        "{pairs:?}"
    );

    let cut = records(workspace, &["--max-source-tokens", "8", "--overlong", "cut"], long);
    assert_eq!(cut[0]["overlong"]["rule"], "cut");
    let refused = workspace.run_with_input(
        &["translate", "run", "--max-source-tokens", "8", "--overlong", "error"],
        long.as_bytes(),
    );
    common::refused(&refused, &["line 1 has", "more than 8"]);
    assert!(records(workspace, &[], long)[0].get("overlong").is_none());
}

/// Parts that do not begin after a blank have a mark of their own there, which the line has not.
fn lines_without_blanks(workspace: &Workspace) {
    let line = "\u{4eca}\u{5929}\u{6211}\u{4eec}\u{53bb}\u{3002}\u{6821}\u{5728}\u{5b66}\u{3002}redcatsees,redcatsees\n";
    let whole = &records(workspace, &["--alignments"], line)[0]["translations"][0]["alignment"];
    let split = &records(workspace, &["--alignments", "--max-source-tokens", "12"], line)[0];
    assert!(split["overlong"]["parts"].as_u64().expect("parts") > 2, "{split}");
    let alignment = &split["translations"][0]["alignment"];
    assert_eq!(alignment["source_tokens"], whole["source_tokens"]);
    let sources = alignment["source_tokens"].as_array().expect("tokens").len();
    let rows: Vec<Vec<f64>> =
        serde_json::from_value(alignment["weights"].clone()).expect("weights");
    assert!(
        rows.iter().all(|row| row.len() == sources && (row.iter().sum::<f64>() - 1.0).abs() < 1e-4),
        "{rows:?}"
    );
    let pairs: Vec<(usize, usize)> =
        serde_json::from_value(alignment["pairs"].clone()).expect("pairs");
    assert_eq!(pairs.len(), rows.len());
    // What is attended to most is among what is attended to at all.
    assert!(
        pairs.iter().all(|&(source, target)| source + 1 < sources && rows[target][source] > 0.0),
        "{pairs:?}"
    );
}

/// Each of the lines has megabytes of weights: they are held one line after the other, and not at
/// all where only pairs are shown.
#[cfg(target_os = "linux")]
fn alignments_of_long_lines_take_little_memory(workspace: &Workspace) {
    let line = "red cat sees two big dogs run here. ".repeat(100) + "\n";
    workspace.write("long.txt", line.repeat(80));
    let translate = "ulimit -v 300000; \"$0\" translate run -i long.txt --alignments --window 80 --max-source-tokens 20 --beam 1 \
                     --set threads=2 --set decoding.min_length=20";
    let output = workspace.script(&["sh"], translate);
    assert!(output.status.success(), "{}", stderr(&output));
    let plain = stdout(&output);
    let count = stdout(&workspace.script(&["sh"], &format!("{translate} --json | wc -l")));
    assert_eq!((plain.lines().count(), count.trim()), (80, "80"));
    workspace.write("long.txt", &line);
    let record: Value =
        serde_json::from_str(&stdout(&workspace.script(&["sh"], &format!("{translate} --json"))))
            .expect("JSON");
    let alignment = &record["translations"][0]["alignment"];
    let length = |key: &str| alignment[key].as_array().expect(key).len();
    assert!(
        length("weights") * length("source_tokens") > 1 << 20,
        "{} {}",
        length("weights"),
        length("source_tokens")
    );
    let (_, pairs) = plain.lines().next().and_then(|line| line.rsplit_once('\t')).expect("a tab");
    assert_eq!(pairs.split(' ').count(), length("pairs"));
}

fn bench(workspace: &Workspace, input: &str) {
    workspace.write("in.txt", input);
    let shown = workspace.succeed(&[
        "bench",
        "decode",
        "run",
        "--input",
        "in.txt",
        "--beam",
        "2",
        "--threads",
        "1",
        "--repeats",
        "2",
        "--json",
    ]);
    let report: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(
        (&report["sentences"], &report["threads"], &report["beam_size"]),
        (&4.into(), &1.into(), &2.into())
    );
    assert_eq!(report["seconds"].as_array().expect("seconds").len(), 2);
    let drawing = ["--repeats", "1", "--set", "decoding.sampling.temperature=0.7", "--json"];
    let shown = workspace
        .succeed(&[&["bench", "decode", "run", "--input", "in.txt"], &drawing[..]].concat());
    let drawn: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(
        (&drawn["beam_size"], &drawn["decoding"]["sampling"]["temperature"]),
        (&Value::Null, &0.7.into())
    );
    for rate in ["sentences_per_second", "tokens_per_second", "first_translation_seconds"] {
        assert!(report[rate].as_f64().expect(rate) > 0.0, "{report}");
    }
    // Overlong lines are translated in the parts in which `translate` does it.
    let long = "red cat sees. two big dogs run here. red cat sees.\ndogs run\n";
    workspace.write("long.txt", long);
    let short = ["--set", "data.cleaning.max_tokens=8"];
    let shown = workspace.succeed(
        &[
            &["bench", "decode", "run", "--input", "long.txt", "--repeats", "1", "--json"],
            &short[..],
        ]
        .concat(),
    );
    let report: Value = serde_json::from_str(&shown).expect("JSON");
    let tokens: u64 = records(workspace, &[&["--alignments"], &short[..]].concat(), long)
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
    workspace.fail(&["bench", "decode", "run", "--input", "empty.txt"], &["empty.txt", "no line"]);
}

fn options_without_effect(workspace: &Workspace, input: &str) {
    for (arguments, name) in [
        (&["--seed", "7"][..], "--seed"),
        (&["--temperature", "0", "--sample"], "--sample"),
        (&["--temperature", "0", "--top-k", "3"], "--top-k"),
        (&["--top-p", "0.5", "--temperature", "0"], "--top-p"),
        (&["--sample", "--beam", "3"], "--beam"),
    ] {
        let output = workspace
            .run_with_input(&[&["translate", "run"], arguments].concat(), input.as_bytes());
        refused(&output, &[name, "no effect where", "drawn"]);
    }
    let output = workspace
        .run_with_input(&["translate", "run", "--sample", "--beam", "3"], input.as_bytes());
    refused(&output, &["leave it out, or the options of drawing"]);
    // A run may draw by its recipe.
    assert_eq!(
        records(workspace, &["--set", "decoding.sampling.temperature=2", "--seed", "7"], input)
            .len(),
        4
    );
    workspace.fail(
        &["evaluate", "run", "--set", "decoding.sampling.temperature=2", "--beam", "3"],
        &["--beam", "drawn"],
    );
    // What cannot be held is refused, and so is what would end in numbers that are none.
    for (option, value) in [
        ("--n-best", "18446744073709551615"),
        ("--repetition-penalty", "1e-50"),
        ("--repetition-penalty", "1e39"),
    ] {
        let output = workspace
            .run_with_input(&["translate", "run", "--sample", option, value], input.as_bytes());
        refused(&output, &["decoding."]);
    }
    // A split that is not there is told before the others are decoded.
    workspace.fail(&["evaluate", "run", "--split", "test", "--split", "tset"], &["tset"]);
}

/// One line has one number, whichever command draws its translation.
fn evaluation_draws_as_translate(workspace: &Workspace) {
    let drawing = ["--set", "decoding.sampling.temperature=0.7"];
    let evaluated = |arguments: &[&str]| {
        let shown = workspace.succeed(&[&["evaluate", "run", "--json"], arguments].concat());
        let record: Value = serde_json::from_str(&shown).expect("JSON");
        (record["results"][0]["chrf"]["score"].as_f64().expect("a score"), record)
    };
    // Of several draws the best counts.
    for draws in ["decoding.n_best=1", "decoding.n_best=3"] {
        let drawing = [&drawing[..], &["--set", draws]].concat();
        let file = format!("{draws}.txt");
        workspace.succeed(
            &[&["translate", "run", "-i", "data/test.aa", "-o", &file], &drawing[..]].concat(),
        );
        let scored =
            workspace.succeed(&["bleu", &file, "data/test.bb", "-m", "chrf", "-b", "-w", "10"]);
        let (score, record) = evaluated(&drawing);
        assert_eq!(format!("{score:.10}"), scored.trim(), "{draws}");
        assert_ne!(
            score,
            evaluated(&[&drawing[..], &["--set", "decoding.sampling.seed=2"]].concat()).0
        );
        // The record says how they were made.
        assert_eq!(
            (&record["beam_size"], &record["decoding"]["sampling"]["temperature"]),
            (&Value::Null, &0.7.into())
        );
    }
    let (_, searched) = evaluated(&["--set", "decoding.length_reward=0.5"]);
    assert_eq!(
        (&searched["beam_size"], &searched["length_penalty"]),
        (&2.into(), &searched["decoding"]["length_penalty"])
    );
    assert_eq!(
        (&searched["decoding"]["length_reward"], &searched["decoding"]["n_best"]),
        (&0.5.into(), &1.into())
    );
}

/// Standard input is read as files are, and a file that can be read only once is not read twice.
fn marks_and_pipes(workspace: &Workspace, input: &str) {
    let plain = records(workspace, &[], input);
    let marked = format!("\u{feff}{input}");
    assert_eq!(records(workspace, &[], &marked), plain);
    workspace.write("marked.txt", &marked);
    let from_file = workspace.succeed(&["translate", "run", "--json", "--input", "marked.txt"]);
    assert_eq!(
        from_file
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
            .collect::<Vec<_>>(),
        plain
    );
    if cfg!(unix) {
        assert_eq!(records(workspace, &["--input", "/dev/stdin"], input), plain);
    }
}

/// What makes translations of thousands of lines a matter of a second.
const QUICK: [&str; 6] = ["translate", "run", "--beam", "1", "--set", "decoding.max_length=4"];

/// More lines than a window has, the same four again and again.
fn many_lines() -> Vec<String> {
    (0..WINDOW + 300)
        .map(|line| ["red cat sees", "", "two big dogs", "cat"][line % 4].to_owned())
        .collect()
}

/// A translation that never ended is no success to be silent about.
fn endless(workspace: &Workspace, input: &str) {
    let reward = ["--set", "decoding.length_reward=20", "--set", "decoding.max_length=30"];
    let output =
        workspace.run_with_input(&[&["translate", "run"], &reward[..]].concat(), input.as_bytes());
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("warning: 3 of 4 translations (line 1 is the first) reached the maximum"),
        "{said}"
    );
    let records = records(workspace, &reward, input);
    let truncated = |record: &Value| record["translations"][0]["truncated"] == true;
    assert_eq!(records.iter().map(truncated).collect::<Vec<_>>(), [true, true, false, true]);
    let output = workspace.run(&[&["evaluate", "run", "--json"], &reward[..]].concat());
    assert!(
        stderr(&output).contains("warning: 12 of 12 translations of test"),
        "{}",
        stderr(&output)
    );
    let report: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(report["results"][0]["truncated"], 12);
    // One that may be as long as it likes ends by itself.
    let long = ["--set", "decoding.max_length=200", "--set", "decoding.max_length_offset=200"];
    let output = workspace.run_with_input(
        &[&["translate", "run", "--beam", "1", "--no-repeat-ngram", "1"], &long[..]].concat(),
        b"cat\n",
    );
    assert!(!stderr(&output).contains("warning"), "{}", stderr(&output));
}

fn windows(workspace: &Workspace) {
    let mut lines = many_lines();
    let output = workspace
        .run_with_input(&[&QUICK[..], &["--json"]].concat(), (lines.join("\n") + "\n").as_bytes());
    assert!(output.status.success(), "{}", stderr(&output));
    let records: Vec<Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(records.len(), lines.len());
    for (index, (record, line)) in records.iter().zip(&lines).enumerate() {
        assert_eq!(
            (&record["line"], &record["source"]),
            (&(index + 1).into(), &line.as_str().into())
        );
        assert_eq!(best(record), best(&records[index % 4]), "line {}", index + 1);
    }
    // The same lines are drawn again in the second window, by other numbers.
    let arguments = ["translate", "run", "--sample", "--set", "decoding.max_length=4"];
    let drawn = stdout(&workspace.run_with_input(&arguments, (lines.join("\n") + "\n").as_bytes()));
    assert_eq!(drawn.lines().count(), lines.len());
    assert!(drawn.lines().skip(WINDOW).ne(drawn.lines().take(lines.len() - WINDOW)));

    // What fails late leaves what was finished.
    let plain = stdout(&workspace.run_with_input(&QUICK, (lines.join("\n") + "\n").as_bytes()));
    let mut broken = lines.join("\n").into_bytes();
    broken.extend_from_slice(b"\n\xff\n");
    let output = workspace.run_with_input(&QUICK, &broken);
    refused(&output, &[&format!("standard input, line {}", lines.len() + 1), "UTF-8"]);
    let finished: String = plain.split_inclusive('\n').take(WINDOW).collect();
    assert!(stdout(&output) == finished, "{} lines", stdout(&output).lines().count());
    let output =
        workspace.run_with_input(&[&QUICK[..], &["--output", "late.txt"]].concat(), &broken);
    refused(&output, &["standard input, line"]);
    assert!(
        stderr(&output)
            .contains("3968 lines were translated and are in late.txt.part; line 3969 is the next"),
        "{}",
        stderr(&output)
    );
    assert!(!workspace.path("late.txt").exists());
    assert!(fs::read_to_string(workspace.path("late.txt.part")).expect("read") == finished);
    // It is not lost to the next attempt.
    let again =
        workspace.run_with_input(&[&QUICK[..], &["--output", "late.txt"]].concat(), b"cat\n");
    refused(&again, &["late.txt.part exists already"]);
    // Of a file the fault is known before the model is loaded.
    workspace.write("broken.txt", &broken);
    workspace.fail(
        &["translate", "nowhere", "--input", "broken.txt"],
        &[&format!("broken.txt, line {}", lines.len() + 1), "UTF-8"],
    );

    // Prefixes keep step with the lines over windows.
    lines.truncate(WINDOW + 2);
    workspace.write(
        "prefixes",
        lines.iter().map(|line| if line.is_empty() { "\n" } else { "dog\n" }).collect::<String>(),
    );
    workspace.write("in.txt", lines.join("\n") + "\n");
    let prefixed =
        workspace.succeed(&[&QUICK[..], &["--prefix", "prefixes", "--input", "in.txt"]].concat());
    assert_eq!(prefixed.lines().count(), lines.len());
    assert!(
        prefixed
            .lines()
            .zip(&lines)
            .all(|(found, line)| found.starts_with("dog") != line.is_empty())
    );
}

/// A program at the other end of the pipes may wait for each translation before it writes the next
/// line.
fn one_line_at_a_time(workspace: &Workspace, input: &str) {
    use std::io::{BufRead, BufReader, Write};
    use std::process::Stdio;
    use std::sync::mpsc;
    use std::time::Duration;

    let mut command = workspace.command(&["translate", "run", "--json", "--window", "1"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the binary starts");
    let (mut stdin, stdout) =
        (child.stdin.take().expect("stdin"), child.stdout.take().expect("stdout"));
    let (sender, answers) = mpsc::channel();
    std::thread::spawn(move || {
        BufReader::new(stdout).lines().try_for_each(|line| sender.send(line.expect("UTF-8")))
    });
    for (line, record) in input.lines().zip(records(workspace, &[], input)) {
        writeln!(stdin, "{line}").expect("it reads");
        // Waits for ever where the program waits for more: better an end with a word.
        let answer =
            answers.recv_timeout(Duration::from_secs(120)).expect("an answer before the next line");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!((&answer["line"], best(&answer)), (&record["line"], best(&record)));
    }
    drop(stdin);
    assert!(child.wait().expect("the binary ends").success());
    workspace.fail(&["translate", "run", "--window", "0"], &["--window"]);
}

fn output_files(workspace: &Workspace, input: &str) {
    // Before the model is loaded: there is none.
    workspace.write("in.txt", input);
    let to = |path: &'static str| ["translate", "nowhere", "--input", "in.txt", "--output", path];
    workspace.fail(&to("missing/out.txt"), &["missing/out.txt", "no such folder", "make it"]);
    workspace
        .fail(&to("in.txt/out.txt"), &["in.txt/out.txt", "cannot be written", "another --output"]);
    workspace.fail(&to("in.txt"), &["in.txt exists already"]);
    workspace.fail(&to("new.txt"), &["nowhere", "no such run"]);
    assert!(
        !workspace.path("new.txt").exists() && !workspace.path("new.txt.part").exists(),
        "an empty file was left behind"
    );
    #[cfg(unix)]
    {
        // What is not a file cannot appear whole, and need not.
        assert_eq!(
            workspace.succeed(&["translate", "run", "--input", "in.txt", "--output", "/dev/null"]),
            ""
        );
        let piped =
            workspace.script(&["sh"], "\"$0\" translate run -i in.txt -o /dev/fd/3 3>&1 | cat");
        assert_eq!(stdout(&piped), workspace.succeed(&["translate", "run", "--input", "in.txt"]));
        interrupted(workspace);
        killed(workspace);
    }
}

#[cfg(unix)]
fn interrupted(workspace: &Workspace) {
    use std::io::Write;
    use std::process::Stdio;

    use common::{signal, wait_for};

    let mut command = workspace.command(&[&QUICK[..], &["--output", "stopped.txt"]].concat());
    let mut child =
        command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("stdin");
    stdin.write_all((many_lines().join("\n") + "\n").as_bytes()).expect("it reads");
    // The input is not at its end: after one window it waits for more.
    let partial = workspace.path("stopped.txt.part");
    wait_for("a window", || {
        fs::read_to_string(&partial).unwrap_or_default().lines().count() >= WINDOW
    });
    signal("-TERM", &child);
    let output = child.wait_with_output().expect("the binary ends");
    assert_eq!(output.status.code(), Some(143), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("3968 lines were translated and are in stopped.txt.part"),
        "{}",
        stderr(&output)
    );
    assert_eq!(fs::read_to_string(&partial).expect("read").lines().count(), WINDOW);
    assert!(!workspace.path("stopped.txt").exists());

    // It goes on with what it was begun with, to what it would have been.
    let text = many_lines().join("\n") + "\n";
    let on = [&QUICK[..], &["--output", "stopped.txt", "--continue"]].concat();
    let other = workspace.run_with_input(&[&on[..], &["--no-repeat-ngram", "2"]].concat(), b"");
    refused(&other, &["--continue", "fewer"]);
    let other =
        workspace.run_with_input(&[&on[..], &["--no-repeat-ngram", "2"]].concat(), text.as_bytes());
    refused(&other, &["--continue", "stopped.txt.part.json", "other settings"]);
    let output = workspace.run_with_input(&on, text.as_bytes());
    assert!(output.status.success(), "{}", stderr(&output));
    let whole = stdout(&workspace.run_with_input(&QUICK, text.as_bytes()));
    assert!(fs::read_to_string(workspace.path("stopped.txt")).expect("read") == whole);
    assert!(!partial.exists() && !workspace.path("stopped.txt.part.json").exists());
    workspace.fail(&["translate", "run", "-o", "new.txt", "--continue"], &["no new.txt.part"]);
    let without_file = workspace.run(&["translate", "run", "--continue"]);
    refused(&without_file, &["required arguments"]);
    assert!(stderr(&without_file).contains("--output <FILE>"), "{}", stderr(&without_file));
}

/// A translation that is killed goes on too, also where its last line is torn, but not of a text
/// that has changed.
#[cfg(unix)]
fn killed(workspace: &Workspace) {
    use common::{signal, wait_for};

    let text = (many_lines().join("\n") + "\n").repeat(3);
    workspace.write("long.txt", &text);
    for (name, form) in [("best", &[][..]), ("list", &["--n-best", "1"]), ("json", &["--json"])] {
        let to = ["--input", "long.txt", "--output", name];
        let command = [&QUICK[..], &to, form].concat();
        let mut child = workspace.spawn(&command);
        let partial = workspace.path(&format!("{name}.part"));
        wait_for("a window", || fs::metadata(&partial).is_ok_and(|file| file.len() > 100));
        let busy = [&command[..], &["--continue"]].concat();
        workspace.fail(&busy, &["another process is writing"]);
        signal("-KILL", &child);
        child.wait().expect("ended");
        let mut bytes = fs::read(&partial).expect("it was killed in time");
        bytes.extend_from_slice(b"1");
        fs::write(&partial, bytes).expect("tear");
        workspace.write("long.txt", text.replacen("cat", "dog", 1));
        workspace.fail(&busy, &["of another text"]);
        workspace.write("long.txt", &text);
        workspace.succeed(&busy);
        let whole = workspace.succeed(&[&QUICK[..], &to[..2], form].concat());
        // Scores may differ in their last digits.
        let texts = |found: &str| -> Vec<String> {
            let text = |line: &str| match name {
                "best" => line.to_owned(),
                "list" => line.split('\t').nth(2).expect("a text").to_owned(),
                _ => best(&serde_json::from_str(line).expect("JSON")).to_owned(),
            };
            found.lines().map(text).collect()
        };
        let found = fs::read_to_string(workspace.path(name)).expect("read");
        assert!(texts(&found) == texts(&whole), "{name}");
    }
}

/// Outputs end where the positions do, wherever translations are made: in validation, in tests, by
/// every command.
fn learned_positions(workspace: &Workspace, input: &str) {
    let long =
        ["decoding.max_length=200", "decoding.max_length_offset=200", "decoding.min_length=100"];
    let shape = ["model.positions=learned", "model.max_positions=40"];
    let set: Vec<&str> = long.into_iter().chain(shape).flat_map(|key| ["--set", key]).collect();
    workspace.succeed(&[&["train", "tiny.toml", "--run", "learned"], &set[..]].concat());
    workspace.write("in.txt", input);
    workspace.succeed(&["evaluate", "learned"]);
    workspace.succeed(&["bench", "decode", "learned", "--input", "in.txt", "--repeats", "1"]);
    for arguments in
        [&["--beam", "1"][..], &["--beam", "3"], &["--sample"], &["--ensemble", "learned"]]
    {
        let arguments = [&["translate", "learned", "--json", "--alignments"], arguments].concat();
        let output = workspace.run_with_input(&arguments, b"red cat sees\n");
        assert!(output.status.success(), "{}", stderr(&output));
        let record: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        let tokens =
            record["translations"][0]["alignment"]["target_tokens"].as_array().expect("tokens");
        assert_eq!(tokens.len(), 39, "{arguments:?}");
    }
    // A line is no longer than each member has positions for.
    let long_line = "red cat sees. ".repeat(30);
    let output = workspace
        .run_with_input(&["translate", "run", "--ensemble", "learned"], long_line.as_bytes());
    assert!(
        output.status.success() && stderr(&output).contains("more than 39: translated in"),
        "{}",
        stderr(&output)
    );
    // Where positions are the limit, no option is advised that cannot raise it.
    workspace.write("long.aa", &long_line);
    let strict = [
        "translate",
        "learned",
        "-i",
        "long.aa",
        "--overlong",
        "error",
        "--max-source-tokens",
        "50",
    ];
    let message = workspace.fail(&strict, &["line 1 has", "more than 39", "model.max_positions"]);
    assert!(!message.contains("--max-source-tokens"), "{message}");
    for (source, target) in [("long.aa", "short.bb"), ("short.bb", "long.aa")] {
        workspace.write("short.bb", "cat\n");
        let score =
            ["score", "learned", "--source", source, "--target", target, "--max-tokens", "5000"];
        workspace.fail(&score, &["long.aa, line 1", "more than 39", "model.max_positions"]);
    }
    // An error names the line, however many parts those before it have.
    workspace.write("prefixes", format!("\n\n{}\n", "dog ".repeat(60)));
    let input = format!("{long_line}\n\ncat\n");
    let output = workspace
        .run_with_input(&["translate", "learned", "--prefix", "prefixes"], input.as_bytes());
    refused(&output, &["line 3: the prefix of sentence 3 has", "outputs of 39", "shorten it"]);
}
