//! What becomes of freed memory, where mimalloc is the program's allocator.

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

/// Makes what the threads of the pool have freed ready for other uses: between batches of different
/// shapes.
///
/// An allocator keeps what was freed for the next of the same size on the same thread. What a batch
/// of long sentences needs is of other sizes than what one of short sentences does, and either
/// thread may ask for it: without this, translating 2,000 lines took half as much memory again.
pub fn collect() {
    // SAFETY: looks after what the calling thread has freed; it touches nothing that is in use.
    rayon::broadcast(|_| unsafe { libmimalloc_sys::mi_collect(true) });
}

fn set_purge_delay(milliseconds: std::ffi::c_long) {
    // SAFETY: sets an option of the allocator, which it reads with atomic operations.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, milliseconds) };
}
