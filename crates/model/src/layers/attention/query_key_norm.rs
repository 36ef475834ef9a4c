//! Norms of queries and keys, which bound their products (Henry et al. 2020, "Query-Key
//! Normalization for Transformers"). They come before rotary positions, and normalise each head
//! separately (Dehghani et al. 2023, "Scaling Vision Transformers to 22 Billion Parameters",
//! section 2; Qwen3) or all heads together (OLMo 2).

use crate::config::QueryKeyNorm;
use crate::cost::PartCost;
use crate::layers::norm::Norm;
use crate::{Builder, ModelConfig, Pass};
use candle_core::{Result, Tensor};
use taper_ops::NormedColumns;

/// Part of a projection that is normalised.
#[derive(Debug, Clone, Copy)]
pub(super) enum Normed {
    Query,
    Key,
}

/// Norms of the first columns of a projection, which are the queries, the keys, or the queries
/// followed by the keys.
#[derive(Debug, Clone)]
pub(super) struct QueryKeyNorms {
    /// Norm of each part, with the number of the part's columns; empty if there are no norms.
    parts: Vec<(usize, Norm)>,
}

impl QueryKeyNorms {
    /// Makes the norms of these parts of a projection that has `width` columns, if the
    /// configuration has norms. They are called `{name}.query_norm` and `{name}.key_norm`.
    pub(super) fn new(
        build: &mut Builder,
        name: &str,
        config: &ModelConfig,
        parts: &[Normed],
        width: usize,
    ) -> Result<Self> {
        let shape = config.attention_shape();
        let part = |part: &Normed| {
            let (part, columns) = match part {
                Normed::Query => ("query", shape.query_width()),
                Normed::Key => ("key", shape.key_value_width()),
            };
            let group = match config.query_key_norm {
                QueryKeyNorm::PerHead => shape.head_width,
                QueryKeyNorm::None | QueryKeyNorm::AllHeads => columns,
            };
            Ok((columns, Norm::new(build, &format!("{name}.{part}_norm"), group, config)?))
        };
        if config.query_key_norm == QueryKeyNorm::None {
            return Ok(Self { parts: Vec::new() });
        }
        let parts = parts.iter().map(part).collect::<Result<_>>()?;
        // For the backward pass, the projection is kept both before and after the norm.
        build.count(PartCost::kept(width));
        Ok(Self { parts })
    }

    /// Normalises the first columns of `x`; the remaining columns stay as they are.
    ///
    /// # Shapes
    /// `(N, W)` → `(N, W)`, for N tokens and a projection that has W columns.
    pub(super) fn forward(&self, x: Tensor, pass: &Pass) -> Result<Tensor> {
        let Some((_, first)) = self.parts.first() else { return Ok(x) };
        let parts = self.parts.iter().map(|(columns, norm)| norm.of_columns(*columns, pass));
        let parts: Vec<NormedColumns<'_>> = parts.collect();
        taper_ops::norm_columns(pass.tape(), &x, &parts, first.spec())
    }
}
