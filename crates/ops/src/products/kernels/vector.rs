//! Vector registers of f32 values, for each instruction set.

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::*;
#[cfg(target_arch = "wasm32")]
use std::arch::wasm32::*;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// A register of f32 values.
///
/// # Safety
/// Every method needs the instructions of its implementation. It must be inlined into a function
/// that enables them, so that it is compiled with them. A pointer must point to as many values as
/// are read or written, and needs only the alignment of `f32`.
pub(in crate::products) trait Vector: Copy {
    /// Number of values in a register.
    const LANES: usize;

    unsafe fn zero() -> Self;
    /// Returns a register with `value` in every lane (element).
    unsafe fn splat(value: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    /// Loads `count` values, fewer than a register has, into the first lanes. The other lanes are
    /// arbitrary.
    unsafe fn load_some(from: *const f32, count: usize) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// Stores the first `count` lanes; `count` must be less than the number of lanes.
    unsafe fn store_some(self, to: *mut f32, count: usize);
    /// Computes `self + a · b`, rounded once (in WebAssembly, after each operation).
    unsafe fn plus_product(self, a: Self, b: Self) -> Self;
    /// Transposes a matrix of `LANES` × `LANES` values. Row `i` is read from the address `from(i)`;
    /// rows of the result are written at the distance `to_stride` from each other.
    unsafe fn transpose(from: impl Fn(usize) -> *const f32, to: *mut f32, to_stride: usize);
}

#[cfg(target_arch = "x86_64")]
impl Vector for __m512 {
    const LANES: usize = 16;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: as the caller promises, here and below.
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_some(from: *const f32, count: usize) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_maskz_loadu_ps((1 << count) - 1, from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as above.
        unsafe { _mm512_storeu_ps(to, self) }
    }

    #[inline(always)]
    unsafe fn store_some(self, to: *mut f32, count: usize) {
        // SAFETY: as above.
        unsafe { _mm512_mask_storeu_ps(to, (1 << count) - 1, self) }
    }

    #[inline(always)]
    unsafe fn plus_product(self, a: Self, b: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_fmadd_ps(a, b, self) }
    }

    #[inline(always)]
    unsafe fn transpose(from: impl Fn(usize) -> *const f32, to: *mut f32, to_stride: usize) {
        // SAFETY: as above; registers of f32 and of integers are the same 64 bytes.
        unsafe {
            let mut rows: [__m512i; 16] =
                std::array::from_fn(|row| _mm512_loadu_si512(from(row).cast()));
            transpose_16(&mut rows);
            for (row, values) in rows.into_iter().enumerate() {
                _mm512_storeu_si512(to.add(row * to_stride).cast(), values);
            }
        }
    }
}

/// Transposes 16 × 16 values of 32 bits.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
pub(in crate::products) fn transpose_16(m: &mut [__m512i; 16]) {
    let zero = _mm512_setzero_si512();
    let (mut a, mut b) = ([zero; 16], [zero; 16]);
    for i in 0..8 {
        a[2 * i] = _mm512_unpacklo_epi32(m[2 * i], m[2 * i + 1]);
        a[2 * i + 1] = _mm512_unpackhi_epi32(m[2 * i], m[2 * i + 1]);
    }
    for i in 0..4 {
        b[4 * i] = _mm512_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
        b[4 * i + 1] = _mm512_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
        b[4 * i + 2] = _mm512_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
        b[4 * i + 3] = _mm512_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
    }
    // Lane l (of 128 bits) of b[4i + j] has column 4l + j, for the rows 4i … 4i + 3.
    for j in 0..4 {
        let low = _mm512_shuffle_i32x4::<0b10_00_10_00>(b[j], b[4 + j]);
        let high = _mm512_shuffle_i32x4::<0b11_01_11_01>(b[j], b[4 + j]);
        let low2 = _mm512_shuffle_i32x4::<0b10_00_10_00>(b[8 + j], b[12 + j]);
        let high2 = _mm512_shuffle_i32x4::<0b11_01_11_01>(b[8 + j], b[12 + j]);
        m[j] = _mm512_shuffle_i32x4::<0b10_00_10_00>(low, low2);
        m[8 + j] = _mm512_shuffle_i32x4::<0b11_01_11_01>(low, low2);
        m[4 + j] = _mm512_shuffle_i32x4::<0b10_00_10_00>(high, high2);
        m[12 + j] = _mm512_shuffle_i32x4::<0b11_01_11_01>(high, high2);
    }
}

#[cfg(target_arch = "x86_64")]
impl Vector for __m256 {
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: as the caller promises, here and below.
        unsafe { _mm256_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_some(from: *const f32, count: usize) -> Self {
        // SAFETY: as above; the mask is read from an array of twice as many lanes, in which ones
        // are followed by zeros.
        unsafe {
            let masks: [i32; 16] = std::array::from_fn(|lane| if lane < 8 { -1 } else { 0 });
            let mask = _mm256_loadu_si256(masks.as_ptr().add(8 - count).cast());
            _mm256_maskload_ps(from, mask)
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as above.
        unsafe { _mm256_storeu_ps(to, self) }
    }

    /// Stores in parts of 4, 2 and 1 values, because a masked store takes ten times as long on some
    /// processors.
    #[inline(always)]
    unsafe fn store_some(self, mut to: *mut f32, count: usize) {
        // SAFETY: as above.
        unsafe {
            let mut rest = _mm256_castps256_ps128(self);
            if count & 4 != 0 {
                _mm_storeu_ps(to, rest);
                (rest, to) = (_mm256_extractf128_ps::<1>(self), to.add(4));
            }
            if count & 2 != 0 {
                _mm_storel_pd(to.cast(), _mm_castps_pd(rest));
                (rest, to) = (_mm_movehl_ps(rest, rest), to.add(2));
            }
            if count & 1 != 0 {
                _mm_store_ss(to, rest);
            }
        }
    }

    #[inline(always)]
    unsafe fn plus_product(self, a: Self, b: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_fmadd_ps(a, b, self) }
    }

    /// Loads rows r and r + 4 into the two halves of a register. Then only 4 × 4 values have to be
    /// transposed in each half.
    #[inline(always)]
    unsafe fn transpose(from: impl Fn(usize) -> *const f32, to: *mut f32, to_stride: usize) {
        // SAFETY: as above.
        unsafe {
            for column in [0, 4] {
                // Four columns of row r, and the same columns of row r + 4.
                let row = |r: usize| {
                    let at = |r: usize| _mm_loadu_ps(from(r).add(column));
                    _mm256_set_m128(at(r + 4), at(r))
                };
                let (low, high) = (
                    [_mm256_unpacklo_ps(row(0), row(1)), _mm256_unpacklo_ps(row(2), row(3))],
                    [_mm256_unpackhi_ps(row(0), row(1)), _mm256_unpackhi_ps(row(2), row(3))],
                );
                let columns = [
                    _mm256_shuffle_ps::<0b01_00_01_00>(low[0], low[1]),
                    _mm256_shuffle_ps::<0b11_10_11_10>(low[0], low[1]),
                    _mm256_shuffle_ps::<0b01_00_01_00>(high[0], high[1]),
                    _mm256_shuffle_ps::<0b11_10_11_10>(high[0], high[1]),
                ];
                for (i, values) in columns.into_iter().enumerate() {
                    _mm256_storeu_ps(to.add((column + i) * to_stride), values);
                }
            }
        }
    }
}

#[cfg(target_arch = "aarch64")]
impl Vector for float32x4_t {
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: as the caller promises, here and below.
        unsafe { vdupq_n_f32(0.0) }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: as above.
        unsafe { vdupq_n_f32(value) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: as above.
        unsafe { vld1q_f32(from) }
    }

    #[inline(always)]
    unsafe fn load_some(from: *const f32, count: usize) -> Self {
        let mut values = [0.0; 4];
        // SAFETY: as above.
        unsafe {
            std::ptr::copy_nonoverlapping(from, values.as_mut_ptr(), count);
            vld1q_f32(values.as_ptr())
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as above.
        unsafe { vst1q_f32(to, self) }
    }

    #[inline(always)]
    unsafe fn store_some(self, to: *mut f32, count: usize) {
        let mut values = [0.0; 4];
        // SAFETY: as above.
        unsafe {
            vst1q_f32(values.as_mut_ptr(), self);
            std::ptr::copy_nonoverlapping(values.as_ptr(), to, count);
        }
    }

    #[inline(always)]
    unsafe fn plus_product(self, a: Self, b: Self) -> Self {
        // SAFETY: as above.
        unsafe { vfmaq_f32(self, a, b) }
    }

    #[inline(always)]
    unsafe fn transpose(from: impl Fn(usize) -> *const f32, to: *mut f32, to_stride: usize) {
        // SAFETY: as above; a register of four f32 values can be read as one of two f64 values.
        unsafe {
            let row = |r: usize| vld1q_f32(from(r));
            let pairs = [
                vtrn1q_f32(row(0), row(1)),
                vtrn2q_f32(row(0), row(1)),
                vtrn1q_f32(row(2), row(3)),
                vtrn2q_f32(row(2), row(3)),
            ]
            .map(|pair| vreinterpretq_f64_f32(pair));
            let columns = [
                vtrn1q_f64(pairs[0], pairs[2]),
                vtrn1q_f64(pairs[1], pairs[3]),
                vtrn2q_f64(pairs[0], pairs[2]),
                vtrn2q_f64(pairs[1], pairs[3]),
            ];
            for (i, values) in columns.into_iter().enumerate() {
                vst1q_f32(to.add(i * to_stride), vreinterpretq_f32_f64(values));
            }
        }
    }
}

#[cfg(target_arch = "wasm32")]
impl Vector for v128 {
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn zero() -> Self {
        f32x4_splat(0.0)
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        f32x4_splat(value)
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: as the caller promises, here and below.
        unsafe { v128_load(from.cast()) }
    }

    #[inline(always)]
    unsafe fn load_some(from: *const f32, count: usize) -> Self {
        let mut values = [0.0; 4];
        // SAFETY: as above.
        unsafe {
            std::ptr::copy_nonoverlapping(from, values.as_mut_ptr(), count);
            v128_load(values.as_ptr().cast())
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as above.
        unsafe { v128_store(to.cast(), self) }
    }

    #[inline(always)]
    unsafe fn store_some(self, to: *mut f32, count: usize) {
        let mut values = [0.0; 4];
        // SAFETY: as above.
        unsafe {
            v128_store(values.as_mut_ptr().cast(), self);
            std::ptr::copy_nonoverlapping(values.as_ptr(), to, count);
        }
    }

    #[inline(always)]
    unsafe fn plus_product(self, a: Self, b: Self) -> Self {
        f32x4_add(self, f32x4_mul(a, b))
    }

    #[inline(always)]
    unsafe fn transpose(from: impl Fn(usize) -> *const f32, to: *mut f32, to_stride: usize) {
        // SAFETY: as above.
        unsafe {
            let row = |r: usize| v128_load(from(r).cast());
            let rows = [row(0), row(1), row(2), row(3)];
            let low = [
                i32x4_shuffle::<0, 4, 1, 5>(rows[0], rows[1]),
                i32x4_shuffle::<0, 4, 1, 5>(rows[2], rows[3]),
            ];
            let high = [
                i32x4_shuffle::<2, 6, 3, 7>(rows[0], rows[1]),
                i32x4_shuffle::<2, 6, 3, 7>(rows[2], rows[3]),
            ];
            let columns = [
                i64x2_shuffle::<0, 2>(low[0], low[1]),
                i64x2_shuffle::<1, 3>(low[0], low[1]),
                i64x2_shuffle::<0, 2>(high[0], high[1]),
                i64x2_shuffle::<1, 3>(high[0], high[1]),
            ];
            for (i, values) in columns.into_iter().enumerate() {
                v128_store(to.add(i * to_stride).cast(), values);
            }
        }
    }
}
