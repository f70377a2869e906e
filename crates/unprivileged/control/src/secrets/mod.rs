//! Secrets of a run: where their values come from, and the placeholders that the agent sees instead.
//!
//! **Trust:** references stand in trusted layers only. Values live here and in egress, are wiped when dropped, and
//! have no textual form: nothing in this module can print one.
mod canary;
mod helper;
mod phantom;
mod reference;
mod store;

pub(crate) use canary::Canary;
pub(crate) use helper::printed;
pub use store::{Store, Stored};

use crate::place::Place;
use bastle_contract::egress::SecretValue;
use bastle_contract::{Code, EnvName, Fault};
use bastle_policy::Effective;
use reference::Reference;
use std::collections::BTreeMap;
use std::path::PathBuf;
use zeroize::{Zeroize, Zeroizing};

/// Longest value: tokens with claims inside are a few KiB.
pub(crate) const MOST_VALUE: usize = 16 * 1024;

/// A value on its way, wiped when dropped.
pub(crate) struct Fetched {
    pub(crate) value: Zeroizing<String>,
    /// Seconds since 1970.
    pub(crate) expires: Option<u64>,
}

/// The secrets of one run.
#[derive(Default)]
pub(crate) struct Secrets {
    values: Vec<SecretValue>,
    references: Vec<(EnvName, Reference)>,
    state: PathBuf,
    /// What was found under each name of the store, until it is looked at again.
    marks: BTreeMap<String, Option<String>>,
}

impl Secrets {
    /// Fetches every secret of the policy. One that cannot be had stops the launch: an agent that was promised a
    /// credential would fail later, for no visible reason.
    pub(crate) fn fetch(effective: &Effective, place: &Place) -> Result<Self, Fault> {
        let mut secrets = Self::default();
        secrets.state.clone_from(&place.state);
        for entry in &effective.secrets {
            let secret = &entry.value;
            let reference = Reference::parse(&secret.from, &place.home)
                .map_err(|why| fault(&secret.name, why).help(FORMS))?;
            // Before the value: what changes in between then counts as changed.
            if let Reference::Store(stored) = &reference {
                let mark = Store::open(&secrets.state)?.mark(stored).map(str::to_owned);
                secrets.marks.entry(stored.clone()).or_insert(mark);
            }
            let fetched = reference
                .fetch(&secrets.state)
                .map_err(|why| fault(&secret.name, why).help(reference.remedy()))?;
            secrets.values.push(SecretValue {
                name: secret.name.as_str().to_owned(),
                phantom: phantom::make(&fetched.value)?,
                value: fetched.value.to_string(),
                expires: fetched.expires,
            });
            secrets.references.push((secret.name.clone(), reference));
        }
        Ok(secrets)
    }

    /// Fetches one again: its value has expired.
    pub(crate) fn refresh(&mut self, name: &str) -> Result<(), Fault> {
        let known = self.references.iter().find(|(known, _)| known.as_str() == name);
        let Some((name, reference)) = known else {
            return Err(Fault::new(
                Code::SecretStore,
                format!("this run has no secret {name:?}"),
                "secrets are read at the start of a run",
            )
            .help("start the run again"));
        };
        let fetched = reference
            .fetch(&self.state)
            .map_err(|why| fault(name, why).help(reference.remedy()))?;
        for value in self.values.iter_mut().filter(|value| value.name == name.as_str()) {
            value.value.zeroize();
            value.value = fetched.value.to_string();
            value.expires = fetched.expires;
        }
        Ok(())
    }

    /// A value of bastle's own store was removed: what was made from it is used no more. The names of these secrets; the
    /// values stay known, so that they are still taken out of what comes back.
    pub(crate) fn revoke(&mut self, stored: &str) -> Vec<String> {
        let named = self
            .references
            .iter()
            .filter(|(_, reference)| matches!(reference, Reference::Store(name) if name == stored));
        let names: Vec<String> = named.map(|(name, _)| name.as_str().to_owned()).collect();
        for value in self.values.iter_mut().filter(|value| names.contains(&value.name)) {
            value.expires = Some(bastle_contract::egress::REVOKED);
        }
        names
    }

    /// Revokes what was removed from the store or set anew since it was fetched. For the moment from which on the run can be
    /// told of a removal: whoever removed a value before did not find the run. The names of these secrets.
    pub(crate) fn recheck(&mut self) -> Result<Vec<String>, Fault> {
        let marks = std::mem::take(&mut self.marks);
        if marks.is_empty() {
            return Ok(Vec::new());
        }
        let store = Store::open(&self.state)?;
        let changed = marks
            .iter()
            .filter(|(name, mark)| store.mark(name) != mark.as_deref());
        Ok(changed.flat_map(|(name, _)| self.revoke(name)).collect())
    }

    /// The first secret whose value stands in some bytes that are meant for the agent.
    pub(crate) fn found_in(&self, bytes: &[u8]) -> Option<&str> {
        let stands = |value: &&SecretValue| {
            let wanted = value.value.as_bytes();
            // Shorter ones would be found by chance.
            wanted.len() >= 8 && bytes.windows(wanted.len()).any(|part| part == wanted)
        };
        self.values.iter().find(stands).map(|value| value.name.as_str())
    }

    /// For egress alone.
    pub(crate) fn values(&self) -> &[SecretValue] {
        &self.values
    }

    /// For the agent: variables and what they hold.
    pub(crate) fn placeholders(&self) -> Vec<(EnvName, String)> {
        let named = self.references.iter().zip(&self.values);
        named
            .map(|((name, _), value)| (name.clone(), value.phantom.clone()))
            .collect()
    }
}

impl Drop for Secrets {
    fn drop(&mut self) {
        for value in &mut self.values {
            value.value.zeroize();
        }
    }
}

/// Whether something is kept under a reference, as far as that can be seen without starting a program.
pub(crate) fn has_reference(text: &str, place: &Place) -> bool {
    match Reference::parse(text, &place.home) {
        Ok(Reference::Exec(_) | Reference::Keyring(_)) => true,
        Ok(Reference::Store(name)) => {
            Store::open(&place.state).is_ok_and(|store| store.list().iter().any(|known| known.name == name))
        }
        Ok(known @ (Reference::Env(_) | Reference::File(_) | Reference::Json(..))) => {
            known.fetch(&place.state).is_ok()
        }
        Err(_) => false,
    }
}

/// A value from standard input, for the store.
pub fn typed_secret() -> Result<Zeroizing<String>, Fault> {
    use std::io::Read;
    // With room for all of it: growing would leave copies behind.
    let mut text = Zeroizing::new(String::with_capacity(4 * MOST_VALUE));
    std::io::stdin()
        .lock()
        .take(2 * MOST_VALUE as u64)
        .read_to_string(&mut text)
        .map_err(|error| Fault::new(Code::UsageArgument, "cannot read the value", error.to_string()))?;
    Ok(text)
}

/// A value from a variable, for the store.
pub fn variable_secret(name: &str) -> Result<Zeroizing<String>, Fault> {
    let missing = |_| Fault::new(Code::UsageArgument, format!("the variable {name} is not set"), "");
    std::env::var(name).map(Zeroizing::new).map_err(missing)
}

const FORMS: &str = "write file:PATH, json:PATH#KEY, env:NAME, exec:COMMAND ARGUMENT..., keyring:NAME or store:NAME (bastle secret set NAME)";

fn fault(name: &EnvName, why: String) -> Fault {
    Fault::new(
        Code::SecretStore,
        format!("the secret {} cannot be had", name.as_str()),
        why,
    )
}

/// A value as a header can carry it: one line of text without control characters.
pub(crate) fn checked(value: &str) -> Result<&str, String> {
    let value = value.strip_suffix('\n').unwrap_or(value);
    let value = value.strip_suffix('\r').unwrap_or(value);
    if value.is_empty() {
        return Err("it is empty".to_owned());
    }
    if value.len() > MOST_VALUE {
        return Err(format!("it is longer than {MOST_VALUE} bytes"));
    }
    if value.chars().any(char::is_control) {
        return Err("it has control characters or more than one line".to_owned());
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bastle_contract::egress::REVOKED;

    /// What a run has after it fetched `a` and `b` from the store.
    fn fetched(state: &std::path::Path) -> Secrets {
        let mut secrets = Secrets::default();
        secrets.state = state.to_path_buf();
        for name in ["a", "b"] {
            let mark = Store::open(state).unwrap().mark(name).map(str::to_owned);
            secrets.marks.insert(name.to_owned(), mark);
            let variable = EnvName::try_from(name.to_uppercase()).unwrap();
            secrets.values.push(SecretValue {
                name: variable.as_str().to_owned(),
                phantom: "phantom".to_owned(),
                value: "value".to_owned(),
                expires: None,
            });
            secrets
                .references
                .push((variable, Reference::Store(name.to_owned())));
        }
        secrets
    }

    #[test]
    fn a_secret_removed_or_set_anew_before_the_run_can_be_told_is_revoked_at_the_second_look() {
        let dir = tempfile::tempdir().unwrap();
        let change = |how: &dyn Fn(&mut Store)| how(&mut Store::open(dir.path()).unwrap());
        let set = |store: &mut Store| {
            store.set("a", "value").unwrap();
            store.set("b", "value").unwrap();
        };
        let removed = |store: &mut Store| assert!(store.remove("a").unwrap());
        let anew = |store: &mut Store| {
            assert!(store.remove("a").unwrap());
            store.set("a", "value").unwrap();
        };
        let nothing = |_: &mut Store| {};
        let cases = [&removed as &dyn Fn(&mut Store), &anew, &nothing];
        for (how, expected) in cases.into_iter().zip([&["A"] as &[&str], &["A"], &[]]) {
            change(&set);
            let mut secrets = fetched(dir.path());
            change(how);
            assert_eq!(secrets.recheck().unwrap(), expected);
            let ends: Vec<_> = secrets.values().iter().map(|value| value.expires).collect();
            let revoked = (!expected.is_empty()).then_some(REVOKED);
            assert_eq!(ends, [revoked, None], "the other one is used on");
            assert!(secrets.recheck().unwrap().is_empty(), "once");
        }
        let mut secrets = fetched(dir.path());
        std::fs::write(dir.path().join("secrets.json"), "{").unwrap();
        assert!(
            secrets.recheck().is_err(),
            "what cannot be looked at is not taken for unchanged"
        );
    }

    #[test]
    fn a_value_that_could_break_a_header_is_refused() {
        for bad in [
            "",
            "\n",
            "a\nb",
            "a\r\nX-Evil: 1",
            "a\0b",
            &"x".repeat(MOST_VALUE + 1),
        ] {
            assert!(checked(bad).is_err(), "{bad:?}");
        }
        assert_eq!(checked("tok en\n").unwrap(), "tok en");
        assert_eq!(checked("token\r\n").unwrap(), "token");
    }
}
