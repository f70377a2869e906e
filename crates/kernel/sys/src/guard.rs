//! Looking into the memory of another process.
use std::io;

/// Copies bytes from the memory of the thread `tid`; fewer than asked for when the rest is not there.
///
/// The number may be reused once the thread is gone: the caller makes sure it was not, after the call.
pub fn read_memory(tid: u32, address: u64, into: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address as usize),
        iov_len: into.len(),
    };
    // SAFETY: the kernel writes at most `iov_len` bytes to `local`, which is `into`, borrowed for the whole call;
    // `remote` is an address in the other process and is never followed here.
    let ret =
        unsafe { libc::process_vm_readv(tid.cast_signed(), &raw const local, 1, &raw const remote, 1, 0) };
    super::check(ret as libc::c_long).map(|count| count as usize)
}
