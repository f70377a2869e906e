//! Further commands: streams, variables, directories, terminals, time; and paths of the host that come and go.
use crate::subject::{building, codes, command, sh};
use bastle_contract::grants::GrantWay;
use bastle_contract::runs::TtySize;
use bastle_contract::{AbsPath, Access, Code, EnvName};
use bastle_control::backend::GrantRequest;
use bastle_control::beside::Ends;
use std::os::fd::AsFd;
use std::time::Duration;

#[test]
fn a_command_gets_what_it_was_given_and_its_end_is_told_as_it_was() {
    for subject in building() {
        let sandbox = subject.lives();
        let mut request = command(&["sh", "-c", "echo $COLOUR; pwd; echo wrong >&2; exit 3"]);
        request.env = vec![(EnvName::try_from("COLOUR".to_owned()).unwrap(), "blue".to_owned())];
        request.cwd = Some(AbsPath::new("/tmp").unwrap());
        let printed = sandbox.exec(&request).expect("lives");
        assert_eq!(printed.finished.code, 3, "{}", subject.shown());
        assert_eq!(
            (printed.output.as_slice(), printed.errors.as_slice()),
            (&b"blue\n/tmp\n"[..], &b"wrong\n"[..])
        );
        // Input, to its end.
        let (reader, writer) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut { writer }, b"four").unwrap();
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let ends = Ends::piped(Some(reader.as_fd()), &mut output, &mut errors);
        let finished = sandbox
            .exec_streaming(&command(&["wc", "-c"]), ends)
            .expect("lives");
        assert_eq!(
            (finished.code, output.as_slice()),
            (0, &b"4\n"[..]),
            "{}",
            subject.shown()
        );
        // A terminal of its own, with its size.
        let mut request = command(&["stty", "size"]);
        request.tty = Some(TtySize { rows: 33, cols: 99 });
        assert!(
            sandbox.exec(&request).is_err(),
            "what is collected has no terminal"
        );
        let mut output = Vec::new();
        let ends = Ends::piped(None, &mut output, &mut errors);
        sandbox.exec_streaming(&request, ends).expect("lives");
        assert_eq!(
            String::from_utf8_lossy(&output).trim(),
            "33 99",
            "{}",
            subject.shown()
        );
    }
}

#[test]
fn a_command_that_cannot_start_or_does_not_end_is_told_by_its_code() {
    for subject in building() {
        let sandbox = subject.lives();
        for (words, code) in [(&["no-such-program"][..], 127), (&["/etc/passwd"], 126)] {
            let printed = sandbox.exec(&command(words)).expect("lives");
            assert_eq!(printed.finished.code, code, "{words:?} {}", subject.shown());
            assert!(printed.finished.fault.is_some(), "{words:?}");
        }
        let mut nowhere = command(&["true"]);
        nowhere.cwd = Some(AbsPath::new("/nowhere").unwrap());
        assert_ne!(sandbox.exec(&nowhere).expect("lives").finished.code, 0);
        let mut endless = command(&["sleep", "100000"]);
        endless.timeout = Some(Duration::from_millis(200));
        let printed = sandbox.exec(&endless).expect("lives");
        assert_eq!(printed.finished.code, 124, "{}", subject.shown());
        assert_eq!(printed.finished.fault.expect("says why").code, Code::ExecTime);
        let mut soon = command(&["true"]);
        soon.timeout = Some(Duration::from_secs(50));
        assert_eq!(sandbox.exec(&soon).expect("lives").finished.code, 0);
        assert_eq!(
            sh(sandbox.as_ref(), "pgrep -c sleep || true").trim(),
            "1",
            "only the agent sleeps"
        );
    }
}

#[test]
fn a_granted_path_is_there_until_it_is_revoked_and_keys_are_never_granted() {
    for subject in building() {
        let sandbox = subject.lives();
        let file = subject
            .lab
            .plant(&subject.lab.outside().join("notes.txt"), "granted\n");
        let keys = subject
            .lab
            .plant(&subject.lab.home().join(".ssh/id_rsa"), "key\n");
        let path = AbsPath::from_path(&subject.lab.outside()).unwrap();
        let request = |path: &AbsPath| GrantRequest {
            path: path.clone(),
            access: Access::ReadOnly,
            way: GrantWay::Mount,
            lasts: None,
        };
        let look = format!("cat {} 2>/dev/null || echo nothing", file.display());
        assert_eq!(sh(sandbox.as_ref(), &look), "nothing\n");
        let granted = sandbox.grant(&request(&path)).expect("is allowed");
        let inside = granted.inside.expect("it is mounted");
        assert_eq!(
            sh(sandbox.as_ref(), &format!("cat {inside}/notes.txt")),
            "granted\n"
        );
        let write = format!("echo x > {inside}/notes.txt || echo refused");
        assert!(
            sh(sandbox.as_ref(), &write).contains("refused"),
            "{}",
            subject.shown()
        );
        assert!(
            sandbox.grant(&request(&path)).is_err(),
            "nothing is granted twice"
        );
        let floor = AbsPath::from_path(keys.parent().unwrap()).unwrap();
        let refused = sandbox.grant(&request(&floor)).expect_err("are never granted");
        assert!(!refused.is_empty());
        sandbox.revoke(&path).expect("is granted");
        assert_eq!(sh(sandbox.as_ref(), &look), "nothing\n", "{}", subject.shown());
        let twice = sandbox.revoke(&path).expect_err("is not granted any more");
        assert_eq!(codes(&twice), [Code::GrantMissing]);
    }
}
