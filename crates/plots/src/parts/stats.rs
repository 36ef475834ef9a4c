//! Important numbers of a page, each on a card.

use std::fmt::Write as _;

use crate::html::escape;

/// Difference between a number and the same number of another run (another recorded training).
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The difference with its sign, and the name of the other run.
    pub text: String,
    /// Whether the difference is an improvement. `None` if neither of the two numbers is better.
    pub is_better: Option<bool>,
}

/// A number on a card.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stat {
    /// Name of the number.
    pub name: String,
    /// The number as text, with separators between its digits.
    pub value: String,
    /// Unit of the number, or its confidence interval. It is written after the number.
    pub unit: String,
    /// Detail that is written below the number. It may be empty.
    pub detail: String,
    /// Difference from another run.
    pub change: Option<Change>,
    /// Values of the number over time, which are drawn as a small line. Fewer than two values are
    /// not drawn.
    pub course: Vec<f64>,
}

/// Width and height of the small line, in units of its `viewBox`.
const COURSE: (f64, f64) = (100.0, 28.0);

/// Makes cards that fill the width of the page.
#[must_use]
pub fn stats(stats: &[Stat]) -> String {
    format!("<dl class=\"stats\">\n{}</dl>\n", stats.iter().map(one).collect::<String>())
}

fn one(stat: &Stat) -> String {
    let mut html = format!(
        "<div class=\"stat\"><dt>{}</dt><dd class=\"value\">{}",
        escape(&stat.name),
        escape(&stat.value)
    );
    // Writing to a string does not fail.
    if !stat.unit.is_empty() {
        let _ = write!(html, " <small>{}</small>", escape(&stat.unit));
    }
    html += "</dd>";
    if !stat.detail.is_empty() {
        let _ = write!(html, "<dd class=\"detail\">{}</dd>", escape(&stat.detail));
    }
    if let Some(change) = &stat.change {
        let class = match change.is_better {
            Some(true) => "change is-better",
            Some(false) => "change is-worse",
            None => "detail",
        };
        let _ = write!(html, "<dd class=\"{class}\">{}</dd>", escape(&change.text));
    }
    if let Some(points) = course(&stat.course) {
        let (width, height) = COURSE;
        let _ = write!(
            html,
            "<dd><svg class=\"spark\" viewBox=\"0 0 {width} {height}\" \
             preserveAspectRatio=\"none\" aria-hidden=\"true\"><polyline points=\"{points}\"/></svg></dd>"
        );
    }
    html + "</div>\n"
}

/// Returns the points of a line through the finite values, in the syntax of SVG. Returns `None` if
/// there are fewer than two finite values.
fn course(values: &[f64]) -> Option<String> {
    let values: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    let (low, high) = values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), at| (low.min(*at), high.max(*at)));
    if values.len() < 2 {
        return None;
    }
    let ((width, height), last) = (COURSE, (values.len() - 1) as f64);
    let every = values.len().div_ceil(120);
    let point = |(at, value): (usize, &f64)| {
        let share = if high > low { (value - low) / (high - low) } else { 0.5 };
        let (x, y) = (width * at as f64 / last, 1.0 + (height - 2.0) * (1.0 - share));
        format!("{x:.1},{y:.1}")
    };
    let shown = values.iter().enumerate();
    let shown = shown.filter(|(at, _)| at % every == 0 || *at + 1 == values.len());
    Some(shown.map(point).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_hold_text_as_text_and_courses_that_exist() {
        let change = Some(Change { text: "+1.0 <b>".to_owned(), is_better: Some(false) });
        let stat = Stat {
            name: "<i>".to_owned(),
            value: "1".to_owned(),
            change,
            course: vec![1.0, f64::NAN, 3.0],
            ..Stat::default()
        };
        let html = stats(std::slice::from_ref(&stat));
        assert!(html.contains("&lt;i&gt;") && html.contains("is-worse\">+1.0 &lt;b&gt;"), "{html}");
        assert!(html.contains("points=\"0.0,27.0 100.0,1.0\""), "{html}");
        assert!(!stats(&[Stat { course: vec![1.0], ..stat }]).contains("polyline"));
    }
}
