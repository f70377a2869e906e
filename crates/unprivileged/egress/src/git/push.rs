//! The commands at the head of a push: which references change, from what to what.
//!
//! **Trust:** reads the agent's bytes. What the server would read differently is refused, so the commands judged are
//! the commands executed. The server checks the old id itself before it changes a reference.
use super::pkt::{self, Packet};

/// Most bytes of commands and options. A reference takes about 150: seven thousand fit.
pub(crate) const MAX_COMMANDS: usize = 1024 * 1024;
/// Most references in one push; each is judged and recorded.
pub(crate) const MAX_UPDATES: usize = 1_000;
/// Most push options in one push; each is judged.
const MAX_OPTIONS: usize = 64;
/// Longest push option; they carry titles and descriptions of merge requests.
const MAX_OPTION: usize = 4_096;
/// Longest name of a reference: git's own limit is that of a path.
const MAX_REFERENCE: usize = 1_024;

/// One reference that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Update {
    /// Its id before; `None`: it is created.
    pub(crate) old: Option<String>,
    /// Its id after; `None`: it is deleted.
    pub(crate) new: Option<String>,
    /// Its full name.
    pub(crate) reference: String,
}

/// The head of a push.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Push {
    /// What changes. Empty for the probe with which git tests whether it may send.
    pub(crate) updates: Vec<Update>,
    /// Whether the client understands a report for each reference.
    pub(crate) reports: bool,
    /// Whether the report is multiplexed with messages.
    pub(crate) side_band: bool,
    /// Push options, in order.
    pub(crate) options: Vec<String>,
    /// Where the pack begins.
    pub(crate) length: usize,
}

/// How far the reading came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// More bytes are needed.
    More,
    /// The whole head.
    Whole(Push),
    /// It is not one, or has something that cannot be judged.
    Refused(&'static str),
}

/// Reads as much of the head as `bytes` hold.
pub(crate) fn read(bytes: &[u8]) -> Head {
    let mut push = Push::default();
    let mut options = false;
    let mut at = 0;
    loop {
        let packet = match step(bytes, &mut at) {
            Ok(packet) => packet,
            Err(end) => return end,
        };
        match packet {
            Packet::Flush => break,
            Packet::Data(data) => {
                if let Err(why) = command(data, &mut push, &mut options) {
                    return Head::Refused(why);
                }
            }
        }
    }
    while options {
        match step(bytes, &mut at) {
            Ok(Packet::Flush) => options = false,
            Ok(Packet::Data(data)) => {
                let data = data.strip_suffix(b"\n").unwrap_or(data);
                match std::str::from_utf8(data) {
                    Ok(text) if text.len() <= MAX_OPTION && push.options.len() < MAX_OPTIONS => {
                        push.options.push(text.to_owned());
                    }
                    Ok(_) | Err(_) => {
                        return Head::Refused("a push option is malformed, or there are too many");
                    }
                }
            }
            Err(end) => return end,
        }
    }
    push.length = at;
    Head::Whole(push)
}

fn step<'a>(bytes: &'a [u8], at: &mut usize) -> Result<Packet<'a>, Head> {
    match pkt::first(bytes.get(*at..).unwrap_or_default()) {
        Ok(Some((packet, length))) => {
            *at += length;
            if *at > MAX_COMMANDS {
                return Err(Head::Refused("the list of references is too long"));
            }
            Ok(packet)
        }
        Ok(None) if bytes.len() > MAX_COMMANDS => Err(Head::Refused("the list of references is too long")),
        Ok(None) => Err(Head::More),
        Err(pkt::Malformed) => Err(Head::Refused("the request is not in git's own framing")),
    }
}

fn command(data: &[u8], push: &mut Push, options: &mut bool) -> Result<(), &'static str> {
    const FORM: &str = "a command of the push is malformed";
    let data = data.strip_suffix(b"\n").unwrap_or(data);
    if data.starts_with(b"shallow ") && push.updates.is_empty() {
        let id = std::str::from_utf8(data.get(8..).unwrap_or_default()).map_err(|_| FORM)?;
        return id_of(id).map(|_| ()).ok_or(FORM);
    }
    if data.starts_with(b"push-cert") {
        return Err("signed pushes repeat the commands inside a certificate, which is not judged");
    }
    let (line, capabilities) = match data.iter().position(|b| *b == 0) {
        Some(end) => (data.get(..end).unwrap_or_default(), data.get(end + 1..)),
        None => (data, None),
    };
    if let Some(capabilities) = capabilities {
        // They stand on the first command only; elsewhere a server may or may not look at them.
        if !push.updates.is_empty() {
            return Err(FORM);
        }
        let text = std::str::from_utf8(capabilities).map_err(|_| FORM)?;
        for word in text.split_ascii_whitespace() {
            match word {
                "report-status" | "report-status-v2" => push.reports = true,
                "side-band-64k" => push.side_band = true,
                "push-options" => *options = true,
                _ => {}
            }
        }
    }
    let line = std::str::from_utf8(line).map_err(|_| FORM)?;
    let mut words = line.splitn(3, ' ');
    let (Some(old), Some(new), Some(reference)) = (words.next(), words.next(), words.next()) else {
        return Err(FORM);
    };
    let (old, new) = (id_of(old).ok_or(FORM)?, id_of(new).ok_or(FORM)?);
    if !is_reference(reference) || (old.is_none() && new.is_none()) {
        return Err(FORM);
    }
    if push.updates.iter().any(|update| update.reference == reference) {
        return Err("the push names one reference twice");
    }
    if push.updates.len() >= MAX_UPDATES {
        return Err("the push changes too many references");
    }
    push.updates.push(Update {
        old,
        new,
        reference: reference.to_owned(),
    });
    Ok(())
}

/// An id in hexadecimal; the inner `None` is the one of zeros only.
fn id_of(text: &str) -> Option<Option<String>> {
    let digits = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    let fits = matches!(text.len(), 40 | 64) && text.bytes().all(digits);
    fits.then(|| (text.bytes().any(|b| b != b'0')).then(|| text.to_owned()))
}

/// By the rules of git's own reference names, so that no two readers differ.
fn is_reference(name: &str) -> bool {
    let plain =
        |c: char| !c.is_control() && !matches!(c, ' ' | '~' | '^' | ':' | '?' | '*' | '[' | '\\' | '\u{7f}');
    name.starts_with("refs/")
        && name.len() <= MAX_REFERENCE
        && name.chars().all(plain)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.ends_with('.')
        && name
            .split('/')
            .all(|part| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock"))
}

/// Entry for fuzzing.
pub(crate) fn fuzz_push(bytes: &[u8]) {
    match read(bytes) {
        Head::Whole(push) => {
            assert!(push.length <= bytes.len() && push.updates.len() <= MAX_UPDATES);
            assert!(push.updates.iter().all(|update| is_reference(&update.reference)));
        }
        Head::More | Head::Refused(_) => {}
    }
}
