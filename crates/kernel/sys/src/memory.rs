//! Memory that a process has used and will not need while it waits.
use std::hint::black_box;

/// Below the frame that asks, this much stays: the next calls need it.
const NEAR: usize = 32 * 1024;
/// How far below is looked: deep calls of a start reach some hundred KiB.
const FAR: usize = 512 * 1024;

/// Gives back what was freed and what deep calls left on the stack, for a process that waits from now on.
pub fn give_back() {
    give_back_heap();
    // Only the first thread's stack has nothing else below it: the kernel keeps a gap of 1 MiB there.
    if rustix::thread::gettid() == rustix::process::getpid() {
        give_back_stack();
    }
}

#[cfg(target_env = "gnu")]
fn give_back_heap() {
    // SAFETY: takes a number and touches only memory that the allocator holds as free.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn give_back_heap() {}

#[inline(never)]
fn give_back_stack() {
    let here = 0_u8;
    let page = rustix::param::page_size();
    let top = (std::ptr::from_ref(black_box(&here)).addr() & !(page - 1)).saturating_sub(NEAR);
    let Some(bottom) = top.checked_sub(FAR) else {
        return;
    };
    // SAFETY: the pages lie below every living frame of this thread, which is the first one, and within the gap below its
    // stack nothing is mapped. They read as zeros when they are used again; where none is mapped the call does nothing.
    unsafe { libc::madvise(std::ptr::without_provenance_mut(bottom), FAR, libc::MADV_DONTNEED) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lives_is_as_it_was() {
        let before: Vec<Box<[u8]>> = (0..64_u8).map(|at| vec![at; 4000].into_boxed_slice()).collect();
        let deep = [7_u8; 64 * 1024];
        give_back();
        assert!(black_box(&deep).iter().all(|byte| *byte == 7));
        for (at, one) in (0..64_u8).zip(&before) {
            assert!(one.iter().all(|byte| *byte == at));
        }
    }
}
