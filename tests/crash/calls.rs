//! A program that is stopped at its n-th system call that changes the file system.
//!
//! A seccomp filter hands such calls over before the kernel carries them out. It is installed on a thread of the test that
//! starts the program and ends: the program and its children inherit it, and nothing runs between fork and exec.
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal};
use std::ffi::OsStr;
use std::fmt;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bastle_sys::guard::read_memory;
use bastle_sys::seccomp::{Answer, Instruction, Notification, answer, install_with_listener, receive};

/// Far more than any verb takes.
const HANG: Duration = Duration::from_secs(120);
/// What an open call must ask for to change anything.
const CHANGING: i32 = libc::O_CREAT | libc::O_TRUNC | (libc::O_TMPFILE & !libc::O_DIRECTORY);

/// What happens at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing; only what makes durable is seen.
    Nothing,
    /// The program and its children are killed before the kernel carries the call out.
    Kill,
    /// The call fails: it alone, or it and those that follow.
    Fail(Errno, Extent),
    /// Something is done first, and the call is carried out then.
    Edit,
}

/// Which error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errno {
    /// The disk is full: calls that need no room succeed.
    NoSpace,
    /// The disk is broken.
    Io,
}

/// How long a disk refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// One call.
    Once,
    /// From that call to the end of the program.
    Onward,
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// Changes something and may need room for it.
    Takes,
    /// Changes something that needs none.
    Changes,
    /// Makes durable: a kill before it is the kill before the next change.
    Syncs,
}

/// A call before the kernel carries it out.
pub(crate) struct Stopped<'a> {
    pub(crate) name: &'a str,
    /// Opens what the first argument refers to, where that is a descriptor.
    pub(crate) behind_descriptor: &'a std::path::Path,
}

/// Sees every call before the kernel carries it out, calls that make durable as well.
pub(crate) trait Witness {
    fn before(&mut self, call: &Stopped<'_>);
}

/// What became of the program.
pub(crate) struct Ended {
    /// Its calls until the fault, or all of them.
    pub(crate) calls: Vec<String>,
    /// Whether the fault came about.
    pub(crate) reached: bool,
    /// The exit code; none when it was killed.
    pub(crate) code: Option<i32>,
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
}

impl fmt::Debug for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.calls.len().saturating_sub(6);
        for call in &self.calls[last..] {
            writeln!(f, "  {call}")?;
        }
        write!(f, "exit {:?}\n{}\n{}", self.code, self.stdout, self.stderr)
    }
}

/// The calls of this architecture, with what they do.
fn watched() -> Vec<(libc::c_long, &'static str, Effect)> {
    use Effect::{Changes, Syncs, Takes};
    let mut calls = vec![
        (libc::SYS_openat2, "openat2", Takes),
        (libc::SYS_write, "write", Takes),
        (libc::SYS_pwrite64, "pwrite", Takes),
        (libc::SYS_writev, "writev", Takes),
        (libc::SYS_pwritev, "pwritev", Takes),
        (libc::SYS_pwritev2, "pwritev2", Takes),
        (libc::SYS_copy_file_range, "copy_file_range", Takes),
        (libc::SYS_sendfile, "sendfile", Takes),
        (libc::SYS_splice, "splice", Takes),
        (libc::SYS_fallocate, "fallocate", Takes),
        (libc::SYS_mkdirat, "mkdirat", Takes),
        (libc::SYS_mknodat, "mknodat", Takes),
        (libc::SYS_symlinkat, "symlinkat", Takes),
        (libc::SYS_linkat, "linkat", Takes),
        (libc::SYS_setxattr, "setxattr", Takes),
        (libc::SYS_lsetxattr, "lsetxattr", Takes),
        (libc::SYS_fsetxattr, "fsetxattr", Takes),
        (libc::SYS_renameat2, "renameat2", Changes),
        (libc::SYS_unlinkat, "unlinkat", Changes),
        (libc::SYS_truncate, "truncate", Changes),
        (libc::SYS_ftruncate, "ftruncate", Changes),
        (libc::SYS_fchmod, "fchmod", Changes),
        (libc::SYS_fchmodat, "fchmodat", Changes),
        (libc::SYS_fchown, "fchown", Changes),
        (libc::SYS_fchownat, "fchownat", Changes),
        (libc::SYS_utimensat, "utimensat", Changes),
        (libc::SYS_removexattr, "removexattr", Changes),
        (libc::SYS_lremovexattr, "lremovexattr", Changes),
        (libc::SYS_fremovexattr, "fremovexattr", Changes),
        (libc::SYS_fsync, "fsync", Syncs),
        (libc::SYS_fdatasync, "fdatasync", Syncs),
        (libc::SYS_syncfs, "syncfs", Syncs),
        (libc::SYS_sync_file_range, "sync_file_range", Syncs),
    ];
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    calls.push((libc::SYS_renameat, "renameat", Changes));
    #[cfg(target_arch = "x86_64")]
    calls.extend([
        (libc::SYS_creat, "creat", Takes),
        (libc::SYS_mkdir, "mkdir", Takes),
        (libc::SYS_mknod, "mknod", Takes),
        (libc::SYS_symlink, "symlink", Takes),
        (libc::SYS_link, "link", Takes),
        (libc::SYS_rename, "rename", Changes),
        (libc::SYS_unlink, "unlink", Changes),
        (libc::SYS_rmdir, "rmdir", Changes),
        (libc::SYS_chmod, "chmod", Changes),
        (libc::SYS_chown, "chown", Changes),
        (libc::SYS_lchown, "lchown", Changes),
        (libc::SYS_utimes, "utimes", Changes),
        (libc::SYS_utime, "utime", Changes),
        (libc::SYS_futimesat, "futimesat", Changes),
    ]);
    calls
}

/// Calls that are handed over only with certain bits in an argument: the number, the argument, how it is compared.
fn conditional() -> Vec<(libc::c_long, u32, u16, u32)> {
    const ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let mut calls = vec![
        (libc::SYS_openat, 2, ANY_BIT, CHANGING as u32),
        // The one ioctl that changes files.
        (libc::SYS_ioctl, 1, EQUAL, libc::FICLONE as u32),
    ];
    #[cfg(target_arch = "x86_64")]
    calls.push((libc::SYS_open, 1, ANY_BIT, CHANGING as u32));
    calls
}

/// Which calls are handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handed {
    All,
    Syncs,
}

fn filter(handed: Handed) -> Vec<Instruction> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let one = |code, jt, jf, k| Instruction { code, jt, jf, k };
    let number = |call: libc::c_long| u32::try_from(call).expect("call numbers are small");
    let (mut plain, mut conditional) = (watched(), conditional());
    if handed == Handed::Syncs {
        plain.retain(|(.., effect)| *effect == Effect::Syncs);
        conditional.clear();
    }
    let length = 1 + conditional.len() * 3 + plain.len();
    let to = |at: usize, end: usize| u8::try_from(end - at - 1).expect("a short program");
    let (allow, notify) = (length, length + 1);
    let mut program = vec![one(LOAD, 0, 0, 0)];
    for (call, argument, compare, operand) in conditional {
        program.push(one(EQUAL, 0, 2, number(call)));
        program.push(one(LOAD, 0, 0, 16 + 8 * argument));
        let at = program.len();
        program.push(one(compare, to(at, notify), to(at, allow), operand));
    }
    for (call, ..) in plain {
        let at = program.len();
        program.push(one(EQUAL, to(at, notify), 0, number(call)));
    }
    program.push(one(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
    program.push(one(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF));
    program
}

/// Why programs cannot be watched on this host; none when they can.
pub(crate) fn cannot_watch() -> Option<String> {
    let mut command = Command::new("true");
    match start(&mut command, Handed::All) {
        Ok((mut child, listener)) => {
            let ended = child.wait().expect("own child");
            drop(listener);
            (!ended.success()).then(|| "a program under a seccomp filter does not run here".to_owned())
        }
        Err(error) => Some(format!("no seccomp filter with notifications: {error}")),
    }
}

/// Starts a program whose changing calls are handed over.
fn start(command: &mut Command, handed: Handed) -> std::io::Result<(Child, OwnedFd)> {
    std::thread::scope(|scope| {
        let starter = scope.spawn(|| {
            rustix::thread::set_no_new_privs(true)?;
            let listener = install_with_listener(&filter(handed))?;
            Ok((command.spawn()?, listener))
        });
        starter.join().expect("the starting thread does not panic")
    })
}

/// Runs a program and lets the fault happen at call number `at`, counted from zero. `edit` is what [`Fault::Edit`] does.
pub(crate) fn run(command: &mut Command, at: usize, fault: Fault, edit: &mut dyn FnMut()) -> Ended {
    run_through(command, (at, fault), None, (edit, None))
}

/// Kills a program at a call; the witness sees all calls before it.
pub(crate) fn run_witnessed(command: &mut Command, at: usize, witness: &mut dyn Witness) -> Ended {
    run_through(command, (at, Fault::Kill), None, (&mut || {}, Some(witness)))
}

/// The same with a second fault at a call that is counted from the first fault on. `reached` is about the second one.
pub(crate) fn run_twice(
    command: &mut Command,
    first: (usize, Fault),
    then: (usize, Fault),
    edit: &mut dyn FnMut(),
) -> Ended {
    run_through(command, first, Some(then), (edit, None))
}

fn run_through(
    command: &mut Command,
    (at, fault): (usize, Fault),
    then: Option<(usize, Fault)>,
    (edit, witness): (&mut dyn FnMut(), Option<&mut dyn Witness>),
) -> Ended {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let handed = if fault == Fault::Nothing {
        Handed::Syncs
    } else {
        Handed::All
    };
    let (mut child, listener) = start(command, handed).unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let mut watch = Watch {
        table: watched(),
        at,
        fault,
        then,
        calls: Vec::new(),
        reached: false,
        group: Pid::from_child(&child),
        seen: 0,
        witness,
    };
    let status = watch.serve(&mut child, listener.as_fd(), edit);
    Ended {
        calls: watch.calls,
        reached: watch.reached,
        code: status.code(),
        stdout: text(stdout),
        stderr: text(stderr),
    }
}

fn collect(stream: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            stream.read_to_end(&mut bytes).expect("a pipe can be read");
        }
        bytes
    })
}

fn text(stream: JoinHandle<Vec<u8>>) -> String {
    let bytes = stream.join().expect("reading does not panic");
    String::from_utf8_lossy(&bytes).into_owned()
}

struct Watch<'a> {
    table: Vec<(libc::c_long, &'static str, Effect)>,
    at: usize,
    fault: Fault,
    then: Option<(usize, Fault)>,
    calls: Vec<String>,
    reached: bool,
    group: Pid,
    seen: usize,
    witness: Option<&'a mut dyn Witness>,
}

impl Watch<'_> {
    /// Answers calls until nothing is left that could make one.
    fn serve(&mut self, child: &mut Child, listener: BorrowedFd<'_>, edit: &mut dyn FnMut()) -> ExitStatus {
        let mut began = Instant::now();
        let short = rustix::time::Timespec::try_from(Duration::from_millis(5)).expect("a short time");
        let mut ended = None;
        loop {
            let mut ready = [PollFd::from_borrowed_fd(listener, PollFlags::IN)];
            poll(&mut ready, Some(&short)).expect("can be waited for");
            if ready[0].revents().contains(PollFlags::IN) {
                // What makes calls does not hang, however slow the machine is.
                began = Instant::now();
                if let Some(call) = receive(listener).expect("a filter of ours") {
                    self.decide(listener, &call, edit);
                }
                continue;
            }
            if ended.is_none() {
                ended = child.try_wait().expect("own child");
            }
            // Children that outlive it have the filter, too.
            let alone = ready[0].revents().contains(PollFlags::HUP);
            if let Some(status) = ended
                && (alone || began.elapsed() > HANG)
            {
                assert!(alone, "something outlives the verb: {:?}", self.calls.last());
                return status;
            }
            if began.elapsed() > HANG {
                self.kill();
                panic!("the verb hangs after {:?}", self.calls.last());
            }
        }
    }

    fn kill(&self) {
        match rustix::process::kill_process_group(self.group, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(errno) => panic!("own child: {errno}"),
        }
    }

    /// The fault has come; the next one, if there is one, is counted from here.
    fn reach(&mut self) {
        match self.then.take() {
            Some((at, fault)) => {
                (self.at, self.fault) = (at, fault);
                self.seen = 0;
            }
            None => self.reached = true,
        }
    }

    fn decide(&mut self, listener: BorrowedFd<'_>, call: &Notification, edit: &mut dyn FnMut()) {
        let Some((shown, effect)) = self.describe(call) else {
            answer(listener, call.id, Answer::Continue).expect("a filter of ours");
            return;
        };
        if let Some(witness) = &mut self.witness
            && !self.reached
        {
            let behind = PathBuf::from(format!("/proc/{}/fd/{}", call.pid, call.args[0] as u32));
            witness.before(&Stopped {
                name: shown.split(' ').next().unwrap_or_default(),
                behind_descriptor: &behind,
            });
        }
        // A kill takes nothing from the kernel's memory: waiting for the disk would prove nothing.
        let usual = match effect {
            Effect::Syncs => Answer::Return(0),
            Effect::Takes | Effect::Changes => Answer::Continue,
        };
        let go_on = || answer(listener, call.id, usual).expect("a filter of ours");
        // To be killed before a sync is to be killed before the next change.
        let counts = match self.fault {
            Fault::Kill | Fault::Edit => effect != Effect::Syncs,
            Fault::Nothing | Fault::Fail(..) => true,
        };
        if !counts {
            return go_on();
        }
        let number = self.seen;
        self.seen += 1;
        if !self.reached {
            self.calls.push(shown);
        }
        if number < self.at || self.fault == Fault::Nothing {
            return go_on();
        }
        match self.fault {
            Fault::Kill => {
                self.reached = true;
                self.kill();
                // A child may have a group of its own.
                let caller = i32::try_from(call.pid).ok().and_then(Pid::from_raw);
                match caller.map(|caller| rustix::process::kill_process(caller, Signal::KILL)) {
                    None | Some(Ok(()) | Err(rustix::io::Errno::SRCH)) => {}
                    Some(Err(errno)) => panic!("a child of ours: {errno}"),
                }
            }
            Fault::Fail(errno, extent) if number == self.at || extent == Extent::Onward => {
                self.reach();
                match errno {
                    Errno::NoSpace if effect != Effect::Changes => {
                        answer(listener, call.id, Answer::Fail(libc::ENOSPC)).expect("a filter of ours");
                    }
                    Errno::NoSpace => go_on(),
                    Errno::Io => {
                        answer(listener, call.id, Answer::Fail(libc::EIO)).expect("a filter of ours")
                    }
                }
            }
            Fault::Edit if number == self.at => {
                self.reach();
                edit();
                go_on();
            }
            Fault::Fail(..) | Fault::Edit | Fault::Nothing => go_on(),
        }
    }

    /// A call that changes a file system, for people; none for pipes, terminals and devices.
    fn describe(&self, call: &Notification) -> Option<(String, Effect)> {
        let number = libc::c_long::from(call.number);
        let known = self.table.iter().find(|(one, ..)| *one == number);
        let opens = if number == libc::SYS_ioctl {
            "clone"
        } else {
            "open"
        };
        let (name, effect) = known.map_or((opens, Effect::Takes), |(_, name, effect)| (*name, *effect));
        let fd = |argument: usize| self.behind(call, argument);
        let path = |argument: usize| string(call, call.args[argument]);
        let beneath = |dir: usize, at: usize| join(fd(dir), path(at));
        let is = |numbers: &[libc::c_long]| numbers.contains(&number);
        let shown = if is(&[libc::SYS_copy_file_range, libc::SYS_splice]) {
            on_disk(fd(2))?
        } else if is(&[libc::SYS_symlinkat]) {
            beneath(1, 2)
        } else if is(&[libc::SYS_linkat, libc::SYS_renameat2]) || name == "renameat" {
            format!("{} -> {}", beneath(0, 1), beneath(2, 3))
        } else if name.ends_with("at") {
            beneath(0, 1)
        } else if number == libc::SYS_openat {
            on_disk(Some(join_path(fd(0), path(1))))?
        } else if number == libc::SYS_openat2 {
            let mut flags = [0; 8];
            read_memory(call.pid, call.args[2], &mut flags).ok()?;
            let flags = u64::from_ne_bytes(flags);
            (flags & u64::from(CHANGING as u32) != 0).then_some(())?;
            beneath(0, 1)
        } else if is(FIRST_IS_DESCRIPTOR) {
            on_disk(fd(0))?
        } else {
            // Legacy calls and those on a path: both names, where there are two.
            on_disk(Some(PathBuf::from(path(0))))?
        };
        Some((format!("{name} {shown}"), effect))
    }

    /// What a descriptor of the caller's refers to.
    fn behind(&self, call: &Notification, argument: usize) -> Option<PathBuf> {
        let fd = call.args[argument] as u32 as i32;
        let link = match fd {
            libc::AT_FDCWD => format!("/proc/{}/cwd", call.pid),
            fd => format!("/proc/{}/fd/{fd}", call.pid),
        };
        std::fs::read_link(link).ok()
    }
}

/// Calls whose first argument is the descriptor that they are about.
const FIRST_IS_DESCRIPTOR: &[libc::c_long] = &[
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_sendfile,
    libc::SYS_fallocate,
    libc::SYS_fsetxattr,
    libc::SYS_ftruncate,
    libc::SYS_fchmod,
    libc::SYS_fchown,
    libc::SYS_fremovexattr,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_syncfs,
    libc::SYS_sync_file_range,
    libc::SYS_ioctl,
];

/// Pipes, sockets, devices and `/proc` are no state.
fn on_disk(path: Option<PathBuf>) -> Option<String> {
    let path = path?;
    let elsewhere = path.starts_with("/dev") && !path.starts_with("/dev/shm");
    let file = path.is_absolute() && !elsewhere && !path.starts_with("/proc") && !memory(&path);
    (file || path.is_relative() && !path.to_string_lossy().contains(":[")).then(|| path.display().to_string())
}

fn memory(path: &std::path::Path) -> bool {
    path.to_string_lossy().starts_with("/memfd:")
}

fn join_path(directory: Option<PathBuf>, name: String) -> PathBuf {
    directory.unwrap_or_default().join(name)
}

fn join(directory: Option<PathBuf>, name: String) -> String {
    join_path(directory, name).display().to_string()
}

/// A text in the caller's memory.
fn string(call: &Notification, address: u64) -> String {
    let mut bytes = [0; 512];
    let read = read_memory(call.pid, address, &mut bytes).unwrap_or(0);
    let end = bytes[..read].iter().position(|byte| *byte == 0).unwrap_or(read);
    OsStr::from_bytes(&bytes[..end]).to_string_lossy().into_owned()
}
