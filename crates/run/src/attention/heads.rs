//! Roles of heads, judged by which tokens they attend to: the previous one, the next one,
//! punctuation and so on (Clark et al. 2019, "What Does BERT Look At?", section 3; Voita et al.
//! 2019, "Analyzing Multi-Head Self-Attention", section 5).

use serde::Serialize;

use super::{AttentionLayer, AttentionMap, AttentionPart};

/// Smallest mean share of a head's attention weight that counts as its role. If, for example, the
/// previous token gets at least this share, the role of the head is to attend to the previous
/// token.
const MOSTLY: f64 = 0.5;

/// Where a head attends. All numbers are means over queries. The first query in a decoder's
/// self-attention is left out, because it sees only a single key.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeadProfile {
    /// Kind of attention: within an encoder, within a decoder, or from a decoder to an encoder.
    pub part: AttentionPart,
    /// Layer, from 1.
    pub layer: usize,
    /// Head, from 1.
    pub head: usize,
    /// Mean weight of the token before the query. In attention from a decoder to an encoder,
    /// queries and keys are tokens of different texts, so their indices are compared: the source
    /// token whose index is one less than the index of the query counts as the token before it.
    /// `same` and `next` are found by indices, too.
    pub previous: f64,
    /// Mean weight of the token at the query's own position.
    pub same: f64,
    /// Mean weight of the token after the query.
    pub next: f64,
    /// Mean weight of the first token.
    pub first: f64,
    /// Mean weight of the last token, usually the one that marks the end of the text.
    pub last: f64,
    /// Mean over queries of the total weight of all tokens that consist of punctuation.
    pub punctuation: f64,
    /// Mean distance, in tokens, between a query and the tokens that it attends to, weighted by the
    /// attention weights.
    pub distance: f64,
    /// Mean entropy of the weights of a query, in bits; 0 if each query attends to a single token.
    pub entropy: f64,
    /// Number of queries that the means are taken over.
    pub queries: usize,
}

impl HeadProfile {
    /// Name of the kind of token with the largest mean weight, such as `previous token`; empty if
    /// this weight is below one half.
    #[must_use]
    pub fn does(&self) -> &'static str {
        let shares = [
            (self.previous, "previous token"),
            (self.same, "same token"),
            (self.next, "next token"),
            (self.punctuation, "punctuation"),
            (self.last, "end"),
            (self.first, "beginning"),
        ];
        let most = shares.into_iter().reduce(|a, b| if b.0 > a.0 { b } else { a });
        most.filter(|(share, _)| *share >= MOSTLY).map_or("", |(_, name)| name)
    }
}

/// Chinese translation of a name that [`HeadProfile::does`] returns.
pub(super) const fn in_chinese(role: &str) -> &'static str {
    match role.as_bytes() {
        b"previous token" => "前一词元",
        b"same token" => "同一位置",
        b"next token" => "后一词元",
        b"punctuation" => "标点",
        b"end" => "末尾",
        b"beginning" => "开头",
        _ => "",
    }
}

/// True if a token is punctuation and nothing else.
fn is_punctuation(token: &str) -> bool {
    let text = token.trim_matches('▁');
    let is_mark = text.starts_with('<') && text.ends_with('>') && text.len() > 2;
    !text.is_empty()
        && !is_mark
        && text.chars().all(|sign| !sign.is_alphanumeric() && !sign.is_whitespace())
}

/// Profile of every head over several texts, sorted by kind of attention, then by layer, then by
/// head.
#[must_use]
pub fn profiles(maps: &[AttentionMap]) -> Vec<HeadProfile> {
    let Some(first) = maps.first() else { return Vec::new() };
    let mut profiles = Vec::new();
    for (place, layer) in first.layers.iter().enumerate() {
        for head in 0..layer.heads.len() {
            let same = maps.iter().filter_map(|map| map.layers.get(place));
            profiles.push(profile(same, (layer.part, layer.layer, head)));
        }
    }
    profiles
}

fn profile<'a>(
    layers: impl Iterator<Item = &'a AttentionLayer>,
    (part, layer, head): (AttentionPart, usize, usize),
) -> HeadProfile {
    // Order of the sums: previous, same, next, first, last, punctuation, distance, entropy.
    let (mut sums, mut queries) = ([0.0; 8], 0);
    for of_text in layers {
        let Some(weights) = of_text.heads.get(head) else { continue };
        let marks: Vec<bool> = of_text.keys.iter().map(|key| is_punctuation(key)).collect();
        let end = of_text.keys.len().saturating_sub(1);
        for (query, row) in weights.iter().enumerate() {
            if part == AttentionPart::Decoder && query == 0 {
                continue;
            }
            queries += 1;
            for (key, &weight) in row.iter().enumerate() {
                let weight = f64::from(weight);
                let bits = if weight > 0.0 { -weight * weight.log2() } else { 0.0 };
                let is = |holds: bool| if holds { weight } else { 0.0 };
                let shares = [
                    is(key + 1 == query),
                    is(key == query),
                    is(key == query + 1),
                    is(key == 0),
                    is(key == end),
                    is(marks[key]),
                    weight * key.abs_diff(query) as f64,
                    bits,
                ];
                sums.iter_mut().zip(shares).for_each(|(sum, share)| *sum += share);
            }
        }
    }
    let [previous, same, next, first, last, punctuation, distance, entropy] =
        sums.map(|sum| sum / f64::from(queries.max(1)));
    let (head, queries) = (head + 1, queries as usize);
    HeadProfile {
        part,
        layer,
        head,
        previous,
        same,
        next,
        first,
        last,
        punctuation,
        distance,
        entropy,
        queries,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_known_by_where_they_look() {
        let tokens = ["▁a", "▁b", ",", "</s>"].map(str::to_owned).to_vec();
        let one_hot = |at: &dyn Fn(usize) -> usize| -> Vec<Vec<f32>> {
            (0..4).map(|q| (0..4).map(|k| f32::from(u8::from(k == at(q)))).collect()).collect()
        };
        let heads = vec![
            one_hot(&|query: usize| query.saturating_sub(1)),
            one_hot(&|query| query),
            one_hot(&|_| 2),
            vec![vec![0.25; 4]; 4],
        ];
        let layer = AttentionLayer {
            part: AttentionPart::Encoder,
            layer: 1,
            queries: tokens.clone(),
            keys: tokens,
            heads,
        };
        let map =
            AttentionMap { text: String::new(), translation: String::new(), layers: vec![layer] };
        let head_profiles = profiles(&[map.clone(), map]);
        let does: Vec<&str> = head_profiles.iter().map(HeadProfile::does).collect();
        assert_eq!(does, ["previous token", "same token", "punctuation", ""]);
        assert_eq!(
            (head_profiles[0].previous, head_profiles[0].same, head_profiles[0].queries),
            (0.75, 0.25, 8)
        );
        assert_eq!(
            (head_profiles[2].distance, head_profiles[2].entropy, head_profiles[3].entropy),
            (1.0, 0.0, 2.0)
        );
        assert!(!is_punctuation("</s>") && is_punctuation("▁。") && !is_punctuation("▁"));
    }
}
