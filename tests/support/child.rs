//! One child process with a hard limit of time, its group killed by number when it does not end.
use rustix::process::{Pid, Signal};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// How long a child may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit(pub(crate) Duration);

impl Limit {
    /// Far more than any healthy run takes on a slow, loaded machine.
    pub(crate) const HANG: Self = Self(Duration::from_secs(60));
}

/// What became of a child.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    /// Exit code; 128+n for a signal, as a shell says it.
    pub(crate) code: i32,
    /// Standard output, lossy.
    pub(crate) stdout: String,
    /// Standard error, lossy.
    pub(crate) stderr: String,
    /// From start to end.
    pub(crate) took: Duration,
}

/// A child that goes on while the test does other things. Its group is killed when this is dropped.
pub(crate) struct Background {
    child: Child,
    lines: Receiver<String>,
}

impl Background {
    /// Starts it.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
        let stdout = BufReader::new(child.stdout.take().expect("is piped"));
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines }
    }

    /// Waits for its next line of output.
    pub(crate) fn line(&self) -> String {
        self.lines
            .recv_timeout(Limit::HANG.0)
            .expect("the child says something before it ends or hangs")
    }

    /// Waits until its output is closed: the lines that were not asked for yet.
    pub(crate) fn rest(&self) -> Vec<String> {
        self.lines.iter().collect()
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("own child").is_none()
    }

    /// Sends a signal to the process alone.
    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal)
            .expect("own child, not yet waited for");
    }

    /// Waits for its end; `None` when it takes longer than `limit`.
    pub(crate) fn end(&mut self, limit: Limit) -> Option<i32> {
        let pidfd =
            rustix::process::pidfd_open(Pid::from_child(&self.child), rustix::process::PidfdFlags::empty())
                .expect("own child, not yet waited for");
        let wait = rustix::time::Timespec::try_from(limit.0).expect("a short time");
        let mut ready = [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut ready, Some(&wait)).expect("can be waited for");
        self.child.try_wait().expect("own child").map(code)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if self.is_alive() {
            let group = Pid::from_child(&self.child);
            rustix::process::kill_process_group(group, Signal::KILL).expect("own child can be killed");
            self.child.wait().expect("own child");
        }
    }
}

/// Waits until `condition` holds, looking again and again; false when it never did.
pub(crate) fn eventually(limit: Limit, mut condition: impl FnMut() -> bool) -> bool {
    let (_silent, clock) = mpsc::channel::<()>();
    let started = Instant::now();
    while started.elapsed() < limit.0 {
        if condition() {
            return true;
        }
        // A clock, not a guess: nobody ever sends.
        if clock.recv_timeout(Duration::from_millis(20)).is_ok() {
            return false;
        }
    }
    condition()
}

/// Runs `command` with `input` as its standard input. Panics when it does not end in time.
pub(crate) fn run(command: &mut Command, input: &[u8], limit: Limit) -> Ended {
    let started = Instant::now();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
    let group = Pid::from_child(&child);
    let stdout = collect(child.stdout.take().expect("is piped"));
    let stderr = collect(child.stderr.take().expect("is piped"));
    let mut stdin = child.stdin.take().expect("is piped");
    let input = input.to_vec();
    std::thread::spawn(move || {
        // A child that does not read its input is no failure of the test.
        if let Err(error) = stdin.write_all(&input) {
            eprintln!("input not taken: {error}");
        }
    });
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || ended.send(child.wait()));
    let status = match end.recv_timeout(limit.0) {
        Ok(status) => status.expect("can be waited for"),
        Err(_) => {
            rustix::process::kill_process_group(group, Signal::KILL).expect("own child can be killed");
            let said = (text(&stdout), text(&stderr));
            panic!("{command:?} still ran after {:?}: {said:?}", limit.0);
        }
    };
    Ended {
        code: code(status),
        stdout: text(&stdout),
        stderr: text(&stderr),
        took: started.elapsed(),
    }
}

fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .expect("ended by exit or signal")
}

fn collect(mut stream: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = stream.read_to_end(&mut bytes);
        if let Err(error) = read {
            eprintln!("output cut short: {error}");
        }
        sender.send(bytes)
    });
    receiver
}

/// What was collected. A survivor that holds the pipe open must not hang the test, and is a failure of its own.
fn text(stream: &Receiver<Vec<u8>>) -> String {
    match stream.recv_timeout(Limit::HANG.0) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => "<something outlived the child and holds its output open>".to_owned(),
    }
}
