//! `bastle mcp`: the daemon's runs as tools of the Model Context Protocol, on standard input and output.
//!
//! **Trust:** it acts for a program, so it declares itself as one (`agent:mcp`) with every request and the daemon gives it
//! at most the role that the person chose: without a token and a flag that of an operator, who answers no questions.
use super::token::RoleWord;
use crate::client::{Credential, Daemon};
use crate::context::{Context, Ended, Failed};
use bastle_contract::Code;
use bastle_control::fleet::{Declared, Role};

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

Without a token it acts as agent:mcp with the role operator: it starts, steers and stops workers, and answers none of their
questions. More or less: bastle mcp --role approver, or --role viewer. It never approves what a worker asks that was started
through it; a person does: bastle approvals ls.
With a token its role counts: bastle token create --role operator --kind program, then BASTLE_TOKEN_FILE=FILE bastle mcp.
Needs a daemon: bastle daemon start. Exit codes: 0 the client ended it, 1 failed, 2 usage.")]
pub(crate) struct McpArgs {
    /// At most this role [default: operator; with a token, the token's]
    #[arg(long, value_enum, value_name = "ROLE")]
    role: Option<RoleWord>,
}

/// Talks until the client ends.
pub(crate) fn run(args: &McpArgs, cx: &Context) -> Ended {
    let daemon = Daemon::connect(|credential| Some(declared(args.role, credential))).map_err(Failed::from)?;
    // A client shows what is on the error stream where anything; what it asks is answered with the same words.
    if let Err(faults) = daemon.get("/api/v1/version")
        && faults.iter().any(|fault| fault.code == Code::ApiUnreachable)
    {
        cx.note("bastle mcp: no daemon answers; start one with: bastle daemon start");
    }
    bastle_serve::mcp::stdio(daemon.client()).map_err(Failed::from)?;
    Ok(0)
}

/// What the daemon is told about this program.
fn declared(role: Option<RoleWord>, credential: Credential) -> Declared {
    let role = match (role, credential) {
        (Some(role), _) => Some(role.role()),
        (None, Credential::Token) => None,
        (None, Credential::User) => Some(Role::Operator),
    };
    Declared::program("mcp", role)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_word_of_the_person_the_owner_of_the_socket_is_no_approver() {
        assert_eq!(declared(None, Credential::User).role, Some(Role::Operator));
        assert_eq!(declared(None, Credential::Token).role, None);
        let chosen = declared(Some(RoleWord::Approver), Credential::User);
        assert_eq!(chosen.role, Some(Role::Approver));
    }
}
