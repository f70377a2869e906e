//! The one way bastle starts git: a fixed program, an empty environment, a repository of our own.
//!
//! **Trust:** git is the user's installed program. What it reads is not trusted, so it never sees a
//! configuration, hook, attribute or index that somebody else wrote: [`Scratch`] is a fresh repository that
//! borrows the host's objects and nothing else. Time, output and errors are bounded.
use super::{ObjectFormat, unusable};
use bastle_contract::{Code, Fault};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Where distributions put git. Never looked up in `PATH`: the project could have put itself there (direnv).
const PROGRAMS: [&str; 5] = [
    "/usr/bin/git",
    "/usr/local/bin/git",
    "/bin/git",
    "/run/current-system/sw/bin/git",
    "/opt/homebrew/bin/git",
];
/// One call's most output in memory: a listing of 500 000 names of 100 bytes.
const MAX_OUTPUT: u64 = 64 << 20;
/// What is kept of the error output: a person reads a few lines of it.
const MAX_ERRORS: u64 = 16 << 10;
/// Packing the history of the largest repositories takes minutes; nothing else takes seconds.
const MAX_TIME: Duration = Duration::from_secs(600);

/// Settings that start programs, leave the machine or change what bytes mean. They come on the command line,
/// which wins over every file; the scratch repository's own file repeats none of them.
const SETTINGS: [&str; 24] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.pager=cat",
    "core.editor=false",
    "core.askPass=false",
    "core.sshCommand=false",
    "core.gitProxy=false",
    "core.alternateRefsCommand=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.autocrlf=false",
    "core.symlinks=true",
    "diff.external=",
    "credential.helper=",
    "protocol.allow=never",
    "safe.bareRepository=explicit",
    "commit.gpgSign=false",
    "gpg.program=false",
    "uploadpack.packObjectsHook=",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
];

/// The hardened git of this host.
#[derive(Clone, Debug)]
pub struct HostGit {
    program: PathBuf,
}

/// A repository of ours, empty but for borrowed objects; removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    directory: PathBuf,
    format: ObjectFormat,
}

/// Whose attributes count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attributes {
    /// Nobody's.
    #[default]
    None,
    /// Those of the work tree and the index that the call names: line ends and encodings, and no driver, since there is none.
    OfTree,
}

/// One invocation.
#[derive(Debug, Default)]
pub struct Call<'a> {
    /// Arguments after the hardening ones.
    pub arguments: Vec<&'a str>,
    /// Standard input.
    pub input: Vec<u8>,
    /// Standard input from here instead.
    pub source: Option<Stdio>,
    /// Standard output goes here instead of to memory.
    pub output: Option<File>,
    /// Working directory; the scratch repository unless given.
    pub directory: Option<PathBuf>,
    /// Further variables: only names that start with `GIT_`.
    pub variables: Vec<(&'static str, PathBuf)>,
    /// Whose attributes count; nobody's unless given.
    pub attributes: Attributes,
    /// Exit codes that are answers, not failures, besides 0.
    pub answers: &'static [i32],
    /// How long it may take; ten minutes unless given.
    pub limit: Option<Duration>,
}

impl HostGit {
    /// Finds git.
    ///
    /// # Errors
    /// When no known place has it.
    pub fn find() -> Result<Self, Fault> {
        let program = PROGRAMS.iter().map(Path::new).find(|path| path.is_file());
        program
            .map(|path| Self {
                program: path.to_owned(),
            })
            .ok_or_else(|| {
                Fault::new(
                    Code::WorkspaceGit,
                    "git",
                    format!("not found at any of {}", PROGRAMS.join(", ")),
                )
                .help("Install git; bastle does not look for it in PATH.")
            })
    }

    /// Runs git with the scratch repository and gives its output.
    ///
    /// # Errors
    /// When it cannot start, fails, prints too much or takes too long.
    pub fn run(&self, scratch: &Scratch, call: Call<'_>) -> Result<Vec<u8>, Fault> {
        self.run_in(&scratch.directory, scratch, call)
    }

    /// Runs git on a repository directory that is not the scratch one. Only for writing one reference of the
    /// host's repository: git reads that repository's configuration then, but the settings above come after it.
    pub(super) fn run_in(
        &self,
        git_dir: &Path,
        scratch: &Scratch,
        mut call: Call<'_>,
    ) -> Result<Vec<u8>, Fault> {
        let verb = call
            .arguments
            .iter()
            .find(|word| !word.starts_with('-') && !word.contains('='))
            .copied()
            .unwrap_or_default()
            .to_owned();
        let fail = |why: String| Fault::new(Code::WorkspaceGit, format!("git {verb}"), why);
        let mut command = self.command(git_dir, scratch, &call);
        command.stdout(match call.output.take() {
            Some(file) => Stdio::from(file),
            None => Stdio::piped(),
        });
        if let Some(source) = call.source.take() {
            command.stdin(source);
        }
        let child = command.spawn().map_err(|error| fail(error.to_string()))?;
        let finished = supervise(child, call.input, call.limit.unwrap_or(MAX_TIME))
            .map_err(|error| fail(error.to_string()))?;
        let code = finished.status.code();
        if finished.status.success() || code.is_some_and(|code| call.answers.contains(&code)) {
            return Ok(finished.output);
        }
        let said = crate::path::visible(finished.errors.trim_ascii());
        Err(fail(format!("{}: {said}", finished.status)))
    }

    fn command(&self, git_dir: &Path, scratch: &Scratch, call: &Call<'_>) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env_clear()
            .current_dir(call.directory.as_ref().unwrap_or(&scratch.directory))
            .process_group(0);
        for (name, value) in [
            ("LC_ALL", "C"),
            ("PATH", "/var/empty"),
            ("HOME", "/var/empty"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_CONFIG_SYSTEM", "/dev/null"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_ATTR_NOSYSTEM", "1"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_PROTOCOL_FROM_USER", "0"),
            ("GIT_ALLOW_PROTOCOL", "none"),
        ] {
            command.env(name, value);
        }
        if call.attributes == Attributes::None {
            command.env("GIT_ATTR_SOURCE", scratch.format.empty_tree());
        }
        command.env("GIT_DIR", git_dir);
        command.env("GIT_CEILING_DIRECTORIES", &scratch.directory);
        for (name, value) in &call.variables {
            command.env(name, value);
        }
        command.args(["--no-pager", "--no-replace-objects"]);
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        command
            .args(&call.arguments)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

impl Scratch {
    /// Makes an empty repository below `parent` that can read the objects of `borrowed`.
    ///
    /// # Errors
    /// When the directory cannot be made or a path cannot be written as an alternate.
    pub fn new(parent: &Path, format: ObjectFormat, borrowed: &[PathBuf]) -> Result<Self, Fault> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let directory = parent.join(format!("scratch-{}-{number}.git", std::process::id()));
        let fail = |error: io::Error| unusable(&directory, error.to_string());
        for part in ["objects/info", "objects/pack", "refs/heads", "info"] {
            std::fs::create_dir_all(directory.join(part)).map_err(fail)?;
        }
        let version = match format {
            ObjectFormat::Sha1 => "[core]\n\trepositoryformatversion = 0\n\tbare = true\n".to_owned(),
            ObjectFormat::Sha256 => format!(
                "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectformat = {}\n",
                format.name()
            ),
        };
        let mut alternates = Vec::new();
        for path in borrowed {
            let bytes = path.as_os_str().as_encoded_bytes();
            // One line per directory, and a leading quote would start git's own quoting.
            if bytes.contains(&b'\n')
                || bytes.starts_with(b"\"")
                || bytes.starts_with(b"#")
                || !path.is_absolute()
            {
                return Err(unusable(path, "its path cannot be handed to git"));
            }
            alternates.extend_from_slice(bytes);
            alternates.push(b'\n');
        }
        std::fs::write(directory.join("config"), version).map_err(fail)?;
        std::fs::write(directory.join("HEAD"), "ref: refs/heads/none\n").map_err(fail)?;
        std::fs::write(directory.join("objects/info/alternates"), alternates).map_err(fail)?;
        Ok(Self { directory, format })
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// The hash of its objects.
    #[must_use]
    pub fn format(&self) -> ObjectFormat {
        self.format
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed lies in the run's own directory and goes with it.
        if std::fs::remove_dir_all(&self.directory).is_err() {
            self.directory.clear();
        }
    }
}

struct Finished {
    status: ExitStatus,
    output: Vec<u8>,
    errors: Vec<u8>,
}

/// Feeds, drains and waits; kills the whole process group when time is up.
fn supervise(mut child: Child, input: Vec<u8>, limit: Duration) -> io::Result<Finished> {
    let deadline = Instant::now() + limit;
    let pid = Pid::from_child(&child);
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        let feed = scope.spawn(
            move || match stdin.map_or(Ok(()), |mut pipe| pipe.write_all(&input)) {
                // git may know enough before the end of its input.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                other => other,
            },
        );
        let output = scope.spawn(move || drain(stdout, MAX_OUTPUT));
        let errors = scope.spawn(move || drain(stderr, MAX_ERRORS));
        let in_time = wait_until(pid, deadline);
        if !matches!(in_time, Ok(true)) {
            match rustix::process::kill_process_group(pid, Signal::KILL) {
                // Already gone is as good as killed.
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let status = child.wait()?;
        let join = |_| io::Error::other("a helper thread ended early");
        let (output, cut) = output.join().map_err(join)??;
        let (errors, _) = errors.join().map_err(join)??;
        feed.join().map_err(join)??;
        if !in_time? {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "took longer than it may"));
        }
        if cut {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "printed more than 64 MiB",
            ));
        }
        Ok(Finished {
            status,
            output,
            errors,
        })
    })
}

fn wait_until(pid: Pid, deadline: Instant) -> io::Result<bool> {
    let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut ready = [PollFd::new(&handle, PollFlags::IN)];
        match rustix::event::poll(&mut ready, Some(&left)) {
            Ok(count) => return Ok(count > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Reads to the end; beyond the limit it reads on without keeping, so that the writer is not blocked.
fn drain(pipe: Option<impl Read>, most: u64) -> io::Result<(Vec<u8>, bool)> {
    let Some(mut pipe) = pipe else {
        return Ok((Vec::new(), false));
    };
    let mut kept = Vec::new();
    pipe.by_ref().take(most).read_to_end(&mut kept)?;
    let beyond = io::copy(&mut pipe, &mut io::sink())?;
    Ok((kept, beyond > 0))
}
