//! An agent that does what the test tells it, step by step, and keeps what it opened.
use crate::support::{Background, Ended, Fence, Lab, Limit, bastle, run};
use serde_json::Value;
use std::path::Path;

/// What every step can use.
const PRELUDE: &str = r#"
import ctypes, errno, os, socket, subprocess, sys, time
held = []
def outcome(f):
    try:
        return f()
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))
def read(path):
    return outcome(lambda: open(path).read())
def write(path, text):
    def act():
        with open(path, "w") as f:
            return f.write(text)
    return outcome(act)
def call(name, *args):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*args) < 0:
        return errno.errorcode[ctypes.get_errno()]
    return "OK"
def stash(fd):
    # Into a socket's queue, where no list of descriptors shows it.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    socket.send_fds(ours, [b"x"], [fd])
    os.close(fd)
    held.append((ours, theirs))
def unstash():
    return socket.recv_fds(held.pop()[1], 1, 1)[1][0]
def child(act):
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        keep = act()
        os.write(told, b"x")
        while True:
            time.sleep(60)
    os.read(ready, 1)
    return pid
programs = []
def spawn(*words):
    program = subprocess.Popen(words, stdout=subprocess.PIPE)
    programs.append(program)
    program.stdout.read(1)
    return program.pid
def ended(pid):
    # At most a while: a process that lives on is the answer, too.
    for _ in range(100):
        if os.waitpid(pid, os.WNOHANG) != (0, 0):
            return True
        time.sleep(0.01)
    return False
def connect(path):
    s = socket.socket(socket.AF_UNIX)
    return outcome(lambda: s.connect(path))
def knock(wait=20):
    s = socket.socket(socket.AF_UNIX)
    # With a time limit the kernel refuses at once what it cannot queue.
    s.connect("/run/bastle/fs.sock")
    s.settimeout(wait)
    return s
def request(method, target, body=None, wait=20, fields=""):
    s = knock(wait)
    head = f"{method} {target} HTTP/1.1\r\nHost: local\r\n{fields}"
    if body is not None:
        head += f"Content-Length: {len(body)}\r\n"
    s.sendall(head.encode() + b"\r\n")
    try:
        s.sendall(body or b"")
    except OSError:
        pass
    return rest(s)
def rest(s):
    whole = b""
    while True:
        try:
            piece = s.recv(65536)
        except ConnectionResetError:
            piece = b""
        if not piece:
            break
        whole += piece
    head, _, body = whole.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]) if head else 0, body
def count(s):
    whole = 0
    while piece := s.recv(65536):
        whole += len(piece)
    return whole
"#;

/// Waits for its steps.
const LOOP: &str = r#"
turn = 0
home = os.getcwd()
print("ready", flush=True)
while True:
    turn += 1
    while not os.path.exists(f"{home}/{sys.argv[1]}-{turn}.go"):
        time.sleep(0.01)
    try:
        print(repr(eval(compile(open(f"{home}/{sys.argv[1]}-{turn}.py").read(), "step", "eval"))), flush=True)
    except Exception as e:
        print("!", type(e).__name__, e, flush=True)
"#;

/// A living run.
pub(crate) struct Agent<'a> {
    lab: &'a Lab,
    fence: Fence<'a>,
    living: Background,
    turn: std::cell::Cell<u32>,
}

impl<'a> Agent<'a> {
    /// Starts it without a network.
    pub(crate) fn start(lab: &'a Lab) -> Self {
        Self::with(lab, &[])
    }

    /// Starts it with more flags.
    pub(crate) fn with(lab: &'a Lab, flags: &[&str]) -> Self {
        let fence = lab.fence().flags(["--net", "none"]).flags(flags.iter().copied());
        let file = lab.project("agent.py", &format!("{PRELUDE}{LOOP}"));
        let living = Background::start(&mut fence.command(["python3", "-B", &shown(&file), fence.name()]));
        assert_eq!(living.line(), "ready");
        Self {
            lab,
            fence,
            living,
            turn: std::cell::Cell::new(0),
        }
    }

    /// Has it compute an expression; what it printed.
    pub(crate) fn does(&self, expression: &str) -> String {
        let turn = self.turn.get() + 1;
        self.turn.set(turn);
        let name = self.name();
        self.lab.project(&format!("{name}-{turn}.py"), expression);
        self.lab.project(&format!("{name}-{turn}.go"), "");
        self.living.line()
    }

    /// The name of the run.
    pub(crate) fn name(&self) -> &str {
        self.fence.name()
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.living.is_alive()
    }

    /// A command about the run: the verb, the run, the other words.
    pub(crate) fn told(&self, verb: &str, words: &[&str]) -> Ended {
        let mut command = self.lab.command(bastle());
        command.arg(verb).arg(self.name()).args(words);
        run(&mut command, b"", Limit::HANG)
    }

    /// The same, which must work.
    pub(crate) fn gets(&self, verb: &str, words: &[&str]) -> Ended {
        let ended = self.told(verb, words);
        assert_eq!(ended.code, 0, "{verb} {words:?}: {ended:?}");
        ended
    }

    /// The audit events of one type so far.
    pub(crate) fn events(&self, kind: &str) -> Vec<Value> {
        let mut events = self.fence.audit();
        events.retain(|event| event["type"] == kind);
        events
    }
}

/// A path as text.
pub(crate) fn shown(path: &Path) -> String {
    path.to_str().expect("places of the tests are UTF-8").to_owned()
}

/// Where a granted path is inside.
pub(crate) fn inside(path: &Path) -> String {
    format!("/grants{}", shown(path))
}
