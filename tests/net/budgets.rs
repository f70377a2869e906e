//! Budgets with a person about: told at 80 %, asked at 100 %, stopped at 120 % or by a no.
use crate::support::{Background, Ended, Fence, Lab, Limit, bastle, eventually, for_each_identity, run};
use crate::world::{host, world};
use serde_json::{Value, json};
use std::time::Duration;

const SLOW: Limit = Limit(Duration::from_secs(180));
/// What one answer of the lab's model costs.
const ONE: u64 = 1500;

/// A run with a budget of tokens; `--ask` says that somebody can answer.
fn attended<'a>(lab: &'a Lab, budget: &Value) -> Fence<'a> {
    let allow = json!([
        "POST api.anthropic.com:{tls}/v1/**",
        "POST api.openai.com:{tls}/v1/**"
    ]);
    let rest = json!({ "budget": budget, "approvals": { "timeout": "100s", "onTimeout": "deny" } });
    let document = world().document(&json!({ "allow": allow }), &rest);
    world()
        .under(lab, &world().policy(lab, &document))
        .flags(["--ask"])
        .within(SLOW)
}

/// Asks models of both kinds, streamed and not, one after the other, and says how each went.
fn script(lab: &Lab, mark: &str, count: usize) -> String {
    paced(lab, mark, count, "")
}

/// The same, with a command after the first call and before the end.
fn paced(lab: &Lab, mark: &str, count: usize, pause: &str) -> String {
    let places = [
        ("api.anthropic.com", "/v1/messages", "false"),
        ("api.openai.com", "/v1/chat/completions", "true"),
        ("api.anthropic.com", "/v1/messages", "true"),
        ("api.openai.com", "/v1/chat/completions", "false"),
    ];
    let mut text = String::new();
    for (number, (name, path, stream)) in places.into_iter().cycle().take(count).enumerate() {
        text += &format!(
            "echo call {number} $(curl -s -o /dev/null -w '%{{http_code}}' -d \
             '{{\"model\":\"claude-sonnet-4-5\",\"stream\":{stream},\"mark\":\"{mark}\"}}' https://{name}:{}{path})\n",
            world().tls
        );
        if number == 0 {
            text += &format!("{pause}\n");
        }
    }
    text += &format!("{pause}\necho survived\n");
    let file = lab.tools().join(format!("{mark}.sh"));
    std::fs::write(&file, text).expect("can be written");
    file.to_str().expect("UTF-8").to_owned()
}

/// Requests with this mark that reached the models' server.
fn reached(mark: &str) -> usize {
    let text = std::fs::read_to_string(world().file("requests.jsonl")).expect("the log is there");
    text.lines().filter(|line| line.contains(mark)).count()
}

fn steps(fence: &Fence<'_>) -> Vec<String> {
    let events = fence.audit();
    let budget = events.iter().filter(|event| event["type"] == "budget");
    budget
        .map(|event| event["step"].as_str().unwrap_or_default().to_owned())
        .collect()
}

fn paused(fence: &Fence<'_>, times: usize) -> bool {
    eventually(Limit::HANG, || {
        let events = fence.audit();
        events.iter().filter(|event| event["type"] == "paused").count() >= times
    })
}

fn verb(lab: &Lab, words: &[&str]) -> Ended {
    let mut command = lab.command(bastle());
    command.args(words);
    run(&mut command, b"", Limit::HANG)
}

#[test]
fn nothing_goes_out_beyond_a_budget_until_somebody_elsewhere_extends_it_and_a_no_ends_the_run() {
    for_each_identity(|lab| {
        let mark = host("extended");
        // Four answers are 83 %, five 104 %; a fifth more lets one more through.
        let fence = attended(lab, &json!({ "tokens": 4 * ONE * 6 / 5 }));
        let file = script(lab, &mark, 12);
        let mut living = Background::start(&mut fence.command(["sh", file.as_str()]));
        for number in 0..4 {
            assert_eq!(living.line(), format!("call {number} 200"));
        }
        assert!(paused(&fence, 1), "the run stands still: {:?}", steps(&fence));
        assert_eq!(steps(&fence), ["warn", "pause"], "told at 80 %, asked at 100 %");
        let listed = verb(lab, &["ps", "--json"]);
        assert!(
            listed.stdout.contains("\"budget\""),
            "the question is listed: {listed:?}"
        );
        assert!(living.is_alive());
        assert_eq!(reached(&mark), 5, "nothing goes out while it stands still");
        let extended = verb(lab, &["allow", fence.name(), "budget"]);
        assert_eq!(extended.code, 0, "{extended:?}");
        // The fifth answer was under way when the run was stopped; it may not have been able to say so.
        assert_eq!(living.line(), "call 4 200");
        assert!(
            eventually(Limit::HANG, || reached(&mark) == 6),
            "it goes on: {:?}",
            steps(&fence)
        );
        assert!(paused(&fence, 2), "and is asked again: {:?}", steps(&fence));
        let denied = verb(lab, &["deny", fence.name(), "budget"]);
        assert_eq!(denied.code, 0, "{denied:?}");
        assert_eq!(living.end(Limit::HANG), Some(75));
        assert_eq!(reached(&mark), 6);
        let events = fence.audit();
        let answers: Vec<_> = events
            .iter()
            .filter(|event| event["type"] == "net-answered")
            .map(|event| (event["id"].clone(), event["allow"].clone()))
            .collect();
        assert_eq!(
            answers,
            [(json!("budget"), json!(true)), (json!("budget"), json!(false))]
        );
    });
}

#[test]
fn a_run_that_overshoots_to_120_percent_is_stopped_though_somebody_could_answer() {
    for_each_identity(|lab| {
        let mark = host("overshot");
        let fence = attended(lab, &json!({ "tokens": ONE * 4 / 5 }));
        let file = script(lab, &mark, 3);
        let mut living = Background::start(&mut fence.command(["sh", file.as_str()]));
        assert_eq!(living.end(Limit::HANG), Some(75), "{:?}", steps(&fence));
        assert_eq!(steps(&fence), ["stop"]);
        assert_eq!(reached(&mark), 1);
        let enough = attended(lab, &json!({ "tokens": 10 * ONE }));
        let output = enough.run(["sh", script(lab, &host("enough"), 3).as_str()]);
        assert_eq!(output.ended.code, 0, "control: {output:?}");
        assert!(
            output.said().ends_with("call 2 200\nsurvived"),
            "control: {output:?}"
        );
    });
}

#[test]
fn one_answer_is_enough_where_two_budgets_end_at_once() {
    for_each_identity(|lab| {
        let mark = host("both");
        // The third request is the last of both.
        let fence = attended(lab, &json!({ "tokens": 3 * ONE, "usd": 0.0315 }));
        let file = paced(lab, &mark, 3, "sleep 3");
        let mut living = Background::start(&mut fence.command(["sh", file.as_str()]));
        assert!(
            eventually(Limit::HANG, || steps(&fence)
                .iter()
                .filter(|step| *step == "pause")
                .count()
                == 2),
            "{:?}",
            steps(&fence)
        );
        let extended = verb(lab, &["allow", fence.name(), "budget"]);
        assert_eq!(extended.code, 0, "{extended:?}");
        for number in 0..3 {
            assert_eq!(living.line(), format!("call {number} 200"));
        }
        assert_eq!(living.line(), "survived");
        assert_eq!(living.end(Limit::HANG), Some(0));
    });
}

/// `bastle run` at a terminal, where a person waits for words and presses keys.
fn at_a_terminal(lab: &Lab, fence: &Fence<'_>, file: &str, steps: &[(&str, &str)]) -> Ended {
    let keyboard = lab.tools().join("keyboard.py");
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/net/clients/keyboard.py");
    let text = std::fs::read_to_string(source).expect("is there");
    std::fs::write(&keyboard, text).expect("can be written");
    let inner = fence.command(["sh", file]);
    let mut command = lab.command(std::path::Path::new("/usr/bin/python3"));
    for (name, value) in inner.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    command.env("TERM", "dumb").arg("-B").arg(&keyboard);
    for (words, keys) in steps {
        command.args([words, keys]);
    }
    command.arg("--").arg(inner.get_program()).args(inner.get_args());
    run(&mut command, b"", SLOW)
}

#[test]
fn a_key_at_the_terminal_extends_a_budget_and_another_ends_the_run() {
    for_each_identity(|lab| {
        let mark = host("keys");
        let fence = attended(lab, &json!({ "tokens": 4 * ONE * 6 / 5 }));
        let file = paced(lab, &mark, 12, "sleep 2");
        // A key of before the question is no answer to it.
        let steps = [
            ("call 0 200", "d"),
            ("80 % used", ""),
            ("bastle deny", "a"),
            ("allowed budget", ""),
            ("bastle deny", "d"),
        ];
        let ended = at_a_terminal(lab, &fence, &file, &steps);
        assert_eq!(ended.code, 75, "{}", ended.stdout);
        let screen = &ended.stdout;
        assert!(
            !screen.contains("KEYBOARD") && !screen.contains("survived"),
            "{screen}"
        );
        assert!(
            screen.contains("allowed budget") && screen.contains("denied budget"),
            "{screen}"
        );
        assert_eq!(reached(&mark), 6, "{screen}");
    });
}
