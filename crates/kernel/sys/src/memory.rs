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

/// Lets go of the pages of the program itself: those that are needed come back from the file, one that was needed for
/// a start does not. For a process that stays for long after a start that took much of the program.
pub fn let_go_of_program() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for (start, length) in maps.lines().filter_map(program_text) {
        // SAFETY: the range is a whole mapping of this process, of a file, private and never writable: what is in it is
        // what is in the file, and the kernel reads it again when it is used. The file cannot be written while it runs.
        unsafe {
            libc::madvise(
                std::ptr::without_provenance_mut(start),
                length,
                libc::MADV_DONTNEED,
            )
        };
    }
}

/// Start and length of a mapping of instructions from a file; of no other.
fn program_text(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (range, rights) = (fields.next()?, fields.next()?);
    let (inode, path) = (fields.nth(2)?, fields.next()?);
    if rights != "r-xp" || inode == "0" || !path.starts_with('/') {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let number = |text: &str| usize::from_str_radix(text, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    Some((start, end.checked_sub(start)?))
}

/// Makes all threads of this process take their memory from one place, so that what one has freed another can use. To be
/// called before there are threads; for a process with many of them that mostly wait.
#[cfg(target_env = "gnu")]
pub fn share_heap() {
    // SAFETY: takes two numbers. Refused, every thread has a place of its own as before, which only takes more.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Makes all threads of this process take their memory from one place; with this library they do.
#[cfg(not(target_env = "gnu"))]
pub fn share_heap() {}

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
    fn only_instructions_from_a_file_are_let_go() {
        let text = "7f10-7f30 r-xp 00001000 fe:00 42 /usr/bin/bastle";
        assert_eq!(program_text(text), Some((0x7f10, 0x20)));
        for other in [
            "7f10-7f30 rw-p 00001000 fe:00 42 /usr/bin/bastle",
            "7f10-7f30 r--p 00001000 fe:00 42 /usr/bin/bastle",
            "7f10-7f30 rwxp 00001000 fe:00 42 /usr/bin/bastle",
            "7f10-7f30 r-xs 00001000 fe:00 42 /usr/bin/bastle",
            "7f10-7f30 r-xp 00000000 00:00 0 [vdso]",
            "7f10-7f30 r-xp 00000000 00:00 0",
            "7f30-7f10 r-xp 00001000 fe:00 42 /usr/bin/bastle",
            "",
        ] {
            assert_eq!(program_text(other), None, "{other}");
        }
    }

    #[test]
    fn a_program_goes_on_without_the_pages_it_let_go_and_takes_less() {
        let mapped = || -> u64 {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with("RssFile:")).unwrap();
            line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
        };
        let before = mapped();
        let_go_of_program();
        let after = mapped();
        assert!(after < before, "{after} of {before} KiB");
        assert_eq!((1..=100_u64).map(black_box).sum::<u64>(), 5050);
    }

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
