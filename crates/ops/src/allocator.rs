//! Handling of freed memory if mimalloc is the program's allocator, and of exhausted memory.

use std::alloc::{GlobalAlloc, Layout};
use std::io::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// Number of `mi_option_purge_delay` in mimalloc.h, the same in versions 2 and 3. The value is in
/// milliseconds; −1 means never.
#[cfg(not(target_family = "wasm"))]
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Keeps the pages of freed memory from now on, for training.
///
/// A step allocates what the previous one freed. If pages were returned to the system, each would
/// fault and be cleared again, which takes a tenth of a small model's step. The price is that the
/// process never shrinks.
pub fn keep_freed_pages() {
    set_purge_delay(-1);
}

/// Returns the pages of freed memory from now on, a tenth of a second later or when [`collect`] is
/// called, for decoding with `weights` bytes of weights.
///
/// Huge pages are used only if the weights are large. Linux uses one when half of it is requested,
/// which makes a small model's process a quarter larger, and neither it nor a base model faster.
/// But loading GPT-2 touches half a GB for the first time, and a quarter of that time is saved.
pub fn return_freed_pages(weights: u64) {
    set_purge_delay(100);
    // A kernel without this call only uses more memory.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(weights < LARGE_WEIGHTS);
}

/// Number of bytes from which on weights are large.
const LARGE_WEIGHTS: u64 = 1 << 28;

/// Asks Linux for huge pages for `values`, which are about to be filled.
#[cfg_attr(not(target_os = "linux"), expect(unused_variables))]
pub(crate) fn prefer_huge_pages<T>(values: &mut [T]) {
    #[cfg(target_os = "linux")]
    {
        const HUGE: usize = 2 << 20;
        let std::ops::Range { start, end } = values.as_mut_ptr_range();
        let first = start.addr().next_multiple_of(HUGE);
        let bytes = (end.addr() / HUGE * HUGE).saturating_sub(first);
        if bytes > 0 {
            // SAFETY: the range lies within `values`, and the advice changes no content. A kernel
            // that refuses it uses small pages.
            let _ = unsafe {
                rustix::mm::madvise(
                    start.with_addr(first).cast(),
                    bytes,
                    rustix::mm::Advice::LinuxHugepage,
                )
            };
        }
    }
}

/// Releases memory that this thread and the pool's threads have freed for other uses; called
/// between batches of different shapes.
///
/// An allocator keeps freed blocks for the next request of the same size on the same thread. But
/// batches of long and of short sentences need different sizes, on any thread: without this call,
/// translating 2,000 lines took half as much memory again.
pub fn collect() {
    #[cfg(not(target_family = "wasm"))]
    collect_on_every_thread();
}

#[cfg(not(target_family = "wasm"))]
fn collect_on_every_thread() {
    // SAFETY: frees memory of the calling thread that is no longer used; it touches nothing that is
    // in use.
    let of_this_thread = || unsafe { libmimalloc_sys::mi_collect(true) };
    of_this_thread();
    rayon::broadcast(|_| of_this_thread());
}

/// Limits the C library's own allocator to one arena if the address space is limited (`ulimit -v`).
/// Otherwise it reserves 64 MiB of addresses for each thread while any are left, and uses almost
/// none of them, since memory comes from mimalloc.
///
/// Must be called before any other thread exists.
pub fn spare_addresses() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if rustix::process::getrlimit(rustix::process::Resource::As).current.is_some() {
        // SAFETY: sets a number that the allocator reads when it is asked for its next arena.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}

/// True if [`Explaining`] is counting.
static COUNTS: AtomicBool = AtomicBool::new(false);
/// Bytes in use beyond those at the start of counting, and their maximum.
static IN_USE: AtomicI64 = AtomicI64::new(0);
static MOST_IN_USE: AtomicI64 = AtomicI64::new(0);

/// Bytes that a piece of work used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InUse {
    /// Largest number in use at any time.
    pub most: u64,
    /// Bytes in use when the work returned its result.
    pub kept: u64,
}

/// Runs `work`, and returns its result and the bytes that it used; `None` if [`Explaining`] is not
/// the program's allocator.
///
/// The resident memory of a process also depends on which thread computed what, since each keeps
/// the memory that it freed. This count does not, except for the little that threads allocate for
/// themselves. Only one count runs at a time.
pub fn counted<R>(work: impl FnOnce() -> R) -> (R, Option<InUse>) {
    IN_USE.store(0, Ordering::Relaxed);
    MOST_IN_USE.store(0, Ordering::Relaxed);
    COUNTS.store(true, Ordering::Relaxed);
    let result = work();
    COUNTS.store(false, Ordering::Relaxed);
    let [most, kept] = [&MOST_IN_USE, &IN_USE]
        .map(|bytes| u64::try_from(bytes.load(Ordering::Relaxed)).unwrap_or(0));
    (result, (most > 0).then_some(InUse { most, kept }))
}

/// Counts a change of the bytes in use, if counting.
fn count(change: i64) {
    if COUNTS.load(Ordering::Relaxed) {
        let now = IN_USE.fetch_add(change, Ordering::Relaxed) + change;
        if change > 0 {
            MOST_IN_USE.fetch_max(now, Ordering::Relaxed);
        }
    }
}

fn set_purge_delay(milliseconds: std::ffi::c_long) {
    #[cfg(target_family = "wasm")]
    let _ = milliseconds;
    // SAFETY: sets an option of the allocator, which it reads with atomic operations.
    #[cfg(not(target_family = "wasm"))]
    unsafe {
        libmimalloc_sys::mi_option_set(PURGE_DELAY, milliseconds)
    };
}

/// An allocator that ends the process with an error message and exit code 2 when memory is
/// exhausted, instead of aborting silently. Recipes and options can request any amount, and their
/// writer has to know.
///
/// It rounds sizes from 8 KiB up to 512 KiB to powers of two.
#[derive(Debug, Clone, Copy)]
pub struct Explaining<A>(pub A);

/// Sizes that are rounded up to powers of two.
///
/// As hypotheses end, each step of a search requests slightly smaller blocks than the one before.
/// mimalloc has eight sizes between two powers of two. For each of them, each thread has pages of
/// half a MiB, or of four MiB from 64 KiB on, whose freed blocks serve that size alone: without
/// rounding, a beam search held a quarter more memory. The additional room is never touched.
const UNEVEN: Range<usize> = 8 * 1024..512 * 1024;

fn rounded(layout: Layout) -> Layout {
    if !UNEVEN.contains(&layout.size()) {
        return layout;
    }
    // SAFETY: the alignment is one, and the size far from too large.
    unsafe { Layout::from_size_align_unchecked(layout.size().next_power_of_two(), layout.align()) }
}

// SAFETY: every method passes its arguments to the inner allocator and returns its result, unless
// it ends the process. A block there has its rounded size, which depends only on the requested one
// and is never smaller.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Explaining<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: as the caller promises.
        had(unsafe { self.0.alloc(rounded(layout)) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if UNEVEN.contains(&layout.size()) {
            // SAFETY: as the caller promises; there is as much memory as is written.
            return unsafe {
                let memory = self.alloc(layout);
                memory.write_bytes(0, layout.size());
                memory
            };
        }
        count(layout.size() as i64);
        // SAFETY: as the caller promises.
        had(unsafe { self.0.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: as the caller promises: the size with this alignment is a layout.
        let new = unsafe { rounded(Layout::from_size_align_unchecked(size, layout.align())) };
        // SAFETY: as the caller promises.
        had(unsafe { self.0.realloc(memory, rounded(layout), new.size()) }, size)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: as the caller promises.
        unsafe { self.0.dealloc(memory, rounded(layout)) }
    }
}

/// Returns `memory`, or ends the process if it is null.
fn had(memory: *mut u8, size: usize) -> *mut u8 {
    if memory.is_null() {
        out_of_memory(size);
    }
    memory
}

/// Ends the process. Nothing here allocates.
#[cold]
fn out_of_memory(size: usize) -> ! {
    let mut text = [0; 256];
    let room = text.len();
    let mut left = &mut text[..];
    // A message that does not fit is truncated, and a failed write is no loss.
    let _ = writeln!(
        left,
        "\nerror: out of memory: {size} bytes more cannot be had of the system, the container or ulimit -v; \
         use smaller batches (data.batching.max_tokens), a smaller model, or more memory"
    );
    let length = room - left.len();
    let _ = std::io::stderr().write_all(&text[..length]);
    // Exits at once, since an orderly exit may allocate.
    #[cfg(unix)]
    // SAFETY: ends the process without running anything.
    unsafe {
        libc::_exit(2)
    }
    #[cfg(not(unix))]
    std::process::exit(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::System;
    use std::collections::HashMap;
    use std::sync::Mutex;

    /// The system's allocator, which checks that each block is freed with the layout that it was
    /// allocated with.
    #[derive(Default)]
    struct Strict(Mutex<HashMap<usize, Layout>>);

    impl Strict {
        fn gave(&self, memory: *mut u8, layout: Layout) -> *mut u8 {
            assert!(self.0.lock().unwrap().insert(memory as usize, layout).is_none());
            memory
        }

        fn takes(&self, memory: *mut u8, layout: Layout) {
            assert_eq!(self.0.lock().unwrap().remove(&(memory as usize)), Some(layout));
        }
    }

    // SAFETY: the system's allocator, which fills the blocks that it allocates.
    unsafe impl GlobalAlloc for Strict {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: as the caller promises.
            unsafe {
                let memory = System.alloc(layout);
                memory.write_bytes(7, layout.size());
                self.gave(memory, layout)
            }
        }

        unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
            self.takes(memory, layout);
            // SAFETY: as the caller promises.
            unsafe { System.dealloc(memory, layout) }
        }
    }

    #[test]
    fn blocks_are_rounded_and_the_allocator_inside_is_told_the_same_at_both_ends() {
        let strict = Explaining(Strict::default());
        let sizes = [1, 8191, 8192, 8193, 100_000, 262_144, 300_000, 524_287, 524_288, 600_000];
        for align in [4, 64] {
            for (size, next) in sizes.into_iter().flat_map(|size| sizes.map(|next| (size, next))) {
                let [layout, after] =
                    [size, next].map(|size| Layout::from_size_align(size, align).unwrap());
                // SAFETY: blocks are used within their sizes, and freed once with their layouts.
                unsafe {
                    let memory = strict.alloc_zeroed(layout);
                    assert!(std::slice::from_raw_parts(memory, size).iter().all(|&byte| byte == 0));
                    memory.write_bytes(3, size);
                    let memory = strict.realloc(memory, layout, next);
                    let kept = std::slice::from_raw_parts(memory, size.min(next));
                    assert!(kept.iter().all(|&byte| byte == 3), "{size} to {next}");
                    strict.dealloc(memory, after);
                }
            }
        }
        assert!(strict.0.0.lock().unwrap().is_empty());
        let layout = |size| Layout::from_size_align(size, 4).unwrap();
        let rounded = |size| super::rounded(layout(size)).size();
        assert_eq!([8191, 8193, 524_287, 524_289].map(rounded), [8191, 16_384, 524_288, 524_289]);
    }
}
