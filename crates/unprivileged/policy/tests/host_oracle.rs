//! Generated host strings against an oracle written from scratch: nothing is allowed that the oracle does not allow.
//!
//! `BASTLE_HOST_STRINGS=1000000` runs a million; without it ten thousand.
#![allow(clippy::unwrap_used, clippy::panic)]
mod common;

use bastle_policy::{ConnectVerdict, Host, LayerKind, NetPolicy};
use common::{merged, with_default};
use std::collections::BTreeMap;

const EXACT: &[&str] = &["api.example.com", "ok.example", "a-b.example.org", "k8s.test"];
const BELOW: &[&str] = &["wild.example.com", "s.test"];
const DENIED: &[&str] = &["bad.wild.example.com"];

fn table() -> NetPolicy {
    let quoted = |names: &[&str], star: &str| -> Vec<String> {
        names.iter().map(|name| format!("\"{star}{name}\"")).collect()
    };
    let allow = [quoted(EXACT, ""), quoted(BELOW, "*.")].concat().join(", ");
    let deny = quoted(DENIED, "").join(", ");
    let user = format!(r#"{{"version": 1, "net": {{"allow": [{allow}], "deny": [{deny}]}}}}"#);
    merged(&with_default(&[(LayerKind::User, &user)])).net
}

/// What some readers take for another character. Whatever is not in here and not ASCII names none of the hosts.
fn lookalikes() -> BTreeMap<char, char> {
    let mut map = BTreeMap::from([
        ('\u{3002}', '.'),
        ('\u{ff0e}', '.'),
        ('\u{ff61}', '.'),
        ('\u{ff0d}', '-'),
        ('\u{212a}', 'k'),
        ('\u{17f}', 's'),
    ]);
    for (index, letter) in ('a'..='z').enumerate() {
        let index = u32::try_from(index).unwrap();
        for start in [0xff21, 0xff41, 0x24b6, 0x24d0, 0x1d400, 0x1d41a] {
            map.insert(char::from_u32(start + index).unwrap(), letter);
        }
    }
    for (index, digit) in ('0'..='9').enumerate() {
        map.insert(
            char::from_u32(0xff10 + u32::try_from(index).unwrap()).unwrap(),
            digit,
        );
    }
    map
}

/// Whether a careful person would say that `text` names a host the table allows.
fn oracle(text: &str, lookalikes: &BTreeMap<char, char>) -> bool {
    let mut name = String::new();
    for c in text.chars() {
        match c {
            'A'..='Z' => name.push(char::from(u8::try_from(u32::from(c)).unwrap() + 32)),
            'a'..='z' | '0'..='9' | '-' | '.' => name.push(c),
            other => match lookalikes.get(&other) {
                Some(plain) => name.push(*plain),
                // A label in another script: nobody's but the owner's of the name above it.
                None if other.is_alphabetic() || other.is_numeric() || other == '\u{301}' => {
                    name.push('\u{1}')
                }
                None => return false,
            },
        }
    }
    if let Some(bare) = name.strip_suffix('.') {
        name = bare.to_owned();
    }
    if name.len() > 253 || name.split('.').any(|label| label.is_empty() || label.len() > 63) {
        return false;
    }
    let denied = DENIED.iter().any(|own| *own == name);
    let exact = EXACT.iter().any(|own| *own == name);
    let below = BELOW
        .iter()
        .any(|own| name.len() > own.len() + 1 && name.ends_with(&format!(".{own}")));
    (exact || below) && !denied
}

/// A small generator: the same strings on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit).unwrap()).unwrap()
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

const BASES: &[&str] = &[
    "api.example.com",
    "ok.example",
    "a-b.example.org",
    "k8s.test",
    "x.wild.example.com",
    "a.b.s.test",
    "wild.example.com",
    "bad.wild.example.com",
    "s.test",
    "evil.com",
    "api.example.com.evil.com",
    "evilapi.example.com",
    "xs.test",
    "127.0.0.1",
    "2130706433",
    "0x7f.1",
    "0177.0.0.1",
    "localhost",
    "xn--k8s.test",
    "example.com",
    "api-example.com",
    "api.example",
];

const PIECES: &[&str] = &[
    ".",
    "..",
    "-",
    "@",
    ":",
    ":443",
    "/",
    "\\",
    "%2e",
    "%00",
    "\0",
    "\r\n",
    "\t",
    " ",
    "#",
    "?",
    "*",
    "*.",
    "[",
    "]",
    ",",
    "_",
    "evil.com",
    ".evil.com",
    "evil.com#",
    "@evil.com",
    "evil.com@",
    "xn--",
    "\u{200b}",
    "\u{ad}",
    "\u{2024}",
    "\u{3002}",
    "\u{ff0e}",
    "\u{ff61}",
    "\u{202e}",
    "\u{feff}",
    "\u{212a}",
    "\u{17f}",
    "é",
    "а",
    "ο",
    "ß",
    "\u{301}",
    "ﬀ",
    "①",
    "a",
    "Z",
    "0",
];

/// A string that starts as a name and is changed a few times.
fn string(random: &mut Random, odd: &[char]) -> String {
    let mut text: Vec<char> = random.pick(BASES).chars().collect();
    for _ in 0..random.below(4) {
        let at = random.below(text.len() + 1);
        match random.below(6) {
            0 => {
                let piece: Vec<char> = random.pick(PIECES).chars().collect();
                text.splice(at..at, piece);
            }
            1 if at < text.len() => {
                text.remove(at);
            }
            2 if at < text.len() => text[at] = text[at].to_ascii_uppercase(),
            3 if at < text.len() => text[at] = *random.pick(odd),
            4 => text.push('.'),
            _ => {
                let mut other: Vec<char> = random.pick(BASES).chars().collect();
                other.push('.');
                text.splice(0..0, other);
            }
        }
        if text.is_empty() {
            text.push('a');
        }
    }
    text.into_iter().collect()
}

#[test]
fn no_generated_string_is_allowed_that_the_oracle_does_not_allow() {
    let count: usize = std::env::var("BASTLE_HOST_STRINGS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(10_000);
    let (table, lookalikes) = (table(), lookalikes());
    let odd: Vec<char> = lookalikes
        .keys()
        .copied()
        .chain(['\u{0}', 'é', '@', '%'])
        .collect();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut allowed, mut plain) = (0usize, 0usize);
    for _ in 0..count {
        let text = string(&mut random, &odd);
        let verdict = Host::new(&text).ok().map(|host| table.connect(&host, 443));
        let yes = matches!(
            verdict,
            Some(ConnectVerdict::Pass(_) | ConnectVerdict::Inspect(_))
        );
        let expected = oracle(&text, &lookalikes);
        assert!(!yes || expected, "{text:?} is allowed");
        // The other way round for plain names: what the oracle allows is not refused by accident.
        let ascii = text.is_ascii()
            && !text.contains("--")
            && !text.contains("-.")
            && !text.contains(".-")
            && !text.starts_with('-');
        if expected && ascii {
            assert!(yes, "{text:?} is refused");
            plain += 1;
        }
        allowed += usize::from(yes);
    }
    assert!(
        allowed > count / 50 && plain > count / 50,
        "{allowed} and {plain} of {count}: the generator is blunt"
    );
    assert!(allowed < count / 2, "{allowed} of {count}: the generator is tame");
}
