//! Tests CUDA kernels on the host, without a GPU. The host's C++ compiler compiles the same source
//! that is compiled for a GPU (`scripts/check/host_gpu`). Kernels run in each type, on rows of odd
//! and of even lengths, aligned and not. They are compared with the same operations composed of
//! Candle's, in f64.
//!
//! Destinations are filled with NaN before a kernel runs, and a write outside of them is an error.
#![cfg(target_os = "linux")]

mod adam;
mod host;

use candle_core::{D, DType, Device, Result, Tensor, Var};
use host::Argument::{At, Key, Long, Null, Real, Word};
use host::{Argument, Array, Library, THREADS};
use taper_ops::rng::{Counter, mix};
use taper_ops::{
    ABSENT, Activation, CrossEntropySpec, Dropout, LinearSpec, NormSpec, Products, composed,
};

/// Checks kernels for one type of elements.
struct Check<'a> {
    library: &'a Library,
    dtype: DType,
    name: &'static str,
    tolerance: f64,
    /// Number of elements from an address that is a multiple of 16 to the first element of an
    /// array.
    shift: usize,
}

/// Widths of rows; those that are multiples of 8 consist of whole pieces of 16 bytes.
const WIDTHS: [usize; 5] = [1, 19, 24, 136, 300];
const ROWS: usize = 53;
const KEY: u64 = 0x1234_5678_9abc_def0;

/// Number of rows in a block, for sums over blocks of rows.
const AT_ONCE: usize = 20;

impl Check<'_> {
    /// Makes random values of the tested type.
    fn values(&self, count: usize, key: u64) -> Array {
        let counter = Counter::new(mix(9, &[key]));
        let values: Vec<f64> = (0..count as u64).map(|i| counter.normal_at(i)).collect();
        Array::new(&values, self.dtype, self.shift)
    }

    fn parameters(&self, count: usize, key: u64) -> Array {
        let values: Vec<f64> = (0..count).map(|i| ((i as u64 + key) as f64 * 0.7).sin()).collect();
        Array::new(&values, DType::F32, self.shift)
    }

    fn empty(&self, count: usize) -> Array {
        Array::empty(count, self.dtype, self.shift)
    }

    fn launch(&self, kernel: &str, grid: (usize, usize), arguments: &[Argument<'_>]) {
        self.library.launch(&format!("{kernel}_{}", self.name), grid, arguments);
    }

    /// Adds up the sums over blocks of rows.
    fn summed(&self, parts: &Array, blocks: usize, width: usize) -> Array {
        let out = Array::empty(width, DType::F32, 0);
        let arguments = [At(parts), At(&out), Word(blocks), Word(width), Word(width), Word(0)];
        self.library.launch("sum_rows", (width.div_ceil(16), 1), &arguments);
        out
    }

    fn same(&self, what: &str, ours: &Array, exact: &Tensor) -> Result<()> {
        let exact = exact.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>()?;
        let ours = ours.values();
        assert_eq!(ours.len(), exact.len(), "{what}");
        let largest = exact.iter().fold(1e-3, |largest: f64, x| largest.max(x.abs()));
        for (index, (ours, exact)) in ours.iter().zip(&exact).enumerate() {
            let apart = (ours - exact).abs() / largest;
            assert!(
                apart <= self.tolerance,
                "{what}, {}, shift {}: element {index} is {ours} in place of {exact}",
                self.name,
                self.shift
            );
        }
        Ok(())
    }

    fn elements(&self) -> Result<()> {
        let dropout = Dropout::new(0.3, KEY);
        for count in [1, 8, 1000, 1003] {
            let (x, out) = (self.values(count, 1), self.empty(count));
            let arguments = [At(&x), At(&out), Long(count), Key(KEY), threshold(0.3), kept(0.3)];
            self.launch("drop", (3, 1), &arguments);
            self.same("drop", &out, &composed::drop(&x.tensor(&[count]), dropout)?)?;
        }
        for width in WIDTHS {
            let index: Vec<u32> =
                (0..70).map(|i| if i % 9 == 4 { ABSENT } else { i * 7 % ROWS as u32 }).collect();
            let (x, out) = (self.values(ROWS * width, 2), self.empty(index.len() * width));
            let numbers: Vec<f64> = index.iter().map(|&row| f64::from(row)).collect();
            let numbers = Array::new(&numbers, DType::U32, 0);
            let arguments = [At(&x), At(&numbers), At(&out), Long(70 * width), Word(width)];
            self.launch("rows", (2, 1), &arguments);
            let with_zeros = Tensor::cat(
                &[x.tensor(&[ROWS, width]), Tensor::zeros((1, width), DType::F64, &Device::Cpu)?],
                0,
            )?;
            let index: Vec<u32> = index.iter().map(|&row| row.min(ROWS as u32)).collect();
            let index = Tensor::from_vec(index, 70, &Device::Cpu)?;
            self.same("rows", &out, &with_zeros.index_select(&index, 0)?)?;
            self.row_sums(width)?;
        }
        Ok(())
    }

    /// Adds one, two and three rows times 1.5 to rows 0, 2 and 4; the other rows must stay
    /// unchanged.
    fn row_sums(&self, width: usize) -> Result<()> {
        let (x, out) = (self.values(6 * width, 3), self.values(5 * width, 33));
        let before = out.tensor(&[5, width]);
        let [ids, ends, order] = [vec![0., 2., 4.], vec![1., 3., 6.], vec![5., 0., 3., 1., 2., 4.]]
            .map(|numbers| Array::new(&numbers, DType::U32, 0));
        let arguments = [At(&x), At(&ids), At(&ends), At(&order), At(&out), Word(width), Real(1.5)];
        self.launch("row_sums", (3, width.div_ceil(THREADS)), &arguments);
        let index = Tensor::new(&[2u32, 4, 4, 2, 4, 0], &Device::Cpu)?;
        let added = (x.tensor(&[6, width]) * 1.5)?;
        self.same("sums of rows", &out, &before.index_add(&index, &added, 0)?)
    }

    /// Splits heads and merges them again, which must give the original rows times both scales.
    fn heads(&self) -> Result<()> {
        let (lengths, longest) = ([5, 1, 9], 9);
        let starts = Array::new(&[0.0, 5.0, 6.0, 15.0], DType::U32, 0);
        for (heads, width, behind) in [(3, 7, 5), (2, 8, 8), (4, 24, 0), (1, 16, 3)] {
            let row = heads * width + behind;
            let packed = self.values(15 * row, 4);
            let count = lengths.len() * heads * longest * width;
            let apart = self.empty(count);
            let numbers = |from, to, scale| {
                [
                    At(from),
                    At(&starts),
                    At(to),
                    Long(count),
                    Word(heads),
                    Word(longest),
                    Word(width),
                    Word(row),
                    Real(scale),
                ]
            };
            self.launch("split_heads", (2, 1), &numbers(&packed, &apart, 0.5));
            let columns = packed.tensor(&[15, row]).narrow(1, 0, heads * width)?;
            let padded = composed::pad(&columns.contiguous()?, &lengths)?;
            let padded = padded.reshape((lengths.len(), longest, heads, width))?;
            self.same("heads apart", &apart, &(padded.transpose(1, 2)? * 0.5)?)?;
            let merged = Array::new(&vec![7.0; 15 * row], self.dtype, self.shift);
            self.launch("merge_heads", (2, 1), &numbers(&apart, &merged, 2.0));
            let rest = Tensor::full(7.0, (15, behind), &Device::Cpu)?;
            self.same("heads together", &merged, &Tensor::cat(&[columns, rest], 1)?)?;
        }
        Ok(())
    }

    fn layer_norm(&self) -> Result<()> {
        for width in WIDTHS.into_iter().filter(|&width| width > 1) {
            let count = ROWS * width;
            let (x, gradient) = (self.values(count, 5), self.values(count, 6));
            let (weight, bias) = (self.parameters(width, 7), self.parameters(width, 8));
            let (out, of_x) = (self.empty(count), self.empty(count));
            let found = Array::empty(2 * ROWS, DType::F32, 0);
            let sizes = || [Long(ROWS), Word(width), Real(1e-5)];
            let grid = (ROWS.div_ceil(THREADS / 32), 1);
            let arguments = [At(&x), At(&weight), At(&bias), At(&out)].into_iter();
            self.launch("layer_norm", grid, &arguments.chain(sizes()).collect::<Vec<_>>());
            let arguments = [At(&x), At(&weight), At(&gradient), At(&of_x), At(&found)].into_iter();
            self.launch("layer_norm_back", grid, &arguments.chain(sizes()).collect::<Vec<_>>());
            let blocks = ROWS.div_ceil(AT_ONCE);
            let parts = Array::empty(blocks * 2 * width, DType::F32, 0);
            let arguments = [
                At(&x),
                At(&gradient),
                At(&found),
                At(&parts),
                Long(ROWS),
                Word(width),
                Word(AT_ONCE),
            ];
            self.launch("layer_norm_sums", (2, blocks), &arguments);
            let sums = self.summed(&parts, blocks, 2 * width);

            let shape = [ROWS, width];
            let vars = variables(&[(&x, &shape), (&weight, &[width]), (&bias, &[width])])?;
            let exact = composed::norm(&vars[0], &vars[1], Some(&vars[2]), &NormSpec::layer(1e-5))?;
            self.same("layer norm", &out, &exact)?;
            let all = gradients(&exact, &gradient, &vars)?;
            self.same("layer norm, back", &of_x, &all[0])?;
            self.same("layer norm, sums", &sums, &Tensor::cat(&all[1..], 0)?)?;
        }
        Ok(())
    }

    fn epilogue(&self) -> Result<()> {
        let activations = [
            Activation::Identity,
            Activation::Relu,
            Activation::Gelu,
            Activation::GeluTanh,
            Activation::Swish,
            Activation::QuickGelu,
            Activation::Tanh,
        ];
        for (number, activation) in activations.into_iter().enumerate() {
            for (at, width) in WIDTHS.into_iter().enumerate() {
                let rate = if (number + at) % 3 == 0 { 0.0 } else { 0.25 };
                self.epilogue_of(activation, width, rate, (number + at) % 2 == 0)?;
            }
        }
        Ok(())
    }

    fn epilogue_of(
        &self,
        activation: Activation,
        width: usize,
        rate: f64,
        is_plain: bool,
    ) -> Result<()> {
        let what = format!("epilogue with {activation:?} of {width}");
        let count = ROWS * width;
        let (product, residual) = (self.values(count, 9), self.values(count, 10));
        let (bias, gradient) = (self.parameters(width, 11), self.values(count, 12));
        let (out, of_product) = (self.empty(count), self.empty(count));
        let drawn = || [Word(activation as usize), Key(KEY), threshold(rate), kept(rate)];
        let optional = |array| if is_plain { Null } else { At(array) };
        let arguments = [At(&product), optional(&bias), optional(&residual), At(&out)];
        let arguments = arguments.into_iter().chain([Long(count), Word(width)]).chain(drawn());
        self.launch("epilogue", (2, 1), &arguments.collect::<Vec<_>>());
        let blocks = ROWS.div_ceil(AT_ONCE);
        let parts = Array::empty(blocks * width, DType::F32, 0);
        let inputs = [At(&product), optional(&bias), At(&gradient), At(&of_product)].into_iter();
        let sizes = [optional(&parts), Long(ROWS), Word(width), Word(AT_ONCE)];
        let arguments = inputs.chain(sizes).chain(drawn());
        self.launch("epilogue_back", (2, blocks), &arguments.collect::<Vec<_>>());

        let shape = [ROWS, width];
        let vars = variables(&[(&product, &shape), (&bias, &[width]), (&residual, &shape)])?;
        let unit = Tensor::eye(width, DType::F64, &Device::Cpu)?;
        let spec =
            LinearSpec { activation, dropout: Dropout::new(rate, KEY), ..Default::default() };
        let [bias, residual] = [1, 2].map(|at| (!is_plain).then(|| vars[at].as_tensor()));
        let exact = composed::linear(&vars[0], &unit, bias, residual, &spec)?;
        self.same(&what, &out, &exact)?;
        let all = gradients(&exact, &gradient, if is_plain { &vars[..1] } else { &vars[..2] })?;
        self.same(&format!("{what}, back"), &of_product, &all[0])?;
        if !is_plain {
            self.same(&format!("{what}, sums"), &self.summed(&parts, blocks, width), &all[1])?;
        }
        Ok(())
    }

    /// Checks attention weights of two sequences of queries; some of their keys are masked.
    fn softmax(&self) -> Result<()> {
        let (batch, heads, queries, rate) = (2, 3, 4, 0.2);
        let starts = Array::new(&[0.0, 4.0, 7.0], DType::U32, 0);
        for (keys, mask_heads) in [(1, 1), (19, 3), (40, 1), (70, 3)] {
            let rows = batch * heads * queries;
            let (scores, gradient) = (self.values(rows * keys, 13), self.values(rows * keys, 14));
            let mask: Vec<f64> =
                (0..batch * mask_heads * queries * keys)
                    .map(|i| {
                        if i % keys != 0 && i % 5 == 2 { f64::NEG_INFINITY } else { i as f64 % 3.0 }
                    })
                    .collect();
            let mask = Array::new(&mask, DType::F32, 0);
            let (out, of_scores) = (self.empty(rows * keys), self.empty(rows * keys));
            let sizes = || {
                [
                    Long(rows),
                    Word(heads),
                    Word(mask_heads),
                    Word(queries),
                    Word(keys),
                    Key(KEY),
                    threshold(rate),
                    kept(rate),
                ]
            };
            let inputs = || [At(&scores), At(&mask), At(&starts)].into_iter();
            let grid = (rows.div_ceil(THREADS / 32), 1);
            let arguments = inputs().chain([At(&out)]).chain(sizes());
            self.launch("softmax", grid, &arguments.collect::<Vec<_>>());
            let arguments = inputs().chain([At(&gradient), At(&of_scores)]).chain(sizes());
            self.launch("softmax_back", grid, &arguments.collect::<Vec<_>>());

            let vars = variables(&[(&scores, &[batch, heads, queries, keys])])?;
            let masked =
                vars[0].broadcast_add(&mask.tensor(&[batch, mask_heads, queries, keys]))?;
            let powers = masked.broadcast_sub(&masked.max_keepdim(D::Minus1)?.detach())?.exp()?;
            let weights = powers.broadcast_div(&powers.sum_keepdim(D::Minus1)?)?;
            // The dropout mask has no padding: (N, H, Tk).
            let all = Dropout::new(rate, KEY).mask(8 * heads * keys, DType::F64, &Device::Cpu)?;
            let all = all.reshape((8, heads, keys))?;
            let drawn = [all.narrow(0, 0, queries)?, all.narrow(0, 4, queries)?];
            let drawn = Tensor::stack(&drawn, 0)?.transpose(1, 2)?;
            let exact = weights.mul(&drawn)?;
            self.same("softmax", &out, &exact)?;
            let all = gradients(&exact, &gradient, &vars)?;
            self.same("softmax, back", &of_scores, &all[0])?;
        }
        Ok(())
    }

    fn loss(&self) -> Result<()> {
        // The composed operation multiplies hidden states by weights; with the unit matrix as
        // weights, hidden states are the logits.
        for classes in [2, 31, 264, 2051] {
            let (rows, scale) = (7, 0.25);
            let targets: Vec<u32> = (0..rows as u32).map(|row| row * 5 % classes as u32).collect();
            let numbers: Vec<f64> = targets.iter().map(|&target| f64::from(target)).collect();
            let numbers = Array::new(&numbers, DType::U32, 0);
            for smoothing in [0.0, 0.1] {
                let logits = self.values(rows * classes, 15);
                let vars = variables(&[(&logits, &[rows, classes])])?;
                let unit = Tensor::eye(classes, DType::F64, &Device::Cpu)?;
                let spec =
                    CrossEntropySpec { smoothing, r_drop: 0.0, scale, products: Products::F32 };
                let (loss, exact) =
                    composed::smoothed_cross_entropy(&vars[0], &unit, &targets, &spec)?;
                let sums = Array::empty(4 * rows, DType::F32, 0);
                for has_gradient in [0, 1] {
                    let arguments = [
                        At(&logits),
                        At(&numbers),
                        At(&sums),
                        Word(classes),
                        Real(smoothing),
                        Real(scale),
                        Word(has_gradient),
                    ];
                    self.launch("cross_entropy", (rows, 1), &arguments);
                    let exact = [exact.smoothed, exact.nll, exact.correct as f64, 0.0];
                    let exact = Tensor::new(&exact, &Device::Cpu)?;
                    self.same("loss", &self.summed(&sums, rows, 4), &exact)?;
                }
                let back = loss.backward()?;
                self.same("loss, back", &logits, back.get(&vars[0]).expect("a gradient"))?;
            }
        }
        Ok(())
    }

    /// If several logits are largest, only the first of them counts as correct. A logit that is NaN
    /// never counts as correct. The operation on the host has the same rules.
    fn ties(&self) -> Result<()> {
        let logits = [1.0, 2.0, 2.0, 1.0, 2.0, 2.0, f64::NAN, 2.0, 1.0];
        let logits = Array::new(&logits, self.dtype, self.shift);
        let targets = Array::new(&[1.0, 2.0, 0.0], DType::U32, 0);
        let sums = Array::empty(12, DType::F32, 0);
        let arguments =
            [At(&logits), At(&targets), At(&sums), Word(3), Real(0.0), Real(1.0), Word(0)];
        self.launch("cross_entropy", (3, 1), &arguments);
        assert_eq!([2, 6, 10].map(|at| sums.values()[at]), [1.0, 0.0, 0.0]);
        Ok(())
    }

    /// Sums some columns over rows, and adds the sums to existing values.
    fn additions(&self) -> Result<()> {
        for width in [1, 19, 24, 300] {
            let (row, first) = (2 * width + 3, width);
            let (x, out) = (self.parameters(7 * row, 20), self.parameters(width, 21));
            let exact = x.tensor(&[7, row]).narrow(1, first, width)?.sum(0)?;
            let exact = (exact + out.tensor(&[width]))?;
            let columns = Array::new(&x.values()[first..], DType::F32, self.shift);
            let arguments = [At(&columns), At(&out), Word(7), Word(width), Word(row), Word(1)];
            self.library.launch("sum_rows", (2, 1), &arguments);
            self.same("sums added", &out, &exact)?;
            let (more, before) = (self.parameters(width, 22), out.tensor(&[width]));
            self.library.launch("add_to", (1, 1), &[At(&more), At(&out), Long(width)]);
            self.same("additions", &out, &(before + more.tensor(&[width]))?)?;
        }
        Ok(())
    }
}

fn threshold(rate: f64) -> Argument<'static> {
    Word((rate * f64::from(u32::MAX)).round() as usize)
}

fn kept(rate: f64) -> Argument<'static> {
    Real(1.0 / (1.0 - rate))
}

/// Returns variables with the same values in f64. The reference is differentiated with respect to
/// them.
fn variables(arrays: &[(&Array, &[usize])]) -> Result<Vec<Var>> {
    arrays.iter().map(|(array, shape)| Var::from_tensor(&array.tensor(shape))).collect()
}

/// Returns the gradients of `Σ out ⊙ adjoint` with respect to each of the variables.
fn gradients(out: &Tensor, adjoint: &Array, by: &[Var]) -> Result<Vec<Tensor>> {
    let all = out.mul(&adjoint.tensor(out.dims()))?.sum_all()?.backward()?;
    Ok(by.iter().map(|var| all.get(var).expect("a gradient").clone()).collect())
}

#[test]
fn every_kernel_is_the_composed_operation() -> Result<()> {
    let library = Library::build();
    // Each bound allows a few roundings in its type.
    for (dtype, name, tolerance) in
        [(DType::F32, "f32", 1e-5), (DType::BF16, "bf16", 1e-2), (DType::F16, "f16", 1e-3)]
    {
        for shift in [0, 1] {
            let check = Check { library: &library, dtype, name, tolerance, shift };
            check.elements()?;
            check.heads()?;
            check.layer_norm()?;
            check.epilogue()?;
            check.softmax()?;
            check.loss()?;
            check.ties()?;
            check.additions()?;
            check.adam()?;
        }
    }
    Ok(())
}
