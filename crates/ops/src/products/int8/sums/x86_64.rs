//! Sums with AVX2, AVX-512 and their VNNI instructions.

use std::arch::x86_64::*;

sum! {
    /// Sums of sixteen columns, for products of u8 and i8.
    Vnni512(__m512i): 16 columns of u8 + 128, __m512i, __m512i;
    start(from) _mm512_loadu_si512(from.cast());
    quad(from) _mm512_set1_epi32(from.cast::<i32>().read_unaligned());
    weights(from) _mm512_loadu_si512(from.cast());
    plus(sums, quad, weights) _mm512_dpbusd_epi32(sums, quad, weights);
    store(sums, to) _mm512_storeu_si512(to.cast(), sums);
    scale(sums, scales, row_scale, to) {
        let scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_loadu_ps(scales));
        _mm512_storeu_ps(to, _mm512_mul_ps(scaled, _mm512_set1_ps(row_scale)));
    };
}

sum! {
    /// Sums of eight columns, for products of u8 and i8.
    Vnni256(__m256i): 8 columns of u8 + 128, __m256i, __m256i;
    start(from) _mm256_loadu_si256(from.cast());
    quad(from) _mm256_set1_epi32(from.cast::<i32>().read_unaligned());
    weights(from) _mm256_loadu_si256(from.cast());
    plus(sums, quad, weights) _mm256_dpbusd_avx_epi32(sums, quad, weights);
    store(sums, to) _mm256_storeu_si256(to.cast(), sums);
    scale(sums, scales, row_scale, to) scale_eight(sums, scales, row_scale, to);
}

sum! {
    /// Sums of eight columns, with two partial sums for each, for products of 16-bit values.
    Words512(__m512i): 8 columns of i16 + 0, __m512i, __m512i;
    start(_from) _mm512_setzero_si512();
    quad(from) _mm512_set1_epi64(from.cast::<i64>().read_unaligned());
    weights(from) _mm512_cvtepi8_epi16(_mm256_loadu_si256(from.cast()));
    plus(sums, quad, weights) _mm512_add_epi32(sums, _mm512_madd_epi16(quad, weights));
    store(sums, to) _mm256_storeu_si256(to.cast(), whole_512(sums));
    scale(sums, scales, row_scale, to) scale_eight(whole_512(sums), scales, row_scale, to);
}

sum! {
    /// Sums of eight columns, with two partial sums for each, for products of 16-bit values, in two
    /// registers.
    Words256([__m256i; 2]): 8 columns of i16 + 0, __m256i, [__m256i; 2];
    start(_from) [_mm256_setzero_si256(); 2];
    quad(from) _mm256_set1_epi64x(from.cast::<i64>().read_unaligned());
    weights(from) {
        let (low, high) = (_mm_loadu_si128(from.cast()), _mm_loadu_si128(from.add(16).cast()));
        [_mm256_cvtepi8_epi16(low), _mm256_cvtepi8_epi16(high)]
    };
    plus(sums, quad, weights) {
        let (low, high) =
            (_mm256_madd_epi16(quad, weights[0]), _mm256_madd_epi16(quad, weights[1]));
        [_mm256_add_epi32(sums[0], low), _mm256_add_epi32(sums[1], high)]
    };
    store(sums, to) _mm256_storeu_si256(to.cast(), whole_256(sums));
    scale(sums, scales, row_scale, to) scale_eight(whole_256(sums), scales, row_scale, to);
}

/// Adds the two partial sums of each column.
#[inline(always)]
unsafe fn whole_512(sums: __m512i) -> __m256i {
    // SAFETY: as for the methods of [`Sum`], here and below.
    unsafe { _mm512_cvtepi64_epi32(_mm512_add_epi32(sums, _mm512_srli_epi64::<32>(sums))) }
}

/// Adds the two partial sums of each column.
#[inline(always)]
unsafe fn whole_256(sums: [__m256i; 2]) -> __m256i {
    // SAFETY: as above.
    unsafe { _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_hadd_epi32(sums[0], sums[1])) }
}

/// Multiplies each of eight sums by the scale of its column and by the scale of the row, and writes
/// the products.
#[inline(always)]
unsafe fn scale_eight(sums: __m256i, scales: *const f32, row_scale: f32, to: *mut f32) {
    // SAFETY: as above.
    unsafe {
        let scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(sums), _mm256_loadu_ps(scales));
        _mm256_storeu_ps(to, _mm256_mul_ps(scaled, _mm256_set1_ps(row_scale)));
    }
}
