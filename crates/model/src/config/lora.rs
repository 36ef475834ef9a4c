//! Adapters of the linear layers of a model whose own weights are frozen.

use super::bounds;
use crate::{ModelError, matches};
use candle_core::DType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Type in which frozen weights are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "lowercase")]
pub enum BaseDtype {
    /// 32 bits, as in the original run.
    #[default]
    F32,
    /// Matrices of linear layers and of tokens are rounded to bf16, which halves their memory.
    /// Products convert the rounded matrices to f32, so adapters are trained for the rounded
    /// weights.
    Bf16,
}

/// Low-rank adapters (Hu et al. 2021, "LoRA"): the initial weights, taken from another run, are
/// frozen, and a linear layer computes `x Wᵀ + s · dropout(x) Aᵀ Bᵀ + b` with trained A and B.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoraConfig {
    /// Rank of each adapter `B A x`, which is the number of rows of A; 0: no adapters, and all
    /// weights are trained. A fused matrix, such as `qkv`, has an adapter of this rank for each of
    /// its parts.
    #[schemars(extend("x-names" = "lora_r lora_rank lora_dim adapter_dim r"))]
    pub rank: usize,
    /// Scale of the adapters. An adapter adds `s · B A x` to the output of a linear layer with the
    /// input x; s is `alpha / rank`.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    #[schemars(extend("x-names" = "lora_alpha"), extend("x-idle" = ["no-adapters"]))]
    pub alpha: f64,
    /// Whether the scale s of the adapters is `alpha / √rank` instead of `alpha / rank`
    /// (Kalajdzievski 2023, "rsLoRA").
    #[schemars(extend("x-names" = "rs use_rslora rslora"), extend("x-idle" = ["no-adapters"]))]
    pub rank_stabilized: bool,
    /// Whether the length of each row of an adapted matrix is trained separately (Liu et al. 2024,
    /// "DoRA", equation 5).
    #[schemars(extend("x-names" = "use_dora"), extend("x-idle" = ["no-adapters"]))]
    pub dora: bool,
    /// Dropout on the input x of an adapter `B A x`.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    #[schemars(extend("x-names" = "lora_dropout"), extend("x-idle" = ["no-adapters"]))]
    pub dropout: f64,
    /// Linear layers that get adapters: names without `.weight`, in which `*` stands for any
    /// characters and `?` for one.
    #[schemars(
        extend("x-names" = "target_modules lora_target_modules lora_layers lora_modules"),
        extend("x-idle" = ["no-adapters"])
    )]
    pub layers: Vec<String>,
    /// Other parameters that are trained, without adapters, such as a new head: names or patterns,
    /// as in `layers`.
    #[schemars(extend("x-names" = "modules_to_save"), extend("x-idle" = ["no-adapters"]))]
    pub train: Vec<String>,
    /// Type of the frozen weights while adapters are trained; they are rounded to it.
    #[serde(skip_serializing_if = "BaseDtype::is_default")]
    #[schemars(extend("x-names" = "base_type base_quantization quantize_base"))]
    #[schemars(extend("x-idle" = ["no-adapters"]))]
    pub base_dtype: BaseDtype,
}

impl BaseDtype {
    /// Whether frozen weights are held in f32, the default. Recipes (configuration files) do not
    /// name the default.
    fn is_default(&self) -> bool {
        *self == Self::F32
    }

    /// Type of the tensors of frozen weights.
    pub(crate) fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::BF16,
        }
    }
}

impl Default for LoraConfig {
    fn default() -> Self {
        Self {
            rank: 0,
            alpha: 16.0,
            rank_stabilized: false,
            dora: false,
            dropout: 0.0,
            layers: vec!["*".to_owned()],
            train: Vec::new(),
            base_dtype: BaseDtype::F32,
        }
    }
}

impl LoraConfig {
    /// True if all settings are those of a model without adapters.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// True if the model has adapters.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.rank > 0
    }

    /// Factor s by which the product of A and B is multiplied.
    #[must_use]
    pub fn scale(&self) -> f64 {
        let rank = self.rank as f64;
        self.alpha / if self.rank_stabilized { rank.sqrt() } else { rank }
    }

    /// True if the linear layer of this name gets adapters.
    pub(crate) fn adapts(&self, layer: &str) -> bool {
        self.layers.iter().any(|pattern| matches(pattern, layer))
    }

    /// Whether the parameter of this name is trained itself, without an adapter.
    pub(crate) fn trains(&self, parameter: &str) -> bool {
        self.train.iter().any(|pattern| matches(pattern, parameter))
    }

    pub(super) fn validate(&self) -> Result<(), ModelError> {
        let refuse = |message: String| Err(ModelError::Config(message));
        bounds::size("model.lora.rank", self.rank, 0..=*bounds::WIDTHS.end())?;
        if !(self.alpha > 0.0 && self.alpha <= *bounds::FACTORS.end()) {
            let most = bounds::FACTORS.end();
            return refuse(format!(
                "model.lora.alpha = {:?}: it must be above 0 and at most {most:?}",
                self.alpha
            ));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return refuse(format!(
                "model.lora.dropout = {:?}: it must be at least 0 and below 1",
                self.dropout
            ));
        }
        Ok(())
    }
}
