//! Registers of i32 sums, as each instruction set has them.

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::*;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Sums for some columns of weights, to which four products a column are added at a time.
///
/// # Safety
/// Every method needs the instructions of its implementation, and is compiled for them where it is
/// inlined into a function that enables them. Pointers are to as many values as are read or
/// written, aligned for bytes alone but where i32 is written.
pub(super) trait Sum: Copy {
    /// An activation as it is stored.
    type Activation: Copy;
    /// Four activations of a row, for each column.
    type Quad: Copy;
    /// Four weights of each column.
    type Weights: Copy;
    /// Columns of a register.
    const COLUMNS: usize;
    /// What is added to each activation when it is stored.
    const SHIFT: i32;

    /// An activation from the low bits of what it is rounded to.
    fn stored(bits: u32) -> Self::Activation;
    /// What the sum of each column begins with: nothing, or for shifted activations what is there.
    unsafe fn start(from: *const i32) -> Self;
    unsafe fn quad(from: *const Self::Activation) -> Self::Quad;
    unsafe fn weights(from: *const i8) -> Self::Weights;
    /// `self + Σ quad · weights`, exactly.
    unsafe fn plus(self, quad: Self::Quad, weights: Self::Weights) -> Self;
    unsafe fn store(self, to: *mut i32);

    /// Writes the sums times the scale of each column, times that of the row.
    #[inline(always)]
    unsafe fn scale(self, scales: *const f32, row_scale: f32, to: *mut f32) {
        const { assert!(Self::COLUMNS <= 16) };
        let mut sums = [0; 16];
        // SAFETY: the caller's promise; there is room for the sums.
        unsafe {
            self.store(sums.as_mut_ptr());
            for (column, sum) in sums.into_iter().enumerate().take(Self::COLUMNS) {
                to.add(column).write(sum as f32 * *scales.add(column) * row_scale);
            }
        }
    }
}

/// Sixteen columns, of u8 by i8.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Vnni512(__m512i);

#[cfg(target_arch = "x86_64")]
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

/// Eight columns, of u8 by i8.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Vnni256(__m256i);

#[cfg(target_arch = "x86_64")]
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
        unsafe {
            let scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(self.0), _mm256_loadu_ps(scales));
            _mm256_storeu_ps(to, _mm256_mul_ps(scaled, _mm256_set1_ps(row_scale)));
        }
    }
}

/// Eight columns with two sums each, of 16-bit values.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Words512(__m512i);

#[cfg(target_arch = "x86_64")]
impl Words512 {
    /// The two sums of each column as one.
    #[inline(always)]
    unsafe fn whole(self) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm512_cvtepi64_epi32(_mm512_add_epi32(self.0, _mm512_srli_epi64::<32>(self.0))) }
    }
}

#[cfg(target_arch = "x86_64")]
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
        unsafe {
            let scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(self.whole()), _mm256_loadu_ps(scales));
            _mm256_storeu_ps(to, _mm256_mul_ps(scaled, _mm256_set1_ps(row_scale)));
        }
    }
}

/// Eight columns with two sums each, of 16-bit values, in two registers.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Words256([__m256i; 2]);

#[cfg(target_arch = "x86_64")]
impl Words256 {
    /// The two sums of each column as one.
    #[inline(always)]
    unsafe fn whole(self) -> __m256i {
        // SAFETY: as above.
        unsafe {
            let sums = _mm256_hadd_epi32(self.0[0], self.0[1]);
            _mm256_permute4x64_epi64::<0b11_01_10_00>(sums)
        }
    }
}

#[cfg(target_arch = "x86_64")]
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
        unsafe {
            let scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(self.whole()), _mm256_loadu_ps(scales));
            _mm256_storeu_ps(to, _mm256_mul_ps(scaled, _mm256_set1_ps(row_scale)));
        }
    }
}

/// Four columns, of i8 by i8.
#[cfg(target_arch = "aarch64")]
#[derive(Clone, Copy)]
pub(super) struct NeonDot(int32x4_t);

#[cfg(target_arch = "aarch64")]
impl Sum for NeonDot {
    type Activation = i8;
    type Quad = int8x16_t;
    type Weights = int8x16_t;
    const COLUMNS: usize = 4;
    const SHIFT: i32 = 0;

    #[inline(always)]
    fn stored(bits: u32) -> i8 {
        bits as i8
    }

    #[inline(always)]
    unsafe fn start(_: *const i32) -> Self {
        // SAFETY: the caller's promise, here and below.
        Self(unsafe { vdupq_n_s32(0) })
    }

    #[inline(always)]
    unsafe fn quad(from: *const i8) -> int8x16_t {
        // SAFETY: as above.
        unsafe { vreinterpretq_s8_s32(vdupq_n_s32(from.cast::<i32>().read_unaligned())) }
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> int8x16_t {
        // SAFETY: as above.
        unsafe { vld1q_s8(from) }
    }

    /// By name: Rust has no stable function for this instruction.
    #[inline(always)]
    unsafe fn plus(self, quad: int8x16_t, weights: int8x16_t) -> Self {
        let mut sums = self.0;
        // SAFETY: as above; the instruction touches the three registers alone.
        unsafe {
            std::arch::asm!(
                ".arch_extension dotprod",
                "sdot {sums:v}.4s, {weights:v}.16b, {quad:v}.16b",
                sums = inout(vreg) sums,
                weights = in(vreg) weights,
                quad = in(vreg) quad,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        Self(sums)
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut i32) {
        // SAFETY: as above.
        unsafe { vst1q_s32(to, self.0) }
    }
}

/// Two columns with two sums each, of i8 by i8.
#[cfg(target_arch = "aarch64")]
#[derive(Clone, Copy)]
pub(super) struct Neon(int32x4_t);

#[cfg(target_arch = "aarch64")]
impl Sum for Neon {
    type Activation = i8;
    type Quad = int8x8_t;
    type Weights = int8x8_t;
    const COLUMNS: usize = 2;
    const SHIFT: i32 = 0;

    #[inline(always)]
    fn stored(bits: u32) -> i8 {
        bits as i8
    }

    #[inline(always)]
    unsafe fn start(_: *const i32) -> Self {
        // SAFETY: as above.
        Self(unsafe { vdupq_n_s32(0) })
    }

    #[inline(always)]
    unsafe fn quad(from: *const i8) -> int8x8_t {
        // SAFETY: as above.
        unsafe { vreinterpret_s8_s32(vdup_n_s32(from.cast::<i32>().read_unaligned())) }
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> int8x8_t {
        // SAFETY: as above.
        unsafe { vld1_s8(from) }
    }

    #[inline(always)]
    unsafe fn plus(self, quad: int8x8_t, weights: int8x8_t) -> Self {
        // SAFETY: as above. A product of two 8-bit values fits 16 bits.
        Self(unsafe { vpadalq_s16(self.0, vmull_s8(quad, weights)) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut i32) {
        // SAFETY: as above.
        unsafe { vst1_s32(to, vpadd_s32(vget_low_s32(self.0), vget_high_s32(self.0))) }
    }
}
