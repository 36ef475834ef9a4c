//! The journey of a sentence as a page that one can step through.

use std::fmt::Write as _;

use serde_json::json;
use taper_plots::{Figure, Heatmap, Page, PlotError, escape};

use super::journey::{Branch, Journey, StackNorms};
use super::{AttentionPart, attention_figure};

/// What the page does beside what every page does.
const SCRIPT: &str = include_str!("steps.js");

/// A page with a step for each station.
///
/// # Errors
/// When there is nothing to draw.
pub fn journey_page(journey: &Journey) -> Result<String, PlotError> {
    let mut steps: Vec<(String, String)> = Vec::new();
    let mut add = |title: &str, body: String| steps.push((title.to_owned(), body));
    let pieces = journey.pieces.iter().map(|piece| {
        format!("<tr><td>{}</td><td class=\"number\">{}</td></tr>", escape(&piece.token), piece.id)
    });
    add(
        "Pieces",
        format!(
            "<p>The text, after normalisation: {}</p><p>The tokenizer cuts it into {} pieces, each \
             of which has a number.</p><table><thead><tr><th>piece</th><th \
             class=\"number\">number</th></tr></thead><tbody>{}</tbody></table>",
            escape(&journey.normalized),
            journey.pieces.len(),
            pieces.collect::<String>()
        ),
    );
    let mut body = format!(
        "<p>Each piece becomes a vector. Positions are told apart by <code>{}</code>. Below: how \
         long the vectors are before the first layer, and after each.</p>",
        escape(&journey.positions)
    );
    for stack in &journey.norms {
        body += &drawn(&norms_figure(stack))?;
    }
    add("Vectors", body);
    for part in [AttentionPart::Encoder, AttentionPart::Decoder, AttentionPart::Cross] {
        for layer in journey.attention.iter().filter(|layer| layer.part == part) {
            let title = format!("Attention {}, layer {}", part.name(), layer.layer);
            let what = match part {
                AttentionPart::Encoder => "Each source token gathers from the others.",
                AttentionPart::Decoder => "Each target token gathers from those before it.",
                AttentionPart::Cross => "Where the source is read when a token is predicted.",
            };
            let figure = drawn(&attention_figure(layer, None))?;
            add(&title, format!("<p>{what}</p>{figure}"));
        }
    }
    add("The beam", beam(journey));
    let choices = journey.choices.iter().map(|choice| {
        let others: String = choice
            .alternatives
            .iter()
            .map(|(token, probability)| {
                format!("{} {:.1} %&emsp;", escape(token), 100.0 * probability)
            })
            .collect();
        format!(
            "<tr><td>{}</td><td class=\"number\">{:.1} %</td><td>{others}</td></tr>",
            escape(&choice.token),
            100.0 * choice.probability
        )
    });
    add(
        "Each next token",
        format!(
            "<p>How likely each token of the best translation was after those before it, and the \
             likeliest there.</p><div class=\"wide\"><table><thead><tr><th>token</th><th \
             class=\"number\">probability</th><th>likeliest</th></tr></thead><tbody>{}</tbody>\
             </table></div>",
            choices.collect::<String>()
        ),
    );
    let count = steps.len();
    let mut body = String::from(
        "<p><button type=\"button\" id=\"before\">Back</button> \
         <button type=\"button\" id=\"after\">Next</button> \
         <span id=\"place\" class=\"muted\" role=\"status\"></span></p>",
    );
    for (number, (title, step)) in steps.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = write!(
            body,
            "<section class=\"step\" tabindex=\"-1\"><h2>{}. {title}</h2>{step}</section>",
            number + 1
        );
    }
    let title = format!("The journey of “{}”", journey.text);
    let data = vec![("steps".to_owned(), json!(count))];
    Ok(Page { title, body, script: SCRIPT.to_owned(), data, ..Page::default() }.html())
}

fn drawn(figure: &Figure) -> Result<String, PlotError> {
    Ok(format!("<figure>{}</figure>", figure.draw()?.inline()))
}

fn norms_figure(stack: &StackNorms) -> Figure {
    let row = |layers: usize| match layers {
        0 => "embedded".to_owned(),
        layers => format!("after layer {layers}"),
    };
    let wide = |norms: &Vec<f32>| norms.iter().map(|norm| f64::from(*norm)).collect();
    let heatmap = Heatmap {
        row_label: "where".to_owned(),
        column_label: "token".to_owned(),
        rows: (0..stack.norms.len()).map(row).collect(),
        columns: stack.tokens.clone(),
        values: stack.norms.iter().map(wide).collect(),
        strongest: None,
    };
    let title = format!("Norms of the vectors, {}", stack.stack);
    Figure::new(title, "The length of each token's vector, layer by layer.", heatmap)
}

/// What the search looked at, as a tree of lists.
fn beam(journey: &Journey) -> String {
    let mut body = String::from(
        "<p>What the search looked at: each token with the log-probability of all up to it. The best \
         translation is marked; what was dropped is grey.</p><ol>",
    );
    for found in &journey.found {
        let _ = write!(
            body,
            "<li>{} <span class=\"muted\">score {:.4}, log-probability {:.4}</span></li>",
            escape(&found.text),
            found.score,
            found.log_probability
        );
    }
    body += "</ol>";
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); journey.beam.len()];
    let mut roots = Vec::new();
    for (number, branch) in journey.beam.iter().enumerate() {
        branch.parent.map_or(&mut roots, |parent| &mut children[parent]).push(number);
    }
    // A list within another for each token would be as deep as the sentence is long: those that
    // alone continue one stand on its line.
    let mut open: Vec<(usize, bool)> = roots.into_iter().rev().map(|root| (root, false)).collect();
    body += "<ul class=\"tree\">";
    while let Some((number, is_left)) = open.pop() {
        if is_left {
            body += "</ul></li>";
            continue;
        }
        body += "<li>";
        let mut last = number;
        body += &named(&journey.beam[last]);
        while let [only] = children[last][..] {
            last = only;
            body += " ";
            body += &named(&journey.beam[last]);
        }
        if children[last].is_empty() {
            body += "</li>";
            continue;
        }
        body += "<ul>";
        open.push((last, true));
        open.extend(children[last].iter().rev().map(|child| (*child, false)));
    }
    body + "</ul>"
}

fn named(branch: &Branch) -> String {
    let token = escape(&branch.token);
    let token = match (branch.is_best, branch.fate) {
        (true, _) => format!("<strong>{token}</strong>"),
        (_, "dropped") => format!("<span class=\"muted\">{token}</span>"),
        _ => token,
    };
    format!("{token} <small class=\"muted\">{:.2}</small>", branch.log_probability)
}
