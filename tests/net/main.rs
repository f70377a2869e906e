//! Egress from outside: the real binary, real clients inside the fence, real servers on loopback, as root and as an
//! ordinary user.
//!
//! Every denial has a twin that is allowed, so that a test cannot pass because nothing works; what reached a server is
//! read in that server's own log. `servers/` is the outside world, `clients/` what attackers inside write by hand.
//!
//! | file | what must not happen |
//! |---|---|
//! | `acceptance` | the least that is asked of a network fence does not hold, end to end |
//! | `routes` | a way out beside ours: sockets, variables unset, own name servers, other protocols, the host's loopback |
//! | `clients` | a tool that works or fails by its ignorance of proxies instead of by the rules |
//! | `names` | a name spelled so that rule and dial differ; a pattern that matches more than it says |
//! | `addresses` | an allowed name that leads to a forbidden address, now or at the next answer |
//! | `budgets` | more than a person allowed goes out; a question that nobody sees or that any key answers |
//! | `turns` | a model that is asked more often than the run may, or a turn that nobody counts |
//! | `models` | a model that no list knows, a spelling, a compression or a cut that escapes a budget |
//! | `canary` | a credential that a thief finds and takes out unseen |
//! | `wire` | requests that two parsers read differently; heads and lines without end |
//! | `tunnels` | other names, ports or protocols inside an allowed tunnel |
//! | `requests` | methods, paths, upgrades, redirects or operations beyond the rule |
//! | `canonical` | requests that servers read differently: paths, methods in lower case, method overrides, types of bodies |
//! | `scrubbing` | a credential that comes back compressed, wrapped, split, in a name or in a part of an answer |
//! | `secrets` | a credential that is seen inside, sent elsewhere, or comes back |
//! | `keyring` | a run that starts without its secret, or an agent that reaches the keyring itself |
//! | `groups` | a registry that a project names instead of the person; a default that was replaced |
//! | `pushes` | a push to another branch, repository or by force |
//! | `git_hosts` | a write to a git host that passes because it is no push: push options, LFS, REST, GraphQL, WebDAV, ssh |
//! | `live` | a rule that stays after it was taken away; a dead proxy that lets something pass; growth without bound |
//! | `floods` | bodies that fill the memory, names that fill the log and hide what else was tried |
//! | `records` | a request that is not in the audit log, twice in it, or there with its secrets |
//! | `standing` | the proxy by itself, and chained to a company's proxy |
// Helpers of tests stop the test that called them.
#![allow(clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod acceptance;
mod addresses;
mod budgets;
mod canary;
mod canonical;
mod clients;
mod floods;
mod git_hosts;
mod groups;
mod keyring;
mod live;
mod models;
mod names;
mod pushes;
mod records;
mod requests;
mod routes;
mod scrubbing;
mod secrets;
mod standing;
mod tunnels;
mod turns;
mod wire;
mod world;
