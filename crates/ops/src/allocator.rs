//! Control over memory that mimalloc keeps after it was freed, and an error message when memory is
//! exhausted.

use std::alloc::{GlobalAlloc, Layout};
use std::io::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// Index of the option `mi_option_purge_delay` in mimalloc.h, the same in versions 2 and 3. The
/// option's value is in milliseconds; −1 means never.
#[cfg(not(target_family = "wasm"))]
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// From now on, keeps the pages of freed memory in the process instead of returning them to the
/// system; meant for training.
///
/// A training step allocates as much as the previous one freed. If pages were returned to the
/// system, each would cause a page fault and be cleared again. For a small model, this takes a
/// tenth of a step. The price is that the process never shrinks.
pub fn keep_freed_pages() {
    set_purge_delay(-1);
}

/// From now on, uses no huge pages, and returns the pages of freed memory to the system. This
/// happens a tenth of a second after they are freed, or when [`collect`] is called. Meant for
/// decoding.
///
/// Linux uses a huge page as soon as a program requests half of its size. With huge pages, a small
/// model's process uses a quarter more memory, and neither a small nor a base model is faster.
/// Loading the weights of GPT-2 into huge pages took two seconds longer if free memory was
/// fragmented.
pub fn return_freed_pages() {
    set_purge_delay(100);
    // If the kernel lacks this call, the process only uses more memory.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Makes freed memory available for other uses: the memory that the calling thread and the threads
/// of Rayon's pool have freed. Waits until all of these threads have done their part. A busy thread
/// does so only after its work, so the wait can be long; [`collect_soon`] does not wait.
pub fn collect() {
    #[cfg(not(target_family = "wasm"))]
    {
        of_this_thread();
        rayon::broadcast(|_| of_this_thread());
    }
}

/// Like [`collect`], but does not wait for the threads of the pool. A thread that is busy makes its
/// own freed memory available later, before it takes over work of another thread. Called between
/// batches of different shapes.
///
/// An allocator keeps freed blocks for the next request of the same size on the same thread. But
/// batches of long and of short sentences need different sizes, on any thread. Without this call,
/// translating 2,000 lines took one and a half times as much memory.
pub fn collect_soon() {
    #[cfg(not(target_family = "wasm"))]
    {
        of_this_thread();
        rayon::spawn_broadcast(|_| of_this_thread());
    }
}

#[cfg(not(target_family = "wasm"))]
fn of_this_thread() {
    // SAFETY: frees memory of the calling thread that is no longer used; it touches nothing that is
    // in use.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

/// Limits the C library's own allocator to one arena (pool of memory) if the address space is
/// limited (`ulimit -v`). Otherwise that allocator reserves 64 MiB of addresses for each thread
/// until none are left. Almost none of these addresses would be used, because nearly all memory
/// comes from mimalloc.
///
/// Must be called before any other thread exists.
pub fn spare_addresses() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if rustix::process::getrlimit(rustix::process::Resource::As).current.is_some() {
        // SAFETY: sets a number that the allocator reads when it is asked for its next arena.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}

/// Whether [`counted`] is running, and [`Explaining`] therefore counts bytes.
static COUNTS: AtomicBool = AtomicBool::new(false);
/// Bytes in use, minus the bytes that were in use when counting began.
static IN_USE: AtomicI64 = AtomicI64::new(0);
/// Largest value of [`IN_USE`] since counting began.
static MOST_IN_USE: AtomicI64 = AtomicI64::new(0);

/// Bytes that a function used, as counted by [`counted`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InUse {
    /// Largest number of bytes in use at any time.
    pub most: u64,
    /// Bytes still in use when the function returned its result.
    pub kept: u64,
}

/// Runs `work`, and returns its result and the bytes that it used. The bytes are `None` if
/// [`Explaining`] is not the program's allocator.
///
/// Unlike the resident memory of the process, the count does not include memory that a thread keeps
/// after freeing it. It therefore hardly depends on which thread did which work. Two counts must
/// not run at the same time.
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

/// Adds a change to the bytes in use, if they are being counted.
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

/// An allocator that explains when memory is exhausted: it ends the process with an error message
/// and exit code 2. A configuration file or a command-line option can request any amount of memory,
/// so the user has to learn why the process ended.
///
/// It rounds sizes from 8 KiB up to 512 KiB to powers of two.
#[derive(Debug, Clone, Copy)]
pub struct Explaining<A>(pub A);

/// Range of sizes, in bytes, that are rounded up to powers of two.
///
/// In a beam search, hypotheses end one after the other, so each step requests slightly smaller
/// blocks than the step before. mimalloc has eight size classes between two powers of two. For each
/// class, each thread has its own pages of half a MiB (four MiB for sizes from 64 KiB on). Freed
/// blocks in them can be used only for sizes of the same class. So without rounding, a beam search
/// held a quarter more memory. The bytes added by rounding are never touched, so that the system
/// need not provide them.
const UNEVEN: Range<usize> = 8 * 1024..512 * 1024;

fn rounded(layout: Layout) -> Layout {
    if !UNEVEN.contains(&layout.size()) {
        return layout;
    }
    // SAFETY: the alignment is that of a valid layout, and the size is far from the maximum.
    unsafe { Layout::from_size_align_unchecked(layout.size().next_power_of_two(), layout.align()) }
}

// SAFETY: every method passes its arguments to the inner allocator, with rounded sizes, and returns
// its result, or ends the process. The rounded size depends only on the requested size and is never
// smaller.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Explaining<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: as the caller promises.
        had(unsafe { self.0.alloc(rounded(layout)) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if UNEVEN.contains(&layout.size()) {
            // SAFETY: as the caller promises; the block has at least as many bytes as are written.
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
        // SAFETY: the caller promises that `size` and this alignment form a valid layout.
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

/// Returns `memory`, or ends the process if it is null. `size`: requested bytes, for the message.
fn had(memory: *mut u8, size: usize) -> *mut u8 {
    if memory.is_null() {
        out_of_memory(size);
    }
    memory
}

/// Prints an error message and ends the process. Nothing here allocates.
#[cold]
fn out_of_memory(size: usize) -> ! {
    let mut text = [0; 256];
    let room = text.len();
    let mut left = &mut text[..];
    // A message that does not fit the buffer is truncated; if it cannot be written, the process
    // still ends.
    let _ = writeln!(
        left,
        "\nerror: out of memory: {size} bytes more cannot be had of the system, the container or ulimit -v; \
         use smaller batches (data.batching.max_tokens), a smaller model, or more memory"
    );
    let length = room - left.len();
    let _ = std::io::stderr().write_all(&text[..length]);
    // Exits at once, since Rust's normal exit can allocate.
    #[cfg(unix)]
    // SAFETY: ends the process without running any other code.
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

    /// The system's allocator, with a check that each block is freed with the same layout with
    /// which it was allocated.
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

    // SAFETY: calls the system's allocator, and fills the blocks that it allocates.
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

    /// If the only other thread of a pool is busy, [`collect_soon`] must not wait for it.
    #[test]
    #[cfg(not(target_family = "wasm"))]
    fn collecting_soon_waits_for_no_thread() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let (send, receive) = std::sync::mpsc::channel::<()>();
        let busy = Mutex::new(receive);
        pool.in_place_scope(|scope| {
            scope.spawn(|_| busy.lock().unwrap().recv().unwrap());
            let (send_begun, begun) = std::sync::mpsc::channel();
            scope.spawn(move |_| {
                collect_soon();
                send_begun.send(()).unwrap();
            });
            // With `collect` instead, nothing would ever be received.
            let received = begun.recv_timeout(std::time::Duration::from_secs(60));
            send.send(()).unwrap();
            received.expect("not blocked");
        });
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
