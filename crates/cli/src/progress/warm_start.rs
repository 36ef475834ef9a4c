//! Report of the weights, tokenizer and fixed vectors that a new run has taken from elsewhere.

use taper_run::word_vectors::{TAKEN_FILE, TakenVectors};
use taper_trainer::WarmStart;

/// Describes which parameters were taken from the other run, and which were not.
pub(crate) fn lines(started: &WarmStart, replaced: &[String], own_tokenizer: bool) -> Vec<String> {
    let parent = &started.parent;
    let others = started.drawn.len() + started.partly.len() + started.unwanted.len();
    let (taken, all) = (started.taken.len(), started.taken.len() + others);
    let mut lines = vec![
        format!(
            "weights of step {} from {}: {taken} of {all} tensors",
            parent.step,
            parent.path.display()
        ),
        format!("  taken      {}", layers(&started.taken).join(", ")),
    ];
    lines.extend(started.partly.iter().map(|table| {
        format!("  taken      {}: the rows of {} of {} tokens", table.name, table.rows, table.of)
    }));
    if !started.unwanted.is_empty() {
        lines.push(format!("  not taken  {}", layers(&started.unwanted).join(", ")));
    }
    lines.extend(started.drawn.iter().map(|one| {
        let stored = match &one.found {
            Some(shape) => format!(", found as {shape:?}"),
            None => String::new(),
        };
        format!("  drawn      {} {:?}{stored}", one.name, one.shape)
    }));
    lines.extend(started.unused.iter().map(|name| format!("  not used   {name}")));
    let whose = if own_tokenizer { "its own" } else { "that run's" };
    lines.push(format!("  tokenizer  {whose}"));
    lines.extend(replaced.iter().map(|change| format!("             {change}")));
    lines.push("  new        optimizer, schedule, update 0, best score".to_owned());
    lines
}

/// Describes the fixed vectors, such as word vectors from a file, with which embedding tables
/// begin.
pub(crate) fn vector_lines(taken: &[TakenVectors]) -> Vec<String> {
    /// Largest number of tokens that are named.
    const NAMED: usize = 8;
    let mut lines = Vec::new();
    for table in taken {
        let frozen = if table.frozen { ", and stays so" } else { "" };
        let all = table.tokens.len();
        let Some(file) = &table.file else {
            lines.push(format!("{} is one-hot for {all} tokens{frozen}", table.parameter));
            continue;
        };
        lines.push(format!(
            "{} begins with {}{frozen}: {} of {all} tokens have the vector of a word; {} words of \
             the file are no token",
            table.parameter,
            file.display(),
            table.taken,
            table.unused
        ));
        let named = |has: bool| {
            let of = table.tokens.iter().filter(|(_, word)| word.is_some() == has);
            of.take(NAMED).map(|(token, _)| token.as_str()).collect::<Vec<_>>().join(" ")
        };
        lines.push(format!("  taken      {} …", named(true)));
        if table.taken < all {
            lines.push(format!("  drawn      {} …", named(false)));
        }
    }
    if !taken.is_empty() {
        lines.push(format!("  all        {TAKEN_FILE} in the run's folder"));
    }
    lines
}

/// Returns the layer of each tensor in `names`, or the module of a tensor outside layers, in order
/// and without repetitions.
fn layers(names: &[String]) -> Vec<&str> {
    let mut names_of_layers = Vec::new();
    for name in names {
        let number = name
            .split_inclusive('.')
            .position(|part| part.trim_end_matches('.').bytes().all(|byte| byte.is_ascii_digit()));
        let layer = match number {
            Some(place) => {
                let length: usize = name.split_inclusive('.').take(place + 1).map(str::len).sum();
                name[..length].trim_end_matches('.')
            }
            None => name.rsplit_once('.').map_or(name.as_str(), |(module, _)| module),
        };
        if !names_of_layers.contains(&layer) {
            names_of_layers.push(layer);
        }
    }
    names_of_layers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_listed_by_layer() {
        let names = [
            "embedding.weight",
            "encoder.layers.0.self_attention.qkv.weight",
            "encoder.layers.0.norm.bias",
            "encoder.layers.10.norm.bias",
            "scale",
        ]
        .map(str::to_owned);
        assert_eq!(layers(&names), ["embedding", "encoder.layers.0", "encoder.layers.10", "scale"]);
    }
}
