//! Real agents as captains: each lists and calls the tools that the daemon offers over MCP, on pipes and over HTTP, and can
//! do with them what its token may.
//!
//! A captain is its owner's own agent and has no fence here; its model is ours, and a dead proxy keeps the rest of the world
//! away from it. Its workers are fenced as ever.
use crate::agent::{Agent, search_path};
use crate::daemon::Daemon;
use crate::model::{Call, KEY, Model, Turn};
use crate::scene::PATIENCE;
use crate::support::{Lab, bastle, identities, run, skip};
use serde_json::{Value, json};
use std::path::Path;

/// The tools at the daemon's owner's hand, on pipes.
const NEAR: &str = "near";
/// The tools of somebody who may only look, over HTTP.
const FAR: &str = "far";

/// What the captain's model has it do.
fn orders(agent: Agent, workspace: &str) -> Vec<Turn> {
    let call =
        |server: &str, tool: &str, input: Value| Turn::does(Call::Tool(agent.tool_of(server, tool), input));
    let worker = json!({ "name": "led", "workspace": workspace, "mode": "copy",
        "argv": ["sh", "-c", "echo made-by-a-worker-$((6 * 7))"] });
    vec![
        call(FAR, "list_workers", json!({})),
        call(FAR, "spawn_worker", worker.clone()),
        call(NEAR, "spawn_worker", worker),
        call(NEAR, "wait", json!({ "workers": ["led"], "timeout_s": 60 })),
        call(NEAR, "read_output", json!({ "worker": "led" })),
        Turn::says("They are done."),
    ]
}

/// The words that start a captain and the variables that it needs.
fn captain(agent: Agent, place: &Path, daemon: &Daemon, model: &Model, token: &str) -> (Vec<String>, Value) {
    let program = place.join("node_modules/.bin").join(agent.name());
    let near = [
        bastle().display().to_string(),
        "--host".to_owned(),
        format!("unix://{}", daemon.socket.display()),
        "mcp".to_owned(),
    ];
    let far = format!("http://{}/mcp", daemon.address);
    let bearer = json!({ "Authorization": format!("Bearer {token}") });
    let base = format!("http://127.0.0.1:{}", model.port);
    let (words, variables) = match agent {
        Agent::Claude => {
            let servers = json!({ "mcpServers": {
                NEAR: { "command": near[0], "args": near[1..] },
                FAR: { "type": "http", "url": far, "headers": bearer } } });
            let words = json!([
                "-p",
                "lead the workers",
                "--output-format",
                "json",
                "--strict-mcp-config",
                "--mcp-config",
                servers.to_string(),
                "--allowedTools",
                format!("mcp__{NEAR},mcp__{FAR}")
            ]);
            let variables = json!({ "ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": KEY,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1" });
            (words, variables)
        }
        Agent::Codex => {
            let near_toml = format!(
                "mcp_servers.{NEAR}={{command={},args={}}}",
                json!(near[0]),
                json!(near[1..])
            );
            let far_toml = format!(
                "mcp_servers.{FAR}={{url={},bearer_token_env_var=\"LAB_TOKEN\"}}",
                json!(far)
            );
            let words = json!([
                "exec",
                "--skip-git-repo-check",
                "--dangerously-bypass-approvals-and-sandbox",
                "-c",
                "model=\"lab-model\"",
                "-c",
                "model_provider=\"lab\"",
                "-c",
                Agent::provider(&base),
                "-c",
                near_toml,
                "-c",
                far_toml,
                "lead the workers"
            ]);
            (words, json!({ "LAB_KEY": KEY, "LAB_TOKEN": token }))
        }
        // No captains in these tests.
        Agent::Gemini | Agent::Aider => (json!([]), json!({})),
        Agent::Opencode => {
            let mut config = Agent::opencode_config(&base, "allow");
            config["mcp"] = json!({
                NEAR: { "type": "local", "command": near },
                FAR: { "type": "remote", "url": far, "headers": bearer } });
            let variables = json!({ "LAB_KEY": KEY, "OPENCODE_CONFIG_CONTENT": config.to_string(),
                "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1" });
            (
                json!(["run", "--pure", "--format", "json", "lead the workers"]),
                variables,
            )
        }
    };
    let texts = words.as_array().expect("a list").iter().filter_map(Value::as_str);
    let words = [program.display().to_string()]
        .into_iter()
        .chain(texts.map(str::to_owned));
    (words.collect(), variables)
}

fn leads(test: &str, agent: Agent) {
    let place = match agent.installed() {
        Ok(place) => place,
        Err(reason) => return skip(test, &reason),
    };
    let daemon = Daemon::start(&[]);
    let token = daemon.role("viewer");
    let lab = Lab::new(identities().remove(0));
    let model = Model::plain(agent, orders(agent, &daemon.workspace()));
    let (words, variables) = captain(agent, &place, &daemon, &model, &token.0);
    let mut command = lab.command(Path::new(&words[0]));
    command.args(&words[1..]).env("PATH", search_path());
    for (name, value) in variables.as_object().expect("an object") {
        command.env(name, value.as_str().expect("text"));
    }
    // Nobody listens there: what is not on loopback is not reached.
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env(name, "http://127.0.0.1:9");
    }
    command.env("NO_PROXY", "127.0.0.1,localhost");
    let ended = run(&mut command, b"", PATIENCE);
    assert_eq!(ended.code, 0, "{ended:?}");
    let turns = model.turns();
    assert_eq!(turns.len(), 6, "{ended:?}");
    let offered = turns[0].body["tools"].to_string();
    for tool in ["list_workers", "spawn_worker", "steer_worker", "apply"] {
        assert!(offered.contains(tool), "{tool}: {offered}");
    }
    let results = turns[5].results();
    assert_eq!(results.len(), 5, "{results:#?}");
    assert!(results[0].contains("workers"), "{results:#?}");
    assert!(
        results[1].contains("viewer"),
        "who may only look starts nothing: {results:#?}"
    );
    assert!(results[2].contains("led"), "{results:#?}");
    assert!(results[4].contains("made-by-a-worker-42"), "{results:#?}");
    let runs = daemon.own("GET", "/api/v1/runs", None).json();
    let states: Vec<&Value> = runs["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|run| &run["state"])
        .collect();
    assert_eq!(states, ["completed"], "one worker: {runs}");
}

#[test]
fn claude_leads_workers_over_mcp_as_far_as_its_token_goes() {
    let test = "claude_leads_workers_over_mcp_as_far_as_its_token_goes";
    leads(test, Agent::Claude);
}

#[test]
fn codex_leads_workers_over_mcp_as_far_as_its_token_goes() {
    let test = "codex_leads_workers_over_mcp_as_far_as_its_token_goes";
    leads(test, Agent::Codex);
}

#[test]
fn opencode_leads_workers_over_mcp_as_far_as_its_token_goes() {
    let test = "opencode_leads_workers_over_mcp_as_far_as_its_token_goes";
    leads(test, Agent::Opencode);
}
