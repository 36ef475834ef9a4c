//! Figures of the scores of translated test sets.

use anyhow::Result;
use taper_plots::{Axis, Bars, Figure, Language};

use crate::figures::NamedFigure;
use crate::sentences::SentenceSet;

/// Number of n-gram orders of BLEU.
const ORDERS: usize = 4;

/// Makes a bar chart of the BLEU and chrF2 of groups of sentences.
fn bars_by_group(
    (name, title): (String, &str),
    label: &str,
    groups: &[(String, usize, f64, f64)],
    language: Language,
) -> NamedFigure {
    let describe = |(kind, count, bleu, chrf): &(String, usize, f64, f64)| match language {
        Language::English => format!("{kind}: {count} sentences, BLEU {bleu:.1}, chrF2 {chrf:.1}"),
        Language::Chinese => format!("{kind}：{count} 句，BLEU {bleu:.1}，chrF2 {chrf:.1}"),
    };
    let bars = Bars {
        label: label.to_owned(),
        categories: groups.iter().map(|(kind, count, ..)| format!("{kind} ({count})")).collect(),
        y: Axis::linear(language.choose("score", "得分")),
        series: vec![
            ("BLEU".to_owned(), groups.iter().map(|one| one.2).collect()),
            ("chrF2".to_owned(), groups.iter().map(|one| one.3).collect()),
        ],
    };
    let description = groups.iter().map(describe).collect::<Vec<_>>().join("; ");
    NamedFigure::new(name, Figure::new(title, description, bars))
}

/// Returns the figures of a test set: scores by the length and by the rarest word of the source,
/// n-gram precisions, and the distribution of scores.
///
/// # Errors
/// When the sentences cannot be scored.
pub(crate) fn figures(set: &SentenceSet, language: Language) -> Result<Vec<NamedFigure>> {
    let say = |english, chinese| language.choose(english, chinese);
    let file = |name: &str| file_name(&set.split, name);
    let mut figures = Vec::new();
    let by_length = set.by_length()?;
    figures.push(bars_by_group(
        (file("length"), say("Scores by length of the source", "按原文长度的得分")),
        say("words of the source (sentences)", "原文词数（句数）"),
        &by_length,
        language,
    ));
    let by_rarest = set.by_rarest_word()?;
    if !by_rarest.is_empty() {
        figures.push(bars_by_group(
            (
                file("rarest-word"),
                say("Scores by the rarest word of the source", "按原文最罕见词的得分"),
            ),
            say("times in the training text (sentences)", "在训练文本中出现次数（句数）"),
            &by_rarest,
            language,
        ));
    }
    let translations: Vec<&str> =
        set.sentences.iter().map(|one| one.translation.as_str()).collect();
    let references = [set.sentences.iter().map(|one| one.reference.as_str()).collect::<Vec<_>>()];
    let bleu = set.scoring.bleu().corpus(&translations, &references)?;
    let share = |matches: u64, total: u64| match total {
        0 => f64::NAN,
        total => 100.0 * matches as f64 / total as f64,
    };
    let precisions: Vec<f64> =
        bleu.matches.iter().zip(&bleu.totals).map(|(&hit, &all)| share(hit, all)).collect();
    let described: Vec<String> = precisions.iter().map(|share| format!("{share:.1} %")).collect();
    let bars = Bars {
        label: say("words in a row", "连续词数").to_owned(),
        categories: (1..=ORDERS).map(|order| order.to_string()).collect(),
        y: Axis::linear("%"),
        series: vec![(String::new(), precisions)],
    };
    let title = say("N-grams of the translations that the references have", "译文 n-gram 的精确率");
    figures
        .push(NamedFigure::new(file("precisions"), Figure::new(title, described.join(", "), bars)));
    figures.push(spread(set, file("spread"), language));
    Ok(figures)
}

/// Makes a figure of the BLEU of several systems on the same sentences, by the number of words of
/// the source.
///
/// # Errors
/// When the sentences cannot be scored.
pub(crate) fn systems_by_length(
    systems: &[(&str, &SentenceSet)],
    language: Language,
) -> Result<NamedFigure> {
    let say = |english, chinese| language.choose(english, chinese);
    let scored = |&(name, set): &(&str, &SentenceSet)| Ok((name.to_owned(), set.by_length()?));
    let scored = systems.iter().map(scored).collect::<Result<Vec<_>>>()?;
    let kinds = scored.first().map(|(_, found)| found.as_slice()).unwrap_or_default();
    let describe = |(name, found): &(String, Vec<(String, usize, f64, f64)>)| {
        let scores: Vec<String> =
            found.iter().map(|(kind, _, bleu, _)| format!("{kind} {bleu:.1}")).collect();
        format!("{name}: {}", scores.join(", "))
    };
    let description = scored.iter().map(describe).collect::<Vec<_>>().join("; ");
    let bars = Bars {
        label: say("words of the source (sentences)", "原文词数（句数）").to_owned(),
        categories: kinds.iter().map(|(kind, count, ..)| format!("{kind} ({count})")).collect(),
        y: Axis::linear("BLEU"),
        series: scored
            .into_iter()
            .map(|(name, found)| (name, found.iter().map(|one| one.2).collect()))
            .collect(),
    };
    let split = systems.first().map_or("", |(_, set)| &set.split);
    let title = match language {
        Language::English => format!("BLEU by length of the source, {split}"),
        Language::Chinese => format!("按原文长度的 BLEU，{split}"),
    };
    Ok(NamedFigure::new(file_name(split, "length"), Figure::new(&title, description, bars)))
}

/// Returns the name of a figure's file, which begins with the split.
fn file_name(split: &str, figure: &str) -> String {
    format!("{}-{figure}", split.replace(['/', '\\', ' '], "-"))
}

/// Makes a histogram of the chrF2 of sentences.
fn spread(set: &SentenceSet, name: String, language: Language) -> NamedFigure {
    let say = |english, chinese| language.choose(english, chinese);
    let mut counts = [0.0; 10];
    for sentence in &set.sentences {
        counts[((sentence.chrf / 10.0) as usize).min(9)] += 1.0;
    }
    let categories = (0..10).map(|bin| format!("{}–{}", 10 * bin, 10 * bin + 10)).collect();
    let describe = counts.map(|count| count.to_string()).join(", ");
    let bars = Bars {
        label: say("chrF2 of the sentence", "句子的 chrF2").to_owned(),
        categories,
        y: Axis::linear(say("sentences", "句数")),
        series: vec![(String::new(), counts.to_vec())],
    };
    NamedFigure::new(
        name,
        Figure::new(say("Sentences by their score", "句子得分的分布"), describe, bars),
    )
}
