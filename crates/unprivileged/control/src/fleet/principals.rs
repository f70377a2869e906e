//! Persons and programs: what kind of principal acts, and that a program never approves what it asked for itself.
//!
//! **Trust:** a caller may declare that it is a program; that only takes rights away. The check stands in the fleet, so
//! that no front end (REST, WebSocket, MCP, A2A) can leave it out.
use super::access::{Caller, PrincipalKind, Role};
use super::words::run_id;
use crate::store::Stop;
use bastle_contract::{Code, Fault, RunId};
use rusqlite::{Connection, OptionalExtension};

/// Before the name of a program that has no token of its own.
const AGENT: &str = "agent:";
/// Before the id of a token.
pub(super) const TOKEN: &str = "token:";
/// Most tokens that were made by means of each other, and most ancestors of a run, that are followed. Runs nest far less
/// deep; a chain that is longer is refused as a whole.
pub(super) const MOST_LINKS: usize = 64;

/// What a client declares about itself when it connects. It can only narrow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Its name, such as `mcp`.
    pub name: String,
    /// At most this role; that of the caller when `None`.
    pub role: Option<Role>,
}

impl Declared {
    /// A program with this name and at most this role.
    #[must_use]
    pub fn program(name: &str, role: Option<Role>) -> Self {
        Self {
            name: name.to_owned(),
            role,
        }
    }

    /// Reads `NAME` or `NAME; role=ROLE`.
    ///
    /// # Errors
    /// When it is anything else: a declaration that is not understood is never passed over.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, role) = match text.split_once(';') {
            Some((name, rest)) => (name.trim(), Some(rest.trim())),
            None => (text.trim(), None),
        };
        let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        if name.is_empty() || name.len() > 32 || !name.bytes().all(plain) {
            return Err("a name has 1 to 32 small letters, digits and dashes".to_owned());
        }
        let role = role.map(|role| {
            let word = role.strip_prefix("role=").unwrap_or_default();
            let given = [Role::Viewer, Role::Operator, Role::Approver, Role::Admin];
            given
                .into_iter()
                .find(|role| role.word() == word)
                .ok_or_else(|| "after the name: role=viewer, operator, approver or admin".to_owned())
        });
        Ok(Self::program(name, role.transpose()?))
    }
}

impl std::fmt::Display for Declared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.role {
            None => write!(f, "{}", self.name),
            Some(role) => write!(f, "{}; role={}", self.name, role.word()),
        }
    }
}

impl Caller {
    /// The same caller as the program it says it is: never with more than before. Who needs no token has the program's
    /// name in the record from now on; a token is a name already.
    #[must_use]
    pub fn declared(mut self, declared: &Declared) -> Self {
        if self.kind == PrincipalKind::LocalPerson {
            self.id = format!("{AGENT}{}", declared.name);
        }
        self.kind = PrincipalKind::Program;
        self.role = declared.role.map_or(self.role, |role| self.role.min(role));
        self
    }

    /// For records that hold one text: the kind and who it is.
    #[must_use]
    pub fn described(&self) -> String {
        format!("{} {}", self.kind.word(), self.id)
    }
}

/// Somebody in the chain of those by whom a principal came to its rights.
struct Link {
    id: String,
    program: bool,
}

/// Refuses a program that would approve what itself, one of its runs, or a run below one of them asks for.
pub(super) fn refuse_own(db: &Connection, caller: &Caller, run: &RunId) -> Result<(), Stop> {
    let approver = lineage(db, &caller.id, Some(caller.kind))?;
    let mut at = Some(run.clone());
    for _ in 0..MOST_LINKS {
        let Some(name) = at.take() else {
            return Ok(());
        };
        if caller.run.as_ref() == Some(&name) {
            return Err(own(caller, run).into());
        }
        let row: Option<(String, Option<String>, Option<String>)> = db
            .prepare_cached("SELECT caller, caller_kind, parent FROM runs WHERE name = ?1")?
            .query_row([name.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        let Some((starter, kind, parent)) = row else {
            return Ok(());
        };
        let started = lineage(db, &starter, kind.as_deref().and_then(PrincipalKind::of))?;
        let shared = approver.iter().any(|one| {
            started
                .iter()
                .any(|other| one.id == other.id && (one.program || other.program))
        });
        if shared {
            return Err(own(caller, run).into());
        }
        at = parent.map(run_id).transpose()?;
    }
    Err(own(caller, run).into())
}

/// The principal, and by whom its token was made, and by whom that one was.
fn lineage(db: &Connection, id: &str, kind: Option<PrincipalKind>) -> Result<Vec<Link>, Stop> {
    let mut links = vec![Link {
        id: id.to_owned(),
        program: kind == Some(PrincipalKind::Program) || id.starts_with(AGENT),
    }];
    while links.len() < MOST_LINKS {
        let Some(token) = links.last().and_then(|last| last.id.strip_prefix(TOKEN)) else {
            return Ok(links);
        };
        let row: Option<(String, String)> = db
            .prepare_cached("SELECT maker, kind FROM tokens WHERE id = ?1")?
            .query_row([token], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((maker, kind)) = row else {
            return Ok(links);
        };
        if let Some(last) = links.last_mut() {
            last.program |= kind == PrincipalKind::Program.word();
        }
        let program = maker.starts_with(AGENT);
        links.push(Link { id: maker, program });
    }
    Ok(links)
}

/// A run, and who started it.
pub(super) struct Started {
    pub(super) name: RunId,
    pub(super) caller: String,
}

/// A run and the runs above it, as far as they are on record.
pub(super) fn ancestors(db: &Connection, run: &RunId) -> Result<Vec<Started>, Stop> {
    let mut found: Vec<Started> = Vec::new();
    let mut at = Some(run.clone());
    while let Some(name) = at.take().filter(|_| found.len() < MOST_LINKS) {
        let row: Option<(String, Option<String>)> = db
            .prepare_cached("SELECT caller, parent FROM runs WHERE name = ?1")?
            .query_row([name.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((caller, parent)) = row else {
            return Ok(found);
        };
        found.push(Started { name, caller });
        at = parent.map(run_id).transpose()?;
    }
    Ok(found)
}

fn own(caller: &Caller, run: &RunId) -> Fault {
    Fault::new(
        Code::TokenRefused,
        format!("{} may not approve what {run} asks for", caller.id),
        "it is a program, and it started the run or one above it: a program never approves its own requests",
    )
    .help("a person answers on this machine: bastle approvals ls, then bastle approvals approve ID")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_declaration_that_is_not_understood_is_refused() {
        for bad in [
            "",
            " ",
            "MCP",
            "mcp;",
            "mcp; role=",
            "mcp; role=run",
            "mcp; role=Admin",
            "mcp; role=admin; role=viewer",
            "mcp, a2a",
            "mcp role=admin",
            "a b",
            "ä",
        ] {
            assert!(Declared::parse(bad).is_err(), "{bad:?}");
        }
        let good = Declared::parse("mcp; role=operator").unwrap();
        assert_eq!(good, Declared::program("mcp", Some(Role::Operator)));
        assert_eq!(Declared::parse(&good.to_string()).unwrap(), good);
    }

    #[test]
    fn who_declares_to_be_a_program_is_no_person_and_has_no_more_than_before() {
        let person = Caller::owner(1000);
        let program = person
            .clone()
            .declared(&Declared::program("mcp", Some(Role::Operator)));
        assert_eq!(program.id, "agent:mcp");
        assert_eq!(program.role, Role::Operator);
        assert_eq!(program.described(), "program agent:mcp");
        assert_eq!(person.described(), "local-person uid:1000");
        let more = program.declared(&Declared::program("mcp", Some(Role::Admin)));
        assert_eq!(more.role, Role::Operator);
    }

    proptest! {
        #[test]
        fn a_declaration_never_adds_a_right(text in ".{0,40}", role in 0_usize..5) {
            let mut caller = Caller::owner(0);
            caller.role = Role::ALL[role];
            if let Ok(declared) = Declared::parse(&text) {
                let after = caller.clone().declared(&declared);
                prop_assert!(after.role <= caller.role);
                prop_assert_eq!(after.kind, PrincipalKind::Program);
                prop_assert_eq!((&after.run, &after.prefix, &after.verbs), (&caller.run, &caller.prefix, &caller.verbs));
            }
        }
    }
}
