//! Position encodings: those that are added to embeddings, and those that act on queries and keys
//! or on scores.

mod rotary;

use crate::config::{Architecture, ModelConfig, Positions, RelativeBuckets, SinusoidFrequencies};
use crate::layers::weight::Weight;
use crate::{Builder, Pass, Sequences};
use candle_core::{Device, Result, Tensor};
use rotary::RotaryPositions;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use taper_ops::{DualChunk, Turns};

/// Computes `PE(p, 2i) = sin(p f_i)` and `PE(p, 2i+1) = cos(p f_i)` for the positions p in `at`
/// (Vaswani et al. 2017, section 3.5). `f_i` is the frequency of the pair of columns with the index
/// i, from 0: 1 divided by [`SinusoidFrequencies::divisor`]. The result is a row-major matrix
/// `(P, D)` for P positions and D = `width`.
///
/// If `halves` is true, all sines of a position come first, then all its cosines.
#[must_use]
pub fn sinusoids(
    at: Range<usize>,
    width: usize,
    halves: bool,
    frequencies: SinusoidFrequencies,
) -> Vec<f32> {
    let half = width / 2;
    let mut out = Vec::with_capacity(at.len() * width);
    for position in at {
        for column in 0..width {
            let (pair, sine) =
                if halves { (column % half, column < half) } else { (column / 2, column % 2 == 0) };
            let angle = position as f64 / frequencies.divisor(pair, width);
            out.push(if sine { angle.sin() } else { angle.cos() } as f32);
        }
    }
    out
}

/// Returns ALiBi's slope of each of n heads (Press et al. 2022, section 3). If n is a power of two,
/// the slopes are a geometric sequence that begins with `2^(-8/n)`. Otherwise they are the slopes
/// for the next lower power of two, followed by every other slope for the next higher power of two.
#[must_use]
pub fn alibi_slopes(heads: usize) -> Vec<f64> {
    let power = |count: usize| (1..=count).map(move |i| 2_f64.powf(-8.0 * i as f64 / count as f64));
    if heads.is_power_of_two() {
        return power(heads).collect();
    }
    let lower = heads.next_power_of_two() / 2;
    power(lower).chain(power(2 * lower).step_by(2).take(heads - lower)).collect()
}

/// Returns T5's bucket for the distance from a query to a key (Raffel et al. 2020, section 2.1). In
/// a causal stack, all buckets are for keys before the query; otherwise half of the buckets are for
/// keys after it. Half of the buckets of a side are for single distances, from 0 on. The other half
/// is for larger distances, whose buckets grow logarithmically up to the largest distance. The
/// calculation is in f32 and in the order of Transformers, so that distances at the border of two
/// buckets fall into the same bucket as in Transformers.
#[must_use]
pub fn t5_bucket(query: usize, key: usize, causal: bool, of: RelativeBuckets) -> usize {
    let (side, buckets) = if causal {
        (0, of.count)
    } else {
        (if key > query { of.count / 2 } else { 0 }, of.count / 2)
    };
    let distance = if causal { query.saturating_sub(key) } else { query.abs_diff(key) };
    let exact = buckets / 2;
    if distance < exact {
        return side + distance;
    }
    let log_range = (of.distance as f64 / exact as f64).ln() as f32;
    let growth = (distance as f32 / exact as f32).ln() / log_range;
    side + (exact + (growth * (buckets - exact) as f32) as usize).min(buckets - 1)
}

/// Positions that are added to the embedding of each token.
#[derive(Debug, Clone)]
pub(crate) enum Added {
    /// Nothing is added: positions act in attention, or not at all.
    Nothing,
    /// A table of constants.
    Sinusoids(Sinusoids),
    /// A trained table. No token reads its rows before `first`.
    Learned { table: Weight, first: usize, count: usize },
}

impl Added {
    pub(crate) fn new(build: &mut Builder, name: &str, config: &ModelConfig) -> Result<Self> {
        if config.architecture == Architecture::Recurrent {
            return Ok(Self::Nothing);
        }
        Ok(match config.positions {
            Positions::Sinusoidal | Positions::SinusoidalHalves => {
                Self::Sinusoids(Sinusoids::new(config))
            }
            Positions::Learned => Self::Learned {
                table: build.embedding(
                    &format!("{name}.weight"),
                    config.position_rows(),
                    config.d_model,
                )?,
                first: config.position_offset,
                count: config.max_positions,
            },
            Positions::T5 | Positions::Rotary | Positions::Alibi | Positions::None => Self::Nothing,
        })
    }

    /// Returns a table for tokens at the positions `at`, all below `longest`, and for each token
    /// the index of its row in the table. The table is `None` if nothing is added.
    pub(crate) fn table(
        &self,
        at: Arc<[u32]>,
        longest: usize,
        pass: &Pass,
        device: &Device,
    ) -> Result<(Option<Tensor>, Arc<[u32]>)> {
        match self {
            Self::Nothing => Ok((None, at)),
            Self::Sinusoids(sinusoids) => Ok((Some(sinusoids.table(longest, device)?), at)),
            Self::Learned { table, first, count } => {
                if longest > *count {
                    candle_core::bail!(
                        "a sequence of {longest} tokens, but the learned position table ends at \
                         max_positions = {count}"
                    );
                }
                let rows = match *first as u32 {
                    0 => at,
                    first => at.iter().map(|at| first + at).collect(),
                };
                Ok((Some(table.get(pass).clone()), rows))
            }
        }
    }
}

/// Table of [`sinusoids`] for the longest sequence so far. It is kept between calls, because
/// decoding needs one more position at each step.
#[derive(Debug, Clone)]
pub(crate) struct Sinusoids {
    width: usize,
    halves: bool,
    frequencies: SinusoidFrequencies,
    /// Position of a sequence's first token, to which the first row of the table belongs.
    first: usize,
    table: Arc<Mutex<Option<Tensor>>>,
}

impl Sinusoids {
    fn new(config: &ModelConfig) -> Self {
        Self {
            width: config.d_model,
            halves: config.positions == Positions::SinusoidalHalves,
            frequencies: config.sinusoid_frequencies,
            first: config.position_offset,
            table: Arc::default(),
        }
    }

    /// Returns a table of at least `longest` positions.
    fn table(&self, longest: usize, device: &Device) -> Result<Tensor> {
        // A change is a single assignment, so the value is complete even if another thread
        // panicked.
        let mut cached = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = cached.as_ref().filter(|table| table.dims()[0] >= longest) {
            return Ok(table.clone());
        }
        let count = longest.next_power_of_two();
        let at = self.first..self.first + count;
        let values = sinusoids(at, self.width, self.halves, self.frequencies);
        let table = Tensor::from_vec(values, (count, self.width), device)?;
        *cached = Some(table.clone());
        Ok(table)
    }
}

/// Positions that act on the scores or projections of self-attention in every layer of a stack.
#[derive(Debug, Clone)]
pub(crate) enum Relative {
    Nothing,
    Rotary(Box<Turns>, Option<DualChunk>),
    Alibi(Arc<[f64]>),
    /// T5's tables `(buckets, heads)`: one for the whole stack, or one for each layer. State-space
    /// layers have no scores, and so no tables.
    Bias {
        tables: Vec<Option<Weight>>,
        causal: bool,
        buckets: RelativeBuckets,
    },
}

impl Relative {
    /// Makes the positions of the stack called `name`. `groups` are its groups of layers with equal
    /// settings: the index of the first layer, and the number of layers.
    pub(crate) fn new(
        build: &mut Builder,
        name: &str,
        config: &ModelConfig,
        causal: bool,
        groups: &[(usize, usize)],
    ) -> Result<Self> {
        let table = |build: &mut Builder, name: &str| {
            let name = format!("{name}.relative_bias.weight");
            build.embedding(&name, config.relative_buckets, config.heads)
        };
        Ok(match config.positions {
            Positions::Rotary => {
                let chunks = config.rotary.dual_chunk();
                if chunks.is_some() && !causal {
                    candle_core::bail!(
                        "{name}: model.rotary.scaling = \"dual-chunk\" has no distances of tokens \
                         after a query, which an encoder sees: use another scaling"
                    );
                }
                let turns = config.rotary.turns(config.attention_shape().head_width);
                Self::Rotary(Box::new(turns), chunks)
            }
            // In an outline (parameters without values), the number of heads can be too large for a
            // table of slopes.
            Positions::Alibi if build.is_outline() => Self::Nothing,
            Positions::Alibi => Self::Alibi(alibi_slopes(config.heads).into()),
            Positions::T5 => Self::Bias {
                tables: match config.relative_by_layer {
                    true => build.layers(groups, |build, layer| {
                        let has_scores = !config.attention(causal).kind_of(layer).is_state_space();
                        let name = format!("{name}.layers.{layer}");
                        has_scores.then(|| table(build, &name)).transpose()
                    })?,
                    false => vec![Some(table(build, name)?)],
                },
                causal,
                buckets: config.relative(),
            },
            Positions::Sinusoidal
            | Positions::SinusoidalHalves
            | Positions::Learned
            | Positions::None => Self::Nothing,
        })
    }

    /// Prepares the layers' positions for these sequences.
    pub(crate) fn prepare(&self, sequences: &Sequences, pass: &Pass) -> Result<StackPositions> {
        let longest = sequences.longest();
        self.prepared(|| sequences.positions(), (0..longest, longest), pass)
    }

    /// Prepares the layers' positions for tokens at `positions`, each of which sees itself and the
    /// cached tokens before it.
    pub(crate) fn prepare_cached(
        &self,
        positions: &Arc<[u32]>,
        pass: &Pass,
    ) -> Result<StackPositions> {
        // The bias `(H, 1, T)` is computed for the last token of the longest row, with H heads and
        // T keys. A shorter row uses only the last entries of it, because only distances matter.
        let last = positions.iter().copied().max().unwrap_or(0) as usize;
        self.prepared(|| positions.clone(), (last..last + 1, last + 1), pass) // (H, 1, T)
    }

    /// Prepares the layers' positions for tokens at the positions `at`. T5's biases are for queries
    /// at the positions `queries`, and for `keys` keys from position 0 on.
    fn prepared(
        &self,
        at: impl FnOnce() -> Arc<[u32]>,
        (queries, keys): (Range<usize>, usize),
        pass: &Pass,
    ) -> Result<StackPositions> {
        let mut layer = PreparedPositions::default();
        match self {
            Self::Nothing => {}
            Self::Rotary(turns, chunks) => {
                layer.rotary = Some(RotaryPositions::new(**turns, *chunks, at()));
            }
            Self::Alibi(slopes) => layer.slopes = Some(slopes.clone()),
            Self::Bias { tables, causal, buckets } => {
                let bucket_rule = (*causal, *buckets);
                let layers = tables.iter().map(|table| {
                    let of_table = |table: &Weight| {
                        bias(table.get(pass), queries.clone(), keys, bucket_rule, pass)
                    };
                    let bias = table.as_ref().map(of_table).transpose()?;
                    Ok(PreparedPositions { bias, ..Default::default() })
                });
                return Ok(StackPositions(layers.collect::<Result<_>>()?));
            }
        }
        Ok(StackPositions([layer].into()))
    }
}

/// Computes the bias `(H, queries, keys)` of H heads from T5's table, for queries at the positions
/// `queries` and for the first `keys` keys.
fn bias(
    table: &Tensor,
    queries: Range<usize>,
    keys: usize,
    (causal, of): (bool, RelativeBuckets),
    pass: &Pass,
) -> Result<Tensor> {
    let count = queries.len();
    let buckets: Arc<[u32]> = queries
        .flat_map(|query| (0..keys).map(move |key| t5_bucket(query, key, causal, of) as u32))
        .collect();
    taper_ops::relative_bias(pass.tape(), table, &buckets, count, keys)
}

/// Positions of one batch in the layers of a stack: one element for all layers, or one for each
/// layer.
#[derive(Debug, Clone)]
pub(crate) struct StackPositions(Arc<[PreparedPositions]>);

impl StackPositions {
    /// Returns the positions in the layer with the index `layer`, from 0.
    pub(crate) fn for_layer(&self, layer: usize) -> &PreparedPositions {
        &self.0[layer.min(self.0.len() - 1)]
    }
}

/// Positions of one batch, prepared for a layer: rotations, slopes (ALiBi) or biases (T5). A field
/// is `None` if the model has another kind of positions.
#[derive(Debug, Clone, Default)]
pub(crate) struct PreparedPositions {
    pub(crate) rotary: Option<RotaryPositions>,
    pub(crate) slopes: Option<Arc<[f64]>>,
    pub(crate) bias: Option<Tensor>,
}

impl PreparedPositions {
    /// Chunks of dual chunk attention; `None` if each query has a single rotation.
    pub(crate) fn dual_chunk(&self) -> Option<DualChunk> {
        self.rotary.as_ref().and_then(RotaryPositions::dual_chunk)
    }
}
