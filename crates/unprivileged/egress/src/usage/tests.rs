//! What is read from model responses, whole and in pieces.
use super::*;
use bastle_contract::egress::{ModelUse, UsageBasis};
use proptest::prelude::*;

fn read(kind: &str, body: &str, step: usize) -> ModelUse {
    let mut reader = UsageReader::new(Some(kind), None);
    for piece in body.as_bytes().chunks(step) {
        reader.feed(piece);
    }
    reader.finish(&Prices::built_in(), &Settlement::unknown(400))
}

const STREAM_A: &str = "event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"claude-sonnet-4-5\",\"content\":[],\"usage\":{\"input_tokens\":100,\"cache_creation_input_tokens\":20,\"cache_read_input_tokens\":30,\"output_tokens\":1}}}\r\n\r\nevent: content_block_delta\r\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"say \\\"usage\\\":{\\\"output_tokens\\\":999999}\"}}\r\n\r\nevent: message_delta\r\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":50}}\r\n\r\n";

#[test]
fn a_stream_that_starts_with_a_message_is_counted_once_however_it_is_cut() {
    for step in 1..60 {
        let used = read("text/event-stream; charset=utf-8", STREAM_A, step);
        let expected = ModelUse {
            model: "claude-sonnet-4-5".to_owned(),
            input: 100,
            output: 50,
            cache_read: 30,
            cache_write: 20,
            // 100×3 + 50×15 + 30×0.3 + 20×3.75
            cost_micro_usd: Some(1134),
            basis: UsageBasis::Reported,
        };
        assert_eq!(used, expected, "step {step}");
    }
}

#[test]
fn chat_chunks_and_the_responses_api_subtract_cached_input() {
    let chat = "data: {\"model\":\"gpt-4o-2024\",\"choices\":[{\"delta\":{\"content\":\"x\"}}],\"usage\":null}\n\ndata: {\"model\":\"gpt-4o-2024\",\"choices\":[],\"usage\":{\"prompt_tokens\":1000,\"completion_tokens\":10,\"prompt_tokens_details\":{\"cached_tokens\":400}}}\n\ndata: [DONE]\n\n";
    let used = read("text/event-stream", chat, 7);
    assert_eq!((used.input, used.cache_read, used.output), (600, 400, 10));
    assert_eq!(used.cost_micro_usd, Some(600 * 5 / 2 + 400 * 5 / 4 + 100));
    let responses = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\ndata: {\"type\":\"response.completed\",\"response\":{\"model\":\"o3\",\"output\":[{\"usage\":{\"input_tokens\":7777777}}],\"usage\":{\"input_tokens\":10,\"input_tokens_details\":{\"cached_tokens\":4},\"output_tokens\":5}}}\n\n";
    let used = read("text/event-stream", responses, 5);
    assert_eq!(
        (used.model.as_str(), used.input, used.cache_read, used.output),
        ("o3", 6, 4, 5)
    );
}

#[test]
fn what_google_counts_is_counted_with_its_thoughts_and_without_its_cache() {
    let stream = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"usageMetadata\"}]}}],\"usageMetadata\":{\"promptTokenCount\":100,\"cachedContentTokenCount\":40}}\n\ndata: {\"candidates\":[],\"usageMetadata\":{\"promptTokenCount\":100,\"candidatesTokenCount\":5,\"thoughtsTokenCount\":7,\"cachedContentTokenCount\":40,\"totalTokenCount\":112},\"modelVersion\":\"gemini-2.5-flash\"}\n\n";
    for step in [1, 7, 1000] {
        let used = read("text/event-stream", stream, step);
        assert_eq!(
            (used.model.as_str(), used.input, used.cache_read, used.output),
            ("gemini-2.5-flash", 60, 40, 12),
            "step {step}"
        );
    }
    let whole = r#"{"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":18446744073709551615,"thoughtsTokenCount":9}}"#;
    assert_eq!(read("application/json", whole, 3).output, u64::MAX);
}

#[test]
fn a_whole_document_is_read_without_keeping_it() {
    let filler = "x".repeat(3_000_000);
    let body = format!(
        "{{\"id\":\"a\",\"content\":[{{\"text\":\"{filler}\",\"usage\":{{\"input_tokens\":9}}}}],\"model\":\"unknown-1\",\"usage\":{{\"input_tokens\":3,\"output_tokens\":4}}}}"
    );
    let mut reader = UsageReader::new(Some("application/json"), None);
    for piece in body.as_bytes().chunks(65_536) {
        reader.feed(piece);
        assert!(format!("{reader:?}").len() < 4096, "the body is kept");
    }
    let used = reader.finish(&Prices::built_in(), &Settlement::unknown(0));
    assert_eq!((used.input, used.output, used.cost_micro_usd), (3, 4, None));
}

#[test]
fn text_of_the_model_that_looks_like_usage_is_not_counted() {
    let body = "{\"model\":\"m\",\"text\":\"\\\"usage\\\":{\\\"input_tokens\\\":5}\",\"usage\":{\"input_tokens\":1,\"output_tokens\":2}}";
    let used = read("application/json", body, 3);
    assert_eq!((used.input, used.output), (1, 2));
}

#[test]
fn a_stream_without_usage_does_not_escape_the_budget() {
    let body = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n".repeat(30);
    let used = read("text/event-stream", &body, 11);
    assert_eq!((used.input, used.output), (100, 30));
    let odd = read("application/octet-stream", "aaaaaaaa", 3);
    assert_eq!((odd.input, odd.output), (100, 2));
}

#[test]
fn an_endless_usage_object_or_model_name_is_dropped() {
    let body = format!(
        "{{\"model\":\"{}\",\"usage\":{{\"a\":\"{}",
        "m".repeat(10_000),
        "u".repeat(1_000_000)
    );
    let mut reader = UsageReader::new(Some("application/json"), None);
    reader.feed(body.as_bytes());
    assert!(format!("{reader:?}").len() < 2048);
    assert_eq!(
        reader.finish(&Prices::built_in(), &Settlement::unknown(0)).model,
        ""
    );
}

#[test]
fn the_price_table_is_readable_and_a_longer_pattern_wins() {
    let prices = Prices::built_in();
    assert!(prices.len() > 10);
    let cost = |model: &str| {
        prices.cost(&ModelUse {
            model: model.to_owned(),
            input: 1_000_000,
            ..ModelUse::default()
        })
    };
    assert_eq!(cost("claude-opus-4-1"), Some(15_000_000));
    assert_eq!(cost("vendor/claude-opus-4-5"), Some(5_000_000));
    assert_eq!(cost("gpt-4o-mini"), Some(150_000));
    assert_eq!(cost("no-such-model"), None);
}

#[test]
fn a_stream_that_is_cut_counts_the_larger_of_what_it_said_and_what_came() {
    let start = STREAM_A.split("event: message_delta").next().unwrap();
    let many = "data: {\"type\":\"content_block_delta\"}\n\n".repeat(200);
    let settle = |ending| {
        let mut reader = UsageReader::new(Some("text/event-stream"), None);
        reader.feed(start.as_bytes());
        reader.feed(many.as_bytes());
        let settled = Settlement {
            ending,
            ..Settlement::unknown(400)
        };
        let used = reader.finish(&Prices::built_in(), &settled);
        (used.input, used.output, used.basis)
    };
    assert_eq!(settle(Ending::Cut), (100, 202, UsageBasis::Estimated));
    assert_eq!(settle(Ending::Whole), (100, 1, UsageBasis::Reported), "control");
}

#[test]
fn a_compressed_answer_is_read_or_counted_by_every_byte() {
    let body = r#"{"model":"gpt-4o","usage":{"prompt_tokens":70,"completion_tokens":30}}"#;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut packed, body.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let read = |coding: &str| {
        let mut reader = UsageReader::new(Some("application/json"), Some(coding));
        for piece in packed.chunks(5) {
            reader.feed(piece);
        }
        reader.finish(&Prices::built_in(), &Settlement::unknown(400))
    };
    let gzip = read("GZIP");
    assert_eq!(
        (gzip.input, gzip.output, gzip.basis),
        (70, 30, UsageBasis::Reported)
    );
    let unknown = read("br");
    assert_eq!((unknown.input, unknown.output), (100, packed.len() as u64));
    assert_eq!(unknown.basis, UsageBasis::Estimated);
}

#[test]
fn lines_lists_and_numbers_by_themselves_are_read() {
    let ollama = "{\"model\":\"llama3\",\"message\":{\"content\":\"a\"},\"done\":false}\n{\"model\":\"llama3\",\"done\":true,\"prompt_eval_count\":26,\"eval_count\":298,\"eval_duration\":1}\n";
    for step in [1, 3, 1000] {
        let used = read("application/x-ndjson", ollama, step);
        assert_eq!(
            (used.model.as_str(), used.input, used.output),
            ("llama3", 26, 298),
            "step {step}"
        );
    }
    let silent = read("application/x-ndjson", &"{\"response\":\"x\"}\n".repeat(40), 7);
    assert_eq!((silent.output, silent.basis), (40, UsageBasis::Estimated));
    let list = r#"[{"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":1}},{"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":9}}]"#;
    assert_eq!(read("application/json", list, 2).output, 9);
    let converse = r#"{"output":{},"usage":{"inputTokens":5,"outputTokens":6,"totalTokens":11}}"#;
    let used = read("application/json", converse, 4);
    assert_eq!((used.input, used.output), (5, 6));
    let cohere = r#"{"usage":{"billed_units":{},"tokens":{"input_tokens":12.0,"output_tokens":4.0}}}"#;
    let used = read("application/json", cohere, 4);
    assert_eq!((used.input, used.output), (12, 4));
}

#[test]
fn a_price_of_the_policy_wins_and_the_dearest_is_known() {
    let used = ModelUse {
        model: "claude-sonnet-4-5".to_owned(),
        input: 1_000,
        output: 10,
        ..ModelUse::default()
    };
    let price = bastle_policy::ModelPrice {
        input: 1_500,
        output: 2_000,
        cache_read: 0,
        cache_write: 0,
    };
    assert_eq!(Prices::cost_at(price, &used), 1_520);
    let prices = Prices::built_in();
    assert!(prices.dearest(&used) >= prices.cost(&used).unwrap());
    assert!(prices.knows("us.anthropic.claude-3-haiku-20240307-v1:0"));
}

proptest! {
    #[test]
    fn no_bytes_panic_or_grow_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
        fuzz_usage(&bytes);
    }

    #[test]
    fn cutting_a_stream_differently_changes_nothing(cut in 1usize..400) {
        prop_assert_eq!(read("text/event-stream", STREAM_A, cut), read("text/event-stream", STREAM_A, 100_000));
    }
}
