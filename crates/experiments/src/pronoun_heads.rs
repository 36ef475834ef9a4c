//! Search for the attention heads that find the noun that a pronoun stands for. The answers of an
//! encoder are counted without one of its heads, without two of its heads, and with all heads but
//! two left out.

use std::cmp::Ordering;

use taper_plots::{Figure, Heatmap};
use taper_theory::TheoryError;
use taper_theory::studies::{Findings, Study, heads};

use crate::pronouns::{HEADS, HeldOut, PronounReader, Referred, UPDATES, Understood};

pub(crate) const STUDY: Study = Study {
    name: "pronouns",
    claim: "`it` is the animal before \"tired\" and the street before \"wide\", for nouns that were \
            never trained on with a choice: the first layer reads the last word, heads of the \
            second look at the noun",
    run,
};

pub(crate) const HEADS_STUDY: Study = Study {
    name: "pronoun-heads",
    claim: "Which head knows what `it` is? All heads left out, one by one and two at a time, and two \
            alone, in five trainings",
    run: run_heads,
};

/// Number of pairs of sentences on which answers are counted.
const PAIRS: usize = 256;
/// Number of trainings of [`HEADS_STUDY`].
const SEEDS: u64 = 5;

/// Shares of right answers when some heads are left out. Heads have the order of
/// [`PronounReader::heads`].
#[derive(Debug, Clone, PartialEq)]
pub struct Ablation {
    /// For each head, the answers when this head is left out.
    pub without: Vec<Understood>,
    /// For each head, the answers when the other heads of its layer are left out.
    pub alone: Vec<Understood>,
    /// For each pair of heads, the answers when these two are left out.
    pub without_two: Vec<([usize; 2], Understood)>,
    /// For each pair of heads of different layers, the answers when all heads but these two are
    /// left out.
    pub two_alone: Vec<([usize; 2], Understood)>,
}

impl Ablation {
    /// Measures the answers of a reader to pairs of sentences.
    ///
    /// # Errors
    /// If the memory is exhausted.
    pub fn measure(reader: &PronounReader, pairs: &[[Referred; 2]]) -> Result<Self, TheoryError> {
        let heads = PronounReader::heads();
        let answers = |is_left_out: &dyn Fn(usize) -> bool| {
            let left_out = heads.iter().enumerate().filter(|(number, _)| is_left_out(*number));
            let left_out: Vec<_> = left_out.map(|(_, head)| head.clone()).collect();
            reader.understood(pairs, &left_out)
        };
        let (mut without, mut alone) = (Vec::new(), Vec::new());
        let (mut without_two, mut two_alone) = (Vec::new(), Vec::new());
        for head in 0..heads.len() {
            let is_beside = |other| other != head && other / HEADS == head / HEADS;
            without.push(answers(&|other| other == head)?);
            alone.push(answers(&is_beside)?);
            for second in head + 1..heads.len() {
                let two = [head, second];
                without_two.push((two, answers(&|other| two.contains(&other))?));
                if head / HEADS != second / HEADS {
                    two_alone.push((two, answers(&|other| !two.contains(&other))?));
                }
            }
        }
        Ok(Self { without, alone, without_two, two_alone })
    }

    /// Index of the head that is missed most. If this head is left out, fewer sentences have a
    /// right answer than if any other head is left out.
    #[must_use]
    pub fn decisive(&self) -> usize {
        let share = |number: &usize| self.without[*number].sentences;
        let least =
            (0..self.without.len()).min_by(|one, other| share(one).total_cmp(&share(other)));
        least.unwrap_or(0)
    }

    /// The two heads that are missed most. If they are left out, fewer pairs of sentences have two
    /// right answers than if any other two heads are left out.
    #[must_use]
    pub fn decisive_two(&self) -> Option<([usize; 2], Understood)> {
        self.without_two.iter().copied().min_by(by_pairs)
    }

    /// The two heads of different layers that do best alone. If all heads but these two are left
    /// out, more pairs of sentences have two right answers than with any other two.
    #[must_use]
    pub fn sufficient_two(&self) -> Option<([usize; 2], Understood)> {
        self.two_alone.iter().copied().max_by(by_pairs)
    }
}

/// Orders two results by their share of right pairs, and equal shares by their share of right
/// sentences.
fn by_pairs(one: &([usize; 2], Understood), other: &([usize; 2], Understood)) -> Ordering {
    let key = |understood: &Understood| understood.pairs + 1e-3 * understood.sentences;
    key(&one.1).total_cmp(&key(&other.1))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Returns the names of heads, such as `2.1` for the first head of the second layer.
fn named(numbers: &[usize]) -> String {
    let name = |number: &usize| format!("{}.{}", number / HEADS + 1, number % HEADS + 1);
    numbers.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn run_heads() -> Result<Findings, TheoryError> {
    let mut rows = Vec::new();
    for seed in 1..=SEEDS {
        let reader = PronounReader::train(UPDATES, seed)?;
        let pairs = Referred::pairs(HeldOut::Final, PAIRS);
        let choosing = reader.understood(&Referred::pairs(HeldOut::Choosing, PAIRS), &[])?;
        let ablation = Ablation::measure(&reader, &pairs)?;
        let whole = reader.understood(&pairs, &[])?;
        let head = ablation.decisive();
        let mut row = vec![
            seed.to_string(),
            percent(choosing.pairs),
            percent(whole.pairs),
            named(&[head]),
            percent(ablation.without[head].pairs),
        ];
        for (two, understood) in
            [ablation.decisive_two(), ablation.sufficient_two()].into_iter().flatten()
        {
            row.extend([named(&two), percent(understood.pairs)]);
        }
        rows.push(row);
    }
    Ok(Findings {
        columns: heads(&[
            "seed",
            "pairs, nouns of the choice",
            "pairs, nouns of the test",
            "head missed most",
            "pairs without",
            "two missed most",
            "pairs without",
            "two that do best alone",
            "pairs",
        ]),
        rows,
        figures: Vec::new(),
    })
}

/// Plots how two heads attend from `it`, in a sentence that ends in "tired" and in the same
/// sentence with "wide" at the end.
fn where_it_looks(reader: &PronounReader, shown: [usize; 2]) -> Result<Figure, TheoryError> {
    let famous =
        ["tired", "wide"].map(|last| Referred::new(["animal", "street", "cross", last], false));
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for head in shown {
        for (sentence, last) in famous.iter().zip(["tired", "wide"]) {
            names.push(format!("layer {}, head {}: {last}", head / HEADS + 1, head % HEADS + 1));
            values.push(reader.attention(sentence, "it")?.swap_remove(head));
        }
    }
    let mut columns: Vec<String> = famous[0].words.iter().map(|word| (*word).to_owned()).collect();
    if let Some(last) = columns.last_mut() {
        *last = "tired / wide".to_owned();
    }
    let heatmap = Heatmap {
        row_label: "head, and last word".to_owned(),
        column_label: "attention from \"it\"".to_owned(),
        rows: names,
        columns,
        values,
        strongest: Some(1.0),
    };
    let title = "Where \"it\" looks, in two sentences";
    let description =
        "Attention from it of the head that is missed most, and of the one that tells nouns apart.";
    Ok(Figure::new(title, description, heatmap))
}

fn run() -> Result<Findings, TheoryError> {
    let reader = PronounReader::train(UPDATES, 1)?;
    let pairs = Referred::pairs(HeldOut::Final, PAIRS);
    let ablation = Ablation::measure(&reader, &pairs)?;
    let whole = |name: &str, understood: Understood| {
        let blank = vec![String::new(); 5];
        let shares = [percent(understood.sentences), percent(understood.pairs)];
        [vec![name.to_owned()], shares.to_vec(), blank].concat()
    };
    let mut rows = vec![
        whole("not trained", PronounReader::train(0, 1)?.understood(&pairs, &[])?),
        whole("trained", reader.understood(&pairs, &[])?),
    ];
    let gazes = reader.gazes(&pairs)?;
    for (number, gaze) in gazes.iter().enumerate() {
        let (without, alone) = (ablation.without[number], ablation.alone[number]);
        rows.push(vec![
            format!("without head {} of layer {}", number % HEADS + 1, number / HEADS + 1),
            percent(without.sentences),
            percent(without.pairs),
            percent(alone.pairs),
            percent(gaze.noun),
            percent(gaze.other),
            percent(gaze.adjective),
            percent(gaze.adjective_from_nouns),
        ]);
    }
    // The figure shows two heads. One is the head that is missed most. The other is the head that
    // tells the nouns apart best: its weight of the right noun exceeds its weight of the other noun
    // most.
    let apart = |number: usize| gazes[number].noun - gazes[number].other;
    let telling = (0..gazes.len()).max_by(|&one, &other| apart(one).total_cmp(&apart(other)));
    let figure = where_it_looks(&reader, [ablation.decisive(), telling.unwrap_or(0)])?;
    Ok(Findings {
        columns: heads(&[
            "encoder",
            "sentences",
            "pairs",
            "pairs with it alone",
            "weight of the noun",
            "of the other noun",
            "of the adjective",
            "of the adjective, from nouns",
        ]),
        rows,
        figures: vec![("pronouns".to_owned(), figure)],
    })
}
