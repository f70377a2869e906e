//! Conversations with an agent that speaks ACP, message by message.
//!
//! **Trust:** none in what the agent says.
use super::*;

fn ready(mut acp: Acp, initialized: Value) -> Acp {
    acp.start(&Session {
        cwd: "/w".into(),
        model: None,
    });
    acp.take(&reading::line(
        &json!({ "jsonrpc": "2.0", "id": 0, "result": initialized }),
    ));
    let heard = acp.take(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"sessionId\":\"s\"}}\n");
    assert!(matches!(heard.said.as_slice(), [Said::Ready { .. }]), "{heard:?}");
    acp
}

fn asks(options: Value) -> Vec<u8> {
    reading::line(
        &json!({ "jsonrpc": "2.0", "id": 5, "method": "session/request_permission",
        "params": { "sessionId": "s", "toolCall": { "title": "rm", "kind": "execute" }, "options": options } }),
    )
}

#[test]
fn files_and_terminals_of_the_host_are_not_served_to_an_agent_that_asks_for_them() {
    let mut acp = ready(Acp::default(), json!({}));
    for method in [
        "fs/read_text_file",
        "fs/write_text_file",
        "terminal/create",
        "elicitation/create",
    ] {
        let asked =
            json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": { "path": "/etc/passwd" } });
        let heard = acp.take(&reading::line(&asked));
        assert!(
            String::from_utf8(heard.reply).unwrap().contains("-32601"),
            "{method}"
        );
        assert!(heard.said.is_empty());
    }
}

#[test]
fn an_answer_for_once_is_never_turned_into_one_for_ever() {
    let mut acp = ready(Acp::default(), json!({}));
    acp.take(&asks(json!([{ "optionId": "always", "kind": "allow_always" }])));
    let answer = acp.answer_permission("5", &Answer::Once).unwrap();
    assert!(String::from_utf8(answer).unwrap().contains("cancelled"));
    acp.take(&asks(
        json!([{ "optionId": "a", "kind": "allow_once" }, { "optionId": "n", "kind": "reject_once" }]),
    ));
    let answer = acp.answer_permission("5", &Answer::No(String::new())).unwrap();
    assert!(String::from_utf8(answer).unwrap().contains("\"optionId\":\"n\""));
    assert_eq!(
        acp.answer_permission("5", &Answer::Once),
        Err(DriverError::Unknown)
    );
}

#[test]
fn interrupting_answers_every_open_request_and_the_turn_ends_as_interrupted() {
    let mut acp = ready(Acp::default(), json!({}));
    assert_eq!(acp.interrupt(), Err(DriverError::Idle));
    acp.prompt("go").unwrap();
    assert_eq!(
        acp.steer("x"),
        Err(DriverError::Unsupported("steered while it works"))
    );
    acp.take(&asks(json!([{ "optionId": "a", "kind": "allow_once" }])));
    let bytes = String::from_utf8(acp.interrupt().unwrap()).unwrap();
    assert!(
        bytes.contains("session/cancel") && bytes.contains("cancelled"),
        "{bytes}"
    );
    let heard = acp.take(b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"stopReason\":\"cancelled\"}}\n");
    let how = TurnEnd::Interrupted;
    let [Said::Withdrawn { .. }, ended] = &heard.said[..] else {
        panic!("the question is withdrawn first: {heard:?}")
    };
    assert_eq!(*ended, Said::TurnEnded { how, text: None });
}

#[test]
fn tokens_are_told_as_the_agent_reports_them_whatever_the_form() {
    let mut acp = ready(Acp::default(), json!({}));
    acp.prompt("go").unwrap();
    let result = json!({ "stopReason": "end_turn",
        "_meta": { "quota": { "token_count": { "input_tokens": 20, "output_tokens": 7 } } } });
    let heard = acp.take(&reading::line(&json!({ "id": 2, "result": result })));
    assert!(
        matches!(&heard.said[0], Said::Usage(usage) if usage.input_tokens == 20 && usage.output_tokens == 7),
        "{heard:?}"
    );
    acp.prompt("on").unwrap();
    acp.take(&reading::line(&json!({ "id": 3, "result": result })));
    assert_eq!((acp.usage().input_tokens, acp.usage().output_tokens), (40, 14));
    acp.prompt("on").unwrap();
    let sums = json!({ "stopReason": "end_turn", "usage": { "inputTokens": 3, "outputTokens": u64::MAX } });
    acp.take(&reading::line(&json!({ "id": 4, "result": sums })));
    assert_eq!(
        (acp.usage().input_tokens, acp.usage().output_tokens),
        (3, u64::MAX)
    );
    acp.prompt("on").unwrap();
    acp.take(&reading::line(&json!({ "id": 5, "result": result })));
    assert_eq!(
        acp.usage().output_tokens,
        u64::MAX,
        "what an agent says does not overflow"
    );
}

#[test]
fn an_agent_is_steered_the_way_it_offers_and_the_turn_ends_with_the_last_answer() {
    let mut acp = ready(Acp::prompts_steer(), json!({}));
    acp.prompt("go").unwrap();
    let steer = String::from_utf8(acp.steer("rather").unwrap()).unwrap();
    assert!(steer.contains("session/prompt"), "{steer}");
    let done = |id: u32| reading::line(&json!({ "id": id, "result": { "stopReason": "end_turn" } }));
    assert_eq!(acp.take(&done(2)).said, []);
    assert!(acp.is_working());
    assert_eq!(acp.take(&done(3)).said.len(), 1);
    let mut acp = ready(
        Acp::default(),
        json!({ "_meta": { "steering": { "supported": true } } }),
    );
    acp.prompt("go").unwrap();
    assert!(
        String::from_utf8(acp.steer("x").unwrap())
            .unwrap()
            .contains("_session/steering")
    );
}
