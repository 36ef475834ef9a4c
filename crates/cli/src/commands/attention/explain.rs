//! `taper explain`: shows the path of one text through a model, step by step.

use anyhow::Result;
use taper_run::attention::{Answer, AttentionPart, Branch, Choice, Journey, journey_page};
use taper_run::folder::files::write_atomically;
use taper_run::prediction::WordEvidence;

use super::grid::grid;
use crate::arguments::Explain;
use crate::text::print_line;

/// Runs the command.
pub(crate) fn run(arguments: &Explain) -> Result<()> {
    let load = arguments.loading.settings();
    let journey = Journey::trace(&arguments.run, &load, &arguments.text)?;
    if let Some(path) = &arguments.html {
        write_atomically(path, journey_page(&journey, arguments.language.into()).as_bytes())?;
    }
    if arguments.json {
        return print_line(&serde_json::to_string(&journey)?);
    }
    if arguments.html.is_some() {
        return Ok(());
    }
    for line in lines(&journey) {
        print_line(&line)?;
    }
    Ok(())
}

/// Formats the steps of the text's path as lines.
fn lines(journey: &Journey) -> Vec<String> {
    let mut lines = vec![format!("1. Pieces of {:?}", journey.normalized)];
    let pieces = journey.pieces.iter().map(|piece| format!("{} {}", piece.token, piece.id));
    lines.push(format!("   {}", pieces.collect::<Vec<_>>().join("  ")));
    lines.push(format!("2. Vectors and their norms; positions: {}", journey.positions));
    for stack in &journey.norms {
        for (place, token) in stack.tokens.iter().enumerate() {
            let norms = stack.norms.iter().map(|layer| format!("{:.2}", layer[place]));
            let norms = norms.collect::<Vec<_>>().join(" → ");
            lines.push(format!("   {} {token}: {norms}", stack.stack));
        }
    }
    lines.push("3. Where each layer looks, mean over its heads".to_owned());
    for part in [AttentionPart::Encoder, AttentionPart::Decoder, AttentionPart::Cross] {
        for layer in journey.attention.iter().filter(|layer| layer.part == part) {
            lines.push(format!("   {}, layer {}", part.name(), layer.layer));
            let grid = grid(&layer.queries, &layer.keys, &layer.mean());
            lines.extend(grid.into_iter().map(|line| format!("   {line}").trim_end().to_owned()));
        }
    }
    let mut last = 4;
    if !journey.beam.is_empty() {
        lines.push("4. The beam: * the best, x dropped, . finished; log-probabilities".to_owned());
        lines.extend(tree(&journey.beam));
        for found in &journey.found {
            let (score, sum) = (found.score, found.log_probability);
            lines.push(format!("   {score:.4}  {sum:.4}  {}", found.text));
        }
        last += 1;
    }
    let answer = match journey.answer {
        Answer::Translation | Answer::Text => "Each next token",
        Answer::Label => "The label",
        Answer::Tags => "The tag of each word",
        Answer::Hidden => "Each hidden token",
    };
    lines.push(format!("{last}. {answer}, and the likeliest there"));
    lines.extend(journey.choices.iter().map(likeliest));
    if !journey.evidence.is_empty() {
        lines.push(format!(
            "{}. The words: evidence for the label in nats, and its probability without the word",
            last + 1
        ));
        let word = |word: &WordEvidence| {
            let WordEvidence { text, without, evidence } = word;
            format!("   {evidence:+.2}  {:.1} %  {}", 100.0 * without, text.trim())
        };
        lines.extend(journey.evidence.iter().map(word));
    }
    lines
}

/// Formats one answer of the model, with its probability and those of the alternatives.
fn likeliest(choice: &Choice) -> String {
    let percent = |probability: f64| format!("{:.1} %", 100.0 * probability);
    let alternatives = choice.alternatives.iter();
    let alternatives: Vec<String> = alternatives
        .map(|(token, probability)| format!("{token} {}", percent(*probability)))
        .collect();
    let word = choice.word.as_ref().map(|word| format!("{word}: ")).unwrap_or_default();
    let (token, probability) = (&choice.token, percent(choice.probability));
    format!("   {word}{token} {probability}   ({})", alternatives.join(", "))
}

/// Formats the beam as a tree, each token below the token that it continues.
fn tree(beam: &[Branch]) -> Vec<String> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); beam.len()];
    let mut roots = Vec::new();
    for (number, branch) in beam.iter().enumerate() {
        branch.parent.map_or(&mut roots, |parent| &mut children[parent]).push(number);
    }
    let mut lines = Vec::new();
    let mut open: Vec<(usize, usize)> = roots.into_iter().rev().map(|root| (root, 0)).collect();
    while let Some((number, depth)) = open.pop() {
        let branch = &beam[number];
        let mark = match (branch.is_best, branch.fate) {
            (true, _) => '*',
            (_, "dropped") => 'x',
            (_, "finished") => '.',
            _ => ' ',
        };
        let indent = " ".repeat(depth);
        lines.push(format!("   {mark} {indent}{} {:.2}", branch.token, branch.log_probability));
        open.extend(children[number].iter().rev().map(|child| (*child, depth + 1)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beam_is_shown_as_a_tree() {
        let branch = |parent, token: &str, fate, is_best| Branch {
            parent,
            token: token.to_owned(),
            log_probability: -1.0,
            fate,
            is_best,
        };
        let beam = [
            branch(None, "a", "kept", true),
            branch(None, "b", "kept", false),
            branch(Some(1), "d", "dropped", false),
            branch(Some(0), "</s>", "finished", true),
        ];
        let lines = tree(&beam);
        assert_eq!(lines, ["   * a -1.00", "   *  </s> -1.00", "     b -1.00", "   x  d -1.00"]);
    }
}
