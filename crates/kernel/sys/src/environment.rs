//! Forgetting the arguments and the environment this process was started with.
use std::ffi::{CStr, c_char};
use std::io;
use std::os::unix::ffi::OsStrExt;

unsafe extern "C" {
    /// The C library's own list, ended by a null pointer.
    static mut environ: *mut *mut c_char;
    /// The C library's pointer to the first argument as the kernel laid it down.
    static mut program_invocation_name: *mut c_char;
}

/// Overwrites the arguments with `name` and zeros: what `/proc/PID/cmdline` shows, to everybody who sees the process.
///
/// For a process with one thread that does not ask for its arguments any more. Fails where they are not found: then
/// nothing is overwritten on a guess, and the process must not go on as if it had been.
pub fn wipe_arguments(name: &str) -> io::Result<()> {
    let mut name = name.bytes();
    each_argument(|_, place| place.fill_with(|| name.next().unwrap_or(0)))
}

/// Puts `text` in the place of one argument, for everybody who sees the process and for itself. What is longer than the
/// argument was is refused; what is shorter is followed by zeros, so only the last one can become shorter unseen.
///
/// For a process with one thread that holds no argument it asked for earlier.
pub fn replace_argument(index: usize, text: &str) -> io::Result<()> {
    let mut fits = false;
    each_argument(|at, place| {
        if at == index && place.len() >= text.len() {
            fits = true;
            place.fill(0);
            place[..text.len()].copy_from_slice(text.as_bytes());
        }
    })?;
    if fits {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "there is no room for {text} in argument {index}"
        )))
    }
}

/// Shows every argument, by its number, where the kernel laid it down: each only after those before it were found.
fn each_argument(mut show: impl FnMut(usize, &mut [u8])) -> io::Result<()> {
    // SAFETY: a pointer that the C library sets once, before `main`; read only.
    let mut at = unsafe { program_invocation_name };
    for (index, argument) in std::env::args_os().enumerate() {
        let length = argument.as_bytes().len();
        if at.is_null() {
            return Err(lost());
        }
        // SAFETY: the kernel lays the arguments down one after the other, each ended by NUL; so far all were as expected.
        let found = unsafe { CStr::from_ptr(at) };
        if found.to_bytes() != argument.as_bytes() {
            return Err(lost());
        }
        // SAFETY: exactly the bytes of the text just compared, on the stack the kernel made: writable; there is one
        // thread, `argument` is a copy, and `found` is not used any more.
        let place = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), length) };
        show(index, place);
        // SAFETY: one past the NUL: the next argument, or the first variable, or the end of the stack's texts.
        at = unsafe { at.add(length + 1) };
    }
    Ok(())
}

fn lost() -> io::Error {
    io::Error::other("the arguments are not where the kernel put them")
}

/// Overwrites every variable with zeros and empties the list, so that neither this process nor a child that is a copy
/// of it holds what its caller had in its environment. Variables named in `keep` stay.
///
/// For a process with one thread that has not kept a pointer to a variable's text.
pub fn wipe(keep: &[&str]) {
    // SAFETY: the list itself is read only; nobody else writes it, there is one thread.
    let list = unsafe { environ };
    let (mut from, mut to) = (0, 0);
    while let Some(entry) = entry(list, from) {
        from += 1;
        // SAFETY: every entry of the list is a text ended by NUL.
        let text = unsafe { CStr::from_ptr(entry) };
        let length = text.to_bytes().len();
        let kept = keep.iter().any(|name| {
            text.to_bytes()
                .strip_prefix(name.as_bytes())
                .is_some_and(|rest| rest.first() == Some(&b'='))
        });
        if kept {
            put(list, to, entry);
            to += 1;
        } else {
            // SAFETY: exactly the bytes of the text, which lies on the stack the kernel made or on the heap: both writable.
            unsafe { entry.write_bytes(0, length) };
        }
    }
    if from > 0 {
        put(list, to, std::ptr::null_mut());
    }
}

fn entry(list: *mut *mut c_char, index: usize) -> Option<*mut c_char> {
    if list.is_null() {
        return None;
    }
    // SAFETY: indexes are taken in order and stop at the null pointer, so this lies within the list.
    let place = unsafe { list.add(index) };
    // SAFETY: a place within the list.
    let entry = unsafe { *place };
    (!entry.is_null()).then_some(entry)
}

fn put(list: *mut *mut c_char, index: usize, entry: *mut c_char) {
    // SAFETY: `index` is at most the number of entries seen, so this is an entry or the list's end.
    let place = unsafe { list.add(index) };
    // SAFETY: a place within the list, which is writable.
    unsafe { *place = entry };
}
