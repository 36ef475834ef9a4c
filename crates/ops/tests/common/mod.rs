//! What the tests of the operations share.

use taper_ops::Kernel;

/// Runs the other tests of this program again through each matrix kernel that this machine has:
/// which one multiplies is chosen once for a process. `caller` is the test that calls.
pub(crate) fn again_through_every_kernel(caller: &str) {
    for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_here()) {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        let output =
            again.args(["--skip", caller]).env("TAPER_KERNEL", kernel.name()).output().unwrap();
        assert!(output.status.success(), "{kernel:?}: {}", String::from_utf8_lossy(&output.stdout));
    }
}
