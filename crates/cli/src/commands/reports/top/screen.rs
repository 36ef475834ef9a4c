//! Draws the screen of `taper top`: a table of runs, and charts of the selected run.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Axis, Block, Cell, Chart, Dataset, GraphType, Paragraph, Row, Table, TableState, Wrap,
};
use taper_report::Record;
use taper_run::folder::RunState;
use taper_trainer::ProcessTime;

use super::watched::WatchedRun;
use crate::bars::clock;

/// Charts to choose from. One of them is shown next to the loss.
const CHARTS: [&str; 5] =
    ["validation scores", "gradient norm", "learning rate", "accuracy", "answers a second"];

/// Current selection: indices of a run and of a chart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct View {
    run: usize,
    chart: usize,
}

impl View {
    /// Moves the selection by `step` among `count` runs.
    pub(super) fn choose(&mut self, step: isize, count: usize) {
        self.run = self.run.saturating_add_signed(step).min(count.saturating_sub(1));
    }

    /// Moves the selection by `step` charts, cyclically.
    pub(super) fn turn(&mut self, step: isize) {
        self.chart = (self.chart + CHARTS.len()).saturating_add_signed(step) % CHARTS.len();
    }
}

/// Name and points of a curve.
type Curve = (&'static str, Vec<(f64, f64)>);

/// Draws the runs, and the curves, samples and checkpoints of the selected run.
pub(super) fn draw(frame: &mut Frame<'_>, runs: &[WatchedRun], view: &View) {
    let table_height = (runs.len() as u16 + 3).min(frame.area().height / 3).max(4);
    let [table, charts, below, keys] = Layout::vertical([
        Constraint::Length(table_height),
        Constraint::Min(8),
        Constraint::Length(9),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_runs(frame, table, runs, view.run);
    let Some(run) = runs.get(view.run) else { return };
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(charts);
    let (score, unit) = match run.record.is_of_numbers() {
        true => ("loss", "squared error"),
        false => ("nll", "loss, nats a token"),
    };
    let loss = [
        ("training", run.record.measured(|one| Some(one.nll))),
        ("validation", run.record.scores(score)),
    ];
    draw_chart(frame, left, &format!("{}: {unit}", run.name), &loss);
    let shown = curves(&run.record, view.chart);
    let slowest = match view.chart {
        chart if chart + 1 == CHARTS.len() => ProcessTime::describe(&run.record.processes()),
        _ => None,
    };
    let slowest = slowest.map_or_else(String::new, |words| format!("; {words}"));
    draw_chart(frame, right, &format!("{}{slowest}", CHARTS[view.chart]), &shown);
    let [samples, checkpoints] =
        Layout::horizontal([Constraint::Percentage(70), Constraint::Percentage(30)]).areas(below);
    draw_samples(frame, samples, run);
    let names = run.checkpoints.iter().rev().map(|name| Line::from(name.as_str()));
    let block = Block::bordered().title("checkpoints");
    frame.render_widget(Paragraph::new(names.collect::<Vec<_>>()).block(block), checkpoints);
    frame.render_widget(Line::from("↑ ↓ run   ← → chart   q quit").dim(), keys);
}

trait Dim {
    fn dim(self) -> Self;
}

impl Dim for Line<'_> {
    fn dim(self) -> Self {
        self.style(Style::new().add_modifier(Modifier::DIM))
    }
}

fn curves(record: &Record, chart: usize) -> Vec<Curve> {
    match chart {
        0 if record.score_names().contains(&"bleu") => {
            vec![("BLEU", record.scores("bleu")), ("chrF2", record.scores("chrf"))]
        }
        0 => vec![("accuracy", record.scores("accuracy"))],
        1 => vec![("norm", record.measured(|one| Some(one.gradient_norm)))],
        2 => vec![("rate", record.measured(|one| Some(one.learning_rate)))],
        3 => vec![
            ("training", record.measured(|one| one.accuracy)),
            ("validation", record.scores("accuracy")),
        ],
        _ => vec![("a second", record.measured(|one| one.tokens_per_second))],
    }
}

fn draw_runs(frame: &mut Frame<'_>, area: Rect, runs: &[WatchedRun], chosen: usize) {
    let head =
        ["run", "state", "updates", "loss", "ppl", "lr", "|g|", "per s", "left", "memory", "best"];
    let widths = [
        Constraint::Fill(2),
        Constraint::Length(11),
        Constraint::Length(15),
        Constraint::Length(7),
        Constraint::Length(8),
        Constraint::Length(9),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Fill(1),
    ];
    let rows = runs.iter().map(|run| Row::new(cells(run)));
    let table = Table::new(rows, widths)
        .header(Row::new(head.map(Cell::from)).style(Style::new().add_modifier(Modifier::BOLD)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .block(Block::bordered().title("taper"));
    let mut state = TableState::new().with_selected(Some(chosen));
    frame.render_stateful_widget(table, area, &mut state);
}

/// Returns the table cells of a run.
fn cells(run: &WatchedRun) -> Vec<String> {
    let summary = &run.summary;
    let state = match &summary.state {
        RunState::Training { .. } => "training",
        RunState::Finished { .. } => "finished",
        RunState::Interrupted => "interrupted",
        RunState::Damaged { .. } => "damaged",
    };
    let updates = match summary.max_updates {
        Some(last) => format!("{}/{last}", summary.step),
        None => summary.step.to_string(),
    };
    let last = run.record.logged.last();
    let of_last = |text: fn(&taper_report::Logged) -> String| last.map_or_else(String::new, text);
    let left = run.seconds_left().and_then(|left| Duration::try_from_secs_f64(left).ok());
    let best = summary.best.as_ref();
    vec![
        run.name.clone(),
        state.to_owned(),
        updates,
        of_last(|one| format!("{:.3}", one.loss)),
        of_last(|one| match one.accuracy {
            Some(_) => format!("{:.2}", one.nll.exp()),
            None => String::new(),
        }),
        of_last(|one| format!("{:.2e}", one.learning_rate)),
        of_last(|one| format!("{:.2}", one.gradient_norm)),
        of_last(|one| one.tokens_per_second.map_or_else(String::new, |rate| format!("{rate:.0}"))),
        left.map_or_else(String::new, clock),
        run.memory.map_or_else(String::new, taper_run::numbers::bytes),
        best.map_or_else(String::new, |best| format!("{} {:.3}", best.metric, best.score)),
    ]
}

fn draw_chart(frame: &mut Frame<'_>, area: Rect, title: &str, curves: &[Curve]) {
    let finite = |at: &(f64, f64)| at.0.is_finite() && at.1.is_finite();
    let curves: Vec<(&str, Vec<(f64, f64)>)> = curves
        .iter()
        .map(|(name, points)| (*name, points.iter().copied().filter(finite).collect()))
        .filter(|(_, points): &(&str, Vec<_>)| !points.is_empty())
        .collect();
    let block = Block::bordered().title(title.to_owned());
    if curves.is_empty() {
        frame.render_widget(Paragraph::new("nothing recorded yet").block(block), area);
        return;
    }
    let all = || curves.iter().flat_map(|(_, points)| points);
    let range = |of: fn(&(f64, f64)) -> f64| {
        let (low, high) =
            all().map(of).fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), at| {
                (low.min(at), high.max(at))
            });
        if high > low { [low, high] } else { [low - 0.5, high + 0.5] }
    };
    let (x, y) = (range(|at| at.0), range(|at| at.1));
    let number = |value: f64| match value.abs() {
        0.0 => "0".to_owned(),
        size if !(0.01..1e5).contains(&size) => format!("{value:.1e}"),
        size if size >= 100.0 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    };
    let labels = |[low, high]: [f64; 2]| [low, f64::midpoint(low, high), high].map(number);
    // Without colours, the second curve has larger dots.
    let looks = match has_colours() {
        true => [(Color::Cyan, Marker::Braille), (Color::Yellow, Marker::Braille)],
        false => [(Color::Reset, Marker::Braille), (Color::Reset, Marker::Dot)],
    };
    let datasets = curves.iter().zip(looks).map(|((name, points), (colour, marker))| {
        Dataset::default()
            .name(*name)
            .marker(marker)
            .graph_type(GraphType::Line)
            .style(Style::new().fg(colour))
            .data(points)
    });
    let chart = Chart::new(datasets.collect())
        .block(block)
        .x_axis(Axis::default().bounds(x).labels(labels(x)))
        .y_axis(Axis::default().bounds(y).labels(labels(y)));
    frame.render_widget(chart, area);
}

/// True if the user wants colours: `NO_COLOR` (no-color.org) and `CLICOLOR=0` switch them off.
fn has_colours() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("CLICOLOR").is_none_or(|value| value != "0")
}

fn draw_samples(frame: &mut Frame<'_>, area: Rect, run: &WatchedRun) {
    let mut lines = Vec::new();
    let last = run.record.validated.iter().rev().find(|one| !one.samples.is_empty());
    for sample in last.iter().flat_map(|one| &one.samples) {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        lines.push(Line::from(sample.source.as_str()).dim());
        lines.push(Line::from(Span::styled(sample.hypothesis.as_str(), bold)));
        lines.push(Line::from(sample.reference.as_str()));
    }
    let title = match last {
        Some(one) => format!("step {}: source, translation, reference", one.step),
        None => "samples".to_owned(),
    };
    let block = Block::bordered().title(title);
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }).block(block), area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use taper_run::RunFolder;

    #[test]
    fn a_run_is_drawn_with_its_curves_samples_and_checkpoints() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let root = folder.path().join("first");
        std::fs::create_dir_all(root.join("checkpoints/step-00000002")).expect("folders");
        std::fs::write(root.join("config.toml"), "").expect("write");
        let lines: String = (1..=2)
            .map(|step| {
                format!(
                    "{{\"event\":\"log\",\"step\":{step},\"epoch\":0,\"loss\":2.5,\"nll\":2.0,\
                     \"accuracy\":0.5,\"learning_rate\":0.001,\"gradient_norm\":1.5,\"tokens\":10,\
                     \"window_tokens\":10,\"timing\":{{\"elapsed_seconds\":{step}.0}}}}\n"
                )
            })
            .collect();
        let validation = "{\"event\":\"validation\",\"step\":2,\"epoch\":0,\"scores\":{\"nll\":2.0,\
                          \"bleu\":11.0},\"improved\":true,\"samples\":[{\"source\":\"我爱你。\",\
                          \"reference\":\"I love you.\",\"hypothesis\":\"I like you.\"}],\
                          \"timing\":{\"elapsed_seconds\":2.0}}\n";
        std::fs::write(root.join("metrics.jsonl"), lines + validation).expect("write");
        let runs = [WatchedRun::new(RunFolder::new(&root))];
        let mut terminal = Terminal::new(TestBackend::new(120, 30)).expect("a terminal");
        let mut view = View::default();
        view.choose(7, runs.len());
        assert_eq!(view, View::default(), "there is one run");
        terminal.draw(|frame| draw(frame, &runs, &view)).expect("drawn");
        let screen = terminal.backend().to_string();
        for text in ["first", "2.500", "7.39", "I like you.", "step-00000002", "validation scores"]
        {
            assert!(screen.contains(text), "{text} is not on\n{screen}");
        }
        view.turn(-1);
        terminal.draw(|frame| draw(frame, &runs, &view)).expect("drawn");
        let screen = terminal.backend().to_string();
        assert!(screen.contains("answers a second") && screen.contains("nothing recorded yet"));
    }
}
