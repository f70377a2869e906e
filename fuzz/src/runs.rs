//! What reaches a keeper: lines of a driven agent, frames of whoever is attached, requests for runs, profiles.
use bastle_agents::{DriverKind, Editor, Session, driver};
use bastle_contract::runs::LaunchSpec;
use bastle_contract::stream::{MAX_PAYLOAD, StreamReader, frames};

const KINDS: [DriverKind; 5] = [
    DriverKind::Plain,
    DriverKind::Claude,
    DriverKind::Codex,
    DriverKind::Acp,
    DriverKind::Opencode,
];

/// What an agent prints: nothing of it makes a driver allow something.
pub fn agent_lines(data: &[u8]) {
    for kind in KINDS {
        let mut driver = driver(kind);
        driver.start(&Session::default());
        drop(driver.prompt("go"));
        for part in data.chunks(1000) {
            quiet(&driver.take(part).reply);
        }
        quiet(&driver.take(b"\n").reply);
    }
    // The same bytes from the agent behind an editor, and from the editor.
    let session = Session {
        cwd: "/w".to_owned(),
        model: None,
    };
    let (mut editor, _) = Editor::new(driver(DriverKind::Claude), &session);
    quiet(&editor.from_agent(data).agent);
    drop(editor.from_editor(data));
}

fn quiet(reply: &[u8]) {
    let reply = String::from_utf8_lossy(reply);
    for yes in ["\"allow\"", "\"accept", "\"selected\""] {
        assert!(!reply.contains(yes), "a driver answered for a person: {reply}");
    }
}

/// Frames of an attached stream: what was read is what would be written.
pub fn stream_frames(data: &[u8]) {
    let mut reader = StreamReader::default();
    let mut written = Vec::new();
    for part in data.chunks(777) {
        reader.push(part);
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => {
                    assert!(frame.payload.len() <= MAX_PAYLOAD, "a frame beyond the limit");
                    written.extend(frames(frame.kind, &frame.payload));
                }
                Ok(None) => break,
                Err(_) => {
                    assert!(data.starts_with(&written), "frames read back otherwise");
                    return;
                }
            }
        }
    }
    assert!(data.starts_with(&written), "frames read back otherwise");
}

/// A request for a run, as it lies in a file: what is taken reads back the same.
pub fn launch_spec(data: &[u8]) {
    let Ok(spec) = serde_json::from_slice::<LaunchSpec>(data) else {
        return;
    };
    let printed = serde_json::to_vec(&spec).expect("can be printed");
    let again: LaunchSpec = serde_json::from_slice(&printed).expect("what we print, we read");
    assert_eq!(again, spec, "printing and reading changed the request");
}
