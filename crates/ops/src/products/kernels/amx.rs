//! Products by Intel's Advanced Matrix Extensions, AMX (Intel 64 and IA-32 Architectures Software
//! Developer's Manual, volume 1, chapter 18). One instruction computes 16 × 16 × 32 multiply-adds
//! of bf16, summed in f32.
//!
//! The intrinsics are not stable in Rust, so the instructions are written as assembly.

use super::tile::STEP_LINES;
use crate::products::operand::{Line, PANEL, Results};
use std::arch::asm;
use std::arch::x86_64::__cpuid_count;
use std::sync::OnceLock;

/// Operand of `ldtilecfg`: eight tiles, each of 16 rows of 64 bytes.
#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes: [u16; 16],
    rows: [u8; 16],
}

static CONFIG: TileConfig = {
    let (mut bytes, mut rows) = ([0; 16], [0; 16]);
    let mut i = 0;
    while i < 8 {
        bytes[i] = 64;
        rows[i] = 16;
        i += 1;
    }
    TileConfig { palette: 1, start_row: 0, reserved: [0; 14], bytes, rows }
};

/// Whether the processor has bf16 tiles and the operating system allows this process to use them.
pub(in crate::products) fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE
        .get_or_init(|| crate::products::has_avx512_bf16() && has_instructions() && permitted())
}

fn has_instructions() -> bool {
    const BF16: u32 = 1 << 22;
    const TILES: u32 = 1 << 24;
    let leaves = __cpuid_count(0, 0).eax;
    leaves >= 7 && __cpuid_count(7, 0).edx & (BF16 | TILES) == BF16 | TILES
}

/// Requests the 8 KiB of tile state from Linux, which are given to a process only on request
/// (Documentation/arch/x86/xstate.rst). Returns whether the request is granted.
#[cfg(target_os = "linux")]
fn permitted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const REQUEST_PERMISSION: u64 = 0x1023;
    const TILE_DATA: u64 = 18;
    let result: i64;
    // SAFETY: the system call takes two integers and touches no memory of ours; it clobbers rcx and
    // r11.
    unsafe {
        asm!("syscall", inlateout("rax") ARCH_PRCTL => result, in("rdi") REQUEST_PERMISSION, in("rsi") TILE_DATA,
             lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn permitted() -> bool {
    false
}

/// Guard for the tiles of this thread: the tiles stay configured until the guard is dropped, and
/// then lose their contents.
pub(in crate::products) struct Tiles(std::marker::PhantomData<*const ()>);

impl Tiles {
    /// Configures the tiles of this thread.
    pub(in crate::products) fn configure() -> Self {
        assert!(is_available());
        // SAFETY: the instruction exists and is permitted, and the configuration is a valid one of
        // palette 1.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const CONFIG, options(nostack, readonly)) };
        Self(std::marker::PhantomData)
    }

    /// Computes `a · b` for two panels (32 rows and 32 columns), over `steps` steps of 32 indices
    /// of the summed dimension. Values are split into `parts` bf16 parts (1 or 3). Depending on
    /// `results.add`, the product replaces the 32 × 32 results or is added to them.
    ///
    /// # Safety
    /// `a` and `b` have `steps · parts · STEP_LINES` lines, and `results` has 32 rows of 32 values.
    pub(in crate::products) unsafe fn multiply(
        &self,
        a: *const Line,
        b: *const Line,
        steps: usize,
        parts: usize,
        results: Results,
    ) {
        let Results { first: c, stride, add, .. } = results;
        debug_assert!(STEP_LINES * 64 == 2048 && PANEL == 32 && (parts == 1 || parts == 3));
        let (row, half) = (4 * stride, 64 * stride);
        // SAFETY: tiles 0 to 3 are read from and written to the 32 × 32 values of `c`, which exist
        // as the caller promises. The loops read `steps · parts` times 2048 bytes from `a` and from
        // `b`, which is the size of the operands as the caller promises.
        unsafe {
            if add {
                asm!(
                    "tileloadd tmm0, [{c} + {row}]", "tileloadd tmm1, [{c} + {row} + 64]",
                    "tileloadd tmm2, [{d} + {row}]", "tileloadd tmm3, [{d} + {row} + 64]",
                    c = in(reg) c, d = in(reg) c.byte_add(half), row = in(reg) row,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, options(nostack, readonly),
                );
            } else {
                asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, options(nostack, nomem));
            }
            if steps > 0 && parts == 1 {
                asm!(
                    "2:",
                    "tileloadd tmm4, [{a} + {s}]",
                    "tileloadd tmm6, [{b} + {s}]",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tileloadd tmm7, [{b} + {s} + 1024]",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "tileloadd tmm5, [{a} + {s} + 1024]",
                    "tdpbf16ps tmm2, tmm5, tmm6",
                    "tdpbf16ps tmm3, tmm5, tmm7",
                    "add {a}, 2048",
                    "add {b}, 2048",
                    "dec {n}",
                    "jnz 2b",
                    a = inout(reg) a => _, b = inout(reg) b => _, n = inout(reg) steps => _, s = in(reg) 64usize,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _, options(nostack, readonly),
                );
            } else if steps > 0 {
                // Each operand has parts 0, 1 and 2. The pairs of parts whose products are below
                // 2⁻²⁴ of the whole product, (1,2), (2,1) and (2,2), are omitted. The other pairs
                // are processed in the order (0,2) (0,1) (1,1) (1,0) (0,0) (2,0), so that
                // neighbouring pairs share a part that is already loaded.
                asm!(
                    "2:",
                    "tileloadd tmm4, [{a} + {s}]",
                    "tileloadd tmm6, [{b} + {s} + 4096]",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tileloadd tmm7, [{b} + {s} + 5120]",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "tileloadd tmm5, [{a} + {s} + 1024]",
                    "tdpbf16ps tmm2, tmm5, tmm6",
                    "tdpbf16ps tmm3, tmm5, tmm7",
                    "tileloadd tmm6, [{b} + {s} + 2048]",
                    "tileloadd tmm7, [{b} + {s} + 3072]",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "tdpbf16ps tmm2, tmm5, tmm6",
                    "tdpbf16ps tmm3, tmm5, tmm7",
                    "tileloadd tmm4, [{a} + {s} + 2048]",
                    "tileloadd tmm5, [{a} + {s} + 3072]",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "tdpbf16ps tmm2, tmm5, tmm6",
                    "tdpbf16ps tmm3, tmm5, tmm7",
                    "tileloadd tmm6, [{b} + {s}]",
                    "tileloadd tmm7, [{b} + {s} + 1024]",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "tdpbf16ps tmm2, tmm5, tmm6",
                    "tdpbf16ps tmm3, tmm5, tmm7",
                    "tileloadd tmm4, [{a} + {s}]",
                    "tileloadd tmm5, [{a} + {s} + 1024]",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "tdpbf16ps tmm2, tmm5, tmm6",
                    "tdpbf16ps tmm3, tmm5, tmm7",
                    "tileloadd tmm4, [{a} + {s} + 4096]",
                    "tileloadd tmm5, [{a} + {s} + 5120]",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "tdpbf16ps tmm2, tmm5, tmm6",
                    "tdpbf16ps tmm3, tmm5, tmm7",
                    "add {a}, 6144",
                    "add {b}, 6144",
                    "dec {n}",
                    "jnz 2b",
                    a = inout(reg) a => _, b = inout(reg) b => _, n = inout(reg) steps => _, s = in(reg) 64usize,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _, options(nostack, readonly),
                );
            }
            asm!(
                "tilestored [{c} + {row}], tmm0", "tilestored [{c} + {row} + 64], tmm1",
                "tilestored [{d} + {row}], tmm2", "tilestored [{d} + {row} + 64], tmm3",
                c = in(reg) c, d = in(reg) c.byte_add(half), row = in(reg) row, options(nostack),
            );
        }
    }

    /// Multiplies two tiles of zeros and adds the product to four tiles, `rounds` times, to measure
    /// the peak speed. Returns the number of multiply-adds in one round.
    pub(in crate::products) fn multiply_zeros(&self, rounds: usize) -> usize {
        for _ in 0..rounds {
            // SAFETY: the tiles are configured, and no memory is touched.
            unsafe {
                asm!(
                    "tilezero tmm4",
                    "tilezero tmm5",
                    "tdpbf16ps tmm0, tmm4, tmm5",
                    "tdpbf16ps tmm1, tmm4, tmm5",
                    "tdpbf16ps tmm2, tmm4, tmm5",
                    "tdpbf16ps tmm3, tmm4, tmm5",
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, options(nostack, nomem),
                );
            }
        }
        4 * 16 * 16 * 32
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: the tiles were configured on this thread; `Tiles` contains a raw pointer, so that
        // it cannot be sent to another.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}
