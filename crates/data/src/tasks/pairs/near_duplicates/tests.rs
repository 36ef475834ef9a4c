//! Compares the near duplicates that are found with the exact Jaccard index of every two sentence
//! pairs.

use super::*;
use crate::Draws;

/// Indices of the pairs that are kept if `pairs` are added in this order.
fn kept(pairs: &[(String, String)], threshold: f64) -> Vec<usize> {
    let folder = tempfile::tempdir().expect("folder");
    let keys = NearKeys::new(threshold);
    let mut earlier = NearDuplicates::new(threshold, &folder.path().join("x")).expect("a file");
    let mut is_kept = |(source, target): &(String, String)| {
        let keys = keys.for_pair(source, target);
        earlier.take(&keys, source, target).expect("room")
    };
    (0..pairs.len()).filter(|&pair| is_kept(&pairs[pair])).collect()
}

fn jaccard(one: &[u64], other: &[u64]) -> f64 {
    let common = one.iter().filter(|hash| other.binary_search(hash).is_ok()).count();
    common as f64 / (one.len() + other.len() - common) as f64
}

/// Random pairs of sentences. Each is followed by an exact copy, and then by copies in which more
/// and more words differ.
fn sentences(originals: u64, words: &[&str], between: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for original in 0..originals {
        let draws = Draws::new(9, original, 0);
        let word = |draw: u64| words[(draws.unit(draw) * words.len() as f64) as usize];
        let length = 10 + original % 15;
        for changes in [0, 0, 1, 2, 3, 4, 5] {
            let side = |side: u64| {
                let one = |place: u64| match place % length {
                    changed if changed < changes => word(1000 * changes + 100 * side + place),
                    _ => word(100 * side + place),
                };
                (0..length).map(one).collect::<Vec<_>>().join(between)
            };
            pairs.push((side(0), side(1)));
        }
    }
    pairs
}

const WORDS: [&str; 24] = [
    "house",
    "river",
    "yesterday",
    "we",
    "old",
    "bridge",
    "under",
    "sleeps",
    "never",
    "green",
    "morning",
    "he",
    "bought",
    "three",
    "apples",
    "window",
    "slowly",
    "because",
    "it",
    "rained",
    "doctor",
    "train",
    "of",
    "the",
];

const IDEOGRAPHS: [&str; 24] = [
    "我", "你", "他", "猫", "狗", "河", "桥", "昨天", "今天", "买", "看", "三", "个", "苹果",
    "医生", "火车", "下雨", "因为", "所以", "慢慢", "绿", "窗", "早上", "老",
];

#[test]
fn what_is_dropped_and_kept_agrees_with_all_jaccard_indices() {
    for (words, between) in [(&WORDS, " "), (&IDEOGRAPHS, "")] {
        let pairs = sentences(150, words, between);
        let sets: Vec<_> = pairs.iter().map(|(one, other)| shingle_set(one, other)).collect();
        for threshold in [0.5, 0.6, 0.7, 0.8, 0.9, 1.0] {
            let kept = kept(&pairs, threshold);
            // No pair is dropped wrongly: for each dropped pair, a similar earlier pair was kept.
            let mut dropped = 0;
            for pair in (0..pairs.len()).filter(|pair| !kept.contains(pair)) {
                let near = |&earlier: &usize| jaccard(&sets[earlier], &sets[pair]) >= threshold;
                assert!(kept.iter().take_while(|&&one| one < pair).any(near), "{threshold} {pair}");
                dropped += 1;
            }
            // Recall: nearly all pairs that should be dropped were dropped.
            let should_go = |&&pair: &&usize| {
                let earlier = kept.iter().take_while(|&&earlier| earlier < pair);
                earlier.into_iter().any(|&one| jaccard(&sets[one], &sets[pair]) >= threshold)
            };
            let missed = kept.iter().filter(should_go).count();
            assert!(dropped >= 10, "{threshold}: {dropped}");
            let recall = f64::from(dropped) / (f64::from(dropped) + missed as f64);
            assert!(recall >= 0.95, "{threshold}: {missed} missed, {dropped} dropped");
        }
    }
}

#[test]
fn what_is_alike_is_known_to_a_reader() {
    let pair = |one: &str, other: &str| (one.to_owned(), other.to_owned());
    let pairs = [
        pair("The house stands near the river, and it is old.", "房子在河边，而且很老，很漂亮。"),
        // Same text except for marks and case.
        pair("the house stands near the river and it is old", "房子在河边 而且很老 很漂亮！"),
        // One additional letter.
        pair("The houses stands near the river, and it is old.", "房子在河边，而且很老，很漂亮。"),
        // Another translation, and another sentence.
        pair("The house stands near the river, and it is old.", "那座老屋临水而立。"),
        pair("The bridge over the lake is new.", "湖上的桥是新的。"),
        pair("The house stands near the river, and it is old.", "房子在河边，而且很老，很漂亮。"),
    ];
    assert_eq!(kept(&pairs, 0.8), [0, 3, 4]);
    assert_eq!(kept(&pairs, 1.0), [0, 2, 3, 4]);
}

#[test]
fn groups_of_copies_leave_one_in_any_order() {
    // Copies of an original have a Jaccard index of 1, so only the first of each group is kept,
    // whatever the order.
    let mut pairs = Vec::new();
    for (source, target) in sentences(60, &WORDS, " ").into_iter().step_by(7) {
        pairs.push((source.to_uppercase(), target.clone()));
        pairs.push((source.replace(' ', ", "), target.clone() + "!"));
        pairs.push((source, target));
    }
    let set =
        |&pair: &usize, pairs: &[(String, String)]| shingle_set(&pairs[pair].0, &pairs[pair].1);
    let groups = |pairs: &[(String, String)]| {
        let mut groups: Vec<Vec<u64>> =
            kept(pairs, 0.8).iter().map(|pair| set(pair, pairs)).collect();
        groups.sort();
        groups
    };
    let first = groups(&pairs);
    assert_eq!(first.len(), 60);
    for order in 0..5 {
        Draws::new(order, 0, 0).shuffle(&mut pairs);
        assert_eq!(groups(&pairs), first);
    }
}

#[test]
fn equal_pairs_are_found_in_lists_made_from_a_template() {
    let one = |number: usize| {
        let code = format!("{:04}", number * 7919 % 10_000);
        let source = format!("Hexagon head screw of stainless steel, partly threaded, type {code}");
        (source, format!("Sechskantschraube aus rostfreiem Stahl mit Teilgewinde, Typ {code}"))
    };
    let list: Vec<_> = (0..3000).map(one).collect();
    let first = kept(&list, 0.9);
    // Pairs with similar codes may be dropped. A pair that was kept is dropped when it comes again.
    assert!(first.len() > 100, "{}", first.len());
    let twice: Vec<_> = first.iter().chain(&first).map(|&number| list[number].clone()).collect();
    assert_eq!(kept(&twice, 0.9), (0..first.len()).collect::<Vec<_>>());
}

#[test]
fn texts_with_line_breaks_are_compared_side_by_side() {
    let pair = |source: &str, target: &str| (source.to_owned(), target.to_owned());
    let lines = pair("Dear reader,\nthe shop is closed.", "Liebe Leser,\nder Laden ist zu.");
    let divided = pair("Dear reader,", "the shop is closed.\nLiebe Leser,\nder Laden ist zu.");
    assert_eq!(kept(&[lines.clone(), lines.clone(), divided.clone(), divided], 0.8), [0, 2]);
}
