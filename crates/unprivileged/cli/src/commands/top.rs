//! `bastle top`: the fleet on one screen. Woken by the daemon's events, steered by keys; without a terminal plain lines.
//!
//! **Trust:** what is shown came from agents and is escaped; what is done goes through the daemon, which decides.
mod data;
mod model;
mod screen;
mod terminal;

use crate::client::{Daemon, part, rest};
use crate::context::{Context, Ended, Failed};
use crate::remote::Listed;
use crate::render::now_ms;
use bastle_contract::{Code, Fault};
use bastle_control::Interrupts;
use bastle_control::fleet::Verdict;
use bastle_serve::client::Waited;
use model::{Fleet, Line};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use screen::View;
use serde_json::json;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use terminal::{Key, Terminal};

/// Clocks go on when nothing happens.
const TICK: Duration = Duration::from_secs(1);
/// After how many quiet ticks the daemon is asked all the same.
const QUIET: u32 = 5;

/// Arguments of `top`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Keys: q quit, up and down choose, enter shows the output, p pauses and resumes, s stops (asks first),
a and d answer the question of the chosen run.

Without a terminal the picture is printed once, as plain lines.
Exit codes: 0 ok, 1 failed, 143 ended by a signal.")]
pub(crate) struct TopArgs {
    /// Only runs with this label
    #[arg(long, value_name = "KEY[=VALUE]")]
    tag: Option<String>,
    /// Only runs whose names begin so
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<String>,
    /// Also runs that have ended
    #[arg(short, long)]
    all: bool,
    /// Print one picture and end
    #[arg(long)]
    once: bool,
    /// Print one picture as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl TopArgs {
    /// Which runs, as a query.
    fn query(&self) -> String {
        let mut query = "/api/v1/runs?limit=1000".to_owned();
        if let Some(tag) = &self.tag {
            query.push_str(&format!("&tag={}", part(tag)));
        }
        if let Some(prefix) = &self.prefix {
            query.push_str(&format!("&prefix={}", part(prefix)));
        }
        query
    }
}

/// Shows it.
pub(crate) fn run(args: &TopArgs, cx: &Context) -> Ended {
    let daemon = Daemon::open()?;
    let mut source = data::Source::new(daemon, args.query(), Listed::from(args.all));
    let fleet = source.fleet()?;
    if args.json {
        cx.print_json(
            &json!({ "schema": "bastle.top/v1", "address": fleet.address, "runs": data::as_json(&fleet) }),
        )?;
        return Ok(0);
    }
    if args.once || !terminal::is_there() {
        cx.print(&screen::plain(&fleet, now_ms(), cx.out))?;
        return Ok(0);
    }
    let mut app = App {
        source,
        fleet,
        view: View::default(),
        pending: None,
    };
    app.show(cx)
}

/// What a yes would do.
enum Pending {
    Stop(String),
    Answer(model::Waiting),
}

/// Whether to go on.
#[derive(PartialEq, Eq)]
enum Next {
    Go,
    Quit,
}

struct App {
    source: data::Source,
    fleet: Fleet,
    view: View,
    pending: Option<Pending>,
}

fn system(error: std::io::Error) -> Fault {
    Fault::new(
        Code::UsageArgument,
        "the terminal cannot be used",
        error.to_string(),
    )
    .help("bastle top --once")
}

impl App {
    /// Draws and listens until a person has seen enough.
    fn show(&mut self, cx: &Context) -> Ended {
        let interrupts = Interrupts::register().map_err(system)?;
        let mut events = listen()?;
        let terminal = Terminal::take().map_err(system)?;
        let mut quiet = 0;
        loop {
            let lines = screen::frame(&self.fleet, &self.view, Terminal::size(), now_ms(), cx.out);
            terminal.draw(&lines).map_err(system)?;
            let [ends, resized] = interrupts.waiting();
            let stdin = std::io::stdin();
            let (pressed, happened) = wait(&[stdin.as_fd(), events.as_fd(), ends, resized])?;
            if interrupts.ended() {
                return Ok(143);
            }
            // The next picture has the new size; nothing else to do.
            let _resized = interrupts.resized();
            if pressed && self.keys()? == Next::Quit {
                return Ok(0);
            }
            quiet += 1;
            if happened || quiet >= QUIET || pressed {
                quiet = 0;
                drain(&mut events);
                self.refresh();
            }
        }
    }

    /// Asks the daemon; one that does not answer is told and asked again.
    fn refresh(&mut self) {
        match self.source.fleet() {
            Ok(fleet) => self.fleet = fleet,
            Err(faults) => self.view.note = words(&faults),
        }
        if let Some(pane) = &mut self.view.pane
            && let Err(faults) = self.source.read_on(pane)
        {
            self.view.note = words(&faults);
        }
    }

    fn keys(&mut self) -> Result<Next, Failed> {
        let mut bytes = [0; 256];
        let count = std::io::stdin().read(&mut bytes).map_err(system)?;
        if count == 0 {
            return Ok(Next::Quit);
        }
        for key in terminal::keys(&bytes[..count]) {
            if self.key(key) == Next::Quit {
                return Ok(Next::Quit);
            }
        }
        Ok(Next::Go)
    }

    fn key(&mut self, key: Key) -> Next {
        self.view.note.clear();
        if let Some(pending) = self.pending.take() {
            self.view.asks = None;
            if key == Key::Letter('y') {
                self.confirmed(&pending);
            } else {
                self.view.note = "nothing was done".to_owned();
            }
            return Next::Go;
        }
        match key {
            Key::Letter('q') => return Next::Quit,
            Key::Up | Key::Letter('k') => self.view.step(&self.fleet, -1),
            Key::Down | Key::Letter('j') => self.view.step(&self.fleet, 1),
            Key::PageUp => self.view.step(&self.fleet, -10),
            Key::PageDown => self.view.step(&self.fleet, 10),
            Key::Escape => self.view.pane = None,
            Key::Enter => self.pane(),
            Key::Letter(letter) => self.letter(letter),
        }
        Next::Go
    }

    fn letter(&mut self, letter: char) {
        let Some(line) = self.view.line(&self.fleet).cloned() else {
            return;
        };
        match letter {
            'p' => {
                let done = self.source.pause_or_resume(&line);
                self.told(done);
            }
            's' if line.state.is_final() => self.view.note = format!("{} has ended", line.name),
            's' => {
                self.view.asks = Some(format!("stop {}? y/n", line.name));
                self.pending = Some(Pending::Stop(line.name));
            }
            'a' => self.ask(&line),
            'd' => {
                let done = match line.questions.first() {
                    Some(question) => self.source.answer(question, Verdict::Deny),
                    None => Ok(format!("{} asks nothing", line.name)),
                };
                self.told(done);
            }
            _ => {}
        }
    }

    /// A yes is given to what stands on the screen, not to what a key happens to hit.
    fn ask(&mut self, line: &Line) {
        match line.questions.first() {
            Some(question) => {
                self.view.asks = Some(format!("allow {}: {} ? y/n", line.name, question.text));
                self.pending = Some(Pending::Answer(question.clone()));
            }
            None => self.view.note = format!("{} asks nothing", line.name),
        }
    }

    fn confirmed(&mut self, pending: &Pending) {
        let done = match pending {
            Pending::Stop(name) => self.source.stop(name),
            Pending::Answer(question) => self.source.answer(question, Verdict::Approve),
        };
        self.told(done);
    }

    fn told(&mut self, done: Result<String, Vec<Fault>>) {
        self.view.note = match done {
            Ok(text) => text,
            Err(faults) => words(&faults),
        };
    }

    /// Opens or closes the output of the chosen run.
    fn pane(&mut self) {
        let chosen = self.view.line(&self.fleet).map(|line| line.name.clone());
        let open = self.view.pane.take().map(|pane| pane.run);
        if let Some(run) = chosen
            && open.as_ref() != Some(&run)
        {
            self.view.pane = Some(screen::Pane {
                run,
                ..screen::Pane::default()
            });
        }
    }
}

fn words(faults: &[Fault]) -> String {
    let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
    told.join("; ")
}

/// A thread that hears the daemon's events: each is one byte. What cannot be written is not missed, a byte is there.
fn listen() -> Result<UnixStream, Failed> {
    let (ours, mut theirs) = UnixStream::pair().map_err(system)?;
    ours.set_nonblocking(true).map_err(system)?;
    theirs.set_nonblocking(true).map_err(system)?;
    let daemon = Daemon::open()?;
    let hear = move || {
        let mut since = None;
        loop {
            if let Ok(mut events) = daemon.events(since, "") {
                loop {
                    match events.wait(Duration::from_secs(60)) {
                        Waited::Event(event) => {
                            since = event.id.as_deref().and_then(|id| id.parse().ok()).or(since);
                            drop(theirs.write(b"e"));
                        }
                        Waited::Late => {}
                        Waited::Ended => break,
                    }
                }
            }
            // A daemon that went is looked for once in a while.
            rest(TICK);
        }
    };
    std::thread::Builder::new()
        .name("events".to_owned())
        .spawn(hear)
        .map_err(system)?;
    Ok(ours)
}

/// Waits at most one tick; whether a key was pressed, and whether something happened.
fn wait(fds: &[rustix::fd::BorrowedFd<'_>]) -> Result<(bool, bool), Failed> {
    let mut waiting: Vec<PollFd<'_>> = fds
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    let tick = Timespec {
        tv_sec: i64::try_from(TICK.as_secs()).unwrap_or(1),
        tv_nsec: 0,
    };
    match poll(&mut waiting, Some(&tick)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(system(error.into()).into()),
    }
    let came = |index: usize| waiting.get(index).is_some_and(|fd| !fd.revents().is_empty());
    Ok((came(0), came(1)))
}

fn drain(events: &mut UnixStream) {
    let mut bytes = [0; 4096];
    while let Ok(1..) = events.read(&mut bytes) {}
}
