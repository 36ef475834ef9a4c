//! Reports, comparisons and scaling laws of runs whose files the tests write, without training.

use std::fs;
use std::path::{Path, PathBuf};

use taper_plots::Language;
use taper_report::{Flaw, Point, RunData, SentenceAddress, Study, compare, report};
use taper_run::LoadSettings;

const SOURCES: [&str; 4] = [
    "A house stands here.",
    "I love <you> & me.",
    "The old tree is very green.",
    "Nobody knows it.",
];
const REFERENCES: [&str; 4] = [
    "Ein Haus steht hier.",
    "Ich liebe dich und mich.",
    "Der alte Baum ist sehr grün.",
    "Niemand weiß es.",
];

/// Writes the folder of a run `name` that has made `translations`; returns its path.
fn run(folder: &Path, name: &str, translations: [&str; 4], updates: u64) -> PathBuf {
    let text = folder.join("text");
    fs::create_dir_all(&text).expect("folder");
    let write = |path: &Path, lines: &[&str]| {
        fs::write(path, lines.iter().map(|line| format!("{line}\n")).collect::<String>())
            .expect("write");
    };
    write(&text.join("train.en"), &["A house, a tree.", "The house is here.", "I love it."]);
    write(&text.join("train.de"), &["Ein Haus, ein Baum.", "Das Haus ist hier.", "Ich liebe es."]);
    write(&text.join("test.en"), &SOURCES);
    write(&text.join("test.de"), &REFERENCES);
    let root = folder.join(name);
    fs::create_dir_all(root.join("translations")).expect("folder");
    let config = format!(
        "[data]\ndir = {:?}\nsource_language = \"en\"\ntarget_language = \"de\"\n\
         train = \"train\"\nvalidation = \"\"\ntest = [\"test\"]\n[training]\nmax_updates = {updates}\n",
        text.display().to_string()
    );
    fs::write(root.join("config.toml"), config).expect("write");
    write(&root.join("translations/test.txt"), &translations);
    fs::write(root.join("scores.json"), "[{\"split\":\"test\",\"sentences\":4}]").expect("write");
    let log: String = (1..=20)
        .map(|step| {
            format!(
                "{{\"event\":\"log\",\"step\":{step},\"epoch\":0,\"loss\":2.5,\"nll\":{},\
                 \"accuracy\":0.5,\"learning_rate\":0.001,\"gradient_norm\":1.5,\"layers\":\
                 {{\"encoder.layers.10\":{{\"gradient\":0.5,\"weight\":3.0}},\
                 \"encoder.layers.9\":{{\"gradient\":0.25,\"weight\":3.0}}}},\"tokens\":10,\
                 \"window_tokens\":10,\"timing\":{{\"elapsed_seconds\":{step}.0,\"processes\":\
                 [{{\"host\":\"one\",\"busy_seconds\":6,\"waiting_seconds\":4}},\
                 {{\"host\":\"<two>\",\"busy_seconds\":9.8,\"waiting_seconds\":0.2}}]}}}}\n",
                4.0 / f64::from(step)
            )
        })
        .collect();
    fs::write(root.join("metrics.jsonl"), log).expect("write");
    root
}

const GOOD: [&str; 4] = [
    "Ein Haus steht hier.",
    "Ich liebe dich.",
    "Der alte Baum ist sehr grün.",
    "Niemand weiß das.",
];
const BAD: [&str; 4] = ["Haus Haus Haus Haus hier.", "I love <you> & me.", "", "Niemand weiß es."];

#[test]
fn a_report_has_every_sentence_its_flaw_and_what_differs_from_the_defaults() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let root = run(folder.path(), "bad", BAD, 123);
    let data = RunData::read(&root).expect("a run");
    assert!(data.missing.is_empty(), "{:?}", data.missing);
    let set = &data.sets[0];
    let flaws: Vec<Option<Flaw>> = set.sentences.iter().map(|one| one.flaw).collect();
    assert_eq!(flaws, [Some(Flaw::Repeated), Some(Flaw::Copied), Some(Flaw::Empty), None]);
    assert_eq!(set.sentences[0].rarest, Some((0, "stands".to_owned())));
    assert_eq!((set.sentences[3].chrf, set.sentences[2].chrf), (100.0, 0.0));
    let names: Vec<String> =
        data.figures(Language::English).expect("figures").into_iter().map(|one| one.name).collect();
    for name in [
        "loss",
        "gradient-norms",
        "gradient-spread",
        "weight-spread",
        "test-length",
        "test-rarest-word",
        "test-precisions",
    ] {
        assert!(names.iter().any(|one| one == name), "{name} is not among {names:?}");
    }
    for (language, summary) in [(Language::English, "Summary"), (Language::Chinese, "概要")] {
        let html = report(&data, language).expect("a page");
        assert!(html.contains(summary) && html.contains("training.max_updates"), "{summary}");
        assert!(html.contains("\\u003cyou\\u003e") && !html.contains("<you>"), "escaped");
        assert_eq!(html.matches("<script").count(), 2);
        // The page can be sent to others: it has no folders of this machine.
        let root = folder.path().to_str().expect("a path");
        assert!(!html.contains(root) && html.contains("…/bad") && html.contains("…/text"));
        // The page names the process for which the other processes wait.
        assert!(html.contains("40%, 2%") && html.contains("two"), "{summary}");
    }
}

#[test]
fn words_are_linked_where_a_run_has_kept_which_are_aligned() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let root = run(folder.path(), "good", GOOD, 10);
    let page = || {
        let data = RunData::read(&root).expect("a run");
        (report(&data, Language::English).expect("a page"), data.missing.join("\n"))
    };
    assert!(!page().0.contains("[[0,1,"), "a run without links has none");
    let path = root.join("translations/test.links.jsonl");
    // `house` is linked with `Ha` and with `us`, which become one part on the page.
    let links = "[[0,1,0,3],[2,7,4,6],[2,7,6,8]]\n[[0,1,0,3]]\n[]\n[]\n";
    fs::write(&path, links).expect("write");
    let (html, missing) = page();
    assert!(html.contains("[[0,1,0,3,2,7,4,8]]"), "{html}");
    assert_eq!(missing, "");
    for (wrong, says) in [
        ("[]\n", "4 sentences, but 1 lines of links"),
        ("[]\n[[0,1,3,99]]\n[]\n[]\n", "line 2: a link lies outside its sentence"),
        ("[[1,1,0,1]]\n[]\n[]\n[]\n", "line 1: a link lies outside its sentence"),
        ("[[0,1]]\n[]\n[]\n[]\n", "does not hold links"),
    ] {
        fs::write(&path, wrong).expect("write");
        let (html, missing) = page();
        assert!(missing.contains(says), "{missing}");
        assert!(html.contains("Nobody knows it."), "the sentences are shown all the same");
    }
}

#[test]
fn each_direction_and_hostile_variant_has_a_row() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let root = run(folder.path(), "many", GOOD, 10);
    let corpus =
        |from: &str, to: &str| format!("{{ stem = \"train\", from = \"{from}\", to = \"{to}\" }}");
    let config = fs::read_to_string(root.join("config.toml")).expect("config.toml");
    let both = format!("train = [{}, {}]", corpus("en", "de"), corpus("de", "en"));
    fs::write(root.join("config.toml"), config.replace("train = \"train\"", &both)).expect("write");
    let scores = |direction: &str, bleu: f64| {
        format!(
            "{{\"split\":\"test\",\"direction\":\"{direction}\",\"sentences\":4,\
             \"bleu\":{{\"score\":{bleu}}},\"chrf\":{{\"score\":60.5}}}}"
        )
    };
    let all = [scores("en-de", 31.25), scores("de-en", 33.5), scores("de-fr", 1.75)];
    fs::write(root.join("scores.json"), format!("[{}]", all.join(","))).expect("write");
    fs::write(
        root.join("scores.hostile.json"),
        "{\"results\":[{\"split\":\"test\",\"variants\":[{\"variant\":\"one word\",\"lines\":3,\
         \"bleu\":{\"score\":45.5,\"clean\":91,\"share\":50},\"chrf\":null}]}]}",
    )
    .expect("write");
    let data = RunData::read(&root).expect("a run");
    let html = report(&data, Language::English).expect("a page");
    let row = |name: &str, cells: &[&str]| {
        let row: String = cells.iter().map(|cell| format!(">{cell}</td>")).collect();
        let at = html.find(&format!(">{name}</th>")).unwrap_or_else(|| panic!("{name}"));
        let shown = html[at..].split("</tr>").next().expect("a row");
        let shown = shown.replace("<td class=\"number\"", "").replace("<td", "");
        assert!(shown.contains(&row), "{name}: {shown}");
    };
    row("en-de", &["test", "4", "31.25", "60.50", "–"]);
    row("de-en", &["test", "4", "33.50", "60.50", "–"]);
    row("de-fr (zero-shot)", &["test", "4", "1.75", "60.50", "–"]);
    row("one word", &["3", "45.50", "91.00", "50.0", "–", "–", "–"]);
    assert!(report(&data, Language::Chinese).expect("a page").contains("各方向"));
}

#[test]
fn what_is_gone_is_named_and_the_rest_is_shown() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let root = run(folder.path(), "good", GOOD, 10);
    fs::remove_file(folder.path().join("text/train.en")).expect("remove");
    fs::write(root.join("translations/test.txt"), "one line\n").expect("write");
    let data = RunData::read(&root).expect("a run");
    assert_eq!(data.sets.len(), 0);
    let missing = data.missing.join("\n");
    assert!(missing.contains("train.en"), "{missing}");
    assert!(missing.contains("4 sentences now, but 1 translations"), "{missing}");
    let html = report(&data, Language::English).expect("a page");
    assert!(html.contains("Not shown"));
    fs::write(root.join("scores.json"), "{").expect("write");
    let error = RunData::read(&root).expect_err("damaged").to_string();
    assert!(error.contains("scores.json is not JSON"), "{error}");
}

#[test]
fn runs_are_compared_sentence_by_sentence() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let roots = [("bad", BAD, 123), ("good", GOOD, 456)]
        .map(|(name, translations, updates)| run(folder.path(), name, translations, updates));
    let runs = roots.map(|root| RunData::read(&root).expect("a run"));
    let comparison = compare(&runs).expect("two runs");
    let (split, scores) = &comparison.splits[0];
    assert_eq!((split.as_str(), scores[1].sentences), ("test", [3, 1, 0]));
    assert!(scores[1].chrf.score > scores[0].chrf.score);
    assert_eq!(scores[0].chrf.p_value, None);
    assert_eq!(
        comparison.recipes,
        [("training.max_updates".to_owned(), vec!["123".to_owned(), "456".to_owned()])]
    );
    let page = comparison.page(Language::English).expect("a page");
    assert!(page.contains("\"systems\":[\"bad\",\"good\"]") && page.contains("won"));
    assert!(!page.contains(folder.path().to_str().expect("a path")));
    assert!(page.contains("BLEU by length of the source, test"));
    let figures = comparison.figures(Language::English).expect("figures");
    let by_length = figures.iter().find(|one| one.name == "test-length").expect("by length");
    let described = &by_length.figure.description;
    let of_each: Vec<_> = described.split("; ").filter_map(|one| one.split_once(": ")).collect();
    assert_eq!(of_each.iter().map(|one| one.0).collect::<Vec<_>>(), ["bad", "good"]);
    let categories = |scores: &str| scores.split(", ").count();
    assert_eq!(categories(of_each[0].1), categories(of_each[1].1), "{described}");
    assert!(page.contains("Recipes and their scores"));
    let same = [0, 0].map(|_| RunData::read(&folder.path().join("good")).expect("a run"));
    let comparison = compare(&same).expect("a run, twice");
    let (_, scores) = &comparison.splits[0];
    assert_eq!((scores[1].bleu.p_value, scores[1].chrf.p_value), (Some(1.0), Some(1.0)));
    let error = compare(&runs[..1]).expect_err("one run").to_string();
    assert_eq!(error, "name two or more runs to compare");
}

#[test]
fn recipes_that_differ_in_their_names_alone_are_not_drawn() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let runs = [("bad", BAD), ("good", GOOD)].map(|(name, translations)| {
        let root = run(folder.path(), name, translations, 123);
        let path = root.join("config.toml");
        let config = fs::read_to_string(&path).expect("config.toml");
        fs::write(path, format!("name = {name:?}\n{config}")).expect("write");
        RunData::read(&root).expect("a run")
    });
    let comparison = compare(&runs).expect("two runs");
    assert_eq!(comparison.recipes.len(), 1, "{:?}", comparison.recipes);
    let page = comparison.page(Language::English).expect("a page");
    assert!(!page.contains("Recipes and their scores"));
}

#[test]
fn layers_are_shown_if_later_updates_did_not_record_them() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let root = run(folder.path(), "one", GOOD, 20);
    let path = root.join("metrics.jsonl");
    let log = fs::read_to_string(&path).expect("metrics.jsonl");
    let (last, start) = (log.lines().last().expect("a line"), "\"layers\":");
    let (before, rest) = last.split_once(start).expect("layers");
    let after = rest.split_once("}},").expect("the end of the layers").1;
    fs::write(&path, format!("{log}{before}{after}\n")).expect("write");
    let data = RunData::read(&root).expect("a run");
    assert!(data.record.logged[20].layers.is_empty() && data.record.unreadable == 0);
    let page = report(&data, Language::English).expect("a report");
    assert!(page.contains("<h3>Layers</h3>"));
}

#[test]
fn a_sentence_on_line_0_is_refused() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let root = run(folder.path(), "one", GOOD, 20);
    let mut data = RunData::read(&root).expect("a run");
    let address = SentenceAddress { split: None, line: 0 };
    let error = data.look(&[address], &LoadSettings::default()).expect_err("line 0").to_string();
    assert_eq!(error, "split `test` has lines 1 to 4, not 0");
}

#[test]
fn a_page_shows_no_paths_of_the_machine() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let root = run(folder.path(), "one", GOOD, 20);
    let mut data = RunData::read(&root).expect("a run");
    let cause = "/home/someone/runs/one/state.json: torn".to_owned();
    data.summary.state = taper_run::folder::RunState::Damaged { cause };
    data.commands.push(taper_run::folder::Command {
        folder: "/home/someone/work".to_owned(),
        arguments: vec!["taper".to_owned(), "--set=data.train=['/home/someone/a b']".to_owned()],
        ..Default::default()
    });
    let page = report(&data, Language::English).expect("a page");
    assert!(page.contains("…/state.json: torn") && !page.contains("/home/someone"));
}

#[test]
fn a_table_of_points_gives_the_law_that_made_it() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("points.csv");
    let mut table = "Model Size,Training FLOP,loss\n".to_owned();
    for size in [1e6_f64, 3e6, 1e7, 3e7] {
        for tokens in [1e8_f64, 1e9, 1e10] {
            let loss = 1.7 + 400.0 / size.powf(0.34) + 410.0 / tokens.powf(0.28);
            table += &format!("{size},{},{loss}\n", 6.0 * size * tokens);
        }
    }
    fs::write(&path, &table).expect("write");
    let study = Study::fit(Point::from_table(&path).expect("a table"), 0, 20).expect("a law");
    let (fit, _) = study.joint.as_ref().expect("both inputs vary");
    assert!((fit.law.irreducible - 1.7).abs() < 1e-3, "{:?}", fit.law);
    assert!((fit.law.terms[0].exponent - 0.34).abs() < 1e-3, "{:?}", fit.law);
    let lines = study.lines(&[1e20]).join("\n");
    assert!(lines.contains("α 0.340") && lines.contains("1.00e20 FLOPs"), "{lines}");
    let figures = study.figures(Language::English);
    assert!(figures.iter().all(|one| one.figure.draw().is_ok()) && figures.len() >= 3);
    assert!(study.lines(&[]).iter().all(|line| !line.contains("the best model")));
    // Three sizes and three amounts of data determine the law, and two sizes do not.
    let points = Point::from_table(&path).expect("a table");
    let law = |sizes: usize| {
        let mut points = points.clone();
        let parameters: Vec<f64> = points.iter().step_by(3).map(|one| one.parameters).collect();
        points.retain(|one| parameters[..sizes].contains(&one.parameters));
        Study::fit(points, 0, 5)
    };
    let study = law(3).expect("a law");
    let (fit, _) = study.joint.as_ref().expect("both inputs vary");
    assert!((fit.law.irreducible - 1.7).abs() < 1e-2, "{:?}", fit.law);
    assert!(study.of_size.is_none() && study.of_data.is_none());
    let error = law(2).expect_err("too few").to_string();
    assert!(error.starts_with("6 points of 2 sizes and 3 amounts of data"), "{error}");
    // Blank lines count as lines of the file.
    fs::write(&path, table.replace("1000000,", "\n\nmany,")).expect("write");
    let error = format!("{:#}", Point::from_table(&path).expect_err("no number"));
    assert!(error.contains("line 4: \"many\" is no number above 0"), "{error}");
    let windows = "parameters,tokens,loss\r\n\r\n1,1,1\r\n\r\n\r\nx,1,1\r\n";
    fs::write(&path, windows).expect("write");
    let error = format!("{:#}", Point::from_table(&path).expect_err("no number"));
    assert!(error.contains("line 6: \"x\" is no number above 0"), "{error}");
    fs::write(&path, table.replace("1000000,", "many,")).expect("write");
    let error = format!("{:#}", Point::from_table(&path).expect_err("no number"));
    assert!(error.contains("line 2: \"many\" is no number above 0"), "{error}");
    fs::write(&path, "loss\n1\n").expect("write");
    let error = format!("{:#}", Point::from_table(&path).expect_err("no column"));
    assert!(error.contains("no column `parameters` or `model size`"), "{error}");
}
