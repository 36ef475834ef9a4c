//! Checks that the memory of the forward and backward pass of attention grows linearly with the
//! length of the sequence.

use candle_core::{Device, Tensor, Var};
use std::alloc::System;
use taper_ops::allocator::{Explaining, counted};
use taper_ops::{AttentionShape, AttentionSpec, Dropout, Products, Sparse, Tape, self_attention};

#[global_allocator]
static ALLOCATOR: Explaining<System> = Explaining(System);

const HEADS: usize = 2;
const WIDTH: usize = 32;

/// Returns the peak number of bytes in use, in addition to the input, during the forward and
/// backward pass of attention on a sequence of this length.
fn peak(length: usize, products: Products, sparse: Option<Sparse>) -> u64 {
    let spec = AttentionSpec {
        shape: AttentionShape::dividing(WIDTH, HEADS),
        query_lengths: [length].into(),
        key_lengths: [length].into(),
        causal: true,
        sparse,
        dual_chunk: None,
        query_start: 0,
        slopes: None,
        dropout: Dropout::new(0.1, 1),
        products,
    };
    let qkv = Tensor::ones((length, 3 * WIDTH), candle_core::DType::F32, &Device::Cpu).unwrap();
    let qkv = Var::from_tensor(&qkv).unwrap();
    let ((), bytes) = counted(|| {
        let tape = Tape::new();
        let out = self_attention(Some(&tape), &qkv, None, &spec).unwrap();
        let adjoint = out.ones_like().unwrap();
        tape.differentiate(&out, &adjoint).unwrap();
    });
    bytes.expect("the allocator counts").most
}

#[test]
fn memory_grows_with_the_length() {
    let drawn = Sparse { block: 64, random: 3, first: 1, ..Sparse::window(2) };
    for (products, sparse) in
        [(Products::F32, None), (Products::Bf16, None), (Products::F32, Some(drawn))]
    {
        peak(300, products, sparse); // The first pass also allocates memory that threads keep.
        let (short, long) = (peak(2048, products, sparse), peak(8192, products, sparse));
        assert!(long * 10 < short * 42, "{products:?}: {short} and {long} bytes");
        // The attention weights alone would take more than eight times as much.
        assert!(long * 8 < HEADS as u64 * 8192 * 8192 * 4, "{products:?}: {long} bytes");
    }
}
