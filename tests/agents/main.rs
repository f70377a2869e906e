//! Real agents, as they are published, inside the fence: Claude Code, Codex, opencode and Gemini CLI against a scripted model on
//! loopback that they reach through egress alone, with a credential they never see.
//!
//! The model is ours and says what a test wants it to say, also what an attacker would; the agents are unmodified. They
//! are installed by `cargo xtask test`; a host that has none of them counts the tests as skipped.
//!
//! | file | what must not happen |
//! |---|---|
//! | `alone` | an agent that fails inside for its own sandbox, or whose sandbox is switched off in silence |
//! | `work` | an agent that cannot do its work inside, or whose work reaches the project by itself |
//! | `talk` | words, an interruption or a limit of turns that do not reach an agent |
//! | `asking` | an agent that does what nobody allowed |
//! | `clients` | a captain that cannot use the daemon's tools, or does more with them than its token may |
//! | `injected` | an agent that obeys an attacker and gets anything by it |
// Helpers of tests stop the test that called them.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod agent;
mod alone;
mod asking;
mod clients;
#[path = "../api/daemon.rs"]
#[allow(dead_code)]
mod daemon;
#[path = "../api/http.rs"]
#[allow(dead_code)]
mod http;
mod injected;
#[path = "../keep/kept.rs"]
#[allow(dead_code)]
mod kept;
mod model;
mod names;
mod scene;
mod talk;
mod work;
