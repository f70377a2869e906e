//! What a panic leaves behind: the fault that control shows at the end of the run. Without it a broken init is only a closed
//! socket. Tells what this binary says about itself, nothing that came from the agent's process.
use bastle_contract::{Code, Fault, FromInit, socket};
use std::io;
use std::os::fd::OwnedFd;
use std::panic::PanicHookInfo;

/// Longest message that is told: a frame has room for much more, a person reads no more.
const MOST: usize = 1024;

/// From here on a panic of this process is told to control before it ends. The release build aborts on a panic, so that only
/// the hook is run.
pub(crate) fn leave_to(events: &OwnedFd) -> io::Result<()> {
    let events = events.try_clone()?;
    std::panic::set_hook(Box::new(move |panic| {
        let last = FromInit::Failed(fault(panic));
        // Where control is gone there is nobody to tell.
        drop(socket::send(&events, &last, &[]));
    }));
    Ok(())
}

/// For a copy of init that becomes another process: it has nothing to tell control, and gives the socket back.
pub(crate) fn none() {
    drop(std::panic::take_hook());
}

fn fault(panic: &PanicHookInfo<'_>) -> Fault {
    let payload = panic.payload();
    let said = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let said: String = said.unwrap_or("no message").chars().take(MOST).collect();
    let place = panic
        .location()
        .map_or_else(String::new, |place| format!(" at {place}"));
    Fault::new(
        Code::FenceLost,
        "init of the sandbox failed (panic)",
        format!("{said}{place}"),
    )
    .help("report it with this message; bastle doctor shows the kernel")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const INSIDE: &str = "BASTLE_TEST_INSIDE_LAST_WORDS";
    const NAME: &str = "last_words::tests::a_panic_is_told_with_its_message_and_its_place";

    #[test]
    fn a_panic_is_told_with_its_message_and_its_place() {
        if std::env::var_os(INSIDE).is_some() {
            let (ours, theirs) = socket::pair().unwrap();
            leave_to(&theirs).unwrap();
            let ended = std::panic::catch_unwind(|| assert_eq!(1, 2, "a broken init"));
            assert!(ended.is_err());
            none();
            drop(theirs);
            let told = socket::receive::<FromInit>(&ours)
                .unwrap()
                .map(|(frame, _)| frame);
            println!("told: {told:?}");
            let end = socket::receive::<FromInit>(&ours)
                .unwrap()
                .map(|(frame, _)| frame);
            println!("then: {end:?}");
            return;
        }
        // Another process: the hook is one for all threads of a process.
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        for words in [
            "told: Some(Failed(Fault { code: FenceLost",
            "a broken init",
            "last_words.rs:",
            "then: None",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
}
