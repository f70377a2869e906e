//! Kinds of records beyond the number that is kept one by one: the first ones of each kind are kept all the same.
//!
//! **Trust:** what makes a kind comes from the agent in part (names of programs), so their number is bounded.
use bastle_audit::AuditEvent;
use bastle_contract::ExecSeen;
use std::collections::BTreeMap;

/// Records of a kind that are kept however many others there were.
const FIRST: u64 = 3;
/// Kinds that are told apart; further ones are one kind.
const MOST_KINDS: usize = 512;
/// Kinds that are named in one note.
const MOST_TOLD: usize = 32;

/// How many of each kind came after the number that is kept was reached.
#[derive(Debug, Default)]
pub(super) struct Kinds(BTreeMap<(&'static str, String), u64>);

impl Kinds {
    /// Counts one more and says whether it is among the first of its kind.
    pub(super) fn is_new(&mut self, topic: &'static str, kind: impl FnOnce() -> String) -> bool {
        let mut key = (topic, kind());
        if !self.0.contains_key(&key) && self.0.len() >= MOST_KINDS {
            key.1 = "other kinds".to_owned();
        }
        let count = self.0.entry(key).or_default();
        *count += 1;
        *count <= FIRST
    }

    /// How many there were of each kind, for a note.
    pub(super) fn told(&self, topic: &str) -> String {
        let mut counts: Vec<(&str, u64)> = self
            .0
            .iter()
            .filter(|((own, _), _)| *own == topic)
            .map(|((_, kind), count)| (kind.as_str(), *count))
            .collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let named: Vec<String> = counts
            .iter()
            .take(MOST_TOLD)
            .map(|(kind, count)| format!("{kind} \u{d7}{count}"))
            .collect();
        named.join(", ")
    }
}

/// The kind of a started program: which one.
pub(super) fn of_program(seen: &ExecSeen) -> String {
    bastle_audit::sanitize(&seen.path)
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
        let mut kinds = Kinds::default();
        let kept = (0..100_000)
            .filter(|_| kinds.is_new("network", || "Denied Connect".to_owned()))
            .count();
        assert_eq!(kept as u64, FIRST);
        assert!(kinds.is_new("network", || "Denied Dns".to_owned()));
        assert!(kinds.is_new("programs", || "/bin/true".to_owned()));
        assert_eq!(
            kinds.told("network"),
            "Denied Connect \u{d7}100000, Denied Dns \u{d7}1"
        );
        for n in 0..10_000 {
            kinds.is_new("programs", || format!("/tmp/{n}"));
        }
        assert!(kinds.0.len() <= MOST_KINDS + 1);
    }
}
