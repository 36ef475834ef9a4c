//! Compares the fused optimizer passes with those that are composed of Candle's operations.

use candle_core::{DType, Device, Tensor};
use taper_ops::rng::Counter;
use taper_ops::{
    AdamStep, Gradients, MuonStep, ParameterStore, adam_step, composed, ema_step, global_norm,
    muon_step,
};

fn store() -> ParameterStore {
    let mut store = ParameterStore::new(&Device::Cpu);
    let counter = Counter::new(5);
    let values = |count: u64, from: u64| {
        (0..count).map(|i| counter.f32_at(from + i) - 0.5).collect::<Vec<f32>>()
    };
    store.add("weight", &[8, 5], values(40, 0)).unwrap();
    store.add("bias", &[7], values(7, 100)).unwrap();
    store
}

fn vector(x: &Tensor) -> Vec<f32> {
    x.to_vec1().unwrap()
}

fn close(ours: &Tensor, theirs: &Tensor) {
    for (ours, theirs) in vector(ours).into_iter().zip(vector(theirs)) {
        assert!((ours - theirs).abs() <= 2e-6 * (1.0 + theirs.abs()), "{ours} {theirs}");
    }
}

fn zeros(count: usize) -> Tensor {
    Tensor::zeros(count, DType::F32, &Device::Cpu).unwrap()
}

fn gradient(store: &ParameterStore, step: u64) -> Tensor {
    (store.flat().unwrap() * step as f64).unwrap().sin().unwrap()
}

fn numbers(step: u64, decoupled: bool) -> AdamStep {
    AdamStep {
        learning_rate: 0.01,
        beta1: 0.9,
        beta2: 0.98,
        epsilon: 1e-9,
        weight_decay: 0.1,
        decoupled,
        step,
        gradient_scale: 0.7,
    }
}

#[test]
fn adam_is_the_composed_adam() {
    for decoupled in [false, true] {
        let (ours, theirs) = (store(), store());
        let mut moments = [zeros(47), zeros(47)];
        let mut moments2 = moments.clone().map(|buffer| buffer.copy().unwrap());
        for step in 1..=5 {
            let gradients = gradient(&ours, step);
            let numbers = numbers(step, decoupled);
            adam_step(&ours, 0..47, &gradients, &mut moments, &numbers).unwrap();
            composed::adam_step(&theirs, 0..47, &gradients, &mut moments2, &numbers).unwrap();
        }
        close(&ours.flat().unwrap(), &theirs.flat().unwrap());
        close(&moments[0], &moments2[0]);
        close(&moments[1], &moments2[1]);
    }
}

/// Checks that steps on parts of the flat layout give the same bits as one step on the whole. The
/// parts can end within a parameter.
#[test]
fn steps_on_parts_are_one_step() {
    let (whole, parts, plain, plain_parts) = (store(), store(), store(), store());
    let (mut moments, mut plain_moments) = ([zeros(47), zeros(47)], [zeros(47), zeros(47)]);
    let ranges = [0..13, 13..13, 13..44, 44..47];
    let mut of_parts = ranges.clone().map(|range| [(); 4].map(|()| zeros(range.len())));
    for step in 1..=3 {
        let (gradients, numbers) = (gradient(&whole, step), numbers(step, false));
        adam_step(&whole, 0..47, &gradients, &mut moments, &numbers).unwrap();
        composed::adam_step(&plain, 0..47, &gradients, &mut plain_moments, &numbers).unwrap();
        for (range, buffers) in ranges.iter().zip(&mut of_parts) {
            let part = gradients.narrow(0, range.start, range.len()).unwrap();
            let [first, second, plain_first, plain_second] = buffers.clone();
            let (mut moments, mut plain) = ([first, second], [plain_first, plain_second]);
            adam_step(&parts, range.clone(), &part, &mut moments, &numbers).unwrap();
            composed::adam_step(&plain_parts, range.clone(), &part, &mut plain, &numbers).unwrap();
            let ([first, second], [plain_first, plain_second]) = (moments, plain);
            *buffers = [first, second, plain_first, plain_second];
        }
    }
    assert_eq!(vector(&whole.flat().unwrap()), vector(&parts.flat().unwrap()));
    assert_eq!(vector(&plain.flat().unwrap()), vector(&plain_parts.flat().unwrap()));
    assert_eq!(vector(&whole.part(3..44).unwrap()), vector(&whole.flat().unwrap())[3..44]);
    let error = adam_step(&whole, 40..48, &zeros(8), &mut [zeros(8), zeros(8)], &numbers(1, true));
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("the range 40..48 goes past the end of the 47 parameters")
    );
}

/// Parameters in `muon.safetensors`, in the order in which they are added to a store. Each has its
/// name, and the number of rows of each of its projections.
const OF_MUON: [(&str, &[usize]); 6] = [
    ("wide", &[5]),
    ("table", &[]),
    ("tall", &[12]),
    ("square", &[8]),
    ("bias", &[]),
    ("fused", &[6, 3, 3]),
];

/// Compares fused and composed steps on the whole store with steps by PyTorch. Checks that steps on
/// one parameter at a time give the same bits as steps on the whole store.
#[test]
fn muon_is_that_of_pytorch() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/muon.safetensors");
    let golden = candle_core::safetensors::load(path, &Device::Cpu).unwrap();
    let flat = |name: &str| vector(&golden[name].flatten_all().unwrap());
    let all = |prefix: &str| -> Vec<f32> {
        OF_MUON.iter().flat_map(|(name, _)| flat(&format!("{prefix}{name}"))).collect()
    };
    let stores: [ParameterStore; 3] = [(); 3].map(|()| {
        let mut store = ParameterStore::new(&Device::Cpu);
        for (name, rows) in OF_MUON {
            store.add(name, golden[name].dims(), flat(name)).unwrap();
            if !rows.is_empty() {
                store.set_projections(name, rows);
            }
        }
        store
    });
    let [whole, parts, plain] = &stores;
    let total = whole.len();
    let zeros_of = |range: &std::ops::Range<usize>| [zeros(range.len()), zeros(range.len())];
    let (mut state, mut plain_state) = (zeros_of(&(0..total)), zeros_of(&(0..total)));
    let ranges: Vec<_> =
        parts.parameters().iter().map(|one| one.offset()..one.offset() + one.len()).collect();
    let mut of_parts: Vec<_> = ranges.iter().map(zeros_of).collect();
    for step in 0..5 {
        // The gradient is doubled here, and halved again by `gradient_scale`.
        let gradients: Vec<f32> =
            all(&format!("gradient.{step}.")).iter().map(|value| 2.0 * value).collect();
        let gradients = Tensor::from_vec(gradients, total, &Device::Cpu).unwrap();
        let adam = AdamStep { learning_rate: 0.02, gradient_scale: 0.5, ..numbers(step + 1, true) };
        let numbers = MuonStep { adam, momentum: 0.95 };
        muon_step(whole, 0..total, &gradients, &mut state, &numbers).unwrap();
        composed::muon_step(plain, 0..total, &gradients, &mut plain_state, &numbers).unwrap();
        for (range, state) in ranges.iter().zip(&mut of_parts) {
            let part = gradients.narrow(0, range.start, range.len()).unwrap();
            muon_step(parts, range.clone(), &part, state, &numbers).unwrap();
        }
    }
    let expected = Tensor::new(all("after."), &Device::Cpu).unwrap();
    for store in [whole, plain] {
        for (ours, theirs) in vector(&store.flat().unwrap()).iter().zip(vector(&expected)) {
            assert!((ours - theirs).abs() <= 1e-5 * (1.0 + theirs.abs()), "{ours} {theirs}");
        }
    }
    assert_eq!(vector(&whole.flat().unwrap()), vector(&parts.flat().unwrap()));
    close(&state[0], &plain_state[0]);
    close(&state[1], &plain_state[1]);
}

#[test]
fn muon_leaves_what_is_frozen_and_refuses_parts_of_matrices() {
    let mut store = store();
    store.set_projections("weight", &[8]);
    let before = vector(&store.flat().unwrap());
    let numbers = MuonStep { adam: numbers(1, true), momentum: 0.95 };
    let error = muon_step(&store, 5..47, &zeros(42), &mut [zeros(42), zeros(42)], &numbers);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("weight is cut at 5..40"), "{error}");
    // Without a gradient, a matrix is only reduced by weight decay.
    muon_step(&store, 0..47, &zeros(47), &mut [zeros(47), zeros(47)], &numbers).unwrap();
    for (after, before) in vector(&store.flat().unwrap()).iter().zip(&before).take(40) {
        assert!((after - before * 0.999).abs() < 1e-7, "{after} {before}");
    }
    let now = vector(&store.flat().unwrap());
    store.get("weight").unwrap().freeze();
    for step in [muon_step, composed::muon_step] {
        let gradients = gradient(&store, 1);
        let mut moments = [zeros(47), zeros(47)];
        step(&store, 0..47, &gradients, &mut moments, &numbers).unwrap();
        assert_eq!(vector(&store.flat().unwrap())[..40], now[..40]);
        assert_eq!(vector(&moments[0])[..40], [0.0; 40]);
    }
}

#[test]
fn norm_average_and_accumulation() {
    let store = store();
    let flat = store.flat().unwrap();
    let expected = vector(&flat).iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    assert!((global_norm(&flat).unwrap() - expected).abs() < 1e-9);

    let mut average = Tensor::zeros(47, DType::F32, &Device::Cpu).unwrap();
    ema_step(&store, &mut average, 0.75).unwrap();
    close(&average, &(&flat * 0.25).unwrap());

    let mut gradients = Gradients::new(&store).unwrap();
    let loss = |factor: f64| {
        let part = |name: &str| store.get(name).unwrap().var().sqr().unwrap().sum_all().unwrap();
        ((part("weight") + part("bias")).unwrap() * factor).unwrap()
    };
    for factor in [1.0, 0.5] {
        gradients.accumulate(&store, &loss(factor).backward().unwrap()).unwrap();
    }
    close(gradients.flat().unwrap(), &(&flat * 3.0).unwrap());
    let mut half = Gradients::new(&store).unwrap();
    half.accumulate(&store, &loss(0.5).backward().unwrap()).unwrap();
    gradients.add(&mut half).unwrap();
    close(gradients.flat().unwrap(), &(&flat * 4.0).unwrap());
    gradients.zero().unwrap();
    assert!(vector(gradients.flat().unwrap()).iter().all(|&x| x == 0.0));
    half.zero().unwrap();
    gradients.add(&mut half).unwrap();
    assert!(vector(gradients.flat().unwrap()).iter().all(|&x| x == 0.0));
    let cut = store.get("bias").unwrap().var().sum_all().unwrap().backward().unwrap();
    assert!(
        gradients
            .accumulate(&store, &cut)
            .unwrap_err()
            .to_string()
            .contains("weight got no gradient")
    );
}

#[test]
fn frozen_parameters_stay_as_they_are_to_the_bit() {
    for composed in [false, true] {
        let (frozen, free) = (store(), store());
        frozen.get("weight").unwrap().freeze();
        let bits = |store: &ParameterStore, name: &str| -> Vec<u32> {
            let values = store.get(name).unwrap().var().as_detached_tensor();
            vector(&values.flatten_all().unwrap()).iter().map(|value| value.to_bits()).collect()
        };
        let before = bits(&frozen, "weight");
        for store in [&frozen, &free] {
            let mut moments = [zeros(47), zeros(47)];
            let mut average = store.flat().unwrap();
            for step in 1..=5 {
                // Both stores use the gradients of the store without frozen parameters.
                let gradients = gradient(&free, step).copy().unwrap();
                let numbers = numbers(step, true);
                match composed {
                    true => composed::adam_step(store, 0..47, &gradients, &mut moments, &numbers),
                    false => adam_step(store, 0..47, &gradients, &mut moments, &numbers),
                }
                .unwrap();
                ema_step(store, &mut average, 0.7).unwrap();
            }
            if store.get("weight").unwrap().is_frozen() {
                let average = &vector(&average)[..40];
                assert!(before.iter().zip(average).all(|(bits, value)| *bits == value.to_bits()));
                for moment in &moments {
                    assert!(vector(moment)[..40].iter().all(|&value| value == 0.0), "{composed}");
                }
            }
        }
        assert_eq!(bits(&frozen, "weight"), before);
        assert_ne!(bits(&free, "weight"), before);
        assert_ne!(bits(&frozen, "bias"), bits(&store(), "bias"));
    }
}

#[test]
fn the_gradient_of_frozen_parameters_has_no_part_in_the_norm() {
    let store = store();
    store.get("weight").unwrap().freeze();
    let ones = Tensor::ones(47, DType::F32, &Device::Cpu).unwrap();
    let part = |range: std::ops::Range<usize>| {
        let gradient = ones.narrow(0, range.start, range.len()).unwrap();
        vector(&store.without_frozen(&range, gradient).unwrap()).iter().sum::<f32>()
    };
    assert_eq!((part(0..47), part(30..44), part(0..12)), (7.0, 4.0, 0.0));
}
