//! What becomes of freed memory, where mimalloc is the program's allocator, and what happens where
//! there is none left.

use std::alloc::{GlobalAlloc, Layout};
use std::io::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// `mi_option_purge_delay` of mimalloc.h, the same number in its versions 2 and 3: milliseconds; −1
/// is never.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Keeps the pages of freed memory from now on: for training.
///
/// A step allocates what the one before it freed. Given back to the system, pages fault in again
/// one by one and cleared: a tenth of a small model's step. The price is that the process stays as
/// large as it once was.
pub fn keep_freed_pages() {
    set_purge_delay(-1);
}

/// Gives the pages of freed memory back, a tenth of a second later or when [`collect`] is called,
/// and asks for no huge ones from now on: for decoding.
///
/// Huge pages, which Linux gives where half of one is asked for, make a small model's process a
/// quarter larger, and neither it nor a base model quicker.
pub fn return_freed_pages() {
    set_purge_delay(100);
    // Where the kernel does not know how, memory is larger.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Makes what this thread and those of the pool have freed ready for other uses: between batches of
/// different shapes.
///
/// An allocator keeps what was freed for the next of the same size on the same thread. What a batch
/// of long sentences needs is of other sizes than what one of short sentences does, and either
/// thread may ask for it: without this, translating 2,000 lines took half as much memory again.
pub fn collect() {
    // SAFETY: looks after what the calling thread has freed; it touches nothing that is in use.
    let of_this_thread = || unsafe { libmimalloc_sys::mi_collect(true) };
    of_this_thread();
    rayon::broadcast(|_| of_this_thread());
}

/// Where addresses are limited (`ulimit -v`), keeps the C library's own allocator to one arena. It
/// reserves 64 MiB of addresses for each thread otherwise, as long as there are any, and uses next
/// to nothing of them: memory goes through mimalloc.
///
/// Call it before any other thread exists.
pub fn spare_addresses() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if rustix::process::getrlimit(rustix::process::Resource::As).current.is_some() {
        // SAFETY: sets a figure that the allocator reads when it is asked for its next arena.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}

/// Whether [`Explaining`] counts.
static COUNTS: AtomicBool = AtomicBool::new(false);
/// Bytes in use beyond those at the beginning of the count, and the most there were.
static IN_USE: AtomicI64 = AtomicI64::new(0);
static MOST_IN_USE: AtomicI64 = AtomicI64::new(0);

/// Bytes that a piece of work had in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InUse {
    /// At one time, at most.
    pub most: u64,
    /// When it had its result.
    pub kept: u64,
}

/// What `work` returns, and the bytes that it had in use; nothing where [`Explaining`] is not the
/// program's allocator.
///
/// What the process has resident also depends on which thread computed what, since each keeps what
/// it freed. This does not, but for the little that threads take for themselves. One count goes on
/// at a time.
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

/// Counts a change of the bytes in use, while something is counted.
fn count(change: i64) {
    if COUNTS.load(Ordering::Relaxed) {
        let now = IN_USE.fetch_add(change, Ordering::Relaxed) + change;
        if change > 0 {
            MOST_IN_USE.fetch_max(now, Ordering::Relaxed);
        }
    }
}

fn set_purge_delay(milliseconds: std::ffi::c_long) {
    // SAFETY: sets an option of the allocator, which it reads with atomic operations.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, milliseconds) };
}

/// An allocator that ends the process with an error message and exit code 2 where there is no
/// memory left, in place of an abort without a word: the figures of a recipe or an option may ask
/// for any amount, and it is their writer who has to know.
///
/// Sizes from 8 KiB up to 512 KiB it asks for as powers of two.
#[derive(Debug, Clone, Copy)]
pub struct Explaining<A>(pub A);

/// Sizes that are rounded up to powers of two.
///
/// As hypotheses end, each step of a search asks for blocks a little smaller than the one before.
/// mimalloc has eight sizes between two powers of two, and for each on each thread pages of half a
/// MiB, or of four from 64 KiB on, whose freed blocks serve that size alone: a beam search held a
/// quarter more memory than it now does. The room behind what was asked for is never touched.
const UNEVEN: Range<usize> = 8 * 1024..512 * 1024;

fn rounded(layout: Layout) -> Layout {
    if !UNEVEN.contains(&layout.size()) {
        return layout;
    }
    // SAFETY: the alignment is one, and the size far from too large.
    unsafe { Layout::from_size_align_unchecked(layout.size().next_power_of_two(), layout.align()) }
}

// SAFETY: every method hands its arguments on to the allocator inside and returns what that
// returns, unless it ends the process. A block is as large there as its rounded size says, whoever
// asks, and never smaller than it should be.
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

/// `memory`, if there is any.
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
    // What does not fit is cut off, and a message that nobody reads is no loss.
    let _ = writeln!(
        left,
        "\nerror: out of memory: {size} bytes more cannot be had of the system, the container or ulimit -v; \
         use smaller batches (data.batching.max_tokens), a smaller model, or more memory"
    );
    let length = room - left.len();
    let _ = std::io::stderr().write_all(&text[..length]);
    // At once: what is done at an orderly end may allocate.
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

    /// The system's, which remembers with which layout each block was asked for.
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

    // SAFETY: the system's allocator, which fills what it gives.
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
