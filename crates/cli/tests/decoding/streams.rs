//! Input and output of `translate`: windows of lines, pipes, files and interruptions.

use std::fs;

use serde_json::Value;

use super::common::{Workspace, json_lines, mentions, refused, stderr, stdout};
use super::{best, records};

/// Number of lines of the first five windows of `translate`.
const WINDOW: usize = 128 + 256 + 512 + 1024 + 2048;

/// Checks that a byte-order mark is ignored in standard input and in files, and that a pipe is not
/// read twice.
pub(super) fn marks_and_pipes(workspace: &Workspace, input: &str) {
    let plain = records(workspace, "", input);
    let marked = format!("\u{feff}{input}");
    assert_eq!(records(workspace, "", &marked), plain);
    workspace.write("marked.txt", &marked);
    let from_file = workspace.succeed("translate run --json --input marked.txt");
    assert_eq!(
        from_file
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
            .collect::<Vec<_>>(),
        plain
    );
    if cfg!(unix) {
        assert_eq!(records(workspace, "--input /dev/stdin", input), plain);
    }
}

/// Arguments with which thousands of lines are translated within a second.
const QUICK: &str = "translate run --beam 1 --set decoding.max_length=4";

/// Returns more lines than [`WINDOW`]: four lines, repeated.
fn many_lines() -> Vec<String> {
    (0..WINDOW + 300)
        .map(|line| ["red cat sees", "", "two big dogs", "cat"][line % 4].to_owned())
        .collect()
}

/// Checks that translations that reach the maximum length are reported.
pub(super) fn endless(workspace: &Workspace, input: &str) {
    let reward = "--set decoding.length_reward=20 --set decoding.max_length=30";
    let output = workspace.run_with_input(format!("translate run {reward}"), input.as_bytes());
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    mentions(&said, &["warning: 3 of 4 translations (line 1 is the first) reached the maximum"]);
    let records = records(workspace, reward, input);
    let truncated = |record: &Value| record["translations"][0]["truncated"] == true;
    assert_eq!(records.iter().map(truncated).collect::<Vec<_>>(), [true, true, false, true]);
    let output = workspace.run(format!("evaluate run --json {reward}"));
    assert!(
        stderr(&output).contains("warning: 12 of 12 translations of test"),
        "{}",
        stderr(&output)
    );
    let report: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(report["results"][0]["truncated"], 12);
    // A translation that ends by itself, because its maximum length is large, is not reported.
    let long = "--set decoding.max_length=200 --set decoding.max_length_offset=200";
    let output = workspace
        .run_with_input(format!("translate run --beam 1 --no-repeat-ngram 1 {long}"), b"cat\n");
    assert!(!stderr(&output).contains("warning"), "{}", stderr(&output));
}

pub(super) fn windows(workspace: &Workspace) {
    let mut lines = many_lines();
    let output =
        workspace.run_with_input(format!("{QUICK} --json"), (lines.join("\n") + "\n").as_bytes());
    assert!(output.status.success(), "{}", stderr(&output));
    let records = json_lines(&stdout(&output));
    assert_eq!(records.len(), lines.len());
    for (index, (record, line)) in records.iter().zip(&lines).enumerate() {
        assert_eq!(
            (&record["line"], &record["source"]),
            (&(index + 1).into(), &line.as_str().into())
        );
        assert_eq!(best(record), best(&records[index % 4]), "line {}", index + 1);
    }
    // Random numbers depend on the number of a line, so the same lines have other translations in
    // later windows.
    let arguments = "translate run --sample --set decoding.max_length=4";
    let drawn = stdout(&workspace.run_with_input(arguments, (lines.join("\n") + "\n").as_bytes()));
    assert_eq!(drawn.lines().count(), lines.len());
    assert!(drawn.lines().skip(WINDOW).ne(drawn.lines().take(lines.len() - WINDOW)));

    // After an error in a late line, the translations of complete windows are kept.
    let plain = stdout(&workspace.run_with_input(QUICK, (lines.join("\n") + "\n").as_bytes()));
    let mut broken = lines.join("\n").into_bytes();
    broken.extend_from_slice(b"\n\xff\n");
    let output = workspace.run_with_input(QUICK, &broken);
    refused(&output, &[&format!("standard input, line {}", lines.len() + 1), "UTF-8"]);
    let finished: String = plain.split_inclusive('\n').take(WINDOW).collect();
    assert!(stdout(&output) == finished, "{} lines", stdout(&output).lines().count());
    let output = workspace.run_with_input(format!("{QUICK} --output late.txt"), &broken);
    refused(&output, &["standard input, line"]);
    assert!(
        stderr(&output)
            .contains("3968 lines were translated and are in late.txt.part; line 3969 is the next"),
        "{}",
        stderr(&output)
    );
    assert!(!workspace.path("late.txt").exists());
    assert!(workspace.read("late.txt.part") == finished);
    // The next attempt does not overwrite these translations.
    let again = workspace.run_with_input(format!("{QUICK} --output late.txt"), b"cat\n");
    refused(&again, &["late.txt.part exists already"]);
    // An error in a file is found before the model is loaded.
    workspace.write("broken.txt", &broken);
    workspace.fail(
        "translate nowhere --input broken.txt",
        &[&format!("broken.txt, line {}", lines.len() + 1), "UTF-8"],
    );

    // Prefixes belong to the same lines in every window.
    lines.truncate(WINDOW + 2);
    workspace.write(
        "prefixes",
        lines.iter().map(|line| if line.is_empty() { "\n" } else { "dog\n" }).collect::<String>(),
    );
    workspace.write("in.txt", lines.join("\n") + "\n");
    let prefixed = workspace.succeed(format!("{QUICK} --prefix prefixes --input in.txt"));
    assert_eq!(prefixed.lines().count(), lines.len());
    assert!(
        prefixed
            .lines()
            .zip(&lines)
            .all(|(found, line)| found.starts_with("dog") != line.is_empty())
    );
}

/// Checks that a program can wait for each translation before it writes the next line.
pub(super) fn one_line_at_a_time(workspace: &Workspace, input: &str) {
    use std::io::{BufRead, BufReader, Write};
    use std::process::Stdio;
    use std::sync::mpsc;
    use std::time::Duration;

    let mut command = workspace.command("translate run --json --window 1");
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the binary starts");
    let (mut stdin, stdout) =
        (child.stdin.take().expect("stdin"), child.stdout.take().expect("stdout"));
    let (sender, answers) = mpsc::channel();
    std::thread::spawn(move || {
        BufReader::new(stdout).lines().try_for_each(|line| sender.send(line.expect("UTF-8")))
    });
    for (line, record) in input.lines().zip(records(workspace, "", input)) {
        writeln!(stdin, "{line}").expect("it reads");
        // If the program waited for more input, this would wait for ever, so the time is limited.
        let answer =
            answers.recv_timeout(Duration::from_secs(120)).expect("an answer before the next line");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!((&answer["line"], best(&answer)), (&record["line"], best(&record)));
    }
    drop(stdin);
    assert!(child.wait().expect("the binary ends").success());
    workspace.fail("translate run --window 0", &["--window"]);
}

pub(super) fn output_files(workspace: &Workspace, input: &str) {
    // Outputs are checked before the model is loaded: the run `nowhere` does not exist.
    workspace.write("in.txt", input);
    let to = |path: &str| format!("translate nowhere --input in.txt --output {path}");
    workspace.fail(to("missing/out.txt"), &["missing/out.txt", "no such folder", "make it"]);
    workspace
        .fail(to("in.txt/out.txt"), &["in.txt/out.txt", "cannot be written", "another --output"]);
    workspace.fail(to("in.txt"), &["in.txt exists already"]);
    workspace.fail(to("new.txt"), &["nowhere", "no such run"]);
    assert!(
        !workspace.path("new.txt").exists() && !workspace.path("new.txt.part").exists(),
        "an empty file was left behind"
    );
    #[cfg(unix)]
    {
        // The file that a link names need not exist.
        std::os::unix::fs::symlink("missing.txt", workspace.path("link.txt")).expect("a link");
        workspace.fail(to("link.txt"), &["link.txt exists already"]);
        // A device or a pipe is written to directly, without a temporary file.
        assert_eq!(workspace.succeed("translate run --input in.txt --output /dev/null"), "");
        let piped =
            workspace.script(&["sh"], "\"$0\" translate run -i in.txt -o /dev/fd/3 3>&1 | cat");
        assert_eq!(stdout(&piped), workspace.succeed("translate run --input in.txt"));
        interrupted(workspace);
        killed(workspace);
    }
}

#[cfg(unix)]
fn interrupted(workspace: &Workspace) {
    use std::io::Write;
    use std::process::Stdio;

    use super::common::{signal, wait_for};

    let mut command = workspace.command(format!("{QUICK} --output stopped.txt"));
    let mut child =
        command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("stdin");
    stdin.write_all((many_lines().join("\n") + "\n").as_bytes()).expect("it reads");
    // Standard input stays open, so the program waits for more lines after these windows.
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

    // A translation continues only with the same settings and the same text. The result is that of
    // an uninterrupted translation.
    let text = many_lines().join("\n") + "\n";
    let on = format!("{QUICK} --output stopped.txt --continue");
    let other = workspace.run_with_input(format!("{on} --no-repeat-ngram 2"), b"");
    refused(&other, &["--continue", "fewer"]);
    let other = workspace.run_with_input(format!("{on} --no-repeat-ngram 2"), text.as_bytes());
    refused(&other, &["--continue", "stopped.txt.part.json", "other settings"]);
    // The advice does not contradict the refusal, and the file has not changed.
    mentions(stderr(&other), &["stopped.txt.part is left as it is"]);
    assert!(!stderr(&other).contains("goes on there"), "{}", stderr(&other));
    let other = workspace.run_with_input(format!("{on} --n-best 1"), text.as_bytes());
    refused(&other, &["--continue", "not n-best lists"]);
    let other = workspace.run_with_input(format!("{on} --json"), text.as_bytes());
    refused(&other, &["--continue", "other settings"]);
    assert_eq!(fs::read_to_string(&partial).expect("read").lines().count(), WINDOW);
    // If the record is missing, the translations are not lost either.
    let record = workspace.path("stopped.txt.part.json");
    fs::rename(&record, workspace.path("away.json")).expect("rename");
    let other = workspace.run_with_input(&on, text.as_bytes());
    refused(&other, &["--continue", "cannot read stopped.txt.part.json", "another --output"]);
    assert_eq!(fs::read_to_string(&partial).expect("read").lines().count(), WINDOW);
    fs::rename(workspace.path("away.json"), &record).expect("rename");
    let output = workspace.run_with_input(&on, text.as_bytes());
    assert!(output.status.success(), "{}", stderr(&output));
    let whole = stdout(&workspace.run_with_input(QUICK, text.as_bytes()));
    assert!(workspace.read("stopped.txt") == whole);
    assert!(!partial.exists() && !workspace.path("stopped.txt.part.json").exists());
    workspace.fail("translate run -o new.txt --continue", &["no new.txt.part"]);
    let without_file = workspace.run("translate run --continue");
    refused(&without_file, &["required arguments"]);
    assert!(stderr(&without_file).contains("--output <FILE>"), "{}", stderr(&without_file));
}

/// Checks that a translation that was killed can be continued, even if its last line is incomplete,
/// but not if the text has changed.
#[cfg(unix)]
fn killed(workspace: &Workspace) {
    use super::common::{signal, wait_for};

    let text = (many_lines().join("\n") + "\n").repeat(3);
    workspace.write("long.txt", &text);
    for (name, form) in [("best", ""), ("list", "--n-best 1"), ("json", "--json")] {
        let quick = format!("{QUICK} --input long.txt {form}");
        let command = format!("{quick} --output {name}");
        let mut child = workspace.spawn(&command);
        let partial = workspace.path(&format!("{name}.part"));
        wait_for("a window", || fs::metadata(&partial).is_ok_and(|file| file.len() > 100));
        let busy = format!("{command} --continue");
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
        let whole = workspace.succeed(&quick);
        // Scores may differ in their last digits.
        let texts = |found: &str| -> Vec<String> {
            let text = |line: &str| match name {
                "best" => line.to_owned(),
                "list" => line.split('\t').nth(2).expect("a text").to_owned(),
                _ => best(&serde_json::from_str(line).expect("JSON")).to_owned(),
            };
            found.lines().map(text).collect()
        };
        let found = workspace.read(name);
        assert!(texts(&found) == texts(&whole), "{name}");
    }
}
