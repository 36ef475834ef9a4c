//! Tests of answers to several items: a bad item does not affect other items, special tokens follow
//! the chosen rule, a printed probability is the probability of the printed text, and numbers that
//! are not finite give an error instead of an answer.

mod common;

use std::fs;

use common::{Workspace, golden, json_lines, mentions, refused, stderr, stdout};
use serde_json::{Value, json};

/// Imports the model folder `name` (see [`golden`]) as the run `name`.
fn import(workspace: &Workspace, name: &str) {
    workspace.succeed(format!("import {} {name}", golden(name).to_str().expect("a path")));
}

/// Runs a command on three lines, the second of which is bad. The error must name this line, and
/// its output line must be empty. The output for the other lines must be the same as without the
/// bad line. With `--strict`, the error must end the command.
fn second_is_bad(workspace: &Workspace, command: &str, lines: [&str; 3], fragments: &[&str]) {
    let input = lines.map(|line| format!("{line}\n")).concat();
    let run = |more: &str, input: &str| {
        workspace.run_with_input(format!("{command} {more}"), input.as_bytes())
    };
    let output = run("", &input);
    refused(&output, fragments);
    refused(&output, &["1 of 3 has no answer"]);
    let (all, said) = (stdout(&output), stderr(&output));
    assert_eq!(said.lines().filter(|line| line.contains(fragments[0])).count(), 2, "{said}");
    let found: Vec<&str> = all.lines().collect();
    assert_eq!((found.len(), found[1]), (3, ""), "{all}");
    let good = run("", &format!("{}\n{}\n", lines[0], lines[2]));
    assert!(good.status.success(), "{}", stderr(&good));
    assert_eq!(stdout(&good), format!("{}\n{}\n", found[0], found[2]));

    let output = run("--json", &input);
    refused(&output, fragments);
    let found = json_lines(&stdout(&output));
    assert_eq!((found.len(), &found[1]["line"]), (3, &json!(2)), "{found:?}");
    let error = found[1]["error"].as_str().expect("an error");
    mentions(error, &[fragments[0]]);
    assert!(found[0].get("error").is_none() && found[2].get("error").is_none(), "{found:?}");

    let output = run("--strict", &input);
    refused(&output, fragments);
    assert!(!stderr(&output).contains("1 of 3"), "{}", stderr(&output));
    assert!(stdout(&output).lines().count() < 2, "{}", stdout(&output));
}

#[test]
fn a_bad_line_costs_itself_alone() {
    let workspace = Workspace::of_frozen_run();
    for name in ["gpt2", "bert-classifier", "bert-spans"] {
        import(&workspace, name);
    }
    let texts = ["The sea sails on.", "", "Nothing is lost!"];
    let line = "line 2: has an empty text";
    second_is_bad(&workspace, "predict bert-classifier", texts, &[line]);
    let score = "score gpt2 --text -";
    second_is_bad(&workspace, score, texts, &["line 2: is empty", "standard input"]);
    let asked = |question: &str| json!({ "question": question, "context": "The sea." }).to_string();
    let (first, third) = (asked("what?"), asked("the?"));
    let spans = "predict bert-spans";
    let cut = "{\"question\": \"wh";
    second_is_bad(&workspace, spans, [&first, cut, &third], &["line 2: expected {"]);
    let empty = asked(" ");
    second_is_bad(&workspace, spans, [&first, &empty, &third], &["line 2: \"question\" is empty"]);
    let choices = |text: &str| json!({ "prompt": "The", "choices": [text, "!"] }).to_string();
    let (first, third) = (choices(" sea"), choices(" sail"));
    let score = "score gpt2 --choices -";
    second_is_bad(&workspace, score, [&first, "{}", &third], &["line 2: missing field"]);
    let empty = choices("");
    second_is_bad(&workspace, score, [&first, &empty, &third], &["line 2: choice 1: is empty"]);

    // Translations: an overlong line is an error only with `--overlong error`.
    let long = "red cat ".repeat(200);
    let translate = "translate run --overlong error";
    let lines = ["red cat", &long, "two dogs"];
    second_is_bad(&workspace, translate, lines, &["line 2 has"]);
    let n_best = format!("{translate} --n-best 2");
    let output = workspace.run_with_input(&n_best, lines.join("\n").as_bytes());
    let numbers: Vec<String> = stdout(&output)
        .lines()
        .map(|line| line.split('\t').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(numbers, ["1", "1", "2", "3", "3"]);
    // An output file appears complete, with an empty line in place of the missing translation.
    workspace.write("in.txt", lines.join("\n") + "\n");
    let files = "--input in.txt --output out.txt";
    refused(&workspace.run(format!("{translate} {files}")), &["1 of 3", "line 2 has"]);
    let written = workspace.read("out.txt");
    assert_eq!(written.lines().nth(1), Some(""));
    let strict = "--input in.txt --output strict.txt --strict";
    refused(&workspace.run(format!("{translate} {strict}")), &["line 2 has"]);
    assert!(!workspace.path("strict.txt").exists());

    // Pairs, one of which has a source that is too long.
    workspace.write("a.aa", format!("red cat\n{long}\ntwo dogs\n"));
    workspace.write("a.bb", "cat red\ncat red\ndogs two\n");
    let output = workspace.run("score run --source a.aa --target a.bb");
    refused(&output, &["a.aa, line 2", "1 of 3"]);
    let found = stdout(&output);
    let found: Vec<&str> = found.lines().collect();
    assert!(found.len() == 3 && found[1].is_empty() && found[2].starts_with('-'), "{found:?}");

    // Prompts, one of which is empty.
    workspace.write("prompts", "The sea\n\nNothing\n");
    let generate = "generate gpt2 --temperature 0 -n 3 --prompts prompts";
    let output = workspace.run(generate);
    refused(&output, &["prompt 2: is empty", "1 of 3"]);
    assert_eq!(stdout(&output).split("---------------\n").nth(1), Some("\n"));
    let found = json_lines(&stdout(&workspace.run(format!("{generate} --json"))));
    assert!(found[1]["error"].is_string() && found[2]["text"].is_string(), "{found:?}");
}

#[test]
fn a_bad_picture_costs_itself_alone() {
    let workspace = Workspace::of_text();
    import(&workspace, "vit");
    let picture = image::RgbImage::from_fn(8, 8, |x, y| image::Rgb([(x * 30) as u8, 9, y as u8]));
    picture.save(workspace.path("good.png")).expect("written");
    let bytes = fs::read(workspace.path("good.png")).expect("read");
    workspace.write("cut.png", &bytes[..bytes.len() / 2]);
    let output = workspace.run("predict vit cut.png good.png none.png");
    refused(&output, &["2 of 3", "the first: cut.png"]);
    let (found, said) = (stdout(&output), stderr(&output));
    mentions(&said, &["none.png: ", "cut.png: is no PNG"]);
    let found: Vec<&str> = found.lines().collect();
    assert_eq!((found[0], found[2]), ("cut.png\t", "none.png\t"));
    assert!(found[1].starts_with("good.png\t") && found[1].len() > 12, "{found:?}");
    let json = workspace.run("predict vit cut.png good.png --json");
    let found = json_lines(&stdout(&json));
    assert_eq!(found[0]["image"], "cut.png");
    assert!(found[0]["error"].is_string() && found[1]["label"].is_string(), "{found:?}");
    workspace.fail("predict vit cut.png good.png --strict", &["cut.png: is no PNG"]);
    refused(&workspace.run("predict vit good.png cut.png --attention seen"), &["1 of 2"]);
    assert!(workspace.path("seen/good.png").exists() && !workspace.path("seen/cut.png").exists());
}

#[test]
fn special_tokens_that_a_text_spells_are_what_is_asked_for() {
    let workspace = Workspace::of_frozen_run();
    for name in ["gpt2", "bert-classifier"] {
        import(&workspace, name);
    }
    let run = |arguments: &str, rule: &str, input: &str| {
        let rule = format!("--special-tokens {rule}");
        workspace.run_with_input(format!("{arguments} {rule}"), input.as_bytes())
    };
    // By default, each command reads a spelled special token as text, and prints a warning. With
    // `read`, it is read as the token. With `refuse`, it is an error that names the line.
    for (arguments, text, token) in [
        ("predict bert-classifier", "The sea [SEP] sails on.", "[SEP]"),
        ("score gpt2 --text -", "The sea<|endoftext|>the", "<|endoftext|>"),
        ("generate gpt2 --temperature 0 -n 4", "sea<|endoftext|>", "<|endoftext|>"),
        ("translate run", "red </s> cat", "</s>"),
        ("tokenizer encode gpt2", "sea<|endoftext|>", "<|endoftext|>"),
    ] {
        let default = workspace.run_with_input(arguments, text.as_bytes());
        assert!(default.status.success(), "{arguments:?}: {}", stderr(&default));
        let said = stderr(&default);
        mentions(&said, &[&format!("spells the special token {token}")]);
        assert!(said.contains("line 1") || said.contains("the prompt"), "{said}");
        let plain = run(arguments, "text", text);
        assert_eq!((stdout(&plain), stderr(&plain).contains("special")), (stdout(&default), false));
        let read = run(arguments, "read", text);
        assert!(read.status.success(), "{arguments:?}: {}", stderr(&read));
        assert!(stdout(&read) != stdout(&plain), "{arguments:?}: {}", stdout(&read));
        assert!(!stderr(&read).contains("special"), "{}", stderr(&read));
        refused(&run(arguments, "refuse", text), &[token]);
        // The rule does not change the output for a text without special tokens.
        let other = "The sea";
        let all =
            ["text", "read", "refuse", "warn"].map(|rule| stdout(&run(arguments, rule, other)));
        assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
    }
    let ids = |rule: &str| stdout(&run("tokenizer encode gpt2", rule, "<|endoftext|>"));
    assert_eq!(ids("read").trim().split(' ').count(), 1);
    assert!(ids("text").trim().split(' ').count() > 3);
    // Only the first 10 lines are named.
    let many = "a </s>\n".repeat(30);
    let said = stderr(&run("tokenizer encode run", "warn", &many));
    assert_eq!(said.lines().count(), 11, "{said}");
    // With `read`, a target that spells special tokens is refused.
    workspace.write("target.bb", "cat </s> red\n");
    workspace.write("source.aa", "red cat\n");
    let pairs = "score run --source source.aa --target target.bb";
    let read = workspace.run(format!("{pairs} --special-tokens read"));
    refused(&read, &["target.bb, line 1: has special tokens"]);
}

/// The tokens of the model are characters, so a text is scored with the same tokens with which it
/// was generated.
#[test]
fn the_probability_of_a_text_is_that_of_its_score() {
    let workspace = Workspace::of_text();
    workspace.succeed("train tiny.toml --run run --set data.text.documents=lines");
    let generate = |more: &str| {
        let drawn = "generate run --temperature 1 --samples 24 --json";
        let output = workspace.run_with_input(format!("{drawn} {more}"), b"");
        assert!(output.status.success(), "{}", stderr(&output));
        json_lines(&stdout(&output))
    };
    let number = |of: &Value| of.as_f64().expect("a number");
    let score = |texts: &[String]| {
        let input = texts.iter().map(|text| format!("{text}\n")).collect::<String>();
        let arguments = "score run --text - --json --special-tokens read";
        json_lines(&stdout(&workspace.run_with_input(arguments, input.as_bytes())))
    };
    // The score includes `</s>` if the model generated it, and not if the text was cut.
    let texts = generate("-n 12");
    let (mut cut, mut ended) = (0, 0);
    let whole: Vec<String> = texts
        .iter()
        .map(|one| {
            let text = one["text"].as_str().expect("text");
            match (one["finish_reason"].as_str(), &one["truncated"]) {
                (Some("length"), Value::Bool(true)) => {
                    cut += 1;
                    assert_eq!(one["tokens"], 12);
                    text.to_owned()
                }
                (Some("stop"), Value::Bool(false)) => {
                    ended += 1;
                    format!("{text}</s>")
                }
                other => panic!("{other:?}"),
            }
        })
        .collect();
    assert!(cut > 0 && ended > 0, "{cut} {ended}");
    for (one, score) in texts.iter().zip(score(&whole)) {
        let (found, wanted) = (number(&one["log_probability"]), number(&score["log_probability"]));
        assert!((found - wanted).abs() < 1e-4, "{one} {score}");
    }
    // A prompt can begin with `</s>`, like the training text, in which `</s>` precedes a document.
    let after = generate("--prompt '</s>red' -n 8 --special-tokens read");
    let after: Vec<&Value> = after.iter().filter(|one| one["text"] != "").collect();
    let questions: String = after
        .iter()
        .map(|one| {
            let end = if one["finish_reason"] == "stop" { "</s>" } else { "" };
            let text = format!("{}{end}", one["text"].as_str().expect("text"));
            json!({ "prompt": "red", "choices": [text] }).to_string() + "\n"
        })
        .collect();
    let arguments = "score run --choices - --json --special-tokens read";
    let scores = json_lines(&stdout(&workspace.run_with_input(arguments, questions.as_bytes())));
    assert_eq!(scores.len(), after.len());
    for (one, score) in after.iter().zip(scores) {
        let wanted = number(&score["log_probabilities"][0]);
        assert!((number(&one["log_probability"]) - wanted).abs() < 1e-4, "{one} {score}");
    }
    // With `--no-repeat-ngram 3`, no three characters in a row occur twice, not even from the
    // prompt.
    let prompt = "red cat red dog ";
    let runs = |text: &str| -> Vec<String> {
        let all: Vec<char> = text.chars().collect();
        all.windows(3).map(|run| run.iter().collect()).collect()
    };
    let drawn = generate(&format!("--prompt '{prompt}' -n 30 --no-repeat-ngram 3 --seed 2"));
    for one in drawn {
        let all = runs(&format!("{prompt}{}", one["text"].as_str().expect("text")));
        let own = prompt.chars().count() - 2;
        assert!((own..all.len()).all(|at| !all[..at].contains(&all[at])), "{one}");
    }
}

/// Imports a copy of a model folder (see [`golden`]) with weights that are finite, but so large
/// that sums of their products overflow to infinity.
fn overflowing(workspace: &Workspace, name: &str) {
    let folder = workspace.path(&format!("{name}-folder"));
    fs::create_dir(&folder).expect("a folder");
    for entry in fs::read_dir(golden(name)).expect("a folder") {
        let path = entry.expect("an entry").path();
        fs::copy(&path, folder.join(path.file_name().expect("a name"))).expect("copied");
    }
    let path = folder.join("model.safetensors");
    let mut bytes = fs::read(&path).expect("read");
    let head = u64::from_le_bytes(bytes[..8].try_into().expect("a length")) as usize + 8;
    for value in bytes[head..].chunks_exact_mut(4) {
        let weight = f32::from_le_bytes([value[0], value[1], value[2], value[3]]);
        value.copy_from_slice(&(weight * 1e30).to_le_bytes());
    }
    fs::write(&path, bytes).expect("written");
    workspace.succeed(format!("import {name}-folder {name}"));
}

#[test]
fn no_answer_is_made_of_numbers_that_are_not_finite() {
    let workspace = Workspace::of_text();
    for name in ["gpt2", "bert-classifier", "bert-spans", "vit"] {
        overflowing(&workspace, name);
    }
    image::RgbImage::new(8, 8).save(workspace.path("image.png")).expect("written");
    let asked = json!({ "question": "what?", "context": "The sea." }).to_string();
    let choices = json!({ "prompt": "The", "choices": [" sea", "!"] }).to_string();
    let evaluate = "evaluate gpt2 --set data.dir=data --set data.test=['text']";
    for (arguments, input) in [
        ("generate gpt2 --temperature 0", "The sea"),
        ("generate gpt2 --sample --json", "The sea"),
        ("score gpt2 --text -", "The sea"),
        ("score gpt2 --text - --json", "The sea"),
        ("score gpt2 --choices -", &choices),
        ("attention gpt2 'The sea'", ""),
        (evaluate, ""),
        ("predict bert-classifier", "The sea"),
        ("predict bert-classifier --json", "The sea"),
        ("attention bert-classifier 'The sea'", ""),
        ("predict bert-spans", &asked),
        ("predict vit image.png", ""),
        ("predict vit image.png --attention seen", ""),
    ] {
        let output = workspace.run_with_input(arguments, input.as_bytes());
        let said = stdout(&output) + &stderr(&output);
        assert!(!output.status.success(), "{arguments:?}: {said}");
        let is_told = said.contains("not finite") || said.contains("not a distribution");
        assert!(is_told && said.contains("weights"), "{arguments:?}: {said}");
        let printed = stdout(&output);
        assert!(!printed.contains("NaN") && !printed.contains("inf"), "{arguments:?}: {printed}");
        assert!(!printed.contains("null"), "{arguments:?}: {printed}");
    }
}
