//! Kinds of records beyond the number that is kept one by one: the first ones of each kind are kept all the same, and of
//! the rest a sample with the names.
//!
//! **Trust:** what makes a kind comes from the agent in part (names of programs), so each topic has a table of its own and
//! the number of kinds in it is bounded: names that an agent makes up take the place of no other topic's kinds. Programs of
//! the system are a topic of their own, because the agent can make up no further ones.
use bastle_audit::AuditEvent;
use bastle_contract::{Denied, ExecSeen};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

/// Records of a kind that are kept however many others there were.
const FIRST: u64 = 3;
/// Kinds that are told apart where the agent names them; further ones are one kind.
const MOST_NAMED: usize = 512;
/// Kinds of denials that are told apart: system calls times rules of a policy. More than any policy makes; it holds should
/// what is inside the sandbox be lost to the agent.
const MOST_DENIED: usize = 4096;
/// Programs of the system that are told apart; more than a distribution installs.
const MOST_SYSTEM: usize = 16_384;
/// Names that are told apart by their form, of one kind: a flood of one kind takes no room of another's.
const MOST_FORMS: usize = 64;
/// The same of all kinds together, which bounds memory: about 4 MiB.
const MOST_FORMS_IN_ALL: usize = 16_384;
/// Kinds that are named in one note.
const MOST_TOLD: usize = 32;
/// Longest name of a kind or a form.
const LONGEST: usize = 256;
/// One record of a kind is kept after so long, whatever their number.
const SAMPLE: Duration = Duration::from_secs(1);
/// Longer floods are sampled more thinly: about this many records for each time that the flood becomes e times as long.
const SAMPLES: u32 = 1000;

/// What is counted in a table of its own.
#[derive(Debug)]
pub(super) struct Kinds {
    most: usize,
    first: u64,
    kinds: BTreeMap<String, Seen>,
    forms: BTreeMap<String, BTreeSet<String>>,
    forms_in_all: usize,
    kept: u64,
}

/// One kind after the number that is kept one by one was reached.
#[derive(Debug)]
struct Seen {
    count: u64,
    since: Instant,
    /// When one was last kept.
    last: Instant,
}

impl Kinds {
    /// For kinds that the agent names.
    pub(super) fn named() -> Self {
        Self::up_to(MOST_NAMED, FIRST)
    }

    /// For programs of the system: one record of each, so that starting all of them fills no disk.
    pub(super) fn system() -> Self {
        Self::up_to(MOST_SYSTEM, 1)
    }

    /// For denials.
    pub(super) fn denials() -> Self {
        Self::up_to(MOST_DENIED, FIRST)
    }

    fn up_to(most: usize, first: u64) -> Self {
        Self {
            most,
            first,
            kinds: BTreeMap::new(),
            forms: BTreeMap::new(),
            forms_in_all: 0,
            kept: 0,
        }
    }

    /// Counts one more and says whether it is kept: as one of the first of its kind, as the 2^n-th, or because none of its
    /// kind was for a while.
    pub(super) fn keeps(&mut self, kind: String, now: Instant) -> bool {
        let kind = if self.kinds.len() >= self.most && !self.kinds.contains_key(&kind) {
            "other kinds".to_owned()
        } else {
            kind
        };
        let seen = self.kinds.entry(kind).or_insert(Seen {
            count: 0,
            since: now,
            last: now,
        });
        seen.count += 1;
        let pause = SAMPLE.max(now.saturating_duration_since(seen.since) / SAMPLES);
        let is_due = now.saturating_duration_since(seen.last) >= pause;
        let keeps = seen.count <= self.first || seen.count.is_power_of_two() || is_due;
        if keeps {
            seen.last = now;
            self.kept += 1;
        }
        keeps
    }

    /// The same for something with a name: the first name of each form is kept as well, so that thousands of names that
    /// differ in a number do not hide another.
    pub(super) fn keeps_name(&mut self, kind: String, name: &str, now: Instant) -> bool {
        let is_new = self.is_new_form(&kind, form(name));
        let keeps = self.keeps(kind, now);
        if is_new && !keeps {
            self.kept += 1;
        }
        is_new || keeps
    }

    fn is_new_form(&mut self, kind: &str, form: String) -> bool {
        if self.forms_in_all >= MOST_FORMS_IN_ALL {
            return false;
        }
        let forms = self.forms.entry(kind.to_owned()).or_default();
        let is_new = forms.len() < MOST_FORMS && forms.insert(bounded(form));
        self.forms_in_all += usize::from(is_new);
        is_new
    }

    /// How many of them were kept.
    pub(super) fn kept(&self) -> u64 {
        self.kept
    }

    /// How many there were of each kind, for a note.
    pub(super) fn told(&self) -> String {
        let counts = self.kinds.iter();
        let mut counts: Vec<(&str, u64)> = counts.map(|(kind, seen)| (kind.as_str(), seen.count)).collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let named: Vec<String> = counts
            .iter()
            .take(MOST_TOLD)
            .map(|(kind, count)| format!("{kind} \u{d7}{count}"))
            .collect();
        named.join(", ")
    }
}

/// A name with each number in it as one sign.
fn form(name: &str) -> String {
    let mut form = String::new();
    for letter in name.chars().take(LONGEST) {
        match letter {
            '0'..='9' if form.ends_with('#') => {}
            '0'..='9' => form.push('#'),
            _ => form.push(letter),
        }
    }
    form
}

fn bounded(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(LONGEST));
    text
}

/// The kind of a denial: what was tried, and what refused it.
pub(super) fn of_denial(denied: &Denied) -> String {
    let rule = without_count(&denied.rule);
    let kind = format!("{:?} {} ({rule})", denied.kind, denied.operation);
    bounded(bastle_audit::sanitize(&kind))
}

/// A rule as the policy has it: a refusal that is told again has its number behind it, of which there is no end.
fn without_count(rule: &str) -> &str {
    let counted = rule
        .strip_suffix(" times)")
        .and_then(|rest| rest.rsplit_once(" ("));
    match counted {
        Some((rule, count)) if count.bytes().all(|byte| byte.is_ascii_digit()) => rule,
        Some(_) | None => rule,
    }
}

/// The kind of a started program: which one, by the form of its name.
pub(super) fn of_program(seen: &ExecSeen) -> String {
    bounded(bastle_audit::sanitize(&form(&seen.path)))
}

/// Where programs of the system are. An agent can write there only where a policy says so by name.
const SYSTEM: [&str; 10] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/opt",
    "/etc",
    "/nix/store",
    "/gnu/store",
    "/snap",
];

/// The kind of a program of the system: its path without `.`, `..` and empty components, where that is an executable file
/// there. Names that an agent makes up are none, wherever they are said to be.
pub(super) fn of_system_program(seen: &ExecSeen) -> Option<String> {
    let path = Path::new(&seen.path);
    if !path.is_absolute() {
        return None;
    }
    let mut plain = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => drop(plain.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    if !SYSTEM.iter().any(|place| plain.starts_with(place)) {
        return None;
    }
    let meta = std::fs::metadata(&plain).ok()?;
    let executable = meta.is_file() && meta.permissions().mode() & 0o111 != 0;
    executable.then(|| bounded(bastle_audit::sanitize(&plain.to_string_lossy())))
}

/// The kind of a record about the network: what was decided, and through which face.
pub(super) fn of_network(event: &AuditEvent) -> String {
    match event {
        AuditEvent::Net(decision) => {
            let code = decision.code.map(|code| code.to_string()).unwrap_or_default();
            format!("{:?} {:?} {code}", decision.verdict, decision.face)
                .trim_end()
                .to_owned()
        }
        AuditEvent::NetClosed(closed) => match closed.status {
            Some(status) => format!("ended {}xx", status / 100),
            None => "ended".to_owned(),
        },
        _ => "other".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_kind_is_kept_after_any_flood_and_all_are_counted() {
        let mut kinds = Kinds::named();
        let now = Instant::now();
        let kept = (0..100_000).filter(|_| kinds.keeps("Denied Connect".to_owned(), now));
        // The first three, and 4, 8, 16 up to 65536.
        assert_eq!(kept.count(), 3 + 15);
        assert!(kinds.keeps("Denied Dns".to_owned(), now));
        assert_eq!(kinds.told(), "Denied Connect \u{d7}100000, Denied Dns \u{d7}1");
        assert_eq!(kinds.kept(), 19);
        for n in 0..10_000 {
            kinds.keeps(format!("/tmp/{n}"), now);
        }
        for n in 0..10 {
            kinds.keeps(format!("/tmp/{n}"), now);
        }
        assert!(kinds.kinds.len() <= MOST_NAMED + 1);
    }

    #[test]
    fn a_flood_of_one_kind_is_sampled_by_time_ever_more_thinly_and_never_stops_being() {
        let mut kinds = Kinds::denials();
        let start = Instant::now();
        let kept = |kinds: &mut Kinds, hours: std::ops::Range<u64>| {
            (hours.start * 36_000..hours.end * 36_000)
                .filter(|tenth| kinds.keeps("a".to_owned(), start + Duration::from_millis(tenth * 100)))
                .count()
        };
        let first = kept(&mut kinds, 0..1);
        assert!((2_000..3_000).contains(&first), "{first}");
        let second = kept(&mut kinds, 1..2);
        assert!((500..1_000).contains(&second), "{second}");
        let tenth = kept(&mut kinds, 9..10);
        assert!((50..200).contains(&tenth), "{tenth}");
    }

    #[test]
    fn a_name_of_another_form_is_kept_among_any_number_of_one_form() {
        let mut kinds = Kinds::denials();
        let now = Instant::now();
        let mut keeps = |name: &str| kinds.keeps_name("Hidden openat".to_owned(), name, now);
        let flood = (0..6_000).filter(|n| keeps(&format!("/ws/.env.{n}"))).count();
        assert!(flood < 20, "{flood}");
        assert!(keeps("/ws/.env.production"));
        assert!(!keeps("/ws/.env.production"), "it is one form now");
        for n in 0..100_000_u32 {
            keeps(&format!("/ws/.env.{}", char::from_u32(0x4e00 + n).unwrap_or('x')));
        }
        assert!(kinds.forms.values().all(|forms| forms.len() <= MOST_FORMS));
        assert!(
            kinds.keeps_name("Write openat".to_owned(), "/ws/.env.x", now),
            "a kind has room of its own"
        );
        for n in 0..100_000 {
            kinds.keeps_name(format!("{n}"), "x", now);
        }
        assert!(kinds.forms_in_all <= MOST_FORMS_IN_ALL);
    }

    #[test]
    fn a_program_of_the_system_is_told_by_where_it_is_and_made_up_names_are_none() {
        let program = |path: &str| {
            of_system_program(&ExecSeen {
                pid: 2,
                path: path.to_owned(),
                argv: Vec::new(),
            })
        };
        assert_eq!(program("/usr/bin/env").as_deref(), Some("/usr/bin/env"));
        assert_eq!(program("/usr/./lib/..//bin/env").as_deref(), Some("/usr/bin/env"));
        for made_up in [
            "/usr/bin/env-that-nobody-installed",
            "/usr/bin/../../ws/env",
            "/etc/passwd",
            "/usr/bin",
            "env",
            "",
        ] {
            assert_eq!(program(made_up), None, "{made_up}");
        }
    }

    #[test]
    fn a_refusal_that_is_told_again_with_its_number_is_no_other_kind() {
        let denied = |rule: &str| Denied {
            kind: bastle_contract::DenialKind::Hidden,
            operation: "openat".to_owned(),
            target: "/ws/.env".to_owned(),
            rule: rule.to_owned(),
            errno: "EACCES".to_owned(),
            pid: 2,
            comm: "sh".to_owned(),
        };
        assert_eq!(of_denial(&denied("**/.env*")), "Hidden openat (**/.env*)");
        assert_eq!(
            of_denial(&denied("**/.env* (3000 times)")),
            "Hidden openat (**/.env*)"
        );
        assert_eq!(of_denial(&denied("a (b times)")), "Hidden openat (a (b times))");
        assert_ne!(of_denial(&denied("**/id_rsa")), of_denial(&denied("**/.env*")));
        assert!(of_denial(&denied(&"x".repeat(9999))).len() <= LONGEST);
    }
}
