//! The steps of building a fence, tried one by one in a process of their own: which is the first that this host refuses.
//!
//! **Trust:** runs with the rights of the caller, in a process that ends with it; nothing outside its own namespaces changes.
//! What it prints is parsed as data of bounded size.
use bastle_contract::{Code, Fault};
use bastle_sys::clone::{Cloned, Namespaces, clone_into, fork};
use bastle_sys::{exec, guard, reach, tree};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags};
use rustix::process::{Pid, WaitOptions, waitpid};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

/// The verb of the process that tries them.
pub const FENCE_STEPS_VERB: &str = "__fence-steps";
/// Most that is read of what it prints: a few dozen steps.
const MOST_OUTPUT: u64 = 64 << 10;
/// Where the new root would be built, as init does it.
const ANCHORS: [&str; 2] = ["/sys", "/boot"];

/// A step and how it went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepResult {
    /// Which one.
    pub step: String,
    /// The errno that it failed with; none where it was done.
    pub errno: Option<i32>,
}

/// What a host answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceSteps {
    /// System calls that a filter keeps from the kernel.
    pub filtered: Vec<String>,
    /// Errno of the question for the Landlock ABI; 0 where it was answered.
    pub landlock_errno: i32,
    /// Every kind of namespace, each tried by itself with a user namespace.
    pub namespaces: Vec<StepResult>,
    /// What is done inside all of them, up to the first that failed.
    pub inside: Vec<StepResult>,
    /// The AppArmor label of a process in a new user namespace; empty without AppArmor.
    pub label: String,
}

impl FenceSteps {
    /// Has them tried by a fresh process of this program: a profile of AppArmor is chosen when a program is executed.
    pub fn try_all() -> Result<Self, Fault> {
        let fault = |error: io::Error| {
            Fault::new(
                Code::FenceLost,
                "cannot try the steps of the fence",
                error.to_string(),
            )
        };
        let mut child = Command::new("/proc/self/exe")
            .arg(FENCE_STEPS_VERB)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(fault)?;
        let mut text = String::new();
        if let Some(output) = child.stdout.take() {
            output
                .take(MOST_OUTPUT)
                .read_to_string(&mut text)
                .map_err(fault)?;
        }
        child.wait().map_err(fault)?;
        serde_json::from_str(&text).map_err(|error| fault(io::Error::other(error)))
    }

    /// The first namespace that was refused, with its errno.
    #[must_use]
    pub fn refused_namespace(&self) -> Option<(&str, i32)> {
        first_failure(&self.namespaces)
    }

    /// The first step inside that failed, with its errno.
    #[must_use]
    pub fn refused_inside(&self) -> Option<(&str, i32)> {
        first_failure(&self.inside)
    }
}

fn first_failure(steps: &[StepResult]) -> Option<(&str, i32)> {
    steps
        .iter()
        .find_map(|result| Some((result.step.as_str(), result.errno?)))
}

/// The process that tries them: prints one object. Called before there are threads.
#[must_use]
pub fn try_fence_steps() -> u8 {
    let filtered = reach::kept_from_the_kernel();
    let (inside, label) = inside();
    let steps = FenceSteps {
        filtered: filtered.into_iter().map(str::to_owned).collect(),
        landlock_errno: reach::landlock_errno(),
        namespaces: namespaces(),
        inside,
        label,
    };
    let printed = serde_json::to_string(&steps)
        .map_err(io::Error::other)
        .and_then(|text| writeln!(io::stdout().lock(), "{text}"));
    u8::from(printed.is_err())
}

fn namespaces() -> Vec<StepResult> {
    let kinds = [
        ("user", Namespaces::NONE),
        ("mnt", Namespaces::MOUNT),
        ("pid", Namespaces::PID),
        ("net", Namespaces::NET),
        ("ipc", Namespaces::IPC),
        ("uts", Namespaces::UTS),
    ];
    kinds
        .into_iter()
        .map(|(name, kind)| result(name, make(Namespaces::USER.and(kind))))
        .collect()
}

/// Makes a child in them that ends at once.
fn make(namespaces: Namespaces) -> io::Result<()> {
    match clone_into(namespaces, None)? {
        Cloned::Child => exec::exit(0),
        Cloned::Parent { pid, pidfd: _ } => reap(pid),
    }
}

fn reap(pid: u32) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    loop {
        match waitpid(pid, WaitOptions::empty()) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn result(step: &str, done: io::Result<()>) -> StepResult {
    let errno = done.err().map(|error| {
        error
            .raw_os_error()
            .unwrap_or(rustix::io::Errno::IO.raw_os_error())
    });
    StepResult {
        step: step.to_owned(),
        errno,
    }
}

/// The steps inside, from a child that lives in all namespaces, and its label.
fn inside() -> (Vec<StepResult>, String) {
    let all = [
        Namespaces::MOUNT,
        Namespaces::PID,
        Namespaces::NET,
        Namespaces::IPC,
        Namespaces::UTS,
    ]
    .into_iter()
    .fold(Namespaces::USER, Namespaces::and);
    let (Ok((go, wait)), Ok((told, tell))) = (pipe(), pipe()) else {
        return (Vec::new(), String::new());
    };
    match clone_into(all, None) {
        Err(_) => (Vec::new(), String::new()),
        Ok(Cloned::Child) => {
            drop((wait, told));
            let code = act(File::from(go), File::from(tell));
            exec::exit(u8::from(code.is_err()))
        }
        Ok(Cloned::Parent { pid, pidfd: _ }) => {
            drop((go, tell));
            let mut results = map_ids(pid);
            let mapped = results.iter().all(|result| result.errno.is_none());
            let released = mapped && File::from(wait).write_all(b"m").is_ok();
            let mut text = String::new();
            let read = File::from(told).take(MOST_OUTPUT).read_to_string(&mut text);
            let reaped = reap(pid);
            if released && read.is_ok() && reaped.is_ok() {
                let mut lines = text.lines();
                let label = lines.next().unwrap_or_default().to_owned();
                results.extend(lines.filter_map(|line| serde_json::from_str(line).ok()));
                return (results, label);
            }
            (results, String::new())
        }
    }
}

fn pipe() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
}

/// One id, as a fence has it. Without a right over groups the kernel wants them fixed first.
fn map_ids(pid: u32) -> Vec<StepResult> {
    let write = |file: &str, text: String| std::fs::write(format!("/proc/{pid}/{file}"), text);
    let (uid, gid) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let steps = [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("1000 {uid} 1")),
        ("gid_map", format!("1000 {gid} 1")),
    ];
    steps
        .into_iter()
        .map(|(file, text)| result(file, write(file, text)))
        .collect()
}

/// One step, tried by the child.
type Act = fn() -> io::Result<()>;

/// In the child: waits for the maps, then tells its label and each step in a line of its own.
fn act(mut go: File, mut tell: File) -> io::Result<()> {
    let mut byte = [0];
    go.read_exact(&mut byte)?;
    writeln!(tell, "{}", label())?;
    let steps: [(&str, Act); 8] = [
        ("hostname", || Ok(rustix::system::sethostname(b"bastle")?)),
        ("private-mounts", private_mounts),
        ("tmpfs", mount_root),
        ("proc", || mount_new("proc", "proc")),
        ("devpts", || mount_new("devpts", "pts")),
        ("bind", bind_device),
        ("pivot-root", pivot),
        ("read-memory", read_memory_of_child),
    ];
    for (name, step) in steps {
        let result = result(name, step());
        writeln!(
            tell,
            "{}",
            serde_json::to_string(&result).map_err(io::Error::other)?
        )?;
        if result.errno.is_some() {
            break;
        }
    }
    Ok(())
}

/// What AppArmor calls this process.
pub fn label() -> String {
    ["/proc/self/attr/apparmor/current", "/proc/self/attr/current"]
        .into_iter()
        .find_map(|path| std::fs::read_to_string(path).ok())
        .map(|text| text.trim_end_matches(['\n', '\0']).to_owned())
        .unwrap_or_default()
}

fn anchor() -> io::Result<&'static Path> {
    ANCHORS
        .into_iter()
        .map(Path::new)
        .find(|path| path.is_dir())
        .ok_or_else(|| io::Error::from_raw_os_error(rustix::io::Errno::NOENT.raw_os_error()))
}

fn private_mounts() -> io::Result<()> {
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", flags)?)
}

fn mount_root() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    Ok(rustix::mount::mount(
        "bastle",
        anchor()?,
        "tmpfs",
        flags,
        c"size=64k",
    )?)
}

/// A new file system of that kind in the new root.
fn mount_new(kind: &str, name: &str) -> io::Result<()> {
    let at = anchor()?.join(name);
    std::fs::create_dir(&at)?;
    let fs = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&fs)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mount = rustix::mount::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    attach(&mount, &at)
}

fn attach(mount: &OwnedFd, at: &Path) -> io::Result<()> {
    let flags = rustix::mount::MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(rustix::mount::move_mount(mount, "", rustix::fs::CWD, at, flags)?)
}

fn bind_device() -> io::Result<()> {
    let at = anchor()?.join("null");
    File::create(&at)?;
    attach(&tree::clone_host(Path::new("/dev/null"))?, &at)
}

fn pivot() -> io::Result<()> {
    rustix::process::chdir(anchor()?)?;
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", rustix::mount::UnmountFlags::DETACH)?;
    Ok(())
}

/// As init reads the memory of the agent: without a capability, of a child.
fn read_memory_of_child() -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    let none = rustix::thread::CapabilitySet::empty();
    let sets = rustix::thread::CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    rustix::thread::set_capabilities(None, sets)?;
    let word = [1_u8; 8];
    let (go, wait) = pipe()?;
    let Some(pid) = fork()? else {
        drop(wait);
        let mut byte = [0];
        // Until the other end closes.
        exec::exit(u8::from(rustix::io::read(&go, &mut byte).is_err()))
    };
    let mut into = [0_u8; 8];
    let read = guard::read_memory(pid, word.as_ptr().addr() as u64, &mut into);
    drop(wait);
    reap(pid)?;
    read.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_refused_step_is_told_with_its_errno() {
        let step = |step: &str, errno| StepResult {
            step: step.to_owned(),
            errno,
        };
        let steps = FenceSteps {
            namespaces: vec![step("user", None), step("net", Some(28)), step("uts", Some(1))],
            inside: vec![step("uid_map", None)],
            ..FenceSteps::default()
        };
        assert_eq!(steps.refused_namespace(), Some(("net", 28)));
        assert_eq!(steps.refused_inside(), None);
    }
}
