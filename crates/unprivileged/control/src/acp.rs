//! An editor on one side, a run with a driven agent on the other: what the editor asks goes to the run's socket, what the
//! run tells goes to the editor. The run has a keeper of its own and is let go when this process is gone.
//!
//! **Trust:** the editor is its user's. What the agent says is text and tool calls to the editor, never a request for its
//! files or terminals.
use crate::live::{self, Command};
use bastle_agents::{AgentDriver, Editor, Flow, Kept, Opening};
use bastle_contract::stream::{StreamKind, StreamReader};
use bastle_contract::{Code, Fault, RunId};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Pieces of either side that wait; who sends more is held back.
const MOST_WAITING: usize = 64;
/// How long the run may take to end after the editor went.
const FAREWELL: Duration = Duration::from_secs(60);

/// A run that was started for an editor.
pub struct Opened {
    /// The state directory.
    pub state: PathBuf,
    /// The run.
    pub run: RunId,
    /// What goes before the first prompt.
    pub preamble: String,
    /// What the person is told first.
    pub notes: Vec<String>,
    /// What the person is told about the work when it is over.
    pub work: String,
}

/// Starts the agent in the directory an editor named.
pub type Open<'a> = &'a mut dyn FnMut(&str) -> Result<Opened, Vec<Fault>>;

/// Something came.
enum Came {
    /// From the editor; empty: it is gone.
    Editor(Vec<u8>),
    /// From the run: events, one per line.
    Run(Vec<u8>),
    /// The run is over.
    Ended,
}

/// The two sides.
struct Desk<'a> {
    editor: Editor,
    out: &'a mut dyn Write,
    opened: Option<Opened>,
    sender: SyncSender<Came>,
    over: bool,
}

/// Serves one editor until it goes. Gives back the run that was started for it, where one was.
pub fn serve(
    input: impl Read + Send + 'static,
    out: &mut dyn Write,
    open: Open<'_>,
) -> Result<Option<RunId>, Fault> {
    let (sender, came) = sync_channel(MOST_WAITING);
    let from_editor = sender.clone();
    std::thread::spawn(move || read_editor(input, &from_editor));
    let mut desk = Desk {
        editor: Editor::unopened(Box::new(Kept::default())),
        out,
        opened: None,
        sender,
        over: false,
    };
    desk.serve(&came, open)?;
    desk.leave(&came);
    Ok(desk.opened.map(|opened| opened.run))
}

fn read_editor(mut input: impl Read, sender: &SyncSender<Came>) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = match input.read(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => 0,
        };
        let piece = buffer[..count].to_vec();
        if sender.send(Came::Editor(piece)).is_err() || count == 0 {
            return;
        }
    }
}

fn read_run(mut stream: UnixStream, sender: &SyncSender<Came>) {
    let mut frames = StreamReader::default();
    let mut buffer = vec![0; 64 * 1024];
    'run: while let Ok(count @ 1..) = stream.read(&mut buffer) {
        frames.push(&buffer[..count]);
        while let Ok(Some(frame)) = frames.next_frame() {
            match frame.kind {
                StreamKind::Event => {
                    let mut line = frame.payload;
                    line.push(b'\n');
                    if sender.send(Came::Run(line)).is_err() {
                        return;
                    }
                }
                StreamKind::Ended => break 'run,
                StreamKind::Output
                | StreamKind::Errors
                | StreamKind::Input
                | StreamKind::Resize
                | StreamKind::Signal => {}
            }
        }
    }
    // Whoever does not listen any more knows.
    drop(sender.send(Came::Ended));
}

impl Desk<'_> {
    fn serve(&mut self, came: &Receiver<Came>, open: Open<'_>) -> Result<(), Fault> {
        while let Ok(piece) = came.recv() {
            let flow = match piece {
                Came::Editor(bytes) if bytes.is_empty() => return Ok(()),
                Came::Editor(bytes) => self.editor.from_editor(&bytes),
                Came::Run(line) => self.editor.from_agent(&line),
                Came::Ended => {
                    self.over = true;
                    self.last_words();
                    let gone = self.editor.agent_gone();
                    if !self.write(&gone) {
                        return Ok(());
                    }
                    continue;
                }
            };
            if !self.follow(flow, open) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// `false`: the editor is gone, or wants no more.
    fn follow(&mut self, flow: Flow, open: Open<'_>) -> bool {
        if !self.write(&flow.editor) {
            return false;
        }
        if let Some(opening) = flow.opening
            && !self.open(&opening, open)
        {
            return false;
        }
        for line in flow.agent.split(|byte| *byte == b'\n') {
            if !line.is_empty() && !self.command(line) {
                return false;
            }
        }
        if let Some(asked) = flow.closing {
            self.last_words();
            self.finish();
            let closed = self.editor.closed(&asked);
            return self.write(&closed);
        }
        true
    }

    fn write(&mut self, bytes: &[u8]) -> bool {
        self.out.write_all(bytes).and_then(|()| self.out.flush()).is_ok()
    }

    fn open(&mut self, opening: &Opening, open: Open<'_>) -> bool {
        let begun = open(&opening.cwd).and_then(|opened| {
            let watch = Command::Watch { since: 0, hold: true };
            let (stream, _) = live::stream(&opened.state, &opened.run, &watch)?;
            let sender = self.sender.clone();
            std::thread::spawn(move || read_run(stream, &sender));
            Ok(opened)
        });
        let mut notes = Vec::new();
        let begun: Result<(String, Box<dyn AgentDriver>), String> = match begun {
            Ok(opened) => {
                notes.clone_from(&opened.notes);
                let driver = Kept::with_preamble(opened.preamble.clone());
                let run = opened.run.to_string();
                self.opened = Some(opened);
                Ok((run, Box::new(driver)))
            }
            Err(faults) => Err(told(&faults)),
        };
        let failed = begun.is_err();
        if !failed && opening.servers > 0 {
            notes.push(format!(
                "{} MCP servers of the editor are not passed into the fence",
                opening.servers
            ));
        }
        let mut bytes = self.editor.opened(opening, begun);
        for note in notes {
            bytes.extend(self.editor.thought(&note));
        }
        self.write(&bytes)
    }

    /// Carries out what the editor's side says to the run; `false` when the editor is gone.
    fn command(&mut self, line: &[u8]) -> bool {
        let Some(opened) = &self.opened else {
            return true;
        };
        let Ok(command) = serde_json::from_slice::<Command>(line) else {
            return true;
        };
        let answered = live::ask(&opened.state, &opened.run, &command);
        match (answered, command) {
            (Ok(_), _) => true,
            (Err(faults), Command::Say { .. }) => {
                let mut bytes = self.editor.refused(&told(&faults));
                // Nothing was begun.
                let ended = br#"{"kind":"agent","data":{"said":"turn-ended","how":"failed","text":null}}"#;
                bytes.extend(self.editor.from_agent(&[ended, &b"\n"[..]].concat()).editor);
                self.write(&bytes)
            }
            // Somebody else answered first, or there is nothing to interrupt any more: the run's events tell.
            (Err(_), _) => true,
        }
    }

    /// Where the work is.
    fn last_words(&mut self) {
        if let Some(opened) = &self.opened {
            let bytes = self.editor.message(&format!("\n\n{}\n", opened.work));
            // An editor that is gone has the same on its standard error.
            self.write(&bytes);
        }
    }

    fn finish(&mut self) {
        if let Some(opened) = &self.opened
            && !self.over
        {
            // One that is gone already needs no word.
            drop(live::ask(&opened.state, &opened.run, &Command::Finish {}));
        }
    }

    /// The editor is gone: the agent is let go, and its end is waited for.
    fn leave(&mut self, came: &Receiver<Came>) {
        if self.opened.is_none() || self.over {
            return;
        }
        self.finish();
        while let Ok(piece) = came.recv_timeout(FAREWELL) {
            match piece {
                Came::Ended => return,
                Came::Editor(_) | Came::Run(_) => {}
            }
        }
    }
}

fn told(faults: &[Fault]) -> String {
    let none = Fault::new(Code::FenceLost, "the run did not answer", "");
    let fault = faults.first().unwrap_or(&none);
    let mut text = fault.what.clone();
    if !fault.why.is_empty() {
        text = format!("{text}: {}", fault.why);
    }
    if let Some(help) = fault.help.first() {
        text = format!("{text} (try: {help})");
    }
    text
}
