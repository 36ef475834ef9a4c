//! Example that writes a page with every component of pages, once in English and once in Chinese:
//! `cargo run --release -p taper-plots --example gallery -- FOLDER`.

use std::error::Error;
use std::f64::consts::TAU;
use std::path::PathBuf;

use serde_json::json;
use taper_plots::parts::{
    Change, Section, Stat, figures, note, panel, panels, parallel_coordinates, small_multiples,
    stats, table,
};
use taper_plots::{Axis, Bars, Chart, Figure, Heatmap, Language, Page, Series};

/// Script of the page. It puts two tabs into the last section. One shows attention weights as a
/// matrix, and the other shows them as ribbons between queries and keys.
const SCRIPT: &str = "
const { queries, keys, heads } = taper.data('word-data');
const colours = heads.map((weights, at) => ({ weights, colour: `--plot-series-${at + 1}` }));
const mean = queries.map((_, query) => keys.map((__, key) =>
  heads.reduce((sum, head) => sum + head[query][key], 0) / heads.length));
const matrix = taper.matrix({ rows: queries, columns: keys, values: mean, rowLabel: '',
  columnLabel: '→', strongest: 1, title: taper.say('Mean of the heads', '各头均值') });
const ribbons = taper.ribbons({ queries, keys, heads: colours,
  title: taper.say('Heads as ribbons', '各头连线') });
const under = taper.element('div');
under.append(matrix.place, matrix.told);
const tabs = taper.tabs(taper.say('Attention', '注意力'),
  [[taper.say('Ribbons', '连线'), ribbons.place], [taper.say('Matrix', '矩阵'), under]]);
document.getElementById('words-place').append(tabs.place);
";

fn main() -> Result<(), Box<dyn Error>> {
    let folder: PathBuf = std::env::args_os().nth(1).ok_or("name a folder")?.into();
    std::fs::create_dir_all(&folder)?;
    for language in [Language::English, Language::Chinese] {
        let name = format!("gallery-{}.html", language.choose("en", "zh"));
        std::fs::write(folder.join(name), page(language)?)?;
    }
    Ok(())
}

fn page(language: Language) -> Result<String, Box<dyn Error>> {
    let say = |english: &'static str, chinese: &'static str| language.choose(english, chinese);
    let parts = [
        Section::new("numbers", say("Numbers", "数字"), numbers(language)),
        Section::new("charts", say("Charts", "图表"), charts(language)?),
        Section::new("small", say("Small multiples", "小图组"), multiples(language)?),
        Section::new("recipes", say("Parallel coordinates", "平行坐标"), recipes(language)),
        Section::new("tables", say("Tables and text", "表格与文字"), tables(language)),
        Section::new(
            "words",
            say("Tokens, ribbons, weights", "词元、连线与权重"),
            "<div class=\"panel\" id=\"words-place\"></div>".to_owned(),
        ),
    ];
    let words = json!({
        "queries": ["我", "爱", "你", "。", "שלום", "</s>"],
        "keys": ["▁I", "▁love", "▁you", ".", "▁peace", "</s>"],
        "heads": (0..3).map(head).collect::<Vec<_>>(),
    });
    Ok(Page {
        language,
        title: say("What pages are made of", "页面由这些部分组成").to_owned(),
        body: Section::all(&parts, language),
        script: SCRIPT.to_owned(),
        data: vec![("word-data".to_owned(), words)],
        ..Page::default()
    }
    .html())
}

/// Returns attention weights of a head whose queries attend to the key `number` places before them.
/// The weights of a query sum to 1.
fn head(number: usize) -> Vec<Vec<f64>> {
    let row = |query: usize| {
        let aim = query.saturating_sub(number) as f64;
        let near = |key: usize| (-(key as f64 - aim).powi(2)).exp();
        let sum: f64 = (0..6).map(near).sum();
        (0..6).map(|key| near(key) / sum).collect()
    };
    (0..6).map(row).collect()
}

fn numbers(language: Language) -> String {
    let say = |english: &str, chinese: &str| language.choose(english, chinese).to_owned();
    let stat = |name: String, value: &str, unit: &str, detail: String| Stat {
        name,
        value: value.to_owned(),
        unit: unit.to_owned(),
        detail,
        ..Stat::default()
    };
    let course: Vec<f64> = (1..60).map(|at| 40.0 * (1.0 - (-f64::from(at) / 12.0).exp())).collect();
    let change = |text: &str, is_better| Some(Change { text: text.to_owned(), is_better });
    stats(&[
        Stat {
            change: change("▲ +1.20", Some(true)),
            course: course.clone(),
            ..stat(
                "BLEU".to_owned(),
                "38.42",
                "± 0.55",
                say("test · 2,000 sentences", "test · 2,000 句"),
            )
        },
        Stat {
            change: change("▲ +0.031", Some(false)),
            course: course.iter().map(|value| -value).collect(),
            ..stat(say("Best validation: loss", "最佳验证：loss"), "1.2056", "", String::new())
        },
        stat(
            say("Time of training", "训练时间"),
            "3",
            &say("h 12 min", "小时 12 分"),
            String::new(),
        ),
        stat(
            say("Rate", "速度"),
            "5,950",
            &say("tokens/s", "词元/秒"),
            say("595,706 tokens", "595,706 词元"),
        ),
        stat(say("Parameters", "参数量"), "61.3", "M", "61,302,784".to_owned()),
        stat(say("Training data", "训练数据"), "4,500,000", &say("pairs", "句对"), String::new()),
    ])
}

fn charts(language: Language) -> Result<String, Box<dyn Error>> {
    let all =
        [curve, waves, scatter, bars, confusions, norms, ridges].map(|figure| figure(language));
    Ok(figures(&all)?)
}

fn curve(language: Language) -> Figure {
    let say = |english: &'static str, chinese: &'static str| language.choose(english, chinese);
    let noise = |at: f64| 0.12 * (at * 12.9898).sin() * (at * 0.37).cos();
    let loss = |at: i32| 1.5 + 6.0 * f64::from(at).powf(-0.4) + noise(f64::from(at));
    let series = vec![
        Series::line(
            say("training", "训练"),
            (1..800).map(|at| (f64::from(at) * 10.0, loss(at))).collect(),
        ),
        Series::dashes(
            say("validation", "验证"),
            (1..16)
                .map(|at| (f64::from(at) * 500.0, 1.4 + 4.0 * f64::from(at).powf(-0.7)))
                .collect(),
        ),
    ];
    let chart = Chart::new(
        Axis::linear(say("update", "更新次数")),
        Axis::linear(say("nats a token", "奈特/词元")),
        series,
    );
    Figure::new(say("Cross entropy", "交叉熵"), "7.5 → 1.7", chart)
}

fn waves(language: Language) -> Figure {
    let waves = (0..6).map(|number| {
        let wave =
            |at: i32| (f64::from(at), (f64::from(at) / 100.0 * TAU + f64::from(number)).sin());
        Series::line(format!("{}", number + 1), (0..100).map(wave).collect())
    });
    let x = Axis::linear(language.choose("update", "更新次数"));
    let chart = Chart::new(x, Axis::linear("sin"), waves.collect());
    Figure::new(language.choose("Many lines", "多条曲线"), "six sine waves", chart)
}

fn scatter(language: Language) -> Figure {
    let places = [(3.0, 20.0), (10.0, 27.5), (40.0, 31.0), (95.0, 33.0)];
    let dots = ["a", "b", "c", "d"].into_iter().zip(places);
    let dots = dots.map(|(name, at)| Series::dots(name, vec![at])).collect();
    let x = Axis::log(language.choose("minutes", "分钟"));
    let chart = Chart::new(x, Axis::linear("BLEU"), dots);
    Figure::new(language.choose("Time and score", "时间与得分"), "a to d", chart)
}

fn bars(language: Language) -> Figure {
    let bars = Bars {
        label: language.choose("words of the source (sentences)", "原文词数（句数）").to_owned(),
        categories: ["1–5 (120)", "6–10 (800)", "11–20 (700)", "21–30 (340)", "31+ (40)"]
            .map(String::from)
            .to_vec(),
        y: Axis::linear(language.choose("score", "得分")),
        series: vec![
            ("BLEU".to_owned(), vec![41.0, 39.5, 33.2, 28.0, 22.5]),
            ("chrF2".to_owned(), vec![61.0, 60.5, 55.2, 51.0, 47.5]),
        ],
    };
    Figure::new(language.choose("Scores by length", "按长度的得分"), "41 → 22.5", bars)
}

fn confusions(language: Language) -> Figure {
    let labels = ["Berlin", "Paris", "北京", "القاهرة"].map(String::from).to_vec();
    let value = |row: i32, column: i32| if row == column { 0.8 } else { 0.02 * f64::from(row) };
    let map = Heatmap {
        row_label: language.choose("right label", "正确标签").to_owned(),
        column_label: language.choose("given label", "给出的标签").to_owned(),
        values: (0..4).map(|row| (0..4).map(|column| value(row, column)).collect()).collect(),
        rows: labels.clone(),
        columns: labels,
        strongest: Some(1.0),
    };
    Figure::new(language.choose("Which labels are confused", "混淆矩阵"), "mostly right", map)
}

fn norms(language: Language) -> Figure {
    let norm =
        |row: i32, column: i32| f64::from(row - 3) * 0.3 + (f64::from(column) / 9.0).sin() * 0.5;
    let map = Heatmap {
        row_label: language.choose("layer", "层").to_owned(),
        column_label: language.choose("update", "更新次数").to_owned(),
        rows: (0..7).map(|row| format!("encoder.layers.{row}")).collect(),
        columns: (1..=60).map(|at| (at * 50).to_string()).collect(),
        values: (0..7).map(|row| (0..60).map(|column| norm(row, column)).collect()).collect(),
        strongest: None,
    };
    Figure::new(language.choose("Norms by layer", "各层范数"), "waves", map).sized(720, 320)
}

fn ridges(language: Language) -> Figure {
    let say = |english: &'static str, chinese: &'static str| language.choose(english, chinese);
    let hill = |row: i32, late: f64, at: i32| {
        let (row, at) = (f64::from(row), f64::from(at) / 30.0);
        let apart = (at - 1.0 - 0.12 * row + 0.5 * late) * (3.0 + late);
        (10f64.powf(at), 6.0 - row + 1.5 * (-apart * apart).exp())
    };
    let mut series = Vec::new();
    for row in 0..7 {
        for (number, name) in
            [say("first half", "前半"), say("second half", "后半")].into_iter().enumerate()
        {
            let points = (0..70).map(|at| hill(row, number as f64, at)).collect();
            let name = if row == 0 { name } else { "" };
            series.push(Series::ridge(name, 6.0 - f64::from(row), points).coloured(number));
        }
    }
    let rows = (0..7).map(|row| (6.0 - f64::from(row), format!("encoder.layers.{row}"))).collect();
    let y = Axis::linear("").named(rows).between(-0.2, 7.6);
    let chart = Chart::new(Axis::log(say("norm", "范数")), y, series);
    Figure::new(say("Distributions as ridgelines", "分布山脊图"), "hills", chart).sized(720, 320)
}

fn multiples(language: Language) -> Result<String, Box<dyn Error>> {
    let (x, y) = (language.choose("update", "更新次数"), language.choose("norm", "范数"));
    let of_layer = |layer: i32| {
        let norm = |at: i32| (f64::from(at), (1.0 + f64::from(layer)) * f64::from(at).powf(-0.5));
        let series = vec![Series::line("", (1..60).map(norm).collect())];
        let chart = Chart::new(Axis::linear(x), Axis::log(y), series);
        Figure::new(format!("encoder.layers.{layer}"), "", chart).sized(360, 220)
    };
    Ok(small_multiples(&(0..8).map(of_layer).collect::<Vec<_>>())?)
}

fn recipes(language: Language) -> String {
    let names = ["small", "medium", "large", "large, long"].map(String::from);
    let values = |values: [&str; 4]| values.map(String::from).to_vec();
    let axes = [
        ("model.d_model".to_owned(), values(["128", "256", "512", "512"])),
        ("model.norm".to_owned(), values(["pre", "pre", "post", "pre"])),
        (
            "training.schedule.learning_rate".to_owned(),
            values(["0.003", "0.001", "0.0005", "0.0005"]),
        ),
        ("training.max_updates".to_owned(), values(["5000", "20000", "20000", "100000"])),
        ("BLEU test".to_owned(), values(["21.40", "27.50", "30.95", "33.10"])),
    ];
    parallel_coordinates(language.choose("Recipes and their scores", "配方与得分"), &names, &axes)
}

fn tables(language: Language) -> String {
    let say = |english: &'static str, chinese: &'static str| language.choose(english, chinese);
    let row = |cells: [&str; 4]| cells.map(str::to_owned);
    let rows = [
        row(["first", "38.42 ± 0.55", "", "4,500,000"]),
        row(["second, <b>hostile</b>", "39.10 ± 0.54", "0.0120", "9,000,000"]),
    ];
    let head = [say("run", "运行"), "BLEU", "p", say("pairs", "句对")];
    let text = format!(
        "<p>{} <ins>{}</ins> <del>{}</del> <span class=\"badge\">{}</span> \
         <a href=\"#numbers\">{}</a></p>\
         <p><button type=\"button\">{}</button> <label>{} <input type=\"search\"></label> \
         <label>{} <select><option>1</option></select></label></p>\
         <pre tabindex=\"0\">taper report runs/a</pre>",
        say("Text with", "文字中有"),
        say("added", "添加"),
        say("removed", "删除"),
        say("a badge", "徽标"),
        say("a link", "链接"),
        say("Button", "按钮"),
        say("find", "查找"),
        say("choose", "选择"),
    );
    panels(&[
        panel(
            say("Beside first", "与 first 相比"),
            &(table(&head, &rows) + &note(say("A remark.", "备注。"))),
        ),
        panel(say("Text and controls", "文字与控件"), &text),
    ])
}
