//! What a launch spec takes and refuses, and the words of states.
use super::*;
use serde_json::json;

fn spec(changes: Value) -> Result<LaunchSpec, serde_json::Error> {
    let mut value = json!({"name": "a", "argv": ["true"], "workspace": "/w"});
    for (key, change) in changes.as_object().unwrap() {
        value[key] = change.clone();
    }
    serde_json::from_value(value)
}

#[test]
fn a_request_with_a_bad_name_label_variable_prompt_or_unknown_field_is_refused() {
    let long = "x".repeat(MAX_PROMPT + 1);
    let many: BTreeMap<String, &str> = (0..33).map(|n| (format!("k{n}"), "v")).collect();
    for bad in [
        json!({"name": "a\n"}),
        json!({"argv": []}),
        json!({"workspace": "/w/../etc"}),
        json!({"workspace": "w"}),
        json!({"tags": {"A": "v"}}),
        json!({"tags": {"a": "v\u{1b}"}}),
        json!({"tags": many}),
        json!({"env": [["LD_PRELOAD", "x"]]}),
        json!({"env": [["A", "x"], ["A", "y"]]}),
        json!({"input": long}),
        json!({"input": "a\u{0}b"}),
        json!({"profile": "../x"}),
        json!({"batch": "a b"}),
        json!({"preset": ""}),
        json!({"tty": {"rows": 0, "cols": 80}}),
        json!({"sudo": true}),
    ] {
        assert!(spec(bad.clone()).is_err(), "{bad}");
    }
    let good =
        spec(json!({"tags": {"batch": "a7", "i": "1"}, "env": [["A", "x"]], "input": "fix it"})).unwrap();
    let again: LaunchSpec = serde_json::from_str(&serde_json::to_string(&good).unwrap()).unwrap();
    assert_eq!(again, good);
}

#[test]
fn only_the_four_ends_are_final_and_every_state_reads_back_from_its_word() {
    let finals = RunState::ALL.into_iter().filter(|state| state.is_final()).count();
    assert_eq!(finals, 4);
    for state in RunState::ALL {
        let read: RunState = serde_json::from_value(json!(state.word())).unwrap();
        assert_eq!(read, state);
    }
}
