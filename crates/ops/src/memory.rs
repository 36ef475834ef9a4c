//! What becomes of freed memory, where mimalloc is the program's allocator.

/// `mi_option_purge_delay` of mimalloc.h, the same number in its versions 2 and 3: milliseconds.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Keeps the pages of freed memory from now on: for training.
///
/// A step allocates what the one before it freed. Given back to the system, pages fault in again one by one and cleared: a tenth of
/// a small model's step. The price is that the process stays as large as it once was.
pub fn keep_freed_pages() {
    set_purge_delay(-1);
}

/// Gives the pages of freed memory back soon after: for decoding.
///
/// What a batch of short sentences needs is of other sizes than what one of long sentences does. After 20 ms instead of the second that is
/// mimalloc's default, a fifth less memory is held at most, for 2 to 8 % more time; at once would cost a third.
pub fn return_freed_pages() {
    set_purge_delay(20);
}

fn set_purge_delay(milliseconds: std::ffi::c_long) {
    // SAFETY: sets an option of the allocator, which it reads with atomic operations.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, milliseconds) };
}
