//! What the program's allocator, where it is mimalloc, does with freed memory.

use libmimalloc_sys::{mi_option_set, mi_option_t};

/// `mi_option_purge_delay` of mimalloc.h, in milliseconds; −1 is never.
const PURGE_DELAY: mi_option_t = 15;
/// `mi_option_minimal_purge_size` of mimalloc.h, in KiB.
const MINIMAL_PURGE_SIZE: mi_option_t = 44;

/// Keeps the pages of freed memory from now on: for training.
///
/// A step allocates what the one before it freed. Given back to the system, pages fault in again one by one and cleared: a tenth of
/// a small model's step. The price is that the process stays as large as it once was.
pub fn keep_freed_pages() {
    // SAFETY: sets an option of the allocator, which it reads with atomic operations.
    unsafe { mi_option_set(PURGE_DELAY, -1) };
}

/// Gives the pages of freed memory back at once, and has the system hand out small ones: for decoding, which needs little at a time but
/// never the same twice. Half of a small model's memory would be pages that nobody uses.
pub fn give_back_freed_pages() {
    // SAFETY: as above.
    unsafe {
        mi_option_set(PURGE_DELAY, 0);
        mi_option_set(MINIMAL_PURGE_SIZE, 64);
    }
    without_huge_pages();
}

/// mimalloc asks for huge pages, 2 MiB each, which the system fills at the first touch.
#[cfg(target_os = "linux")]
fn without_huge_pages() {
    // SAFETY: takes four numbers and touches no memory of ours. A system that refuses goes on as before.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
}

#[cfg(not(target_os = "linux"))]
fn without_huge_pages() {}
