//! Tests of models that have experts in place of feed-forward layers. Some are compared with
//! equivalent models.

mod common;

use candle_core::{DType, Device, Tensor};
use common::{largest_difference, relative};
use taper_model::{
    Batch, Builder, ExpertsConfig, LanguageModel, Model, ModelConfig, Objective, Pass, Sequences,
};

const TEXTS: [&[u32]; 3] = [&[4, 5, 6, 7, 8, 9, 10, 3], &[8, 3], &[9, 10, 11, 3, 12, 14]];

fn config(experts: ExpertsConfig) -> ModelConfig {
    ModelConfig {
        d_model: 24,
        d_ff: 40,
        heads: 3,
        decoder_layers: 2,
        experts,
        ..Default::default()
    }
}

fn several() -> ExpertsConfig {
    ExpertsConfig { count: 4, per_token: 2, ..ExpertsConfig::default() }
}

fn model(config: &ModelConfig) -> LanguageModel {
    LanguageModel::new(config, 19, Builder::seeded(7, &Device::Cpu, DType::F32)).unwrap()
}

fn batch() -> Batch {
    let text = Sequences::pack(&TEXTS);
    let answers = (0..text.ids.len() as u32).map(|i| i % 19).collect();
    Batch::new(vec![text], answers)
}

fn loss_and_gradient(model: &LanguageModel, pass: Pass, objective: &Objective) -> (f32, Tensor) {
    let (output, flat) = common::differentiated(model, &batch(), objective, 0.1, pass);
    (output.loss.to_scalar().unwrap(), flat)
}

/// Checks that a layer with one expert is the dense layer. With dropout, the loss and every
/// gradient must be identical bit for bit.
#[test]
fn one_expert_is_the_dense_layer() {
    let one = ExpertsConfig { count: 1, z_loss: 0.0, balance_loss: 0.0, ..several() };
    let one = model(&config(ExpertsConfig { per_token: 1, ..one }));
    let dense = model(&config(ExpertsConfig::default()));
    let counterpart = |name: &str| name.replace("feed_forward.", "feed_forward.experts.0.");
    let of = |model: &LanguageModel, name: &str| {
        let parameter = model.parameters().get(name).cloned();
        parameter.unwrap_or_else(|| panic!("no parameter {name}"))
    };
    for parameter in dense.parameters().parameters() {
        let values = parameter.var().flatten_all().unwrap().to_vec1().unwrap();
        of(&one, &counterpart(parameter.name())).set(values).unwrap();
    }
    let objective = Objective::smoothed(0.1);
    let (loss, theirs) = loss_and_gradient(&dense, Pass::train(1, 1, 0), &objective);
    let (same, ours) = loss_and_gradient(&one, Pass::train(1, 1, 0), &objective);
    assert_eq!(loss.to_bits(), same.to_bits());
    let part = |flat: &Tensor, model: &LanguageModel, name: &str| {
        let parameter = of(model, name);
        let part = flat.narrow(0, parameter.offset(), parameter.len()).unwrap();
        part.to_vec1::<f32>().unwrap()
    };
    for parameter in dense.parameters().parameters() {
        let name = parameter.name();
        assert_eq!(
            part(&ours, &one, &counterpart(name)),
            part(&theirs, &dense, name),
            "gradient of {name}"
        );
    }
}

/// Compares the gradients that Taper computes from its tape (the record of operations) with those
/// of Candle's automatic differentiation. The pass has dropout, jitter, dropped tokens and both
/// losses of the router. It is compared with and without R-Drop.
#[test]
fn the_tape_gives_the_gradients_of_candle() {
    for own in [several(), ExpertsConfig { count: 12, per_token: 1, capacity: 1.0, ..several() }] {
        let model = model(&config(own));
        for objective in [Objective::smoothed(0.1), Objective { r_drop: 1.0, ..Default::default() }]
        {
            let (loss, ours) = loss_and_gradient(&model, Pass::train(1, 1, 0), &objective);
            let pass = Pass::train(1, 1, 0).composed();
            let (same, theirs) = loss_and_gradient(&model, pass, &objective);
            assert!((loss / same - 1.0).abs() < 1e-5, "{loss} {same}");
            let error = relative(&ours, &theirs);
            assert!(error < 1e-5, "{error}");
        }
    }
}

#[test]
fn a_text_does_not_depend_on_its_neighbours_nor_on_a_cache() {
    for own in [several(), ExpertsConfig { per_token: 1, every: 2, ..several() }] {
        let model = model(&config(own));
        let pass = Pass::evaluate();
        let logits = |texts: &[&[u32]]| {
            let hidden = model.hidden(&Sequences::pack(texts), &pass).unwrap();
            model.logits(&hidden, &pass).unwrap()
        };
        let together = logits(&TEXTS);
        let mut first = 0;
        let inference = model.inference(50);
        for text in TEXTS {
            let in_batch = together.narrow(0, first, text.len()).unwrap();
            first += text.len();
            let error = largest_difference(&logits(&[text]), &in_batch);
            assert!(error < 2e-5, "alone: {error}");
            let mut state = inference.start(&[&text[..1]]).unwrap();
            for (t, &token) in text.iter().enumerate().skip(1) {
                let blocks = inference.step(&mut state, std::slice::from_ref(&token)).unwrap();
                let blocks: Vec<Tensor> = blocks.map(Result::unwrap).collect();
                let error =
                    largest_difference(&blocks[0].get(0).unwrap(), &in_batch.get(t).unwrap());
                assert!(error < 2e-5, "token {t} from a cache: {error}");
            }
        }
    }
}

/// Checks that the losses of the router are added to the objective and to no other sum, and that
/// dropped tokens are counted.
#[test]
fn losses_of_the_router_join_the_objective() {
    let of = |balance_loss, z_loss| {
        let own = ExpertsConfig { balance_loss, z_loss, jitter: 0.0, ..several() };
        let own = ExpertsConfig { per_token: 1, capacity: 1.0, ..own };
        let model = model(&config(own));
        model.loss(&batch(), &Objective::default(), 0.1, &Pass::train(1, 1, 0)).unwrap()
    };
    let (without, with) = (of(0.0, 0.0), of(1.0, 0.0));
    assert_eq!(without.objective_sum, without.smoothed_sum);
    assert_eq!(without.smoothed_sum, with.smoothed_sum);
    // If experts were evenly loaded, the loss would be one nat for each token and layer. There are
    // two layers.
    let added = (with.objective_sum - with.smoothed_sum) / with.tokens as f64;
    assert!((2.0..8.0).contains(&added), "{added}");
    let difference =
        f64::from(with.loss.to_scalar::<f32>().unwrap() - without.loss.to_scalar::<f32>().unwrap());
    assert!((difference / (0.1 * 16.0 * added) - 1.0).abs() < 1e-4, "{difference}");
    assert!(of(0.0, 1.0).objective_sum > without.objective_sum);
    let routing = with.routing;
    assert_eq!(routing.routed, 2 * 16);
    assert!(routing.dropped > 0 && routing.busiest > routing.routed, "{routing:?}");
    let model = model(&config(several()));
    let output = model.loss(&batch(), &Objective::default(), 0.1, &Pass::evaluate()).unwrap();
    assert!(output.routing.is_empty() && output.objective_sum == output.smoothed_sum);
}

#[test]
fn parameters_are_counted_and_what_makes_no_sense_is_refused() {
    for own in [several(), ExpertsConfig { every: 2, ..several() }] {
        let model = model(&config(own));
        assert_eq!(model.cost().parameters, model.parameters().len() as u64);
    }
    let refused = |own: ExpertsConfig| {
        let model =
            LanguageModel::new(&config(own), 19, Builder::seeded(7, &Device::Cpu, DType::F32));
        model.map(|_| ()).unwrap_err().to_string()
    };
    for (own, expected) in [
        (ExpertsConfig { per_token: 5, ..several() }, "per_token = 5 is more than model.experts.c"),
        (ExpertsConfig { per_token: 0, ..several() }, "per_token = 0: it must be at least 1"),
        (ExpertsConfig { every: 0, ..several() }, "every = 0: it must be at least 1"),
        (ExpertsConfig { capacity: 0.5, ..several() }, "capacity = 0.5: it must be at least 1"),
        (ExpertsConfig { z_loss: -1.0, ..several() }, "z_loss = -1.0: it must be at least 0"),
        (ExpertsConfig { jitter: 1.0, ..several() }, "jitter = 1.0: it must be at least 0 and"),
    ] {
        let error = refused(own);
        assert!(error.contains(&format!("model.experts.{expected}")), "{error}");
    }
}

/// Checks that layers with experts refuse to be computed again, because the losses that they add
/// would then be lost.
#[test]
fn layers_with_experts_are_not_computed_again() {
    let model = model(&config(several()));
    let pass = Pass::train(1, 1, 0).checkpointed(true);
    let error = model.loss(&batch(), &Objective::default(), 1.0, &pass).unwrap_err().to_string();
    assert!(error.contains("set training.checkpoint_activations = false"), "{error}");
}
