//! The audit log: each decision once, no secrets in it; and what is made of it: budgets, learning.
use crate::support::{Lab, Limit, for_each_identity, run, skip};
use crate::world::{Scripts, decisions, host, requests, says, world};
use serde_json::{Value, json};
use std::time::Duration;

const SLOW: Limit = Limit(Duration::from_secs(180));

#[test]
fn a_thousand_requests_are_a_thousand_records() {
    for_each_identity(|lab| {
        let (yes, no) = (host("counted"), host("denied"));
        let script = format!(
            r#"
def many(count, name, path):
    connection = None
    seen = {{}}
    for i in range(count):
        raw = b"GET http://%s:{{plain}}%s%d?token=hunter2 HTTP/1.1\r\nHost: %s:{{plain}}\r\nAuthorization: Bearer hunter3\r\nConnection: close\r\n\r\n" % (
            name, path, i, name)
        got = status(ask(raw))
        seen[got] = seen.get(got, 0) + 1
    return seen
print(many(600, b"{yes}", b"/good/"), many(400, b"{no}", b"/bad/"))
"#
        );
        let output = world()
            .fence(lab, &[&format!("GET {yes}:{{plain}}/**")])
            .within(SLOW)
            .python(lab, &script);
        says(&output, "{200: 600} {403: 400}");
        let count = |events: Vec<&Value>| {
            events
                .iter()
                .map(|event| event["count"].as_u64().unwrap_or(0))
                .sum::<u64>()
        };
        assert_eq!(count(decisions(&output, &yes, "allowed")), 600);
        assert_eq!(count(decisions(&output, &no, "denied")), 400);
        assert_eq!(
            requests(&output)
                .iter()
                .map(|e| e["count"].as_u64().unwrap_or(0))
                .sum::<u64>(),
            1000
        );
        assert_eq!(world().seen(&yes).len(), 600, "and as many arrived");
        let mut numbers: Vec<u64> = requests(&output)
            .iter()
            .filter_map(|e| e["seq"].as_u64())
            .collect();
        let all = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all, "no decision has the number of another");
        let closed = output.events("net-closed");
        assert_eq!(closed.len(), 600, "each end is there with its bytes");
        assert!(
            closed
                .iter()
                .all(|event| event["bytes_in"].as_u64() > Some(0) && event["status"] == 200)
        );
        let text = serde_json::to_string(&output.audit).expect("JSON");
        for secret in ["hunter2", "hunter3"] {
            assert!(!text.contains(secret), "{secret} is in the log");
            assert!(
                !output.ended.stderr.contains(secret),
                "{secret} is on the terminal"
            );
        }
        let mut verify = lab.command(crate::support::bastle());
        verify.args(["audit", "verify"]);
        let ended = run(&mut verify, b"", Limit::HANG);
        assert_eq!(ended.code, 0, "{ended:?}");
    });
}

#[test]
fn identical_denials_are_told_once_and_a_loop_is_slowed_down() {
    for_each_identity(|lab| {
        let no = host("denied");
        let output = world().fence(lab, &[]).within(SLOW).shell(&format!(
            "i=0; while [ $i -lt 30 ]; do curl -s -o $TMPDIR/last -w '%{{http_code}}' http://{no}:{{plain}}/same; i=$((i+1)); done\n\
             echo; cat $TMPDIR/last"
        ));
        let lines: Vec<&str> = output.said().lines().collect();
        assert_eq!(lines[0], "403".repeat(30), "{output:?}");
        assert!(
            lines[1].contains("BST-NET-016"),
            "the agent is told that it loops: {output:?}"
        );
        let told = output.ended.stderr.matches("denied net").count();
        assert!(
            told < 20,
            "the person is not told thirty times: {told}: {output:?}"
        );
        let counted: u64 = decisions(&output, &no, "denied")
            .iter()
            .filter_map(|e| e["count"].as_u64())
            .sum();
        assert_eq!(counted, 30, "and all are counted: {output:?}");
    });
}

/// A run with a budget; the model's server is the lab's under the name of a known service.
fn with_budget<'a>(lab: &'a Lab, allow: &Value, budget: &Value) -> crate::support::Fence<'a> {
    let document = world().document(&json!({ "allow": allow }), &json!({ "budget": budget }));
    world().under(lab, &world().policy(lab, &document)).within(SLOW)
}

#[test]
fn a_run_that_has_used_up_its_requests_or_bytes_is_stopped_with_its_own_code() {
    for_each_identity(|lab| {
        let name = host("budget");
        let allow = json!([format!("GET {name}:{{plain}}/**")]);
        let loop_over = |path: &str| {
            format!(
                "i=0; while [ $i -lt 400 ]; do curl -s -o /dev/null http://{name}:{{plain}}{path}; i=$((i+1)); done; sleep 20; echo survived"
            )
        };
        let output = with_budget(lab, &allow, &json!({ "requests": 10 })).shell(&loop_over("/a"));
        assert_eq!(output.ended.code, 75, "{output:?}");
        assert!(!output.said().contains("survived"), "{output:?}");
        assert!(world().seen(&name).len() <= 12, "{}", world().seen(&name).len());
        assert!(
            output
                .events("budget")
                .iter()
                .any(|event| event["step"] == "warn"),
            "told at 80 %: {output:?}"
        );
        assert!(
            output
                .events("budget")
                .iter()
                .any(|event| event["step"] == "stop"),
            "{output:?}"
        );
        let output =
            with_budget(lab, &allow, &json!({ "bytesIn": "1MiB" })).shell(&loop_over("/bytes/200000"));
        assert_eq!(output.ended.code, 75, "{output:?}");
        let control = with_budget(lab, &allow, &json!({ "requests": 10 })).shell(&format!(
            "curl -s -o /dev/null -w '%{{http_code}}' http://{name}:{{plain}}/a"
        ));
        says(&control, "200");
    });
}

#[test]
fn what_a_model_charges_is_read_from_its_own_words_and_stops_the_run() {
    for_each_identity(|lab| {
        let allow = json!([
            "POST api.anthropic.com:{tls}/v1/**",
            "POST api.openai.com:{tls}/v1/**"
        ]);
        let ask = |url: &str, stream: bool| {
            format!(
                "curl -s -o /dev/null -w '%{{http_code}}\\n' -H 'content-type: application/json' \
                 -d '{{\"model\":\"claude-sonnet-4-5\",\"stream\":{stream}}}' https://{url}\n"
            )
        };
        let both = [
            ask("api.anthropic.com:{tls}/v1/messages", false),
            ask("api.anthropic.com:{tls}/v1/messages", true),
            ask("api.openai.com:{tls}/v1/chat/completions", false),
            ask("api.openai.com:{tls}/v1/chat/completions", true),
        ]
        .concat();
        let output = with_budget(lab, &allow, &json!({ "tokens": 1_000_000 })).shell(&both);
        says(&output, "200\n200\n200\n200");
        let used: Vec<(u64, u64)> = output
            .events("net-closed")
            .iter()
            .filter(|event| event["model"].is_object())
            .map(|event| {
                (
                    event["model"]["input"].as_u64().unwrap_or(0),
                    event["model"]["output"].as_u64().unwrap_or(0),
                )
            })
            .collect();
        assert_eq!(used, [(1000, 500); 4], "{output:?}");
        let many = ask("api.anthropic.com:{tls}/v1/messages", true).repeat(20);
        let output = with_budget(lab, &allow, &json!({ "tokens": 4000 }))
            .shell(&format!("{many}sleep 20; echo survived"));
        assert_eq!(output.ended.code, 75, "{output:?}");
        assert!(!output.said().contains("survived"), "{output:?}");
        assert!(
            output.said().lines().filter(|line| *line == "200").count() <= 4,
            "{output:?}"
        );
        let output = with_budget(lab, &allow, &json!({ "usd": 0.02 }))
            .shell(&format!("{many}sleep 20; echo survived"));
        assert_eq!(output.ended.code, 75, "{output:?}");
    });
}

#[test]
fn learning_stays_fenced_and_proposes_the_narrowest_rules() {
    if !world().usual {
        // Unknown hosts are read on the web's own ports only, and only root can have a server there.
        return skip(
            "learning_stays_fenced_and_proposes_the_narrowest_rules",
            "no server on port 80",
        );
    }
    for_each_identity(|lab| {
        let name = host("learned").replace("lab.test", "usual.test");
        let unseen = host("unasked");
        let addresses = json!({ "addresses": ["127.0.0.0/8"] });
        let policy = world().policy(lab, &world().document(&addresses, &json!({})));
        let fence = world().under(lab, &policy).flags(["--learn"]);
        let run_name = fence.name().to_owned();
        let output = fence.shell(&format!(
            "curl -s -o /dev/null -w '%{{http_code}}\\n' http://{name}/docs/a\n\
             curl -s -o /dev/null -w '%{{http_code}}\\n' http://{name}/docs/b\n\
             curl -s -o /dev/null -w '%{{http_code}}\\n' -d x http://{name}/docs/a\n\
             curl -s -o /dev/null -w '%{{http_code}}\\n' http://169.254.169.254/latest"
        ));
        says(&output, "200\n200\n403\n403");
        assert_eq!(world().seen(&name).len(), 2);
        assert!(
            decisions(&output, &name, "allowed").is_empty(),
            "let through to learn is not allowed: {output:?}"
        );
        let target = lab.home().join("learned.json");
        let learn = |words: &[&str]| {
            let mut command = lab.command(crate::support::bastle());
            command.arg("learn").args(words);
            run(&mut command, b"", Limit::HANG)
        };
        let shown = learn(&["show", &run_name]);
        assert_eq!(shown.code, 0, "{shown:?}");
        assert!(
            shown.stdout.contains(&name) && !shown.stdout.contains(&unseen),
            "{shown:?}"
        );
        let saved = learn(&["save", &run_name, "--to", target.to_str().expect("UTF-8")]);
        assert_eq!(saved.code, 0, "{saved:?}");
        let text = std::fs::read_to_string(&target).expect("written where the user chose");
        let document: Value = serde_json::from_str(&text).expect("JSON");
        let rules = document["net"]["allow"].to_string();
        assert!(
            rules.contains(&name) && rules.contains("GET") && !rules.contains("POST"),
            "{rules}"
        );
        assert!(!rules.contains("169.254"), "{rules}");
        let mut again = world().document(
            &json!({ "allow": document["net"]["allow"], "addresses": ["127.0.0.0/8"] }),
            &json!({}),
        );
        again["version"] = json!(1);
        let output = world().under(lab, &world().policy(lab, &again)).shell(&format!(
            "curl -s -o /dev/null -w '%{{http_code}}\\n' http://{name}/docs/a"
        ));
        says(&output, "200");
    });
}
