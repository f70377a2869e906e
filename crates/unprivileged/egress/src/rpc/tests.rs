//! What bodies ask for, and what must not pass for something else.
use super::*;
use proptest::prelude::*;

fn names(list: &[&str]) -> Asks {
    Asks::For(list.iter().map(|name| (*name).to_owned()).collect())
}

fn posted(query: &str) -> Asks {
    graphql(serde_json::json!({ "query": query }).to_string().as_bytes())
}

#[test]
fn calls_and_tools_are_named() {
    assert_eq!(
        json_rpc(br#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#),
        names(&["tools/list"])
    );
    assert_eq!(
        json_rpc(br#"{"method":"tools/call","params":{"arguments":{"name":"x"},"name":"get_issue"}}"#),
        names(&["tools/call:get_issue"])
    );
    assert_eq!(
        json_rpc(br#"[{"method":"a"},{"id":3,"result":{"method":"z"}},{"method":"b","params":[1]}]"#),
        names(&["a", "response", "b"])
    );
}

#[test]
fn a_call_that_two_readers_could_read_differently_is_unreadable() {
    let long = format!("{{\"method\":\"{}\"}}", "m".repeat(300));
    let many = format!("[{}]", vec![r#"{"method":"a"}"#; 101].join(","));
    for body in [
        "",
        "[]",
        "{}",
        "null",
        "7",
        r#"{"method":"a","method":"b"}"#,
        r#"{"method":"a","Method":"b"}"#,
        r#"{"method":"tools/call"}"#,
        r#"{"method":"tools/call","params":["get_issue"]}"#,
        r#"{"method":"tools/call","params":{"name":"a","name":"b"}}"#,
        r#"{"method":"tools/call","params":{"name":"a"},"params":{"name":"b"}}"#,
        r#"{"method":"tools/call","params":{"name":["a"]}}"#,
        "{\"method\":\"tools/call\",\"params\":{\"name\":\"read\"},\"param\u{17f}\":{\"name\":\"delete\"}}",
        r#"{"method":"tools/call","params":{"name":"read"},"param\u017f":{"name":"delete"}}"#,
        "{\"method\":\"a\",\"gr\u{f6}\u{df}e\":1}",
        r#"{"method":"tools/call:get_issue"}"#,
        r#"{"method":7}"#,
        r#"{"method":"a\u0000b"}"#,
        r#"{"method":"a b"}"#,
        r#"{"method":"a"} {"method":"b"}"#,
        r#"[[{"method":"a"}]]"#,
        long.as_str(),
        many.as_str(),
    ] {
        assert_eq!(json_rpc(body.as_bytes()), Asks::Unreadable, "{body}");
    }
}

#[test]
fn keys_inside_free_arguments_may_be_in_any_script() {
    let call = "{\"method\":\"tools/call\",\"params\":{\"name\":\"a\",\"arguments\":{\"gr\u{f6}\u{df}e\":1,\"name\u{17f}\":2},\"\u{17f}\":3}}";
    assert_eq!(json_rpc(call.as_bytes()), names(&["tools/call:a"]));
    let post = "{\"query\":\"{ a }\",\"variables\":{\"\u{17f}\":1},\"extensions\":{\"a\":{\"\u{e9}\":1}}}";
    assert_eq!(graphql(post.as_bytes()), names(&["query:a"]));
}

#[test]
fn root_fields_are_what_an_operation_does() {
    assert_eq!(posted("{ viewer { login } }"), names(&["query:viewer"]));
    assert_eq!(
        posted("mutation CreateIssue($i: X!) { createIssue(input: $i) { id } }"),
        names(&["mutation:createIssue"])
    );
    assert_eq!(
        posted("query A @d(x: [1, {y: 2}]) { a: b(q: \"}{ mutation\") c(z: \"\"\" } \\\"\"\" { \"\"\") }"),
        names(&["query:b", "query:c"])
    );
    assert_eq!(
        posted("subscription { s } # mutation { m }"),
        names(&["subscription:s"])
    );
}

#[test]
fn a_mutation_does_not_pass_under_a_harmless_name_alias_or_fragment() {
    for query in [
        "mutation CreateIssue { deleteRepository(id: 1) { id } }",
        "mutation CreateIssue { createIssue: deleteRepository(id: 1) { id } }",
        "mutation CreateIssue { ...F } fragment F on Mutation { deleteRepository }",
        "mutation CreateIssue { ... on Mutation { deleteRepository } }",
        "mutation CreateIssue { ... @include(if: true) { ...F } } fragment F on M { ...G } fragment G on M { deleteRepository }",
        "query createIssue { createIssue } mutation X { deleteRepository }",
    ] {
        match posted(query) {
            Asks::For(asked) => assert!(
                asked.contains(&"mutation:deleteRepository".to_owned()),
                "{query}: {asked:?}"
            ),
            Asks::Unreadable => panic!("{query} should be readable"),
        }
    }
    let named = br#"{"query":"query A { a } mutation B { b }","operationName":"A"}"#;
    assert_eq!(
        graphql(named),
        names(&["mutation:b", "query:a"]),
        "servers that ignore the name run either"
    );
}

#[test]
fn what_cannot_be_known_is_unreadable() {
    let nested = format!("{{{}", "... {".repeat(100));
    let doubling: String = (0..20)
        .map(|i| format!("fragment F{i} on Q {{ ...F{0} ...F{0} }} ", i + 1))
        .collect();
    let doubling = format!("{{ ...F0 }} {doubling} fragment F20 on Q {{ a }}");
    for query in [
        "",
        "{",
        "{}",
        "{ a ",
        "{ a(b: ] ) }",
        "mutation",
        "type Q { a: Int }",
        "{ ...Missing }",
        "{ ...F } fragment F on Q { ...F }",
        "{ a } }",
        "{ \"a\" }",
        "{ a(b: \"unclosed) }",
        "\u{e9}",
        nested.as_str(),
        doubling.as_str(),
    ] {
        assert_eq!(posted(query), Asks::Unreadable, "{query}");
    }
    for body in [
        r#"{"extensions":{"persistedQuery":{"sha256Hash":"x"}}}"#,
        r#"{"query":"{a}","query":"mutation{b}"}"#,
        r#"{"query":"{a}","Query":"mutation{b}"}"#,
        r#"{"query":"query A {a}","operationName":"B"}"#,
        r#"[{"query":"{a}"},{"id":"persisted"}]"#,
        "{\"query\":\"{a}\",\"exten\u{17f}ions\":{\"persistedQuery\":{}}}",
        "{\"query\":\"{a}\",\"extensions\":{\"per\u{17f}i\u{17f}tedQuery\":{}}}",
        "{\"query\":\"{a}\",\"query_ha\u{17f}h\":\"x\"}",
        "{\"query\":\"{a}\",\"\u{131}d\":\"x\"}",
        "[]",
    ] {
        assert_eq!(graphql(body.as_bytes()), Asks::Unreadable, "{body}");
    }
    assert_eq!(graphql(&vec![b' '; MAX_BODY + 1]), Asks::Unreadable);
}

#[test]
fn a_query_string_is_read_once_and_exactly() {
    assert_eq!(
        from_query_string("query=%7B+viewer%20%7D&variables=%7B%7D"),
        names(&["query:viewer"])
    );
    for odd in [
        "",
        "query=%zz",
        "query=%7Ba%7D&query=mutation%7Bb%7D",
        "id=1",
        "query=%ff",
        "query=%7Ba%7D&exten%C5%BFions=%7B%7D",
    ] {
        assert_eq!(from_query_string(odd), Asks::Unreadable, "{odd}");
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        fuzz_rpc(&bytes);
    }

    #[test]
    fn no_tokens_panic(text in "[{}()\\[\\]:@.\"a-c \\\\#!$]{0,60}") {
        fuzz_rpc(serde_json::json!({ "query": text }).to_string().as_bytes());
        fuzz_rpc(text.as_bytes());
    }
}
