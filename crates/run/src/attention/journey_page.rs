//! The journey of a sentence as a page to step through.

use std::fmt::Write as _;

use serde_json::json;
use taper_plots::{Figure, Heatmap, Language, Page, PlotError, escape};

use super::journey::{Branch, Journey, StackNorms};
use super::{AttentionPart, attention_figure};

/// Script of this page, in addition to the script of every page.
const SCRIPT: &str = include_str!("steps.js");

/// Title and body of a step, both as HTML.
type Station = (String, String);

/// Page with a step for each station.
///
/// # Errors
/// When there is nothing to draw.
pub fn journey_page(journey: &Journey, language: Language) -> Result<String, PlotError> {
    let say = |english: &'static str, chinese: &'static str| language.choose(english, chinese);
    let mut steps = vec![pieces(journey, language), vectors(journey, language)?];
    steps.extend(attention(journey, language)?);
    steps.push((say("The beam", "集束搜索").to_owned(), beam(journey, language)));
    steps.push(choices(journey, language));
    let mut body = format!(
        "<p><button type=\"button\" id=\"before\">{}</button> \
         <button type=\"button\" id=\"after\">{}</button> \
         <span id=\"place\" class=\"muted\" role=\"status\"></span></p>",
        say("Back", "上一步"),
        say("Next", "下一步"),
    );
    for (number, (title, step)) in steps.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = write!(
            body,
            "<section class=\"step\" tabindex=\"-1\"><h2>{}. {title}</h2>{step}</section>",
            number + 1
        );
    }
    let title = match language {
        Language::English => format!("The journey of “{}”", journey.text),
        Language::Chinese => format!("“{}”的旅程", journey.text),
    };
    let data = vec![("steps".to_owned(), json!(steps.len()))];
    Ok(Page { language, title, body, script: SCRIPT.to_owned(), data, ..Page::default() }.html())
}

/// The text and its pieces.
fn pieces(journey: &Journey, language: Language) -> Station {
    let say = |english: &'static str, chinese: &'static str| language.choose(english, chinese);
    let pieces = journey.pieces.iter().map(|piece| {
        format!("<tr><td>{}</td><td class=\"number\">{}</td></tr>", escape(&piece.token), piece.id)
    });
    let (normalized, count) = (escape(&journey.normalized), journey.pieces.len());
    let words = match language {
        Language::English => format!(
            "<p>The text, after normalisation: {normalized}</p><p>The tokenizer cuts it into \
             {count} pieces, each of which has a number.</p>"
        ),
        Language::Chinese => format!(
            "<p>规范化之后的文本：{normalized}</p><p>分词器把它切成 {count} 个子词，每个都有编号。</p>"
        ),
    };
    let body = format!(
        "{words}<table><thead><tr><th>{}</th><th class=\"number\">{}</th></tr></thead><tbody>{}\
         </tbody></table>",
        say("piece", "子词"),
        say("number", "编号"),
        pieces.collect::<String>()
    );
    (say("Pieces", "子词").to_owned(), body)
}

/// Lengths of the vectors before and after each layer.
fn vectors(journey: &Journey, language: Language) -> Result<Station, PlotError> {
    let positions = escape(&journey.positions);
    let mut body = match language {
        Language::English => format!(
            "<p>Each piece becomes a vector. Positions are told apart by <code>{positions}</code>. \
             Below: how long the vectors are before the first layer, and after each.</p>"
        ),
        Language::Chinese => format!(
            "<p>每个子词变成一个向量，位置由 <code>{positions}</code> 区分。下图是第一层之前和每一层之后\
             各向量的长度。</p>"
        ),
    };
    for stack in &journey.norms {
        body += &drawn(&norms_figure(stack, language))?;
    }
    Ok((language.choose("Vectors", "向量").to_owned(), body))
}

/// Attention of each layer.
fn attention(journey: &Journey, language: Language) -> Result<Vec<Station>, PlotError> {
    let say = |english: &'static str, chinese: &'static str| language.choose(english, chinese);
    let mut stations = Vec::new();
    for part in [AttentionPart::Encoder, AttentionPart::Decoder, AttentionPart::Cross] {
        for layer in journey.attention.iter().filter(|layer| layer.part == part) {
            let (name, number) = (part.title(language), layer.layer);
            let title = match language {
                Language::English => format!("Attention {name}, layer {number}"),
                Language::Chinese => format!("{name}注意力，第 {number} 层"),
            };
            let what = match part {
                AttentionPart::Encoder => say(
                    "Each source token gathers from the others.",
                    "每个源词元从其他源词元收集信息。",
                ),
                AttentionPart::Decoder => say(
                    "Each target token gathers from those before it.",
                    "每个目标词元从它之前的词元收集信息。",
                ),
                AttentionPart::Cross => say(
                    "Where the source is read when a token is predicted.",
                    "预测一个词元时读取原文的位置。",
                ),
            };
            let figure = drawn(&attention_figure(layer, None, language))?;
            stations.push((title, format!("<p>{what}</p>{figure}")));
        }
    }
    Ok(stations)
}

/// Probabilities of the tokens of the best translation, and of the likeliest in their places.
fn choices(journey: &Journey, language: Language) -> Station {
    let say = |english: &'static str, chinese: &'static str| language.choose(english, chinese);
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
    let body = format!(
        "<p>{}</p><div class=\"wide\"><table><thead><tr><th>{}</th><th class=\"number\">{}</th>\
         <th>{}</th></tr></thead><tbody>{}</tbody></table></div>",
        say(
            "How likely each token of the best translation was after those before it, and the \
             likeliest there.",
            "最佳译文的每个词元在其前文之后的概率，以及该处概率最高的词元。"
        ),
        say("token", "词元"),
        say("probability", "概率"),
        say("likeliest", "最可能的词元"),
        choices.collect::<String>()
    );
    (say("Each next token", "每个下一词元").to_owned(), body)
}

fn drawn(figure: &Figure) -> Result<String, PlotError> {
    Ok(format!("<figure>{}</figure>", figure.draw()?.inline()))
}

fn norms_figure(stack: &StackNorms, language: Language) -> Figure {
    let say = |english: &'static str, chinese: &'static str| language.choose(english, chinese);
    let row = |layers: usize| match (layers, language) {
        (0, _) => say("embedded", "嵌入").to_owned(),
        (layers, Language::English) => format!("after layer {layers}"),
        (layers, Language::Chinese) => format!("第 {layers} 层之后"),
    };
    let wide = |norms: &Vec<f32>| norms.iter().map(|norm| f64::from(*norm)).collect();
    let heatmap = Heatmap {
        row_label: say("where", "位置").to_owned(),
        column_label: say("token", "词元").to_owned(),
        rows: (0..stack.norms.len()).map(row).collect(),
        columns: stack.tokens.clone(),
        values: stack.norms.iter().map(wide).collect(),
        strongest: None,
    };
    let title = match (language, stack.stack.as_str()) {
        (Language::English, name) => format!("Norms of the vectors, {name}"),
        (Language::Chinese, "encoder") => "编码器中向量的范数".to_owned(),
        (Language::Chinese, _) => "解码器中向量的范数".to_owned(),
    };
    let description =
        say("The length of each token's vector, layer by layer.", "每个词元的向量在各层的长度。");
    Figure::new(title, description, heatmap)
}

/// Tree of the search, as nested lists.
fn beam(journey: &Journey, language: Language) -> String {
    let words = language.choose(
        "What the search looked at: each token with the log-probability of all up to it. The best \
         translation is marked; what was dropped is grey.",
        "搜索看过的内容：每个词元及到它为止的对数概率之和。最佳译文已标出，被舍弃的为灰色。",
    );
    let (score, sum) =
        (language.choose("score", "得分"), language.choose("log-probability", "对数概率"));
    let mut body = format!("<p>{words}</p><ol>");
    for found in &journey.found {
        let _ = write!(
            body,
            "<li>{} <span class=\"muted\">{score} {:.4}, {sum} {:.4}</span></li>",
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
    // A list within another for each token would be as deep as the sentence is long, so a token
    // that is the only continuation stays on its predecessor's line.
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
