//! Tests of a single layer of experts: that it agrees with Transformers' Switch (reference values
//! of `scripts/golden/layers/experts.py`), how it assigns tokens, and what it costs.

use super::*;
use crate::FeedForwardKind;
use crate::layers::linear::Residual;
use crate::tensors::{golden, relative};
use candle_core::Var;
use taper_ops::ParameterStore;

fn config(d_model: usize, d_ff: usize, experts: ExpertsConfig) -> ModelConfig {
    ModelConfig {
        d_model,
        d_ff,
        biases: false,
        feed_forward_dropout: 0.0,
        experts,
        ..Default::default()
    }
}

fn layer(config: &ModelConfig) -> (Experts, ParameterStore) {
    let mut builder = Builder::seeded(3, &Device::Cpu, DType::F32).with_biases(config.biases);
    let build = &mut builder;
    let experts = Experts::new(build, "layer", config).unwrap();
    (experts, builder.store)
}

fn run(experts: &Experts, x: &Tensor, residual: &Tensor, pass: &Pass) -> Tensor {
    let onto = Residual { x: residual, dropout: Dropout::none() };
    experts.forward(x, onto, pass).unwrap()
}

#[test]
fn switch_transformers_agree() {
    let file = golden("layers/experts");
    // An expert takes at most 5 of the 18 tokens.
    let experts_config = ExpertsConfig {
        count: 4,
        capacity: 1.1,
        balance_loss: 0.5,
        z_loss: 0.25,
        jitter: 0.0,
        ..ExpertsConfig::default()
    };
    let (experts, store) = layer(&config(16, 24, experts_config));
    let named = |name: &str| {
        let name = name.strip_prefix("layer.").unwrap().strip_suffix(".weight").unwrap();
        match name.strip_prefix("experts.").and_then(|rest| rest.split_once('.')) {
            Some((index, matrix)) => format!("{matrix}.{index}"),
            None => name.to_owned(),
        }
    };
    for parameter in store.parameters() {
        let values = file[&named(parameter.name())].flatten_all().unwrap().to_vec1().unwrap();
        parameter.set(values).unwrap();
    }
    let x = Var::from_tensor(&file["input"]).unwrap();
    let pass = Pass::train(1, 1, 0);
    let out = run(&experts, &x, &x.zeros_like().unwrap(), &pass);
    let error = relative(&out, &file["output"]);
    assert!(error < 1e-5, "{error}");
    let (losses, routing) = pass.take_auxiliary();
    let theirs = |name: &str| f64::from(file[name].to_scalar::<f32>().unwrap());
    let expected = 0.5 * theirs("balance") + 0.25 * theirs("z");
    let loss = f64::from(losses[0].to_scalar::<f32>().unwrap());
    assert!((loss / expected - 1.0).abs() < 1e-5, "{loss}, theirs {expected}");
    let zeros = file["output"].sum(1).unwrap().eq(0.0).unwrap().sum_all().unwrap();
    assert_eq!(
        routing.dropped,
        u64::from(zeros.to_dtype(DType::U32).unwrap().to_scalar::<u32>().unwrap())
    );
    assert_eq!(routing.routed, 18);

    let inputs = [&out, &file["output_gradient"], &losses[0]];
    let objective = composed::on_tape(pass.tape(), "objective", &inputs, |inputs| {
        inputs[0].mul(&inputs[1])?.sum_all()? + &inputs[2]
    })
    .unwrap();
    let one = objective.ones_like().unwrap();
    let gradients = pass.into_tape().unwrap().differentiate(&objective, &one).unwrap();
    let check = |variable: &Tensor, name: &str| {
        let gradient = gradients.get(variable).unwrap().unwrap();
        let error = relative(&gradient, &file[&format!("grad.{name}")]);
        assert!(error < 1e-5, "gradient of {name}: {error}");
    };
    check(&x, "input");
    for parameter in store.parameters() {
        check(parameter.var(), &named(parameter.name()));
    }
}

#[test]
fn first_choices_have_the_first_places() {
    let rows = [[0.6, 0.3, 0.1], [0.5, 0.4, 0.1], [0.2, 0.7, 0.1], [0.4, 0.4, 0.2]];
    let rows: Vec<Vec<f32>> = rows.iter().map(|row| row.to_vec()).collect();
    // An expert takes at most two tokens. Token 3 has equal probabilities for experts 0 and 1, and
    // the first of them wins. But expert 0 already has tokens 0 and 1, so it drops token 3 and, as
    // a second choice, token 2. Expert 1 has token 2, takes token 0 as a second choice, and drops
    // tokens 1 and 3.
    let plan = Plan::new(&rows, 3, 2, 2);
    assert_eq!(plan.experts, [[0, 0, 1, 0], [1, 1, 0, 1]]);
    assert_eq!(plan.tokens, [vec![0, 1], vec![2, 0], vec![]]);
    // Expert 0 has rows 0 and 1, expert 1 has rows 2 and 3, and row 4 is the row of zeros.
    assert_eq!(plan.rows, [[0, 1, 2, 4], [3, 4, 4, 4]]);
    assert_eq!(plan.dropped, 4);
    assert_eq!(plan.shares(), [0.75, 0.25, 0.0]);
    assert_eq!(plan.routing(), Routing { routed: 8, dropped: 4, busiest: 12 });
}

/// Computes the inner product `Σ one ⊙ other`.
fn dot(one: &Tensor, other: &Tensor) -> f64 {
    one.mul(other).unwrap().sum_all().unwrap().to_scalar().unwrap()
}

fn random(shape: &[usize], key: u64) -> Tensor {
    let counter = Counter::new(key);
    let count = shape.iter().product::<usize>() as u64;
    let values: Vec<f64> = (0..count).map(|i| counter.normal_at(i)).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

/// Compares the directional derivative `Σ gradient ⊙ direction`, of output and losses together,
/// with the central difference along `direction`, in f64. The variables are the input, the router
/// and each expert; there are jitter and dropped tokens.
#[test]
fn gradients_are_finite_differences() {
    let cases =
        [(1, FeedForwardKind::Plain), (2, FeedForwardKind::Plain), (1, FeedForwardKind::Gated)];
    for (per_token, feed_forward) in cases {
        let experts_config = ExpertsConfig {
            count: 3,
            per_token,
            capacity: 1.0,
            balance_loss: 0.7,
            z_loss: 0.3,
            ..ExpertsConfig::default()
        };
        // GELU is used because the derivative of relu jumps.
        let activation = crate::ActivationKind::Gelu;
        let (drawn, _) =
            layer(&ModelConfig { activation, feed_forward, ..config(6, 8, experts_config) });
        let experts = Experts {
            router: drawn.router.in_f64(),
            experts: drawn.experts.iter().map(DenseFeedForward::in_f64).collect(),
            ..drawn
        };
        let x = Var::from_tensor(&random(&[9, 6], 1)).unwrap();
        let adjoint = random(&[9, 6], 2);
        let objective = |pass: &Pass| {
            let out = run(&experts, &x, &x, pass);
            let (losses, routing) = pass.take_auxiliary();
            assert!(routing.dropped > 0);
            let inputs = [&out, &losses[0]];
            composed::on_tape(pass.tape(), "objective", &inputs, |inputs| {
                inputs[0].mul(&adjoint)?.sum_all()? + &inputs[1]
            })
            .unwrap()
        };
        let pass = Pass::train(1, 1, 0);
        let root = objective(&pass);
        let one = root.ones_like().unwrap();
        let gradients = pass.into_tape().unwrap().differentiate(&root, &one).unwrap();
        let train = Pass::train(1, 1, 0);
        let matrices = experts.experts.iter().flat_map(DenseFeedForward::matrices);
        let weights = [&experts.router].into_iter().chain(matrices).map(|it| it.get(&train));
        for (index, variable) in [x.as_tensor()].into_iter().chain(weights).enumerate() {
            let direction = random(variable.dims(), 3);
            let gradient = gradients.get(variable).unwrap().unwrap();
            let expected = dot(&gradient, &direction);
            let variable = Var::from_tensor(variable).unwrap();
            let start = variable.copy().unwrap();
            let at = |step: f64| {
                variable.set(&(&start + (&direction * step).unwrap()).unwrap()).unwrap();
                let value = objective(&Pass::train(1, 1, 0)).to_scalar::<f64>().unwrap();
                variable.set(&start).unwrap();
                value
            };
            let difference = (at(1e-6) - at(-1e-6)) / 2e-6;
            assert!(
                (expected - difference).abs() < 1e-6 * (1.0 + difference.abs()),
                "{per_token} a token, {feed_forward:?}, input {index}: {expected}, finite \
                 difference {difference}"
            );
        }
    }
}

/// Checks that with two experts per token, the gate of each is its share of the sum of both
/// probabilities, and that nothing is dropped in evaluation.
#[test]
fn two_experts_weigh_as_their_shares() {
    let experts_config =
        ExpertsConfig { count: 3, per_token: 2, capacity: 1.0, ..ExpertsConfig::default() };
    let (experts, _) = layer(&config(8, 12, experts_config));
    let counter = Counter::new(7);
    let values: Vec<f32> = (0..80).map(|i| counter.normal_at(i) as f32).collect();
    let x = Tensor::from_vec(values, (10, 8), &Device::Cpu).unwrap();
    let pass = Pass::evaluate();
    let out = run(&experts, &x, &x, &pass);
    assert!(pass.take_auxiliary().0.is_empty());
    let routed = experts.route(&x, &pass).unwrap().to_vec2::<f32>().unwrap();
    let each: Vec<Tensor> = experts.experts.iter().map(|it| it.alone(&x, &pass).unwrap()).collect();
    for (token, row) in routed.iter().enumerate() {
        let mut order = [0, 1, 2];
        order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
        let total = row[order[0]] + row[order[1]];
        let mut expected = x.get(token).unwrap();
        for expert in &order[..2] {
            let gate = f64::from(row[*expert] / total);
            let contribution = (each[*expert].get(token).unwrap() * gate).unwrap();
            expected = (expected + contribution).unwrap();
        }
        let error = relative(&out.get(token).unwrap(), &expected);
        assert!(error < 1e-6, "token {token}: {error}");
    }
}

/// Checks the number of operations in matrix products. For any number of experts, it must be that
/// of `per_token` dense feed-forward layers.
#[test]
fn arithmetic_is_that_of_the_experts_that_are_met() {
    let counted = |count: usize, per_token: usize| {
        let experts_config = ExpertsConfig { count, per_token, ..ExpertsConfig::default() };
        let shape = config(64, 256, experts_config);
        let (experts, _) = layer(&shape);
        let cost = Builder::part_cost(false, |build| Experts::new(build, "layer", &shape));
        let counter = Counter::new(8);
        let values: Vec<f32> = (0..1024 * 64).map(|i| counter.normal_at(i) as f32).collect();
        let x = Tensor::from_vec(values, (1024, 64), &Device::Cpu).unwrap();
        let once = |_| {
            taper_ops::profile::start();
            run(&experts, &x, &x, &Pass::evaluate());
            taper_ops::profile::stop().flops as f64
        };
        // Other tests in this process may multiply at the same time, which can only increase the
        // count.
        let counted = (0..8).map(once).fold(f64::INFINITY, f64::min);
        (counted, 1024.0 * cost.forward_flops as f64)
    };
    for (count, per_token) in [(1, 1), (8, 1), (8, 2)] {
        let (counted, formula) = counted(count, per_token);
        // The bounds leave room for the router's products, which are at most 1.6 % of `dense`.
        let dense = (per_token * 1024 * 4 * 64 * 256) as f64;
        assert!((1.0..1.02).contains(&(counted / dense)), "{count}, {per_token}: {counted}");
        assert!((1.0..1.05).contains(&(formula / dense)), "{count}, {per_token}: {formula}");
    }
}
