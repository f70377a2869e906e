//! One child process with a hard limit of time, its group killed by number when it does not end.
use rustix::process::{Pid, Signal};
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// How long a child may take.
#[derive(Clone, Copy, Debug)]
pub struct Limit(pub Duration);

impl Limit {
    /// Far more than any healthy run takes on a slow, loaded machine.
    pub const HANG: Self = Self(Duration::from_secs(60));
}

/// What became of a child.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Exit code; 128+n for a signal, as a shell says it.
    pub code: i32,
    /// Standard output, lossy.
    pub stdout: String,
    /// Standard error, lossy.
    pub stderr: String,
    /// From start to end.
    pub took: Duration,
}

/// Runs `command` with `input` as its standard input. Panics when it does not end in time.
pub fn run(command: &mut Command, input: &[u8], limit: Limit) -> Ended {
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
    match stream.recv_timeout(Duration::from_secs(10)) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => "<something outlived the child and holds its output open>".to_owned(),
    }
}
