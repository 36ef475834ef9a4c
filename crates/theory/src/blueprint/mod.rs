//! Blueprints of models: the columns of the residual stream, and the attention heads and hidden
//! units that read and write these columns.
//!
//! A layer is Pre-LN. First its heads read the columns, and add their results to columns; then the
//! units of its feed-forward layer do the same. What a column means is up to the construction that
//! uses the blueprint.
//!
//! Column 0 is the anchor, which makes the norms identities. Let the anchor be C = 2^40, and the
//! number of columns d a power of 4. A row is the vector of all columns at one token. As long as
//! the squares of its other columns sum to less than 2^55, the sum of all its squares is rounded to
//! C² in f32. The root mean square of the row is then C/√d, which is a power of two. An RMS norm
//! divides a row by its root mean square, and multiplies it by weights. If all weights are C/√d,
//! too, the result is exactly the row.
//!
//! ```
//! use taper_theory::blueprint::{Blueprint, Head, Layer};
//!
//! // Each token says how large a share of the tokens so far are of kind 1.
//! let mut blueprint = Blueprint::new(2, 8);
//! let (is_one, share) = (blueprint.column(), blueprint.column());
//! blueprint.token(1, is_one, 1.0);
//! blueprint.layer(Layer { heads: vec![Head::default().value(is_one, share)], ..Layer::default() });
//! let states = blueprint.decoder()?.states(&[1, 0, 1, 1])?;
//! assert_eq!(states[1][share.number()], 0.5);
//! # Ok::<(), taper_theory::TheoryError>(())
//! ```

mod assembly;
mod form;

pub use assembly::{Decoder, Encoder, Regressor};
pub use form::{Column, Form};
use taper_model::AttentionConfig;

/// An attention head.
#[derive(Debug, Clone, Default)]
pub struct Head {
    products: Vec<(Form, Form)>,
    values: Vec<(Form, Column)>,
}

impl Head {
    /// Adds a product to the scores: `query`, a form of the query's columns, times `key`, a form of
    /// the key's columns. A head without products gives all tokens the same weight.
    #[must_use]
    pub fn score(mut self, query: impl Into<Form>, key: impl Into<Form>) -> Self {
        self.products.push((query.into(), key.into()));
        self
    }

    /// Adds a value to the head. For each query, the head computes the mean of the form `value`
    /// over the tokens, weighted by the head's attention, and adds it to the column `to`.
    #[must_use]
    pub fn value(mut self, value: impl Into<Form>, to: Column) -> Self {
        self.values.push((value.into(), to));
        self
    }

    /// Smallest head width that has room for the products and values of the head.
    fn width(&self) -> usize {
        self.products.len().max(self.values.len())
    }
}

/// A hidden unit of a feed-forward layer: `factor · max(gate, 0)`, added to some columns.
#[derive(Debug, Clone)]
pub struct Unit {
    gate: Form,
    factor: Option<Form>,
    outputs: Vec<(Column, f64)>,
}

impl Unit {
    /// Makes the unit `max(gate, 0)`.
    #[must_use]
    pub fn relu(gate: impl Into<Form>) -> Self {
        Self { gate: gate.into(), factor: None, outputs: Vec::new() }
    }

    /// Multiplies the unit by a form of the columns. This makes the feed-forward layers of the
    /// model gated (Shazeer 2020).
    #[must_use]
    pub fn times(mut self, factor: impl Into<Form>) -> Self {
        self.factor = Some(factor.into());
        self
    }

    /// Adds the unit, multiplied by `weight`, to the column `to`.
    #[must_use]
    pub fn adds(mut self, to: Column, weight: f64) -> Self {
        self.outputs.push((to, weight));
        self
    }

    /// Makes the two units that together add `weight` times a form, which may be negative, to the
    /// column `to`.
    #[must_use]
    pub fn linear(form: impl Into<Form>, to: Column, weight: f64) -> [Self; 2] {
        let form = form.into();
        [Self::relu(form.clone()).adds(to, weight), Self::relu(-form).adds(to, -weight)]
    }

    /// Makes the two units that compute a ramp of `form`, and add it to columns. The ramp is 0 up
    /// to `low`, then rises linearly, and is 1 from `high` on. Each element of `to` is a column and
    /// a weight; the ramp times this weight is added to the column.
    #[must_use]
    pub fn rise(form: &Form, (low, high): (f64, f64), to: &[(Column, f64)]) -> [Self; 2] {
        let slope = 1.0 / (high - low);
        [(low, slope), (high, -slope)].map(|(at, slope)| Self {
            gate: form.clone() - at,
            factor: None,
            outputs: to.iter().map(|(column, weight)| (*column, slope * weight)).collect(),
        })
    }

    /// Makes the two units that add the product of two forms to the column `to`.
    #[must_use]
    pub fn product(left: impl Into<Form>, right: impl Into<Form>, to: Column) -> [Self; 2] {
        let (left, right) = (left.into(), right.into());
        [
            Self::relu(left.clone()).times(right.clone()).adds(to, 1.0),
            Self::relu(-left).times(right).adds(to, -1.0),
        ]
    }
}

/// A layer: its heads add to the columns first, then its units.
#[derive(Debug, Clone, Default)]
pub struct Layer {
    /// Heads of the attention.
    pub heads: Vec<Head>,
    /// Units of the feed-forward layer.
    pub units: Vec<Unit>,
}

impl Layer {
    /// Makes a layer without heads.
    #[must_use]
    pub fn of_units(units: impl IntoIterator<Item = Unit>) -> Self {
        Self { heads: Vec::new(), units: units.into_iter().collect() }
    }
}

/// Values that columns have at a token or a position before the first layer. Columns that are not
/// in the list are 0.
type Row = Vec<(Column, f64)>;

/// Blueprint of a model.
#[derive(Debug, Clone)]
pub struct Blueprint {
    columns: usize,
    tokens: Vec<Row>,
    /// Rows of the position table; empty if the model has no positions.
    positions: Vec<Row>,
    layers: Vec<Layer>,
    logits: Vec<Form>,
    attention: AttentionConfig,
}

impl Blueprint {
    /// Makes an empty blueprint of a model with `vocabulary` tokens and `positions` positions. With
    /// 0 positions, the model has no position embeddings and no limit of length.
    #[must_use]
    pub fn new(vocabulary: usize, positions: usize) -> Self {
        Self {
            columns: 1,
            tokens: vec![Row::new(); vocabulary],
            positions: vec![Row::new(); positions],
            layers: Vec::new(),
            logits: vec![Form::default(); vocabulary],
            attention: AttentionConfig::default(),
        }
    }

    /// Adds a column, which is 0 for all tokens at first.
    pub fn column(&mut self) -> Column {
        self.columns += 1;
        Column::new(self.columns - 1)
    }

    /// Adds `count` columns, numbered one after the other.
    pub fn columns(&mut self, count: usize) -> Vec<Column> {
        (0..count).map(|_| self.column()).collect()
    }

    /// Sets the value of a column before the first layer, for the token with this id.
    ///
    /// # Panics
    /// If there is no such token.
    pub fn token(&mut self, id: usize, column: Column, value: f64) {
        self.tokens[id].push((column, value));
    }

    /// Sets the value of a column before the first layer at position `at`; the token's value is
    /// added to it.
    ///
    /// # Panics
    /// If there is no such position.
    pub fn position(&mut self, at: usize, column: Column, value: f64) {
        self.positions[at].push((column, value));
    }

    /// Appends a layer.
    pub fn layer(&mut self, layer: Layer) {
        self.layers.push(layer);
    }

    /// Sets the logit of the token with this id.
    ///
    /// # Panics
    /// If there is no such token.
    pub fn logit(&mut self, id: usize, form: impl Into<Form>) {
        self.logits[id] = form.into();
    }

    /// Sets the attention pattern, which defines the tokens that a query sees.
    pub fn attention(&mut self, attention: AttentionConfig) {
        self.attention = attention;
    }

    /// Number of columns so far, including the anchor.
    #[must_use]
    pub fn width_used(&self) -> usize {
        self.columns
    }

    /// Size of the vocabulary.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.tokens.len()
    }
}
