//! Writes to a git host that are no push: a forge's REST and GraphQL interfaces, Git LFS, WebDAV, anything else that is not
//! read. They can move references as well, so the rules about pushing hold for them.
//!
//! **Trust:** method, path and repository come from the agent. Which reference such a request moves, and whether by force,
//! cannot be told; where that matters the answer is no, or a person's.
use super::NetPolicy;
use super::answer::{no, yes};
use super::git::{Pushing, denied};
use crate::decide::{Decision, Outcome};
use crate::document::Decided;
use crate::host::Host;
use crate::netrule::{Asked, NetRule};
use crate::terms::{Operation, Operations};
use bastle_contract::Code;

/// A request that changes something on a git host.
#[derive(Clone, Copy, Debug)]
pub struct ForgeWrite<'a> {
    /// Server.
    pub host: &'a Host,
    /// Port.
    pub port: u16,
    /// Method.
    pub method: &'a str,
    /// Canonical path.
    pub path: &'a str,
    /// What its body asks for, where it was read.
    pub operation: Option<&'a Operation>,
    /// Repository it is about, where the path tells.
    pub repository: Option<&'a str>,
    /// The kind of write, as rules name it.
    pub kind: WriteKind,
}

/// Ways to write to a git host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteKind {
    /// Git LFS: objects that belong to a push.
    Lfs,
    /// A forge's interface, WebDAV, or anything else.
    Other,
}

impl NetPolicy {
    /// Judges a write that is no push. Whether the request itself is allowed was asked before.
    pub fn forge_write(&self, write: &ForgeWrite<'_>) -> Decision {
        if let Some(refusal) = self.outright(write.host) {
            return refusal;
        }
        if write.kind == WriteKind::Other && self.names_write(write) {
            return yes("push", "an allow rule names this method and path");
        }
        if self.git.remotes.is_some() {
            let Some(repository) = write.repository else {
                return denied("git.remotes is set, and which repository this write is about cannot be told");
            };
            if let Some(refusal) = self.wrong_repository(write.host, repository) {
                return refusal;
            }
        }
        let (pushing, forcing) = Pushing::of(&self.git);
        if write.kind == WriteKind::Lfs {
            return pushing.answer("an upload of large files, which belongs to a push");
        }
        if self.git.branches.is_some() {
            return self.advise_write(
                denied("git.branches is set, and which branch this write changes cannot be told"),
                write,
            );
        }
        let reason = "a write to a git host that is no push: it can move references as one does";
        let decision = match (pushing.decided, forcing.decided) {
            (Decided::Deny, _) => pushing.answer(reason),
            (Decided::Allow, Decided::Allow) => pushing.answer(reason),
            (Decided::Ask, _) | (Decided::Allow, Decided::Ask | Decided::Deny) => {
                no(Outcome::Ask, Code::NetGit, reason)
            }
        };
        self.advise_write(decision, write)
    }

    fn advise_write(&self, decision: Decision, write: &ForgeWrite<'_>) -> Decision {
        let text = format!("{} {}{}", write.method, write.host, write.path);
        if decision.outcome == Outcome::Allow || NetRule::new(&text).is_err() {
            return decision;
        }
        decision.help(format!(
            "always   add \"{text}\" to net.allow of your user policy"
        ))
    }

    /// Whether the operator names just this: method and path without `**`, or the operation, in every tier that has rules.
    fn names_write(&self, write: &ForgeWrite<'_>) -> bool {
        let asked = Asked {
            method: Some(write.method),
            host: write.host,
            port: write.port,
            path: Some(write.path),
            operation: write.operation,
            websocket: false,
        };
        let exact = |rule: &NetRule| {
            let path = rule.path.as_deref().is_some_and(|path| !path.contains("**"));
            let operations = rule.terms.operations != Operations::Any;
            rule.allows(&asked) && ((!rule.methods.is_empty() && path) || operations)
        };
        self.tiers
            .first()
            .is_some_and(|tier| tier.allow.iter().flatten().any(|rule| exact(&rule.value)))
    }
}
