//! Tokens a second that candle-transformers generates with a model of GPT-2's size.
//!
//! It has no GPT-2. Its Llama with feed-forward layers of two thirds of their width (each has three
//! matrices instead of two) has the same number of weights in the same number of layers.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{VarBuilder, VarMap};
use candle_transformers::models::llama::{Cache, Config, Llama};
use std::time::Instant;

/// Tokens that do not count: those of a prompt, one after the other.
const BEFORE: usize = 16;

fn main() -> Result<()> {
    let mut sizes = std::env::args().skip(1).map(|size| size.parse().expect("a number"));
    let mut next = |name| sizes.next().unwrap_or_else(|| panic!("needs {name}"));
    let (layers, width, heads) = (next("layers"), next("the width"), next("heads"));
    let (vocabulary, tokens) = (next("the size of the vocabulary"), next("how many tokens"));
    let config = Config {
        hidden_size: width,
        intermediate_size: 4 * width * 2 / 3,
        vocab_size: vocabulary,
        num_hidden_layers: layers,
        num_attention_heads: heads,
        num_key_value_heads: heads,
        use_flash_attn: false,
        rms_norm_eps: 1e-5,
        rope_theta: 10_000.0,
        bos_token_id: None,
        eos_token_id: None,
        rope_scaling: None,
        max_position_embeddings: 1024,
        tie_word_embeddings: true,
    };
    let weights = VarMap::new();
    let builder = VarBuilder::from_varmap(&weights, DType::F32, &Device::Cpu);
    let model = Llama::load(builder, &config)?;
    let mut cache = Cache::new(true, DType::F32, &config, &Device::Cpu)?;
    let mut token = 5;
    let mut began = Instant::now();
    for position in 0..BEFORE + tokens {
        if position == BEFORE {
            began = Instant::now();
        }
        let input = Tensor::new(&[[token]], &Device::Cpu)?;
        let logits = model.forward(&input, position, &mut cache)?;
        token = logits.flatten_all()?.argmax(0)?.to_scalar::<u32>()?;
    }
    println!("{}", tokens as f64 / began.elapsed().as_secs_f64());
    Ok(())
}
