//! Speed of arithmetic in updates, in operations per second and as a share of the processor's peak
//! speed.

use candle_core::{DType, Device};
use serde::Serialize;
use taper_ops::products::{peak_rate, products_in_one};
use taper_ops::profile::Profile;
use taper_ops::{Kernel, Products};

/// Number of iterations of the loop that measures the peak; they last a few milliseconds.
const ROUNDS: usize = 1_000_000;

/// Speed of the arithmetic of updates. Only matrix products and scans are counted.
#[derive(Debug, Clone, Serialize)]
pub struct Arithmetic {
    /// Billions of multiplications and additions per second.
    pub gflops: f64,
    /// Peak of the processor in the same unit: the rate at which it executes the multiply-add
    /// instructions of this program's kernel for matrix products, with operands in registers and on
    /// as many threads as an update uses. It is measured between the updates. `None` if the device
    /// has no such kernel.
    pub peak_gflops: Option<f64>,
    /// `gflops` as a share of `peak_gflops`; `None` if there is no peak.
    pub share_of_peak: Option<f64>,
    /// Share of each operation in the time of the updates, forward and backward together. The last
    /// entry is the time between operations.
    pub operations: Vec<OperationShare>,
}

/// Share of one operation in the time of the updates.
#[derive(Debug, Clone, Serialize)]
pub struct OperationShare {
    /// Name of the operation, or `other` for the time between operations.
    pub name: &'static str,
    /// Share of the time of all updates.
    pub share: f64,
    /// Multiplications and additions per second while it runs, as a share of the peak; `None` if
    /// there is no peak.
    pub of_peak: Option<f64>,
}

impl OperationShare {
    /// Share of the time of all updates that would be saved if this operation ran at the peak;
    /// `None` if there is no peak.
    #[must_use]
    pub fn lost(&self) -> Option<f64> {
        Some(self.share * (1.0 - self.of_peak?))
    }
}

/// Measurements of the processor's peak between updates.
#[derive(Debug)]
pub struct Peak {
    kernel: Option<Kernel>,
    /// Number of matrix products that the kernel computes for one matrix product of the model. It
    /// is more than 1 if the kernel splits operands into parts, such as f32 into several bf16.
    parts: f64,
    rates: Vec<f64>,
}

impl Peak {
    /// Prepares measurements for a model that computes in `dtype` on `device`. A peak is measured
    /// only on the CPU.
    #[must_use]
    pub fn new(dtype: DType, device: &Device) -> Self {
        let products = Products::for_model(dtype, device);
        let kernel = device.is_cpu().then(|| Kernel::best(products));
        let parts = kernel.map_or(1, |kernel| products_in_one(kernel, products));
        Self { kernel, parts: f64::from(parts), rates: Vec::new() }
    }

    /// Adds one measurement.
    pub fn measure(&mut self) {
        self.rates.extend(self.kernel.and_then(|kernel| peak_rate(kernel, ROUNDS)));
    }

    /// Peak in billions of multiplications and additions per second: the median of the
    /// measurements, or `None` if there are none.
    #[must_use]
    pub fn gflops(&self) -> Option<f64> {
        let mut rates = self.rates.clone();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).map(|rate| 1e-9 * rate / self.parts)
    }
}

impl Arithmetic {
    /// Speed of the updates in `profile`, which took `seconds` seconds in total.
    #[must_use]
    pub fn from_profile(profile: &Profile, seconds: f64, peak: Option<&Peak>) -> Self {
        let rate = |flops: u64, seconds: f64| 1e-9 * flops as f64 / seconds;
        let peak_gflops = peak.and_then(Peak::gflops);
        let share = |gflops: f64| peak_gflops.map(|peak| gflops / peak);
        let operation = |&(name, one): &(&'static str, taper_ops::profile::Operation)| {
            let time = one.time.as_secs_f64();
            OperationShare {
                name,
                share: time / seconds,
                of_peak: share(if time > 0.0 { rate(one.flops, time) } else { 0.0 }),
            }
        };
        let mut operations: Vec<_> = profile.operations.iter().map(operation).collect();
        let known: f64 = operations.iter().map(|one| one.share).sum();
        let other = (1.0 - known).max(0.0);
        operations.push(OperationShare { name: "other", share: other, of_peak: share(0.0) });
        let gflops = rate(profile.flops, seconds);
        Self { gflops, peak_gflops, share_of_peak: share(gflops), operations }
    }
}
