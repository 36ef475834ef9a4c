//! The fused optimizer passes against their composed oracle.

use candle_core::{DType, Device, Tensor};
use taper_ops::rng::Counter;
use taper_ops::{AdamStep, Gradients, ParameterStore, adam_step, composed, ema_step, global_norm};

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

#[test]
fn adam_is_the_composed_adam() {
    for decoupled in [false, true] {
        let (ours, theirs) = (store(), store());
        let zeros = || Tensor::zeros(47, DType::F32, &Device::Cpu).unwrap();
        let (mut first, mut second, mut first2, mut second2) = (zeros(), zeros(), zeros(), zeros());
        for step in 1..=5 {
            let gradients = (ours.flat().unwrap() * step as f64).unwrap().sin().unwrap();
            let numbers = AdamStep {
                learning_rate: 0.01,
                beta1: 0.9,
                beta2: 0.98,
                epsilon: 1e-9,
                weight_decay: 0.1,
                decoupled,
                step,
                gradient_scale: 0.7,
            };
            adam_step(&ours, &gradients, &mut first, &mut second, &numbers).unwrap();
            composed::adam_step(&theirs, &gradients, &mut first2, &mut second2, &numbers).unwrap();
        }
        close(&ours.flat().unwrap(), &theirs.flat().unwrap());
        close(&first, &first2);
        close(&second, &second2);
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
    gradients.zero().unwrap();
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
