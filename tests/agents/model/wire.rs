//! How a turn looks on the wire, in each of the four manners, streamed or whole.
use super::Request;
use serde_json::{Value, json};

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";

/// How the model is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Anthropic's messages.
    Messages,
    /// OpenAI's responses.
    Responses,
    /// OpenAI's chat completions.
    Chat,
    /// Google's contents, in one piece or streamed: its path says which.
    Contents {
        /// Whether it is streamed.
        streamed: bool,
    },
}

/// What is no question to the model but may be asked: what models there are, how many tokens something has.
pub(super) fn aside(path: &str) -> Option<(&'static str, Vec<u8>)> {
    let answer = if path.ends_with("/count_tokens") {
        json!({ "input_tokens": 10 })
    } else if path.ends_with(":countTokens") {
        json!({ "totalTokens": 10 })
    } else if path.ends_with("/models") {
        json!({ "object": "list", "data": [], "models": [] })
    } else if path == "/" {
        json!({})
    } else {
        return None;
    };
    Some((JSON, answer.to_string().into_bytes()))
}

/// What tools gave back, in a request of any manner.
pub(super) fn results(body: &Value) -> Vec<String> {
    let messages = body["messages"].as_array().into_iter().flatten();
    let blocks = messages
        .clone()
        .filter_map(|message| message["content"].as_array());
    let blocks = blocks.flatten().filter(|block| block["type"] == "tool_result");
    let answers = messages.filter(|message| message["role"] == "tool");
    let items = body["input"].as_array().into_iter().flatten();
    let outputs = items.filter(|item| item["type"] == "function_call_output");
    let told = blocks.chain(answers).map(|result| &result["content"]);
    let contents = body["contents"].as_array().into_iter().flatten();
    let parts = contents.filter_map(|content| content["parts"].as_array());
    let responses = parts.flatten().filter_map(|part| part.get("functionResponse"));
    told.chain(outputs.map(|item| &item["output"]))
        .chain(responses.map(|response| &response["response"]))
        .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        .collect()
}

/// Events under their names.
fn named(events: &[Value]) -> Vec<u8> {
    let lines = events.iter().map(|event| {
        let name = event["type"].as_str().unwrap_or_default();
        format!("event: {name}\ndata: {event}\n\n")
    });
    lines.collect::<String>().into_bytes()
}

impl Manner {
    /// The manner of a request, where it is one to the model.
    pub(super) fn of(request: &Request) -> Option<Self> {
        [
            ("/messages", Self::Messages),
            ("/responses", Self::Responses),
            ("/chat/completions", Self::Chat),
            (":generateContent", Self::Contents { streamed: false }),
            (":streamGenerateContent", Self::Contents { streamed: true }),
        ]
        .into_iter()
        .find(|(end, _)| request.path.ends_with(end))
        .map(|(_, manner)| manner)
    }

    /// The answer with this number: words, and tools with what they are told.
    pub(super) fn render(
        self,
        number: usize,
        words: &str,
        calls: Vec<(String, Value)>,
        asked: &Value,
    ) -> (&'static str, Vec<u8>) {
        let streamed = match self {
            Self::Messages | Self::Responses | Self::Chat => asked["stream"] == true,
            Self::Contents { streamed } => streamed,
        };
        let (events, whole) = match self {
            Self::Messages => messages(number, words, &calls, &asked["model"]),
            Self::Responses => responses(number, words, &calls, &asked["model"]),
            Self::Chat => chat(number, words, &calls, &asked["model"]),
            Self::Contents { .. } => contents(words, &calls),
        };
        match streamed {
            true => (EVENTS, events),
            false => (JSON, whole.to_string().into_bytes()),
        }
    }
}

fn messages(number: usize, words: &str, calls: &[(String, Value)], model: &Value) -> (Vec<u8>, Value) {
    let mut content = Vec::new();
    if !words.is_empty() {
        content.push(json!({ "type": "text", "text": words }));
    }
    for (at, (name, input)) in calls.iter().enumerate() {
        let id = format!("toolu_{number}_{at}");
        content.push(json!({ "type": "tool_use", "id": id, "name": name, "input": input }));
    }
    let stop = if calls.is_empty() { "end_turn" } else { "tool_use" };
    let message = |content: &[Value], stop: Value| {
        json!({ "id": format!("msg_{number}"), "type": "message", "role": "assistant", "model": model,
            "content": content, "stop_reason": stop, "stop_sequence": null,
            "usage": { "input_tokens": 10, "output_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0 } })
    };
    let mut events = vec![json!({ "type": "message_start", "message": message(&[], Value::Null) })];
    for (index, block) in content.iter().enumerate() {
        let (start, delta) = if block["type"] == "text" {
            let delta = json!({ "type": "text_delta", "text": words });
            (json!({ "type": "text", "text": "" }), delta)
        } else {
            let mut start = block.clone();
            start["input"] = json!({});
            let delta = json!({ "type": "input_json_delta", "partial_json": block["input"].to_string() });
            (start, delta)
        };
        events.push(json!({ "type": "content_block_start", "index": index, "content_block": start }));
        events.push(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        events.push(json!({ "type": "content_block_stop", "index": index }));
    }
    let delta = json!({ "stop_reason": stop, "stop_sequence": null });
    events.push(json!({ "type": "message_delta", "delta": delta, "usage": { "output_tokens": 5 } }));
    events.push(json!({ "type": "message_stop" }));
    (named(&events), message(&content, json!(stop)))
}

fn responses(number: usize, words: &str, calls: &[(String, Value)], model: &Value) -> (Vec<u8>, Value) {
    let mut items = Vec::new();
    if !words.is_empty() {
        items.push(
            json!({ "type": "message", "id": format!("msg_{number}"), "role": "assistant", "status": "completed",
            "content": [{ "type": "output_text", "text": words, "annotations": [] }] }),
        );
    }
    for (at, (name, input)) in calls.iter().enumerate() {
        let mark = format!("{number}_{at}");
        let (space, name) = name.split_once('/').unwrap_or(("", name));
        let mut item = json!({ "type": "function_call", "id": format!("fc_{mark}"), "call_id": format!("call_{mark}"),
            "name": name, "arguments": input.to_string(), "status": "completed" });
        if !space.is_empty() {
            item["namespace"] = json!(space);
        }
        items.push(item);
    }
    let response = |status: &str, output: &[Value], usage: Value| {
        json!({ "id": format!("resp_{number}"), "object": "response", "created_at": 1, "status": status, "model": model,
            "output": output, "usage": usage })
    };
    let usage = json!({ "input_tokens": 10, "input_tokens_details": { "cached_tokens": 0 }, "output_tokens": 5,
        "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": 15 });
    let whole = response("completed", &items, usage);
    let mut events =
        vec![json!({ "type": "response.created", "response": response("in_progress", &[], Value::Null) })];
    for (index, item) in items.iter().enumerate() {
        events.push(json!({ "type": "response.output_item.added", "output_index": index, "item": item }));
        events.push(json!({ "type": "response.output_item.done", "output_index": index, "item": item }));
    }
    events.push(json!({ "type": "response.completed", "response": whole }));
    (named(&events), whole)
}

fn chat(number: usize, words: &str, calls: &[(String, Value)], model: &Value) -> (Vec<u8>, Value) {
    let tools: Vec<Value> = calls
        .iter()
        .enumerate()
        .map(|(at, (name, input))| {
            json!({ "index": at, "id": format!("call_{number}_{at}"), "type": "function",
                "function": { "name": name, "arguments": input.to_string() } })
        })
        .collect();
    let mut message = json!({ "role": "assistant", "content": words });
    if !tools.is_empty() {
        message["tool_calls"] = json!(tools);
    }
    let reason = if tools.is_empty() { "stop" } else { "tool_calls" };
    let usage = json!({ "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15 });
    let id = format!("chatcmpl-{number}");
    let chunk = |delta: &Value, reason: &Value, usage: &Value| {
        json!({ "id": id, "object": "chat.completion.chunk", "created": 1, "model": model,
            "choices": [{ "index": 0, "delta": delta, "finish_reason": reason }], "usage": usage })
    };
    let events = [
        chunk(&message, &Value::Null, &Value::Null),
        chunk(&json!({}), &json!(reason), &usage),
    ];
    let lines: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    let whole = json!({ "id": id, "object": "chat.completion", "created": 1, "model": model,
        "choices": [{ "index": 0, "message": message, "finish_reason": reason }], "usage": usage });
    (format!("{lines}data: [DONE]\n\n").into_bytes(), whole)
}

fn contents(words: &str, calls: &[(String, Value)]) -> (Vec<u8>, Value) {
    let mut parts = Vec::new();
    if !words.is_empty() {
        parts.push(json!({ "text": words }));
    }
    for (name, input) in calls {
        parts.push(json!({ "functionCall": { "name": name, "args": input } }));
    }
    let whole = json!({ "candidates": [{ "content": { "role": "model", "parts": parts }, "finishReason": "STOP", "index": 0 }],
        "usageMetadata": { "promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15 },
        "modelVersion": "lab-model" });
    (format!("data: {whole}\n\n").into_bytes(), whole)
}
