//! A ViT: what its `config.json` says, what its tensors are called, and both ways between a folder
//! and a run.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use candle_core::Device;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use taper_data::{ImageFormat, ImagesConfig, Task, TokenizerPair};
use taper_model::{
    ImageClassifier, ImageShape, Model, ModelConfig, NormPlacement, Pooling, Positions,
};

use super::export::write;
use super::import::{Read, run_config};
use super::preprocessor::{Preprocessor, write_preprocessor};
use super::weights::{Counterpart, Tensors, named};
use super::{CONFIG, WEIGHTS, activation, activation_name, require_expressed};
use crate::LoadedRun;
use crate::checks::memory;

/// The projections of attention there, which are one here, in its order.
const PROJECTIONS: [&str; 3] = ["query", "key", "value"];

/// The keys of `config.json` that shape a ViT; others change nothing here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct VitConfig {
    model_type: String,
    #[serde(default)]
    architectures: Vec<String>,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    #[serde(default = "gelu")]
    hidden_act: String,
    #[serde(default)]
    hidden_dropout_prob: f64,
    #[serde(default)]
    attention_probs_dropout_prob: f64,
    #[serde(default = "usual_epsilon")]
    layer_norm_eps: f64,
    image_size: usize,
    patch_size: usize,
    num_channels: usize,
    #[serde(default = "yes")]
    qkv_bias: bool,
    #[serde(default)]
    id2label: BTreeMap<usize, String>,
    #[serde(default)]
    label2id: BTreeMap<String, usize>,
}

fn gelu() -> String {
    "gelu".to_owned()
}

fn usual_epsilon() -> f64 {
    1e-12
}

fn yes() -> bool {
    true
}

impl VitConfig {
    /// The model that these keys describe.
    fn model(&self) -> Result<ModelConfig> {
        if !self.qkv_bias {
            bail!("qkv_bias is false, which this model cannot have");
        }
        Ok(ModelConfig {
            d_model: self.hidden_size,
            d_ff: self.intermediate_size,
            heads: self.num_attention_heads,
            encoder_layers: self.num_hidden_layers,
            activation: activation("hidden_act", &self.hidden_act)?,
            norm: NormPlacement::Pre,
            norm_epsilon: self.layer_norm_eps,
            positions: Positions::Learned,
            pooling: Pooling::ClassToken,
            embedding_dropout: self.hidden_dropout_prob,
            attention_dropout: self.attention_probs_dropout_prob,
            feed_forward_dropout: 0.0,
            residual_dropout: self.hidden_dropout_prob,
            ..ModelConfig::default()
        })
    }

    /// The images that it reads, with the labels that it gives.
    fn images(&self, preprocessor: &Preprocessor) -> Result<ImagesConfig> {
        if !self.id2label.keys().copied().eq(0..self.id2label.len()) || self.id2label.is_empty() {
            bail!("id2label has not the labels from 0 on: a ViT without classes is no classifier");
        }
        let mut images = ImagesConfig {
            format: ImageFormat::Folders,
            labels: self.id2label.values().cloned().collect(),
            size: self.image_size,
            channels: self.num_channels,
            patch: self.patch_size,
            ..ImagesConfig::default()
        };
        preprocessor.describe(&mut images)?;
        Ok(images)
    }

    /// The keys of a model of ours.
    fn of(model: &ModelConfig, images: &ImagesConfig) -> Result<Self> {
        let labels = || images.labels.iter().cloned().enumerate();
        let config = Self {
            model_type: "vit".to_owned(),
            architectures: vec!["ViTForImageClassification".to_owned()],
            hidden_size: model.d_model,
            num_hidden_layers: model.encoder_layers,
            num_attention_heads: model.heads,
            intermediate_size: model.d_ff,
            hidden_act: activation_name(model.activation),
            hidden_dropout_prob: model.residual_dropout,
            attention_probs_dropout_prob: model.attention_dropout,
            layer_norm_eps: model.norm_epsilon,
            image_size: images.size,
            patch_size: images.patch,
            num_channels: images.channels,
            qkv_bias: true,
            id2label: labels().collect(),
            label2id: labels().map(|(index, label)| (label, index)).collect(),
        };
        // What a ViT has no key for must be as it is there. Dropout shapes no weights.
        let expressed = ModelConfig {
            decoder_layers: model.decoder_layers,
            decoder_attention: model.decoder_attention.clone(),
            max_positions: model.max_positions,
            tied: model.tied,
            scale_embeddings: model.scale_embeddings,
            embedding_dropout: model.embedding_dropout,
            feed_forward_dropout: model.feed_forward_dropout,
            ..config.model()?
        };
        require_expressed("ViT", &expressed, model)?;
        Ok(config)
    }
}

/// What a ViT has for the parameter `name`.
fn counterpart(name: &str, shape: &[usize], images: &ImageShape) -> Option<Counterpart> {
    let same = |name: &str| Some(Counterpart::same(name, shape));
    let patch = images.patch;
    match name {
        "class_token.weight" => {
            return Some(same("vit.embeddings.cls_token")?.of_shape(vec![1, 1, shape[1]]));
        }
        "encoder.positions.weight" => {
            let theirs = same("vit.embeddings.position_embeddings")?;
            return Some(theirs.of_shape(vec![1, shape[0], shape[1]]));
        }
        "patches.weight" => {
            let theirs = same("vit.embeddings.patch_embeddings.projection.weight")?;
            return Some(theirs.of_shape(vec![shape[0], images.channels, patch, patch]));
        }
        "patches.bias" => return same("vit.embeddings.patch_embeddings.projection.bias"),
        "encoder.final_norm.weight" => return same("vit.layernorm.weight"),
        "encoder.final_norm.bias" => return same("vit.layernorm.bias"),
        "classes.weight" => return same("classifier.weight"),
        "classes.bias" => return same("classifier.bias"),
        _ => {}
    }
    let (layer, part) = name.strip_prefix("encoder.layers.")?.split_once('.')?;
    let (module, kind) = part.rsplit_once('.')?;
    let theirs = |module: &str| format!("vit.encoder.layer.{layer}.{module}.{kind}");
    if module == "self_attention.qkv" {
        let names = PROJECTIONS.map(|one| theirs(&format!("attention.attention.{one}")));
        return Some(Counterpart::in_parts(names.into(), shape));
    }
    same(&theirs(match module {
        "self_attention_norm" => "layernorm_before",
        "self_attention.out" => "attention.output.dense",
        "feed_forward_norm" => "layernorm_after",
        "feed_forward.up" => "intermediate.dense",
        "feed_forward.down" => "output.dense",
        _ => return None,
    }))
}

/// The ViT of a folder, as a run called `name`.
///
/// # Errors
/// When a file is missing or damaged, the model is not one of ours, or the tensors are not those of
/// `config.json`.
pub(super) fn read(source: &Path, name: String, keys: Value) -> Result<Read<ImageClassifier>> {
    let path = source.join(CONFIG);
    let shown = || path.display().to_string();
    let theirs: VitConfig = serde_json::from_value(keys)
        .with_context(|| format!("{}: not the config.json of a ViT", path.display()))?;
    let preprocessor = Preprocessor::read(source)?;
    let model = theirs.model().with_context(shown)?;
    let mut config = run_config(name, Task::ImageClassification, model);
    config.data.images = theirs.images(&preprocessor).with_context(shown)?;
    config.validate().with_context(shown)?;
    memory::require_weights(&config, (0, 0), &Device::Cpu)?;
    let tokenizers = TokenizerPair::none();
    let model =
        crate::tasks::build_model::<ImageClassifier>(&config, &tokenizers, &Device::Cpu, None)?;
    let weights = source.join(WEIGHTS);
    let sha256 = fill(&model, &weights).with_context(|| weights.display().to_string())?;
    Ok(Read { config, tokenizers, model, sha256 })
}

/// Sets the parameters of `model` from the file `path`, and gives the hash of the file.
fn fill(model: &ImageClassifier, path: &Path) -> Result<String> {
    let mut tensors = Tensors::read(path, str::to_owned)?;
    tensors.fill(model.parameters(), |name, shape| counterpart(name, shape, model.shape()))?;
    // Of a model that was saved with a pooler, which a classifier does not use.
    tensors.leave_out(|name| name.starts_with("vit.pooler."));
    tensors.require_none_left("ViT")?;
    Ok(tensors.sha256)
}

/// Writes the classifier of `run` into `folder` as Transformers' `ViTForImageClassification`, with
/// the settings of its image processor; it must be no folder yet or an empty one.
///
/// # Errors
/// When a ViT cannot be such a model, or the folder cannot be written.
pub fn export_vit(run: &LoadedRun<ImageClassifier>, folder: &Path) -> Result<()> {
    let (model, images) = (&run.model, &run.config.data.images);
    let config = VitConfig::of(model.config(), images).context("cannot be exported as a ViT")?;
    let of = |name: &str, shape: &[usize]| counterpart(name, shape, model.shape());
    let tensors = named(model.parameters(), "ViT", of)?;
    write(folder, &tensors, (&config, Map::new()), |folder| write_preprocessor(images, folder))
}
