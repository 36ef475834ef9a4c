//! Shape of a model: all of its settings are fields of [`ModelConfig`], where each is documented,
//! and each default is stated once.

mod architecture;
mod attention;
mod blocks;
mod bounds;
mod checks;
mod contrastive;
mod defaults;
mod embeddings;
mod encoders;
mod experts;
mod groups;
mod lora;
mod positions;
mod relative;
mod rotary;
mod state_space;

pub use architecture::{
    Architecture, CellKind, ConvolutionalConfig, RecurrentAttention, RecurrentConfig,
};
pub use attention::{AttentionConfig, AttentionKind, LayerKinds};
pub use blocks::{
    ActivationKind, FeedForwardKind, NormKind, NormPlacement, ParallelFeedForward, QueryKeyNorm,
};
pub use contrastive::ContrastiveConfig;
pub use embeddings::{EmbeddingsConfig, Tied};
pub use encoders::{ImageEncoder, Pooling};
pub use experts::ExpertsConfig;
pub use lora::{BaseDtype, LoraConfig};
pub use positions::{Positions, SinusoidFrequencies};
pub use relative::RelativeBuckets;
pub use rotary::{RotaryConfig, RotaryPairs, RotaryScaling};
pub use state_space::StateSpaceConfig;

use defaults::{is_two, is_zero, is_zero_rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Shape of a model. The default is the encoder-decoder Transformer "base" of Vaswani et al. 2017,
/// table 3, in Pre-LN.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelConfig {
    /// Kind of the layers of a translation model.
    pub architecture: Architecture,
    /// Width of the model, `d_model`: the size of a token's embedding, and of its vector between
    /// two layers.
    #[schemars(range(min = 1))]
    #[schemars(
        extend("x-names" = "hidden_size hidden_dim hidden model_dim model_size dim_model dim \
            dim_emb embedding_size embedding_dim embed_dim emb_dim emb_size word_vec_size n_embd \
            rnn_size num_embed width encoder_embed_dim decoder_embed_dim")
    )]
    pub d_model: usize,
    /// Inner width of the feed-forward layers, `d_ff`.
    #[schemars(range(min = 1))]
    #[schemars(
        extend("x-names" = "ffn_dim ff_dim ff_size ffn_size ffn_hidden_size ffn_embed_dim \
            encoder_ffn_dim encoder_ffn_embed_dim dim_feedforward feed_forward_dim \
            feed_forward_size feedforward_size intermediate_size filter_size inner_dim \
            transformer_ff transformer_dim_ffn transformer_feed_forward_num_hidden"),
        extend("x-idle" = ["convolutional-images", "not-transformer"])
    )]
    pub d_ff: usize,
    /// Number of attention heads; `d_model` is a multiple of it if `head_width` is not set.
    #[schemars(range(min = 1))]
    #[schemars(
        extend("x-names" = "nhead n_head n_heads num_heads attention_heads num_attention_heads \
            encoder_attention_heads decoder_attention_heads transformer_heads \
            transformer_attention_heads"),
        extend("x-idle" = ["convolutional-images", "not-transformer"])
    )]
    pub heads: usize,
    /// Number of key-value heads, a divisor of `heads`. Each is shared by a group of query heads
    /// (Ainslie et al. 2023, "GQA"); 1 is multi-query attention (Shazeer 2019). If it is not set,
    /// every query head has separate keys and values.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    #[schemars(
        extend("x-names" = "num_key_value_heads num_kv_heads n_kv_heads n_head_kv kv_heads \
            multi_query_group_num num_query_groups"),
        extend("x-idle" = ["convolutional-images", "not-transformer"])
    )]
    pub key_value_heads: Option<usize>,
    /// Width of an attention head. If it is not set, heads divide `d_model` among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    #[schemars(
        extend("x-names" = "head_dim d_kv d_head kv_channels head_size attention_head_size"),
        extend("x-idle" = ["convolutional-images", "not-transformer"])
    )]
    pub head_width: Option<usize>,
    /// Factor of the products of queries and keys. If it is not set, the products are divided by
    /// the square root of a head's width (Vaswani et al. 2017, section 3.2.1); 1.0 is T5's (Raffel
    /// et al. 2020).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1e-6, max = 1e6))]
    #[schemars(
        extend("x-names" = "attention_multiplier softmax_scale"),
        extend("x-idle" = ["convolutional-images", "not-transformer"])
    )]
    pub attention_scale: Option<f64>,
    /// Norm of queries and keys before their products, and before rotary positions, of the kind of
    /// `norm_kind`. If it is not set, none.
    #[serde(skip_serializing_if = "QueryKeyNorm::is_none")]
    #[schemars(
        extend("x-names" = "qk_norm use_qk_norm qk_layernorm qk_layer_norm"),
        extend("x-idle" = ["convolutional-images", "not-transformer"])
    )]
    pub query_key_norm: QueryKeyNorm,
    /// Layers of the encoder.
    #[schemars(range(min = 1))]
    #[schemars(
        extend("x-names" = "layers layer n_layers n_layer num_layers num_hidden_layers depth \
            enc_layers enc_depth num_encoder_layers"),
        extend("x-idle" = ["no-encoder"])
    )]
    pub encoder_layers: usize,
    /// Layers of the decoder.
    #[schemars(range(min = 1))]
    #[schemars(
        extend("x-names" = "layers layer n_layers n_layer num_layers num_hidden_layers depth \
            dec_layers dec_depth num_decoder_layers"),
        extend("x-weights" = ["other-part"]),
        extend("x-idle" = ["no-decoder"])
    )]
    pub decoder_layers: usize,
    /// Nonlinearity of the feed-forward layers.
    #[schemars(
        extend("x-names" = "activation_fn activation_function act_fn hidden_act nonlinearity"),
        extend("x-idle" = ["not-transformer"])
    )]
    pub activation: ActivationKind,
    /// Kind of the feed-forward layers.
    #[schemars(
        extend("x-names" = "ffn_type mlp_type gated_mlp glu swiglu geglu reglu"),
        extend("x-idle" = ["convolutional-images", "not-transformer"])
    )]
    pub feed_forward: FeedForwardKind,
    /// Whether the feed-forward layer runs in parallel with self-attention, on the same input;
    /// needs `norm = "pre"`. If it is not set: "none".
    #[serde(skip_serializing_if = "ParallelFeedForward::is_none")]
    #[schemars(
        extend("x-names" = "parallel_residual use_parallel_residual parallel_attn parallel_block \
            parallel_layers parallel_attention"),
        extend("x-idle" = ["convolutional-images", "not-transformer"])
    )]
    pub parallel_feed_forward: ParallelFeedForward,
    /// Position of norms, before or after each sublayer.
    #[schemars(
        extend("x-names" = "pre_norm prenorm norm_first normalize_before encoder_normalize_before \
            layer_norm layernorm transformer_preprocess"),
        extend("x-idle" = ["convolutional-images", "not-transformer"])
    )]
    pub norm: NormPlacement,
    /// Kind of norms.
    #[schemars(
        extend("x-names" = "norm_type normalization normalization_type layer_norm_type rms_norm \
            use_rms_norm rmsnorm"),
        extend("x-idle" = ["no-norms"])
    )]
    pub norm_kind: NormKind,
    /// Number added to the variance in norms.
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
    #[schemars(
        extend("x-names" = "layer_norm_eps layer_norm_epsilon norm_eps rms_norm_eps"),
        extend("x-idle" = ["no-norms"])
    )]
    pub norm_epsilon: f64,
    /// Encoding of positions.
    #[schemars(
        extend("x-names" = "position_encoding positional_encoding position_embedding_type \
            positional_embedding_type pos_emb"),
        extend("x-idle" = ["convolutional-images", "positions-by-steps"])
    )]
    pub positions: Positions,
    /// Frequencies of sinusoids. If it is not set: "paper".
    #[serde(skip_serializing_if = "SinusoidFrequencies::are_usual")]
    #[schemars(extend("x-idle" = ["convolutional-images", "positions-not-sinusoidal"]))]
    pub sinusoid_frequencies: SinusoidFrequencies,
    /// Position of the first token, for positions that are added to embeddings. A learned table has
    /// this many additional rows, which are not used: 2 in BART and RoBERTa (Liu et al. 2019). The
    /// sinusoids of M2M100 also begin at position 2. If it is not set: 0.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(
        extend("x-names" = "positions_offset offset padding_offset"),
        extend("x-idle" = ["positions-of-patches", "positions-not-added", "positions-by-steps"])
    )]
    pub position_offset: usize,
    /// Number of buckets of distances for T5's biases; each bucket has one bias. If it is not set:
    /// 32. In an encoder, half of the buckets are for keys before a query, and half for keys after
    /// it. Half of the buckets of a side stand for single distances.
    #[serde(skip_serializing_if = "relative::is_usual_count")]
    #[schemars(range(min = 4))]
    #[schemars(
        extend("x-names" = "relative_attention_num_buckets rel_pos_bins"),
        extend("x-idle" = ["not-t5"])
    )]
    pub relative_buckets: usize,
    /// Distance from which on all distances share T5's last bucket; it is more than half of
    /// `relative_buckets`. If it is not set: 128.
    #[serde(skip_serializing_if = "relative::is_usual_distance")]
    #[schemars(range(min = 3))]
    #[schemars(
        extend("x-names" = "relative_attention_max_distance max_rel_pos"),
        extend("x-idle" = ["not-t5"])
    )]
    pub relative_distance: usize,
    /// Whether each layer has a separate table of T5's biases, as in umT5 (Chung et al. 2023,
    /// "UniMax: Fairer and More Effective Language Sampling for Large-Scale Multilingual
    /// Pretraining"). If it is not set: one table for all layers of a stack.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(extend("x-idle" = ["not-t5"]))]
    pub relative_by_layer: bool,
    /// Scaling of rotary positions, for sequences that are longer than in training.
    #[schemars(extend("x-idle" = ["not-rotary"]))]
    pub rotary: RotaryConfig,
    /// Longest sequence of a learned position table, in tokens.
    #[schemars(range(min = 1))]
    #[schemars(
        extend("x-names" = "max_position_embeddings n_positions max_source_positions"),
        extend("x-weights" = ["other-part"]),
        extend("x-idle" = ["positions-of-patches", "positions-not-learned", "positions-by-steps"])
    )]
    pub max_positions: usize,
    /// Image encoder of a classifier; models of images and text always use a Transformer.
    #[schemars(extend("x-idle" = ["no-images"]))]
    pub image_encoder: ImageEncoder,
    /// Rows of the embedding of segments in an encoder of texts: one for each text of a pair, or 1
    /// for both, as in RoBERTa (Liu et al. 2019), which distinguishes texts by their separators. If
    /// it is not set, 2.
    #[serde(skip_serializing_if = "is_two")]
    #[schemars(
        range(min = 1, max = 2),
        extend("x-names" = "type_vocab_size num_segments"),
        extend("x-weights" = ["other-part"]),
        extend("x-idle" = ["no-segments"])
    )]
    pub segments: usize,
    /// State from which the class of an image or of a text is predicted.
    #[schemars(extend("x-idle" = ["nothing-pooled", "convolutional-images"]))]
    pub pooling: Pooling,
    /// Which embedding matrices are shared.
    #[schemars(
        extend("x-names" = "share_embeddings share_all_embeddings share_decoder_embeddings \
            tie_embeddings tie_word_embeddings tied_embeddings tied_embeddings_all tied_softmax \
            weight_tying"),
        extend("x-weights" = ["other-part"]),
        extend("x-idle" = ["numbers-predicted", "classifier", "texts-only-read", "one-embedding"])
    )]
    pub tied: Tied,
    /// Whether embeddings are multiplied by √d_model (Vaswani et al. 2017, section 3.4).
    #[schemars(
        extend("x-names" = "scale_embedding no_scale_embedding"),
        extend("x-weights" = ["other-part"]),
        extend("x-idle" = ["no-text"])
    )]
    pub scale_embeddings: bool,
    /// Whether embedded tokens are normalised before the first layer, as in BART (Lewis et al.
    /// 2020) and mBART.
    #[schemars(
        extend("x-names" = "layernorm_embedding normalize_embedding"),
        extend("x-weights" = ["other-part"]),
        extend("x-idle" = ["no-text", "norm-in-any-case"])
    )]
    pub embedding_norm: bool,
    /// Whether linear layers have biases.
    #[schemars(extend("x-names" = "bias use_bias use_biases"))]
    pub biases: bool,
    /// Whether the projections of attention have biases if linear layers have them. Those of a
    /// Transformer-XL have none (Dai et al. 2019).
    #[schemars(
        extend("x-names" = "attention_bias attn_bias"),
        extend("x-idle" = ["not-transformer"])
    )]
    pub attention_biases: bool,
    /// Whether feed-forward layers have biases if linear layers have them.
    #[schemars(
        extend("x-names" = "mlp_bias ffn_bias"),
        extend("x-idle" = ["convolutional-images", "not-transformer", "no-biases"])
    )]
    pub feed_forward_biases: bool,
    /// Whether the projections to queries, keys and values have biases, regardless of `biases` and
    /// `attention_biases`. If it is not set, those two decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        extend("x-names" = "qkv_bias add_qkv_bias"),
        extend("x-idle" = ["not-transformer"])
    )]
    pub query_key_value_biases: Option<bool>,
    /// Whether the projection of attention's result has a bias, regardless of `biases` and
    /// `attention_biases`. If it is not set, those two decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        extend("x-names" = "attention_out_bias attn_out_bias"),
        extend("x-idle" = ["not-transformer"])
    )]
    pub attention_output_biases: Option<bool>,
    /// Whether the projection to the vocabulary has a bias for each token, as in Marian and mBART.
    #[schemars(
        extend("x-names" = "final_logits_bias logits_bias output_projection_bias"),
        extend("x-weights" = ["other-part"]),
        extend("x-idle" = ["numbers-predicted", "bias-in-any-case", "classifier", "texts-only-read"])
    )]
    pub output_bias: bool,
    /// Factor s of the states that are projected to the vocabulary: `W (s · h) + b`. If it is not
    /// set: 1. T5 v1.0 has 1/√d_model (Raffel et al. 2020), since its output projection is the
    /// embedding.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1e-6, max = 1e6))]
    #[schemars(
        extend("x-names" = "logit_scale logits_scale output_multiplier scale_decoder_outputs"),
        extend("x-weights" = ["other-part"]),
        extend("x-idle" = ["numbers-predicted", "classifier", "texts-only-read"])
    )]
    pub output_scale: Option<f64>,
    /// Dropout on the sum of embedding and position.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    #[schemars(
        extend("x-names" = "dropout dropout_rate p_dropout hidden_dropout hidden_dropout_prob \
            emb_dropout embd_pdrop embed_dropout"),
        extend("x-weights" = ["no-part"]),
        extend("x-idle" = ["convolutional-images"])
    )]
    pub embedding_dropout: f64,
    /// Dropout on attention weights.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    #[schemars(
        extend("x-names" = "dropout dropout_rate p_dropout hidden_dropout hidden_dropout_prob \
            attn_dropout attn_pdrop transformer_dropout_attention"),
        extend("x-weights" = ["no-part"]),
        extend("x-idle" = ["convolutional-images", "recurrent"])
    )]
    pub attention_dropout: f64,
    /// Dropout after the feed-forward nonlinearity.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    #[schemars(
        extend("x-names" = "dropout dropout_rate p_dropout hidden_dropout hidden_dropout_prob \
            activation_dropout relu_dropout act_dropout ffn_dropout transformer_dropout_ffn"),
        extend("x-weights" = ["no-part"]),
        extend("x-idle" = ["convolutional-images", "not-transformer"])
    )]
    pub feed_forward_dropout: f64,
    /// Dropout on each sublayer's result before it joins the residual stream.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    #[schemars(
        extend("x-names" = "dropout dropout_rate p_dropout hidden_dropout hidden_dropout_prob \
            resid_dropout resid_pdrop transformer_dropout"),
        extend("x-weights" = ["no-part"])
    )]
    pub residual_dropout: f64,
    /// Dropout on the result of the final norm of a stack, as in T5; the default is 0.
    #[serde(skip_serializing_if = "is_zero_rate")]
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    #[schemars(
        extend("x-names" = "final_norm_dropout output_dropout"),
        extend("x-weights" = ["no-part"]),
        extend("x-idle" = ["convolutional-images", "not-transformer", "no-final-norm"])
    )]
    pub final_dropout: f64,
    /// Self-attention of the encoder.
    #[schemars(extend("x-idle-kind" = ["not-translation"]))]
    pub encoder_attention: AttentionConfig,
    /// Self-attention of the decoder.
    #[schemars(extend("x-weights" = ["other-part"]))]
    pub decoder_attention: AttentionConfig,
    /// Experts in place of the feed-forward layers.
    pub experts: ExpertsConfig,
    /// Shape of recurrent layers.
    #[schemars(extend("x-idle" = ["not-recurrent"]))]
    pub recurrent: RecurrentConfig,
    /// Shape of convolutional layers.
    #[schemars(extend("x-idle" = ["not-convolutional"]))]
    pub convolutional: ConvolutionalConfig,
    /// State-space layers in place of attention.
    pub state_space: StateSpaceConfig,
    /// Initial values of token embeddings.
    #[schemars(extend("x-weights" = ["other-part", "no-part"]))]
    pub embeddings: EmbeddingsConfig,
    /// Text encoder of a model of images and text, and the space that images and texts share.
    #[schemars(extend("x-weights" = ["other-part"]), extend("x-idle" = ["not-image-text"]))]
    pub contrastive: ContrastiveConfig,
    /// Adapters of linear layers; the weights of the model itself are frozen.
    #[serde(skip_serializing_if = "LoraConfig::is_default")]
    #[schemars(extend("x-weights" = ["no-part"]))]
    pub lora: LoraConfig,
}

impl ModelConfig {
    /// True if feed-forward layers have biases.
    #[must_use]
    pub fn has_feed_forward_biases(&self) -> bool {
        self.biases && self.feed_forward_biases
    }

    /// Sets the same dropout rate for embeddings, attention, feed-forward layers and results of
    /// sublayers.
    #[must_use]
    pub fn with_dropout(self, rate: f64) -> Self {
        Self {
            embedding_dropout: rate,
            attention_dropout: rate,
            feed_forward_dropout: rate,
            residual_dropout: rate,
            ..self
        }
    }

    /// Self-attention of the decoder if `causal` is true, otherwise of the encoder.
    #[must_use]
    pub fn attention(&self, causal: bool) -> &AttentionConfig {
        if causal { &self.decoder_attention } else { &self.encoder_attention }
    }
}
