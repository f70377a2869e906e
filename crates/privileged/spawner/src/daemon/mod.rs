//! The spawner as a daemon: sandboxes for callers that a ceiling names, over a local socket.
//!
//! Four kinds of processes. The *mother* has the rights and makes the others; it never hears a caller. The *front* hears
//! callers and has no rights at all. A *worker* serves one run with the same code as a spawner of its caller's own, and
//! outlives the daemon; its init is the sandbox.
//!
//! **Invariant:** whoever asks is known by the kernel's word only, a refused request changes nothing but the log, and
//! nothing is started without a record.
mod accounts;
mod amount;
mod bucket;
mod ceiling;
mod client;
mod confine;
mod filter;
mod front;
mod journal;
mod judge;
mod line;
mod listen;
mod mother;
mod notify;
mod options;
mod registry;
mod worker;

use crate::Init;
use bastle_contract::{Code, Fault, HostFacts, RunId, socket};
use bastle_sys::clone::{Cloned, Namespaces, clone_into};
use ceiling::Ceiling;
use front::Front;
use journal::Journal;
use line::{ToFront, ToMother};
use listen::{Listening, Made};
use mother::{End, Mother};
use options::{Command, Options, Surroundings};
use registry::{Entry, Registry};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Largest document of a ceiling between processes: the file, with its defaults written out.
const MOST_CEILING: usize = 4 << 20;

/// Variables that a test build reads.
#[cfg(feature = "test-hooks")]
const KEPT: &[&str] = &[
    "BASTLE_TEST_WITHOUT",
    "BASTLE_TEST_SYNC_FAILS",
    "BASTLE_TEST_LANDLOCK",
];
#[cfg(not(feature = "test-hooks"))]
const KEPT: &[&str] = &[];

/// `bastle spawner`: `words` are those behind the verb. To be called before any thread exists; returns the exit code.
#[must_use]
pub fn main(words: &[OsString], init: Init) -> u8 {
    let around = Surroundings::take();
    let done = options::parse(words, &around).and_then(|command| match command {
        Command::Help => {
            print!("{}", options::USAGE);
            Ok(())
        }
        Command::Check(file) => Ceiling::load(&file).map(|ceiling| {
            println!("{}: {} callers", file.display(), ceiling.callers.len());
        }),
        Command::List(socket) => client::list(&socket),
        Command::Probe(socket) => client::probe(&socket),
        Command::Serve(options) => serve(&options, &around, init),
    });
    match done {
        Ok(()) => 0,
        Err(fault) => {
            eprintln!("bastle: {fault}");
            for help in &fault.help {
                eprintln!("  help: {help}");
            }
            match fault.code {
                Code::UsageArgument => 2,
                _ => 1,
            }
        }
    }
}

fn serve(options: &Options, around: &Surroundings, init: Init) -> Result<(), Fault> {
    let ceiling = match &options.ceiling {
        Some(file) => Ceiling::load(file)?,
        None => Ceiling::own(),
    };
    // Workers and init are copies of this process, and what it was started with is nobody's business in there.
    bastle_sys::environment::wipe_arguments("bastle-spawner").map_err(|error| failed("arguments", &error))?;
    bastle_sys::environment::wipe(KEPT);
    rustix::process::chdir("/").map_err(|error| failed("directory", &error.into()))?;
    confine::mother().map_err(|error| failed("own fence", &error))?;
    if bastle_contract::Authority::of_this_process().is_root() {
        crate::identity::ready_claims().map_err(|error| failed("uids of runs", &error))?;
    }
    let listening = listen::listen(options, around.given)?;
    let registry = Registry::open(&Options::registry_of(&listening.path))
        .map_err(|error| failed("registry of runs", &error))?;
    let adopted = registry
        .living()
        .map_err(|error| failed("registry of runs", &error))?;
    let log = log_name()?;
    let wanted = [libc::SIGCHLD, libc::SIGHUP, libc::SIGTERM, libc::SIGINT];
    let signals = bastle_sys::signal::descriptor_for(&wanted).map_err(|error| failed("signals", &error))?;
    let entries: Vec<Entry> = adopted.iter().map(|adopted| adopted.entry.clone()).collect();
    let facts = crate::host_facts();
    let (front, pid) = start_front(&listening, options, &log, (&ceiling, &facts, &entries))?;
    let mut mother = Mother {
        front,
        signals,
        registry,
        ceiling,
        source: options.ceiling.clone(),
        init,
        facts,
        warm: options.warm,
        adopted: mother::numbered(adopted),
        workers: Vec::new(),
    };
    eprintln!(
        "bastle: the spawner serves {} ({} runs live)",
        listening.path.display(),
        entries.len()
    );
    notify::tell(around.notify.as_deref(), "READY=1");
    let end = mother.run();
    notify::tell(around.notify.as_deref(), "STOPPING=1");
    stop(mother, pid, &listening, (options, &log), end)
}

/// Makes the front and waits for its word.
fn start_front(
    listening: &Listening,
    options: &Options,
    log: &RunId,
    (ceiling, facts, adopted): (&Ceiling, &HostFacts, &[Entry]),
) -> Result<(OwnedFd, u32), Fault> {
    let lost = |error: &io::Error| failed("front", error);
    let (ours, theirs) = socket::pair().map_err(|error| lost(&error))?;
    let pid = match clone_into(Namespaces::NONE, None).map_err(|error| lost(&error))? {
        Cloned::Child => {
            let known = (ceiling.clone(), facts.clone());
            let code = become_front(&listening.socket, &theirs, (options, log), known, adopted);
            bastle_sys::exec::exit(u8::from(code.is_err()))
        }
        Cloned::Parent { pid, pidfd: _ } => pid,
    };
    drop(theirs);
    match socket::receive::<ToMother>(&ours).map_err(|error| lost(&error))? {
        Some((ToMother::Ready, _)) => Ok((ours, pid)),
        Some((ToMother::Failed(fault), _)) => Err(fault),
        Some((ToMother::Serve { .. }, _)) | None => Err(lost(&io::Error::other("it ended without a word"))),
    }
}

/// The front's process, from its birth to its end.
fn become_front(
    listener: &OwnedFd,
    line: &OwnedFd,
    (options, log): (&Options, &RunId),
    known: (Ceiling, HostFacts),
    adopted: &[Entry],
) -> io::Result<()> {
    bastle_sys::fd::close_all_except(&[listener.as_raw_fd(), line.as_raw_fd()])?;
    rustix::thread::set_name(c"bastle-front")?;
    let ready = || -> Result<(Front, OwnedFd), Fault> {
        let lost = |error: io::Error| failed("front", &error);
        let journal = Journal::open(&options.state, log)?;
        let copies = (
            listener.try_clone().map_err(lost)?,
            line.try_clone().map_err(lost)?,
        );
        confine::front().map_err(|error| failed("fence of the front", &error))?;
        let own = copies.1.try_clone().map_err(lost)?;
        Ok((Front::new(copies, journal, known, adopted), own))
    };
    match ready() {
        Ok((front, line)) => {
            socket::send(&line, &ToMother::Ready, &[])?;
            rustix::fs::fcntl_setfl(&line, rustix::fs::OFlags::NONBLOCK)?;
            front.run()
        }
        Err(fault) => socket::send(line, &ToMother::Failed(fault), &[]),
    }
}

/// Ends in order: the front closes the log, the index is told, the socket goes. Runs live on.
fn stop(
    mother: Mother,
    front: u32,
    listening: &Listening,
    (options, log): (&Options, &RunId),
    end: io::Result<End>,
) -> Result<(), Fault> {
    // One that is gone already needs no word.
    drop(socket::send(&mother.front, &ToFront::Stop, &[]));
    drop(mother);
    mother::wait_for(front).map_err(|error| failed("front", &error))?;
    if listening.made == Made::Here {
        // One that is left is found dead by the next daemon.
        rustix::fs::unlink(&listening.path).unwrap_or_default();
    }
    let settled = journal::settle(&options.state, log);
    match end {
        Ok(End::Told) => settled,
        Ok(End::FrontLost) => Err(failed("front", &io::Error::other("it is gone"))),
        Err(error) => Err(failed("loop", &error)),
    }
}

/// A log of its own for every start.
fn log_name() -> Result<RunId, Fault> {
    let name = format!("spawner-{}-{}", judge::now_ms() / 1000, std::process::id());
    RunId::try_from(name).map_err(|error| failed("log", &io::Error::other(error)))
}

fn failed(step: &str, error: &io::Error) -> Fault {
    Fault::new(
        Code::FenceStep,
        format!("the spawner cannot serve ({step})"),
        error.to_string(),
    )
    .help("bastle doctor")
}
