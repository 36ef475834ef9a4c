//! Tests figures and pages in every format.

use taper_plots::{Axis, Bars, Chart, Figure, Heatmap, Page, PlotError, Series, Svg, escape};

fn curve() -> Figure {
    let loss = (1..=400).map(|step| (f64::from(step), 6.0 * f64::from(step).powf(-0.3)));
    let validation = (1..=8).map(|at| (f64::from(at) * 50.0, 4.0 * f64::from(at).powf(-0.25)));
    let series = vec![
        Series::line("training & <smoothed>", loss.collect()),
        Series::dashes("validation", validation.collect()),
        Series::dots("best", vec![(400.0, 2.4), (f64::NAN, 1.0), (100.0, f64::INFINITY)]),
    ];
    let chart = Chart::new(Axis::log("update"), Axis::linear("loss"), series);
    Figure::new("Loss of <a run> & more", "It falls.", chart)
}

fn bars() -> Figure {
    let bars = Bars {
        label: "words".into(),
        categories: ["1–5", "6–10", "11–20", "21+"].map(String::from).to_vec(),
        y: Axis::linear("BLEU"),
        series: vec![
            ("a".into(), vec![41.0, 39.5, 33.2, f64::NAN]),
            ("b".into(), vec![43.0, 38.5, 30.0, -4.0]),
        ],
    };
    Figure::new("BLEU by length", "", bars)
}

fn heatmap() -> Figure {
    let rows = ["▁I", "▁love", "▁you", "é̂", "</s>"].map(String::from).to_vec();
    let columns =
        ["我", "爱", "你", "👩‍🔬", "。", "</s>", "a very long label"].map(String::from).to_vec();
    let value =
        |row: usize, column: usize| if row == column { 0.8 } else { 0.05 - 0.02 * row as f64 };
    let values = (0..rows.len())
        .map(|row| (0..columns.len()).map(|column| value(row, column)).collect())
        .collect();
    let (row_label, column_label) = ("output".to_owned(), "input".to_owned());
    let map = Heatmap { row_label, column_label, rows, columns, values, strongest: Some(1.0) };
    Figure::new("Cross-attention, layer 2, head 3", "", map)
}

fn ridges() -> Figure {
    let hill = |row: i32, at: i32| {
        let (row, at) = (f64::from(row), f64::from(at) / 20.0);
        (10f64.powf(at), row + 1.4 * (-(at - 1.0 - 0.3 * row).powi(2) * 9.0).exp())
    };
    let series = (0..4).map(|row| {
        let name = if row == 0 { "first half" } else { "" };
        Series::ridge(name, f64::from(row), (0..60).map(|at| hill(row, at)).collect()).coloured(0)
    });
    let rows = (0..4).map(|row| (f64::from(row), format!("layer <{row}>"))).collect();
    let y = Axis::linear("").named(rows).between(-0.2, 4.6);
    Figure::new("Norms by layer", "", Chart::new(Axis::log("norm"), y, series.collect()))
}

#[test]
fn ridges_have_the_names_of_their_rows_and_lie_over_a_coloured_area() {
    let svg = ridges().draw().expect("ridges").standalone();
    assert!((0..4).all(|row| svg.contains(&format!("layer &lt;{row}&gt;"))), "{svg}");
    let areas = svg.matches("<polygon").count();
    assert_eq!((areas, svg.matches("opacity=\"0.3\"").count()), (4, 4), "{svg}");
    let data = ridges().draw().expect("ridges").inline();
    assert!(data.contains("ridge&quot;") && data.contains("&quot;base&quot;:3.0"), "{data}");
}

#[test]
fn ridges_of_one_colour_have_one_entry_in_the_legend() {
    let ridge = |name: &str, colour| {
        let points = vec![(1.0, 1.0), (2.0, 2.0), (3.0, 1.0)];
        Series::ridge(name, 0.0, points).coloured(colour)
    };
    let line = Series::line("threshold", vec![(1.0, 1.5), (3.0, 1.5)]).coloured(0);
    let series = vec![line, ridge("", 0), ridge("early", 0), ridge("late", 1), ridge("again", 0)];
    let chart = Chart::new(Axis::linear("norm"), Axis::linear(""), series);
    let svg = Figure::new("Norms", "", chart).draw().expect("ridges").standalone();
    let has = |name: &str| svg.contains(&format!(">{name}</text>"));
    assert!(["threshold", "early", "late"].iter().all(|name| has(name)), "{svg}");
    assert!(!has("again"), "{svg}");
}

fn all() -> Vec<(&'static str, Svg)> {
    [("curve", curve()), ("bars", bars()), ("heatmap", heatmap()), ("ridges", ridges())]
        .map(|(name, figure)| (name, figure.draw().expect(name)))
        .to_vec()
}

/// Writes a file for a person to look at, if the environment variable `TAPER_FIGURES` names a
/// folder: `TAPER_FIGURES=FOLDER cargo test -p taper-plots`.
fn keep(name: &str, bytes: &[u8]) {
    if let Some(folder) = std::env::var_os("TAPER_FIGURES") {
        std::fs::write(std::path::Path::new(&folder).join(name), bytes).expect("a folder");
    }
}

#[test]
fn a_drawing_says_what_it_is_and_has_each_colour_as_a_variable_and_as_it_is() {
    for (name, drawing) in all() {
        let svg = drawing.standalone();
        keep(&format!("{name}.svg"), svg.as_bytes());
        assert!(
            svg.contains("role=\"img\"") && svg.contains("<desc id=\"description\">"),
            "{name}"
        );
        assert!(svg.contains("svg:root{") && svg.contains("--plot-ink"), "{name}");
        let coloured = |part: &&str| part.contains("=\"#");
        let bare: Vec<&str> =
            svg.split('<').filter(coloured).filter(|part| !part.contains("class=\"")).collect();
        assert!(bare.is_empty(), "{name} has colours without a class: {bare:?}");
        assert!(!svg.contains("<rect width=\"100%\""), "{name}: the ground is transparent");
    }
    let svg = curve().draw().expect("a curve").standalone();
    assert!(svg.contains("Loss of &lt;a run&gt; &amp; more") && svg.contains("stroke-dasharray"));
    assert!(
        !svg.contains("NaN") && !svg.contains("inf"),
        "points that are not finite are left out"
    );
}

#[test]
fn what_cannot_be_drawn_is_said() {
    let empty =
        Chart::new(Axis::log("x"), Axis::log("y"), vec![Series::line("", vec![(0.0, -1.0)])]);
    let error = Figure::new("Nothing", "", empty).draw().expect_err("no point");
    assert!(matches!(&error, PlotError::Nothing { title } if title == "Nothing"), "{error}");
    let Figure { title, description, size, .. } = heatmap();
    let rows = vec!["a".to_owned(), "b".to_owned()];
    let map = Heatmap {
        row_label: String::new(),
        column_label: String::new(),
        columns: rows.clone(),
        rows,
        values: vec![vec![1.0, 2.0], vec![3.0]],
        strongest: None,
    };
    let error = Figure { title, description, size, plot: map.into() }.draw().expect_err("ragged");
    assert_eq!(
        error.to_string(),
        "the figure `Cross-attention, layer 2, head 3` has 2 columns, but 1 values for them"
    );
}

#[test]
fn a_page_holds_its_figures_and_escapes_what_others_wrote() {
    let drawings = all();
    let figures: String =
        drawings.iter().map(|(_, svg)| format!("<figure>{}</figure>", svg.inline())).collect();
    let hostile = "</script><script>alert(1)</script>";
    let page = Page {
        title: format!("A run called {hostile}"),
        body: format!("<h2>Figures</h2><div class=\"figures\">{figures}</div>{}", escape(hostile)),
        data: vec![("rows".to_owned(), serde_json::json!([hostile, "<!--"]))],
        ..Page::default()
    };
    let html = page.html();
    keep("page.html", html.as_bytes());
    assert_eq!(html.matches("<script").count(), 2, "its data and its own script");
    assert!(!html.contains("alert(1)</script><") && !html.contains("<!--"));
    assert!(html.contains("default-src 'none'") && !html.contains("unsafe-inline"));
    for outside in ["src=", "href=\"http", "url(", "@import"] {
        assert!(!html.contains(outside), "{outside}");
    }
}

#[cfg(feature = "png")]
#[test]
fn a_picture_has_its_labels_and_its_ground() {
    for (name, drawing) in all() {
        for (theme, ground) in [(taper_plots::Theme::Light, 254), (taper_plots::Theme::Dark, 28)] {
            let png = match drawing.png(theme, 2.0) {
                // A build machine may have no fonts.
                Err(PlotError::NoFonts) => return,
                png => png.expect(name),
            };
            keep(&format!("{name}-{theme:?}.png"), &png);
            let picture = image::load_from_memory(&png).expect("a PNG").to_rgb8();
            assert_eq!(picture.get_pixel(0, 0)[2], ground, "{name}, {theme:?}");
            let (width, _) = picture.dimensions();
            // The title has been drawn: the rows of pixels at its place have ink.
            let is_ink = |at: &image::Rgb<u8>| at[2].abs_diff(ground) > 100;
            let inked = (0..width).filter(|&x| (16..48).any(|y| is_ink(picture.get_pixel(x, y))));
            assert!(inked.count() > 80, "{name}, {theme:?}");
        }
    }
}
