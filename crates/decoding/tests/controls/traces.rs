//! Tests of the tree of the continuations that a search considers.

use taper_decoding::{BeamFate, BeamNode, beam_tree};

use super::*;

/// Tokens of the hypothesis that ends at the node with the index `at`.
fn tokens(nodes: &[BeamNode], at: usize) -> Vec<u32> {
    let parents = std::iter::successors(Some(at), |&at| nodes[at].parent);
    let mut tokens: Vec<u32> = parents.map(|at| nodes[at].token).collect();
    tokens.reverse();
    tokens
}

/// There are five end tokens. They can all be likelier than the continuation that is kept, so that
/// it is not among the best `2 * beam_size`.
#[test]
fn each_node_names_the_hypothesis_that_it_continues() {
    let ends = [5, 6, 7, 8, 9];
    let (sources, mut after_ends) = (random_sources(60, 62), 0);
    let special = Special(model(62), SpecialIds::new(5, &ends, [1, 11]));
    for beam_size in [1, 2] {
        let config = common::short_outputs(beam_size, 6);
        for sentence in Sentence::plain(&sources) {
            let (_, nodes) = beam_tree(&special, sentence, &config).expect("decodes");
            for (at, node) in nodes.iter().enumerate() {
                assert!(node.parent.is_none_or(|parent| nodes[parent].fate == BeamFate::Kept));
                let tokens = tokens(&nodes, at);
                let mut history = special.0.history_of_source(sentence.source);
                let (mut input, mut total) = (special.first_input(sentence.source), 0.0);
                for &token in &tokens {
                    history = common::mix(history, u64::from(input));
                    let logits = special.0.logits(history);
                    let sum: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
                    total += f64::from(logits[token as usize]) - sum.ln();
                    input = token;
                }
                assert!((node.log_probability - total).abs() < 1e-4, "{tokens:?} of {nodes:?}");
            }
            let fates: Vec<bool> = nodes.iter().map(|node| node.fate == BeamFate::Kept).collect();
            let dropped = vec![false; 2 * beam_size];
            after_ends += usize::from(fates.windows(dropped.len()).any(|part| part == dropped));
        }
    }
    assert!(after_ends > 20, "{after_ends} searches");
}
