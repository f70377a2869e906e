//! `bastle mcp`: the daemon's runs as tools of the Model Context Protocol, on standard input and output.
//!
//! **Trust:** whoever started it talks to the daemon with the token of the context in use, or as the owner of the socket.
//! It has no right of its own.
use crate::client::Daemon;
use crate::context::{Context, Ended, Failed};
use bastle_contract::Code;

/// Arguments of `mcp`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Register it in an agent or editor that leads workers:
  claude mcp add bastle -- bastle mcp
  codex mcp add bastle -- bastle mcp
  opencode: in opencode.json
      {\"mcp\": {\"bastle\": {\"type\": \"local\", \"command\": [\"bastle\", \"mcp\"]}}}

Without a process of its own, over HTTP (bastle serve --listen 127.0.0.1:7717):
  claude mcp add --transport http bastle http://127.0.0.1:7717/mcp --header \"Authorization: Bearer TOKEN\"
  codex mcp add bastle --url http://127.0.0.1:7717/mcp --bearer-token-env-var BASTLE_TOKEN
  opencode: {\"mcp\": {\"bastle\": {\"type\": \"remote\", \"url\": \"http://127.0.0.1:7717/mcp\",
             \"headers\": {\"Authorization\": \"Bearer TOKEN\"}}}}

A token with less: bastle token create --role operator, then BASTLE_TOKEN_FILE=FILE bastle mcp.
Needs a daemon: bastle daemon start. Exit codes: 0 the client ended it, 1 failed, 2 usage.")]
pub(crate) struct McpArgs {}

/// Talks until the client ends.
pub(crate) fn run(_: &McpArgs, cx: &Context) -> Ended {
    let daemon = Daemon::open().map_err(Failed::from)?;
    // A client shows what is on the error stream where anything; what it asks is answered with the same words.
    if let Err(faults) = daemon.get("/api/v1/version")
        && faults.iter().any(|fault| fault.code == Code::ApiUnreachable)
    {
        cx.note("bastle mcp: no daemon answers; start one with: bastle daemon start");
    }
    bastle_serve::mcp::stdio(daemon.client()).map_err(Failed::from)?;
    Ok(0)
}
