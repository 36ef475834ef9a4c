//! Arguments of `import` and `export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use taper_run::engines::ctranslate2::Quantization;

use crate::arguments::Weights;

/// Arguments of `import`.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// Folder with config.json, model.safetensors or pytorch_model.bin, as one file or in shards,
    /// and, if the model reads text, tokenizer.json; or a folder of CTranslate2 with model.bin
    pub(crate) folder: PathBuf,
    /// Folder of the run to make
    pub(crate) run: PathBuf,
    /// Run or checkpoint to which the folder's adapters of the library PEFT belong
    #[arg(long, value_name = "RUN_OR_CHECKPOINT")]
    pub(crate) onto: Option<PathBuf>,
    /// Source language of a translation model, as its folder names it, such as eng_Latn, en or
    /// en_XX; needed for a model of several languages
    #[arg(long, value_name = "LANGUAGE", conflicts_with = "onto")]
    pub(crate) source: Option<String>,
    /// Target language
    #[arg(long, value_name = "LANGUAGE", conflicts_with = "onto")]
    pub(crate) target: Option<String>,
}

/// Arguments of `export`.
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// Folder to make
    pub(crate) folder: PathBuf,
    /// Write only the run's adapters, in the format of the library PEFT, without the model
    #[arg(long, conflicts_with = "weight_type")]
    pub(crate) adapters: bool,
    /// Program that reads the folder
    #[arg(long, value_enum, default_value_t = Format::Transformers)]
    pub(crate) format: Format,
    /// Type of the weights in a folder for CTranslate2, as its converters name it [default:
    /// float32]
    #[arg(long, value_enum, value_name = "TYPE")]
    pub(crate) quantize: Option<QuantizationChoice>,
    /// Put the weights of ONNX graphs into files beside them, as is always done for a graph of more
    /// than 2 GB
    #[arg(long)]
    pub(crate) external_data: bool,
    #[command(flatten)]
    pub(crate) weights: Weights,
}

/// Programs that read an exported folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// The library Transformers
    Transformers,
    /// The engine CTranslate2: translation and language models
    Ctranslate2,
    /// Graphs of ONNX, for ONNX Runtime and Optimum: translation and language models
    Onnx,
}

/// Type of the weights in a folder for CTranslate2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum QuantizationChoice {
    /// All values in 32 bits
    #[value(name = "float32")]
    Float32,
    /// All values in float16
    #[value(name = "float16")]
    Float16,
    /// All values in bfloat16
    #[value(name = "bfloat16")]
    Bfloat16,
    /// Matrices in int8, other values in 32 bits
    #[value(name = "int8", alias = "int8_float32")]
    Int8,
    /// Matrices in int8, other values in float16
    #[value(name = "int8_float16")]
    Int8Float16,
    /// Matrices in int8, other values in bfloat16
    #[value(name = "int8_bfloat16")]
    Int8Bfloat16,
}

impl From<QuantizationChoice> for Quantization {
    fn from(choice: QuantizationChoice) -> Self {
        match choice {
            QuantizationChoice::Float32 => Self::Float32,
            QuantizationChoice::Float16 => Self::Float16,
            QuantizationChoice::Bfloat16 => Self::Bfloat16,
            QuantizationChoice::Int8 => Self::Int8,
            QuantizationChoice::Int8Float16 => Self::Int8Float16,
            QuantizationChoice::Int8Bfloat16 => Self::Int8Bfloat16,
        }
    }
}
