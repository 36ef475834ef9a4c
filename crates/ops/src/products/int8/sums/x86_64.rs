//! Sums on AVX2, AVX-512 and their VNNI.

use super::Sum;
use std::arch::x86_64::*;

/// Sums of sixteen columns, for products of u8 by i8.
#[derive(Clone, Copy)]
pub(in super::super) struct Vnni512(__m512i);

impl Sum for Vnni512 {
    type Activation = u8;
    type Quad = __m512i;
    type Weights = __m512i;
    const COLUMNS: usize = 16;
    const SHIFT: i32 = 128;

    #[inline(always)]
    fn stored(bits: u32) -> u8 {
        bits as u8 ^ 0x80
    }

    #[inline(always)]
    unsafe fn start(from: *const i32) -> Self {
        // SAFETY: the caller's promise, here and below.
        Self(unsafe { _mm512_loadu_si512(from.cast()) })
    }

    #[inline(always)]
    unsafe fn quad(from: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_set1_epi32(from.cast::<i32>().read_unaligned()) }
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn plus(self, quad: __m512i, weights: __m512i) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_dpbusd_epi32(self.0, quad, weights) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut i32) {
        // SAFETY: as above.
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn scale(self, scales: *const f32, row_scale: f32, to: *mut f32) {
        // SAFETY: as above.
        unsafe {
            let scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(self.0), _mm512_loadu_ps(scales));
            _mm512_storeu_ps(to, _mm512_mul_ps(scaled, _mm512_set1_ps(row_scale)));
        }
    }
}

/// Sums of eight columns, for products of u8 by i8.
#[derive(Clone, Copy)]
pub(in super::super) struct Vnni256(__m256i);

impl Sum for Vnni256 {
    type Activation = u8;
    type Quad = __m256i;
    type Weights = __m256i;
    const COLUMNS: usize = 8;
    const SHIFT: i32 = 128;

    #[inline(always)]
    fn stored(bits: u32) -> u8 {
        bits as u8 ^ 0x80
    }

    #[inline(always)]
    unsafe fn start(from: *const i32) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_loadu_si256(from.cast()) })
    }

    #[inline(always)]
    unsafe fn quad(from: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_set1_epi32(from.cast::<i32>().read_unaligned()) }
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn plus(self, quad: __m256i, weights: __m256i) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_dpbusd_avx_epi32(self.0, quad, weights) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut i32) {
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn scale(self, scales: *const f32, row_scale: f32, to: *mut f32) {
        // SAFETY: as above.
        unsafe { scale_eight(self.0, scales, row_scale, to) };
    }
}

/// Sums of eight columns, two for each, for products of 16-bit values.
#[derive(Clone, Copy)]
pub(in super::super) struct Words512(__m512i);

impl Words512 {
    /// Adds the two sums of each column.
    #[inline(always)]
    unsafe fn whole(self) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm512_cvtepi64_epi32(_mm512_add_epi32(self.0, _mm512_srli_epi64::<32>(self.0))) }
    }
}

impl Sum for Words512 {
    type Activation = i16;
    type Quad = __m512i;
    type Weights = __m512i;
    const COLUMNS: usize = 8;
    const SHIFT: i32 = 0;

    #[inline(always)]
    fn stored(bits: u32) -> i16 {
        bits as i16
    }

    #[inline(always)]
    unsafe fn start(_: *const i32) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    unsafe fn quad(from: *const i16) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_set1_epi64(from.cast::<i64>().read_unaligned()) }
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_cvtepi8_epi16(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn plus(self, quad: __m512i, weights: __m512i) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_add_epi32(self.0, _mm512_madd_epi16(quad, weights)) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut i32) {
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(to.cast(), self.whole()) }
    }

    #[inline(always)]
    unsafe fn scale(self, scales: *const f32, row_scale: f32, to: *mut f32) {
        // SAFETY: as above.
        unsafe { scale_eight(self.whole(), scales, row_scale, to) };
    }
}

/// Sums of eight columns, two for each, for products of 16-bit values, in two registers.
#[derive(Clone, Copy)]
pub(in super::super) struct Words256([__m256i; 2]);

impl Words256 {
    /// Adds the two sums of each column.
    #[inline(always)]
    unsafe fn whole(self) -> __m256i {
        // SAFETY: as above.
        unsafe {
            let sums = _mm256_hadd_epi32(self.0[0], self.0[1]);
            _mm256_permute4x64_epi64::<0b11_01_10_00>(sums)
        }
    }
}

impl Sum for Words256 {
    type Activation = i16;
    type Quad = __m256i;
    type Weights = [__m256i; 2];
    const COLUMNS: usize = 8;
    const SHIFT: i32 = 0;

    #[inline(always)]
    fn stored(bits: u32) -> i16 {
        bits as i16
    }

    #[inline(always)]
    unsafe fn start(_: *const i32) -> Self {
        // SAFETY: as above.
        Self(unsafe { [_mm256_setzero_si256(); 2] })
    }

    #[inline(always)]
    unsafe fn quad(from: *const i16) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_set1_epi64x(from.cast::<i64>().read_unaligned()) }
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> [__m256i; 2] {
        // SAFETY: as above.
        unsafe {
            let (low, high) = (_mm_loadu_si128(from.cast()), _mm_loadu_si128(from.add(16).cast()));
            [_mm256_cvtepi8_epi16(low), _mm256_cvtepi8_epi16(high)]
        }
    }

    #[inline(always)]
    unsafe fn plus(self, quad: __m256i, weights: [__m256i; 2]) -> Self {
        // SAFETY: as above.
        unsafe {
            let (low, high) =
                (_mm256_madd_epi16(quad, weights[0]), _mm256_madd_epi16(quad, weights[1]));
            Self([_mm256_add_epi32(self.0[0], low), _mm256_add_epi32(self.0[1], high)])
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut i32) {
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(to.cast(), self.whole()) }
    }

    #[inline(always)]
    unsafe fn scale(self, scales: *const f32, row_scale: f32, to: *mut f32) {
        // SAFETY: as above.
        unsafe { scale_eight(self.whole(), scales, row_scale, to) };
    }
}

/// Writes eight sums times the scale of each and that of the row.
#[inline(always)]
unsafe fn scale_eight(sums: __m256i, scales: *const f32, row_scale: f32, to: *mut f32) {
    // SAFETY: as above.
    unsafe {
        let scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(sums), _mm256_loadu_ps(scales));
        _mm256_storeu_ps(to, _mm256_mul_ps(scaled, _mm256_set1_ps(row_scale)));
    }
}
