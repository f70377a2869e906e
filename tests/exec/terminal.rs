//! A terminal of its own for a further command.
use crate::agent::shown;
use crate::living::Living;
use crate::support::{Limit, for_each_identity, run};

/// Runs its arguments on a terminal of 31 lines and 97 columns, changes that, and shows what was printed.
const ON_A_TERMINAL: &str = r#"
import fcntl, os, pty, select, signal, struct, sys, termios, time
pid, master = pty.fork()
if pid == 0:
    time.sleep(0)
    os.execvp(sys.argv[1], sys.argv[1:])
def size(rows, cols):
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
size(31, 97)
seen = b""
typed = resized = False
while True:
    ready, _, _ = select.select([master], [], [], 50)
    if not ready:
        break
    try:
        piece = os.read(master, 65536)
    except OSError:
        break
    if not piece:
        break
    seen += piece
    if b"who?" in seen and not typed:
        typed = True
        os.write(master, b"me\r")
    if b"hello me" in seen and not resized:
        resized = True
        size(40, 120)
_, status = os.waitpid(pid, 0)
sys.stdout.buffer.write(seen)
sys.exit(os.waitstatus_to_exitcode(status))
"#;

#[test]
fn a_further_command_has_a_terminal_of_its_own_with_our_size_also_when_it_changes() {
    for_each_identity(|lab| {
        let driver = lab.plant(&lab.outside().join("terminal.py"), ON_A_TERMINAL);
        let living = Living::start(lab);
        // The size of the outer terminal may be set a moment after the start: it is asked for until it fits.
        let script = "tty; until [ \"$(stty size)\" = '31 97' ]; do sleep 0.05; done; echo sized; \
            printf 'who? '; read name; echo hello $name; \
            until [ \"$(stty size)\" = '40 120' ]; do sleep 0.05; done; echo resized; exit 9";
        let mut line = lab.command(std::path::Path::new("/usr/bin/python3"));
        line.env("TERM", "xterm");
        line.arg(shown(&driver)).arg(crate::support::bastle());
        line.args(["exec", "-t", living.agent.name(), "--", "sh", "-c", script]);
        let ended = run(&mut line, b"", Limit::HANG);
        assert_eq!(ended.code, 9, "{ended:?}");
        for word in ["/dev/pts/", "sized", "hello me", "resized"] {
            assert!(ended.stdout.contains(word), "{word}: {ended:?}");
        }
    });
}

#[test]
fn a_terminal_is_not_promised_where_there_is_none() {
    for_each_identity(|lab| {
        let living = Living::start(lab);
        let refused = run(&mut living.line(&["-t"], &["touch", "made"]), b"", Limit::HANG);
        assert_eq!(refused.code, 125, "{refused:?}");
        assert!(refused.stderr.contains("--tty"), "{refused:?}");
        assert!(!lab.workspace().join("made").exists());
        assert_eq!(living.sh("tty").stdout, "not a tty\n", "control: pipes");
    });
}
