//! Shapes of published models: the numbers of parameters and of arithmetic operations that follow
//! from a shape equal the published numbers.

use candle_core::Device;
use taper_model::MaskedLanguageModel;
use taper_run::shapes::published_shapes;
use taper_run::tasks::{cost_of, layer_cost, outline};

#[test]
fn the_published_counts_follow_from_the_formulas() {
    let counts = [
        ("gpt1", 116_534_784_u64),
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
        ("gpt3", 174_604_259_328),
        // BERT is counted with the heads (output layers) of pretraining. Their projection to the
        // vocabulary has biases.
        ("bert-base", 110_106_428),
        ("bert-large", 336_226_108),
        ("vit-b-16", 86_567_656),
        ("vit-l-16", 304_326_632),
    ];
    let shapes = published_shapes();
    assert_eq!(shapes.len(), counts.len());
    for (shape, (name, parameters)) in shapes.iter().zip(counts) {
        let sizes = (shape.vocabulary, shape.vocabulary);
        assert_eq!(shape.name, name);
        assert_eq!(cost_of(&shape.config, sizes, &Device::Cpu).parameters, parameters, "{name}");
        // A model that is built without values has the same number of parameters.
        let outline = outline(&shape.config, sizes).expect("a model");
        assert_eq!(outline.len() as u64, parameters, "{name}");
    }
}

#[test]
fn a_layer_takes_the_arithmetic_of_its_formula() {
    let shapes = published_shapes();
    let gpt1 = &shapes[0].config;
    // The formula is 24 n d² + 4 n² d for n tokens and width d. PyTorch's
    // `torch.utils.flop_counter.FlopCounterMode` counts the same.
    assert_eq!(layer_cost(gpt1, 0).forward_flops_of(512), 8_053_063_680);
    for heads in [1, 8] {
        let mut other = gpt1.clone();
        other.model.heads = heads;
        assert_eq!(layer_cost(&other, 0), layer_cost(gpt1, 0));
    }
}

#[test]
fn encoders_are_published_without_the_heads_of_pretraining() {
    let shapes = published_shapes();
    for (name, parameters) in [("bert-base", 109_482_240), ("bert-large", 335_141_888)] {
        let shape = shapes.iter().find(|shape| shape.name == name).expect(name);
        let found = MaskedLanguageModel::body_parameters(&shape.config.model, shape.vocabulary);
        assert_eq!(found, parameters, "{name}");
    }
}
