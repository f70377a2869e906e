//! Turns: requests that a model answers are counted outside the agent, and a run takes as many as it may.
use crate::support::{Background, Fence, Lab, Limit, bastle, eventually, for_each_identity, run};
use crate::world::{Scripts, host, says, world};
use serde_json::{Value, json};
use std::time::Duration;

const SLOW: Limit = Limit(Duration::from_secs(180));

fn fence<'a>(lab: &'a Lab, turns: u64) -> Fence<'a> {
    let allow = json!([
        "api.anthropic.com:{tls}",
        "POST api.openai.com:{tls}/v1/**",
        "*.lab.test:{plain}"
    ]);
    let rest =
        json!({ "budget": { "turns": turns }, "approvals": { "timeout": "100s", "onTimeout": "deny" } });
    let document = world().document(&json!({ "allow": allow }), &rest);
    world().under(lab, &world().policy(lab, &document)).within(SLOW)
}

/// One request to a model, streamed or not, of either family.
fn ask(mark: &str, number: usize) -> String {
    let (place, stream) = [
        ("api.anthropic.com:{tls}/v1/messages", "false"),
        ("api.openai.com:{tls}/v1/chat/completions", "true"),
    ][number % 2];
    format!(
        "curl -s -o /dev/null -w '%{{http_code}}\\n' -d '{{\"model\":\"claude-sonnet-4-5\",\"stream\":{stream},\"mark\":\"{mark}\"}}' https://{place}\n"
    )
}

fn reached(mark: &str) -> usize {
    let text = std::fs::read_to_string(world().file("requests.jsonl")).expect("the log is there");
    text.lines().filter(|line| line.contains(mark)).count()
}

fn steps(events: &[&Value]) -> Vec<String> {
    let turns = events.iter().filter(|event| event["kind"] == "turns");
    turns
        .map(|event| event["step"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn with_nobody_there_the_turn_beyond_the_last_ends_the_run_and_reaches_no_model() {
    for_each_identity(|lab| {
        let mark = host("turns");
        let asks: String = (0..9).map(|number| ask(&mark, number)).collect();
        let output = fence(lab, 5).shell(&format!("{asks}sleep 30; echo survived"));
        assert_eq!(output.ended.code, 75, "{output:?}");
        assert!(output.said().starts_with("200\n200\n200\n200\n200"), "{output:?}");
        assert!(!output.said().contains("survived"), "{output:?}");
        assert_eq!(reached(&mark), 5);
        assert_eq!(steps(&output.events("budget")), ["warn", "stop"], "{output:?}");
        let (mark, asks): (String, String) = {
            let mark = host("turns-enough");
            let asks = (0..5).map(|number| ask(&mark, number)).collect();
            (mark, asks)
        };
        let control = fence(lab, 5).shell(&format!("{asks}echo survived"));
        says(&control, "200\n200\n200\n200\n200\nsurvived");
        assert_eq!(reached(&mark), 5, "as many as the limit says");
    });
}

#[test]
fn what_no_model_answered_is_no_turn() {
    for_each_identity(|lab| {
        let (mark, other) = (host("no-turn"), host("no-turn-plain"));
        let refused = "curl -s -o /dev/null -w '%{http_code}\\n' -d '{}' https://api.anthropic.com:{tls}/npm/none/responses\n"
            .repeat(4);
        let read = "curl -s -o /dev/null https://api.anthropic.com:{tls}/v1/messages\n".repeat(4);
        let plain = format!("curl -s -o /dev/null http://{other}:{{plain}}/a\n").repeat(4);
        let asks: String = (0..2).map(|number| ask(&mark, number)).collect();
        let output = fence(lab, 2).shell(&format!("{refused}{read}{plain}{asks}echo survived"));
        assert!(
            output.said().starts_with("404\n404\n404\n404"),
            "control: {output:?}"
        );
        assert!(output.said().ends_with("200\n200\nsurvived"), "{output:?}");
        assert_eq!(world().seen(&other).len(), 4, "control");
    });
}

#[test]
fn where_somebody_can_answer_the_run_stands_still_at_its_last_turn_until_it_is_let_go_on() {
    for_each_identity(|lab| {
        let mark = host("turns-asked");
        let fence = fence(lab, 2).flags(["--ask"]);
        let asks: String = (0..4).map(|number| ask(&mark, number)).collect();
        let file = lab.tools().join(format!("{mark}.sh"));
        std::fs::write(&file, world().fill(&asks)).expect("can be written");
        let file = file.to_str().expect("UTF-8");
        let mut living = Background::start(&mut fence.command(["sh", file]));
        assert_eq!(living.line(), "200");
        assert_eq!(living.line(), "200");
        let paused = |times: usize| {
            eventually(Limit::HANG, || {
                let events = fence.audit();
                events.iter().filter(|event| event["type"] == "paused").count() >= times
            })
        };
        assert!(paused(1));
        assert_eq!(reached(&mark), 2, "nothing goes out while it stands still");
        let answer = |verb: &str| {
            let mut command = lab.command(bastle());
            command.args([verb, fence.name(), "budget"]);
            let ended = run(&mut command, b"", Limit::HANG);
            assert_eq!(ended.code, 0, "{ended:?}");
        };
        answer("allow");
        assert_eq!(living.line(), "200");
        assert_eq!(living.line(), "200");
        assert_eq!(living.end(Limit::HANG), Some(0));
        assert_eq!(reached(&mark), 4);
    });
}

#[test]
fn a_driven_agent_is_interrupted_at_its_last_turn_before_its_run_is_ended() {
    for_each_identity(|lab| {
        let mark = host("turns-driven");
        let asks: String = (0..4).map(|number| ask(&mark, number)).collect();
        let script = format!(
            "read -r hello; read -r prompt\n{asks}read -r stop; printf 'told: %s\\n' \"$stop\" >&2\n\
             echo '{{\"type\":\"result\",\"subtype\":\"error_during_execution\"}}'\nsleep 1000\n"
        );
        let fence = fence(lab, 2).flags(["-d", "--driver", "claude", "--prompt", "go"]);
        let name = fence.name().to_owned();
        let verb = |words: &[&str]| run(lab.command(bastle()).args(words), b"", SLOW);
        let started = fence.shell(&script);
        assert_eq!(started.ended.code, 0, "{started:?}");
        let ended = verb(&["wait", &name]);
        assert_eq!(ended.code, 75, "{ended:?}");
        let printed = verb(&["logs", "--stderr-only", &name]).stderr;
        assert!(
            printed.contains("told: ") && printed.contains("interrupt"),
            "{printed}"
        );
        assert_eq!(reached(&mark), 2);
    });
}
