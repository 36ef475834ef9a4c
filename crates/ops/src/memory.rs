//! Memory between training steps.

/// Lets mimalloc, where it is the program's allocator, keep the pages of freed memory from now on: for training.
///
/// A step allocates what the one before it freed. Given back to the system, pages fault in again one by one and cleared: a tenth of
/// a small model's step. The price is that the process stays as large as it once was.
pub fn keep_freed_pages() {
    /// `mi_option_purge_delay` of mimalloc.h, the same number in its versions 2 and 3; −1 is never.
    const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
    // SAFETY: sets an option of the allocator, which it reads with atomic operations.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, -1) };
}
