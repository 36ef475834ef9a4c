//! Layers of an encoder that compute the nodes of a RASP program's graph.
//!
//! A node is a value that is computed at each position. It has one column for each value of its
//! domain: the column that belongs to the node's value is 1, and the other columns are 0. So a
//! relation of keys and queries is a bilinear form of columns.
//!
//! A head computes one [`Term`]: a list of relations, all of which must hold for a key to be
//! selected. The score of a key counts the relations that hold for it. `<cls>`, the first token of
//! every text, has a fixed score: it is below the score of a key for which the whole term holds,
//! and above the score of every other key. So if no key is selected, all weight is on `<cls>`,
//! where all values are 0.
//!
//! A head that counts selected keys is an exception: it gives `<cls>` the same score as a key for
//! which the term holds. If w keys are selected, the weight of `<cls>` is then 1/(w+1), and the
//! feed-forward layer computes w from it.

use super::graph::{Graph, Node, Source};
use super::selectors::Term;
use crate::TheoryError;
use crate::blueprint::{Blueprint, Column, Form, Head, Layer, Unit};

/// Factor of scores. Two different scores differ by at least half of this factor, so the smaller
/// one has no weight in f32.
pub(super) const HARD: f64 = 64.0;
/// A number larger than any weighted sum of a node's arguments, which `reach` in `domains` bounds.
/// Subtracting it from the gate of a unit makes the unit 0.
const NEVER: f64 = (1_u64 << 32) as f64;
/// Largest width of the residual stream.
const MOST_COLUMNS: usize = 4096;

/// A node as forms: affine functions of columns.
struct Emitted {
    /// A form for each value of the domain: 1 if the node has this value, otherwise 0.
    hot: Vec<Form>,
    /// The node's value as a number.
    number: Form,
    /// Index, from 0, of the first layer that can read these forms.
    ready: usize,
}

/// Columns that all programs have.
pub(super) struct Basis {
    /// 1 at the token `<cls>`, which comes first; 0 elsewhere.
    pub(super) is_class: Column,
    /// 1 at each character of the input, and 0 at `<cls>`.
    pub(super) is_token: Column,
    /// For each character of the alphabet: 1 where the input has this character, and 0 elsewhere.
    pub(super) tokens: Vec<Column>,
    /// For each position of the input, from 0: 1 at this position, and 0 elsewhere.
    pub(super) indices: Vec<Column>,
}

/// Writer of the layers of a program.
pub(super) struct Emission<'a> {
    pub(super) blueprint: &'a mut Blueprint,
    pub(super) basis: Basis,
    layers: Vec<Layer>,
    longest: usize,
}

impl<'a> Emission<'a> {
    pub(super) fn new(blueprint: &'a mut Blueprint, basis: Basis, longest: usize) -> Self {
        Self { blueprint, basis, layers: Vec::new(), longest }
    }

    /// Writes all layers. Returns one form for each value that the program's result can have. At
    /// each position, the form is 1 if the result has this value there, otherwise 0.
    ///
    /// # Errors
    /// If the stream would be too wide.
    pub(super) fn write(mut self, graph: &Graph) -> Result<Vec<Form>, TheoryError> {
        let mut emitted: Vec<Emitted> = Vec::new();
        for node in &graph.nodes {
            let one = match &node.source {
                Source::Tokens => self.given(self.basis.tokens.clone(), node),
                Source::Indices => self.given(self.basis.indices.clone(), node),
                Source::Constant => Emitted {
                    hot: vec![self.basis.is_token.into()],
                    number: (node.domain.values[0] as f64).into(),
                    ready: 0,
                },
                Source::Map { arguments, table } => self.map(arguments, table, node, &emitted),
                Source::Width(terms) => self.width(terms, node, &emitted),
                Source::Aggregate { terms, values, default } => {
                    let default = default.and_then(|value| node.domain.index(value));
                    self.aggregate(terms, (*values, graph), default, node, &emitted)
                }
            };
            emitted.push(one);
            if self.blueprint.width_used() > MOST_COLUMNS {
                return Err(TheoryError::Input(format!(
                    "the program takes more than {MOST_COLUMNS} columns: choose a smaller length"
                )));
            }
        }
        let output = emitted.swap_remove(graph.output);
        self.layers.into_iter().for_each(|layer| self.blueprint.layer(layer));
        Ok(output.hot)
    }

    fn layer(&mut self, number: usize) -> &mut Layer {
        if self.layers.len() <= number {
            self.layers.resize_with(number + 1, Layer::default);
        }
        &mut self.layers[number]
    }

    /// Forms of a node whose columns are set by the embedding.
    fn given(&self, columns: Vec<Column>, node: &Node) -> Emitted {
        hot(columns, node, 0)
    }

    /// Writes a node whose value is a function of a weighted sum of other nodes. `table` has pairs
    /// of a sum and the function's value. The layer computes a step function, which is flat around
    /// each possible sum, so that small errors of the sum vanish.
    fn map(
        &mut self,
        arguments: &[(usize, i64)],
        table: &[(i64, i64)],
        node: &Node,
        emitted: &[Emitted],
    ) -> Emitted {
        let sum = arguments.iter().fold(Form::default(), |sum, (node, factor)| {
            sum + emitted[*node].number.clone() * *factor as f64
        });
        let ready = arguments.iter().map(|(node, _)| emitted[*node].ready).max().unwrap_or(0);
        let columns = self.blueprint.columns(node.domain.values.len());
        self.steps(&sum, table, (node, &columns), ready);
        hot(columns, node, ready + 1)
    }

    /// Adds the units of a step function of `sum` to the layer with the index `layer`, from 0.
    fn steps(
        &mut self,
        sum: &Form,
        table: &[(i64, i64)],
        (node, columns): (&Node, &[Column]),
        layer: usize,
    ) {
        let sum = self.valued(sum.clone());
        let column = |value: i64| node.domain.index(value).map(|index| columns[index]);
        let mut units = Vec::new();
        if let Some(first) = table.first().and_then(|(_, value)| column(*value)) {
            units.push(Unit::relu(self.valued(1.0)).adds(first, 1.0));
        }
        for pair in table.windows(2) {
            let [(low, before), (high, after)] = [pair[0], pair[1]];
            let (Some(before), Some(after)) = (column(before), column(after)) else { continue };
            if before == after {
                continue;
            }
            // The ramp from 0 to 1 is in the middle between two neighbouring sums. Its width is the
            // largest power of two up to half of their distance, so that its slope is exact in f32.
            let gap = (high - low) as f64;
            let width = 0.5 * 2_f64.powi((high - low).ilog2() as i32);
            let start = low as f64 + 0.5 * (gap - width);
            let between = (start, start + width);
            units.extend(Unit::rise(&sum, between, &[(after, 1.0), (before, -1.0)]));
        }
        self.layer(layer).units.extend(units);
    }

    /// Subtracts a large number from `form` at `<cls>`, so that units are 0 there: nodes have no
    /// value at `<cls>`.
    fn valued(&self, form: impl Into<Form>) -> Form {
        form.into() - self.basis.is_class * NEVER
    }

    /// Makes the units that round `value`: they add 1 to `to` if the value is at least 0.75, and 0
    /// if it is at most 0.25.
    fn rounded(&self, value: Column, to: Column) -> [Unit; 2] {
        Unit::rise(&self.valued(value), (0.25, 0.75), &[(to, 1.0)])
    }

    /// Makes a head whose score is largest for the keys for which `term` holds. The score of a key
    /// is `HARD · (1 + n)`, where n is the number of relations that hold. The score of `<cls>` is
    /// `HARD · class`.
    fn head(&self, term: &Term, class: f64, emitted: &[Emitted]) -> Head {
        let mut head = Head::default()
            .score(HARD, self.basis.is_token)
            .score(HARD * class, self.basis.is_class);
        for relation in term {
            let (keys, queries) =
                (&emitted[relation.between.0].hot, &emitted[relation.between.1].hot);
            let total =
                |of: Vec<&Form>| of.into_iter().fold(Form::default(), |sum, one| sum + one.clone());
            if keys.len() <= queries.len() {
                for (key, suits) in keys.iter().zip(&*relation.suits) {
                    let suited = queries.iter().zip(suits).filter(|(_, suits)| **suits);
                    let suited = total(suited.map(|(query, _)| query).collect());
                    head = head.score(suited * HARD, key.clone());
                }
            } else {
                for (number, query) in queries.iter().enumerate() {
                    let suited = keys.iter().zip(&*relation.suits).filter(|(_, row)| row[number]);
                    let suited = total(suited.map(|(key, _)| key).collect());
                    head = head.score(query.clone() * HARD, suited);
                }
            }
        }
        head
    }

    /// Index of the first layer that can read the keys and queries of all relations.
    fn ready(terms: &[Term], emitted: &[Emitted]) -> usize {
        let nodes =
            terms.iter().flatten().flat_map(|relation| [relation.between.0, relation.between.1]);
        nodes.map(|node| emitted[node].ready).max().unwrap_or(0)
    }

    /// Writes a node whose value is the number of keys that the terms select.
    fn width(&mut self, terms: &[Term], node: &Node, emitted: &[Emitted]) -> Emitted {
        let at = Self::ready(terms, emitted);
        let number = self.blueprint.column();
        for term in terms {
            let share = self.blueprint.column();
            let head = self.head(term, 1.0 + term.len() as f64, emitted);
            let head = head.value(self.basis.is_class, share);
            // These units are a piecewise linear function of the share: its slope changes by 2w at
            // each 1/w. At the share 1/(w+1), the function is w.
            let ramp = |w: usize| Unit::relu(-share + 1.0 / w as f64).adds(number, 2.0 * w as f64);
            let units: Vec<Unit> = (1..=self.longest).map(ramp).collect();
            let layer = self.layer(at);
            layer.heads.push(head);
            layer.units.extend(units);
        }
        let raw = self.blueprint.columns(node.domain.values.len());
        let table: Vec<(i64, i64)> = node.domain.values.iter().map(|w| (*w, *w)).collect();
        self.steps(&number.into(), &table, (node, &raw), at + 1);
        let columns = self.blueprint.columns(raw.len());
        let units = raw.iter().zip(&columns).flat_map(|(raw, clean)| self.rounded(*raw, *clean));
        let units: Vec<Unit> = units.collect();
        self.layer(at + 2).units.extend(units);
        hot(columns, node, at + 3)
    }

    /// Writes a node that has the value of the selected keys, all of which have the same value. If
    /// no key is selected, the node has the value with the index `default` in its domain.
    fn aggregate(
        &mut self,
        terms: &[Term],
        (values, graph): (usize, &Graph),
        default: Option<usize>,
        node: &Node,
        emitted: &[Emitted],
    ) -> Emitted {
        let at = Self::ready(terms, emitted).max(emitted[values].ready);
        let raw = self.blueprint.columns(node.domain.values.len());
        for term in terms {
            let mut head = self.head(term, 0.5 + term.len() as f64, emitted);
            for (value, hot) in graph.nodes[values].domain.values.iter().zip(&emitted[values].hot) {
                if let Some(index) = node.domain.index(*value) {
                    head = head.value(hot.clone(), raw[index]);
                }
            }
            self.layer(at).heads.push(head);
        }
        let columns = self.blueprint.columns(raw.len());
        let mut units: Vec<Unit> =
            raw.iter().zip(&columns).flat_map(|(raw, clean)| self.rounded(*raw, *clean)).collect();
        if let Some(default) = default {
            let found = Form::sum(raw.iter().map(|column| (*column, 2.0)));
            units.push(Unit::relu(self.valued(-found + 1.0)).adds(columns[default], 1.0));
        }
        self.layer(at).units.extend(units);
        hot(columns, node, at + 1)
    }
}

/// Forms of a node from the columns of its values.
fn hot(columns: Vec<Column>, node: &Node, ready: usize) -> Emitted {
    let values = node.domain.values.iter().map(|value| *value as f64);
    let number = Form::sum(columns.iter().copied().zip(values));
    Emitted { hot: columns.into_iter().map(Form::from).collect(), number, ready }
}
