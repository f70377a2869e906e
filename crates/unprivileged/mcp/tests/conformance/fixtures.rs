//! The tools, resources and prompts that the suite expects, each as its description asks.
use bastle_mcp::{About, Asked, Call, Era, Face, Out, Outcome, RpcError, Wanted, done};
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::sync::watch;

/// One red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// No sound at all.
const WAV: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";

/// The face of the suite.
pub(crate) struct Fixtures {
    /// How often the lists of tools and of prompts changed.
    changed: (watch::Sender<u64>, watch::Sender<u64>),
}

impl Default for Fixtures {
    fn default() -> Self {
        Self {
            changed: (watch::channel(0).0, watch::channel(0).0),
        }
    }
}

const PLAIN_TOOLS: [&str; 22] = [
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_tool_with_logging",
    "test_logging_tool",
    "test_error_handling",
    "test_tool_with_progress",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_missing_capability",
    "test_streaming_elicitation",
    "test_trigger_tool_change",
    "test_trigger_prompt_change",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_capabilities",
];

fn said(text: impl Into<String>) -> Outcome {
    done(json!({ "content": [{ "type": "text", "text": text.into() }] }))
}

fn elicit(message: &str, properties: Value, required: &[&str]) -> Value {
    json!({ "method": "elicitation/create", "params": {
        "message": message,
        "requestedSchema": { "type": "object", "properties": properties, "required": required },
    } })
}

fn sample(text: &str, most: u64) -> Value {
    json!({ "method": "sampling/createMessage", "params": {
        "messages": [{ "role": "user", "content": { "type": "text", "text": text } }], "maxTokens": most,
    } })
}

fn ask(requests: &[(&str, Value)], state: Option<Value>) -> Outcome {
    Outcome::Ask {
        requests: requests
            .iter()
            .map(|(name, wish)| ((*name).to_owned(), wish.clone()))
            .collect(),
        state,
    }
}

/// Asks once and tells what came.
fn once(call: &Call<()>, name: &str, wish: Value, tell: fn(&Value) -> String) -> Outcome {
    match call.inputs.get(name) {
        Some(answer) => said(tell(answer)),
        None => ask(&[(name, wish)], None),
    }
}

fn completed(answer: &Value) -> String {
    format!(
        "Elicitation completed: action={}, content={}",
        answer["action"].as_str().unwrap_or_default(),
        answer["content"]
    )
}

fn name_form() -> Value {
    json!({ "name": { "type": "string" } })
}

impl Fixtures {
    async fn call(
        &self,
        name: &str,
        arguments: &Map<String, Value>,
        call: &Call<()>,
    ) -> Result<Outcome, RpcError> {
        if let Some(outcome) = content(name) {
            return Ok(outcome);
        }
        if let Some(outcome) = asking(name, arguments, call) {
            return Ok(outcome);
        }
        Ok(match name {
            "test_tool_with_logging" | "test_logging_tool" => {
                for text in [
                    "Tool execution started",
                    "Tool processing data",
                    "Tool execution completed",
                ] {
                    call.out.log("info", "fixtures", text.into()).await;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                said("Tool with logging executed")
            }
            "test_tool_with_progress" => {
                for step in [0, 50, 100] {
                    call.out.progress(step, Some(100), "working").await;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                said("Tool with progress executed")
            }
            "test_missing_capability" => {
                if !call.declares("sampling") {
                    return Err(RpcError::capability("sampling"));
                }
                said("The client can sample.")
            }
            "test_trigger_tool_change" => {
                self.changed.0.send_modify(|count| *count += 1);
                said("The list of tools changed.")
            }
            "test_trigger_prompt_change" => {
                self.changed.1.send_modify(|count| *count += 1);
                said("The list of prompts changed.")
            }
            other => return Err(RpcError::params(format!("there is no tool {other}"))),
        })
    }
}

fn content(name: &str) -> Option<Outcome> {
    let image = json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
    Some(match name {
        "test_simple_text" => said("This is a simple text response for testing."),
        "test_image_content" => done(json!({ "content": [image] })),
        "test_audio_content" => {
            done(json!({ "content": [{ "type": "audio", "data": WAV, "mimeType": "audio/wav" }] }))
        }
        "test_embedded_resource" => done(json!({ "content": [{ "type": "resource", "resource": {
            "uri": "test://embedded-resource", "mimeType": "text/plain",
            "text": "This is an embedded resource content.",
        } }] })),
        "test_multiple_content_types" => done(json!({ "content": [
            { "type": "text", "text": "Multiple content types test:" },
            image,
            { "type": "resource", "resource": {
                "uri": "test://mixed-content-resource", "mimeType": "application/json",
                "text": "{\"test\":\"data\",\"value\":123}",
            } },
        ] })),
        "test_error_handling" => done(json!({
            "content": [{ "type": "text", "text": "This tool intentionally returns an error for testing" }],
            "isError": true,
        })),
        _ => return None,
    })
}

/// Tools that need somebody's answer.
fn asking(name: &str, arguments: &Map<String, Value>, call: &Call<()>) -> Option<Outcome> {
    let word = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
    let user = || elicit("What is your name?", name_form(), &["name"]);
    Some(match name {
        "test_sampling" => once(call, "answer", sample(word("prompt"), 100), |answer| {
            format!(
                "LLM response: {}",
                answer["content"]["text"].as_str().unwrap_or_default()
            )
        }),
        "test_elicitation" => {
            let form = json!({
                "username": { "type": "string", "description": "User's response" },
                "email": { "type": "string", "description": "User's email address" },
            });
            let wish = elicit(word("message"), form, &["username", "email"]);
            once(call, "answer", wish, |answer| {
                format!("User response: {}", completed(answer))
            })
        }
        "test_elicitation_sep1034_defaults" => {
            let form = json!({
                "name": { "type": "string", "default": "John Doe" },
                "age": { "type": "integer", "default": 30 },
                "score": { "type": "number", "default": 95.5 },
                "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
                "verified": { "type": "boolean", "default": true },
            });
            once(call, "answer", elicit("Please check", form, &[]), completed)
        }
        "test_elicitation_sep1330_enums" => {
            once(call, "answer", elicit("Please choose", enums(), &[]), completed)
        }
        "test_streaming_elicitation" => once(call, "answer", user(), completed),
        _ => return required(name, call),
    })
}

/// Tools that give their question as their result.
fn required(name: &str, call: &Call<()>) -> Option<Outcome> {
    let user = || elicit("What is your name?", name_form(), &["name"]);
    Some(match name {
        "test_input_required_result_elicitation" => match call.inputs.get("user_name") {
            Some(answer) if answer["action"] == "accept" && answer["content"]["name"].is_string() => {
                said(format!(
                    "Hello, {}!",
                    answer["content"]["name"].as_str().unwrap_or_default()
                ))
            }
            Some(_) | None => ask(&[("user_name", user())], None),
        },
        "test_input_required_result_sampling" => {
            let wish = sample("What is the capital of France?", 100);
            once(call, "capital_question", wish, |answer| {
                answer["content"]["text"].to_string()
            })
        }
        "test_input_required_result_list_roots" => {
            let wish = json!({ "method": "roots/list", "params": {} });
            once(call, "client_roots", wish, |answer| {
                format!("Roots: {}", answer["roots"])
            })
        }
        "test_input_required_result_request_state" | "test_input_required_result_tampered_state" => {
            match (call.inputs.get("confirm"), &call.state) {
                (Some(_), Some(state)) if state["round"] == 1 => said("state-ok"),
                (_, _) => {
                    let wish = elicit("Please confirm", json!({ "ok": { "type": "boolean" } }), &["ok"]);
                    ask(&[("confirm", wish)], Some(json!({ "round": 1 })))
                }
            }
        }
        "test_input_required_result_multiple_inputs" => {
            let all = [
                ("user_name", user()),
                ("greeting", sample("Generate a greeting", 50)),
                ("client_roots", json!({ "method": "roots/list", "params": {} })),
            ];
            if all.iter().all(|(name, _)| call.inputs.contains_key(*name)) {
                said("All inputs received")
            } else {
                ask(&all, Some(json!({ "round": 1 })))
            }
        }
        "test_input_required_result_multi_round" => rounds(call),
        "test_input_required_result_capabilities" => {
            let mut able = Vec::new();
            if call.declares("sampling") {
                able.push(("sampled", sample("Say something", 50)));
            }
            if call.declares("elicitation") {
                able.push(("user_name", user()));
            }
            if able.iter().all(|(name, _)| call.inputs.contains_key(*name)) {
                said("Everything that could be asked was answered")
            } else {
                ask(&able, None)
            }
        }
        _ => return None,
    })
}

fn rounds(call: &Call<()>) -> Outcome {
    let round = call.state.as_ref().and_then(|state| state["round"].as_u64());
    match round {
        Some(1) if call.inputs.contains_key("step1") => {
            let form = json!({ "color": { "type": "string" } });
            let wish = elicit("Step 2: What is your favorite color?", form, &["color"]);
            ask(&[("step2", wish)], Some(json!({ "round": 2 })))
        }
        Some(2) if call.inputs.contains_key("step2") => said("Both steps done"),
        Some(_) | None => {
            let wish = elicit("Step 1: What is your name?", name_form(), &["name"]);
            ask(&[("step1", wish)], Some(json!({ "round": 1 })))
        }
    }
}

fn enums() -> Value {
    let titled = |names: [&str; 3]| -> Vec<Value> {
        ["value1", "value2", "value3"]
            .iter()
            .zip(names)
            .map(|(value, title)| json!({ "const": value, "title": title }))
            .collect()
    };
    let plain = ["option1", "option2", "option3"];
    json!({
        "untitledSingle": { "type": "string", "enum": plain },
        "titledSingle": { "type": "string", "oneOf": titled(["First Option", "Second Option", "Third Option"]) },
        "legacyEnum": {
            "type": "string", "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": plain } },
        "titledMulti": { "type": "array", "items": {
            "anyOf": titled(["First Choice", "Second Choice", "Third Choice"]),
        } },
    })
}

fn tools() -> Value {
    let mut all: Vec<Value> = PLAIN_TOOLS
        .iter()
        .map(|name| {
            json!({ "name": name, "description": format!("The fixture {name}."), "inputSchema": { "type": "object" } })
        })
        .collect();
    all.push(json!({
        "name": "test_input_required_result_tampered_state", "description": "A fixture.",
        "inputSchema": { "type": "object" },
    }));
    for (name, argument) in [("test_sampling", "prompt"), ("test_elicitation", "message")] {
        all.push(
            json!({ "name": name, "description": "A fixture.", "inputSchema": {
            "type": "object", "properties": { argument: { "type": "string" } }, "required": [argument],
        } }),
        );
    }
    json!({ "tools": all })
}

fn read(uri: &str, era: Era) -> Result<Outcome, RpcError> {
    let template = uri
        .strip_prefix("test://template/")
        .and_then(|rest| rest.strip_suffix("/data"));
    let content = match (uri, template) {
        ("test://static-text", _) => json!({
            "uri": uri, "mimeType": "text/plain", "text": "This is the content of the static text resource.",
        }),
        ("test://static-binary", _) => json!({ "uri": uri, "mimeType": "image/png", "blob": PNG }),
        ("test://watched-resource", _) => json!({ "uri": uri, "mimeType": "text/plain", "text": "Watched." }),
        (_, Some(id)) => {
            let text = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
            json!({ "uri": uri, "mimeType": "application/json", "text": text.to_string() })
        }
        (_, None) => return Err(RpcError::no_resource(era, uri)),
    };
    Ok(done(json!({ "contents": [content] })))
}

fn prompt(name: &str, arguments: &Map<String, Value>, call: &Call<()>) -> Result<Outcome, RpcError> {
    let word = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
    let text = |text: String| json!({ "role": "user", "content": { "type": "text", "text": text } });
    let messages = match name {
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.".to_owned())],
        "test_prompt_with_arguments" => vec![text(format!(
            "Prompt with arguments: arg1='{}', arg2='{}'",
            word("arg1"),
            word("arg2")
        ))],
        "test_prompt_with_embedded_resource" => vec![
            json!({ "role": "user", "content": { "type": "resource", "resource": {
                "uri": word("resourceUri"), "mimeType": "text/plain",
                "text": "Embedded resource content for testing.",
            } } }),
            text("Please process the embedded resource above.".to_owned()),
        ],
        "test_prompt_with_image" => vec![
            json!({ "role": "user", "content": { "type": "image", "data": PNG, "mimeType": "image/png" } }),
            text("Please analyze the image above.".to_owned()),
        ],
        "test_input_required_result_prompt" => match call.inputs.get("user_context") {
            Some(answer) => vec![text(format!("Context: {}", answer["content"]["context"]))],
            None => {
                let form = json!({ "context": { "type": "string" } });
                let wish = elicit("What context should the prompt use?", form, &["context"]);
                return Ok(ask(&[("user_context", wish)], None));
            }
        },
        other => return Err(RpcError::params(format!("there is no prompt {other}"))),
    };
    Ok(done(json!({ "messages": messages })))
}

fn prompts() -> Value {
    let argument = |name: &str| json!({ "name": name, "description": "An argument.", "required": true });
    let one = |name: &str, arguments: Vec<Value>| json!({ "name": name, "description": format!("The fixture {name}."), "arguments": arguments });
    json!({ "prompts": [
        one("test_simple_prompt", vec![]),
        one("test_prompt_with_arguments", vec![argument("arg1"), argument("arg2")]),
        one("test_prompt_with_embedded_resource", vec![argument("resourceUri")]),
        one("test_prompt_with_image", vec![]),
        one("test_input_required_result_prompt", vec![]),
    ] })
}

impl Face for Fixtures {
    type Caller = ();

    fn about(&self) -> About {
        About {
            name: "bastle-conformance",
            title: "Fixtures of the conformance suite",
            version: env!("CARGO_PKG_VERSION"),
            instructions: "For tests only.",
            capabilities: json!({
                "tools": { "listChanged": true },
                "resources": { "listChanged": false, "subscribe": true },
                "prompts": { "listChanged": true },
                "completions": {},
                "logging": {},
            }),
        }
    }

    fn key(&self, (): &()) -> String {
        String::new()
    }

    async fn serve(&self, asked: Asked, call: &Call<()>) -> Result<Outcome, RpcError> {
        Ok(match asked {
            Asked::Tools => done(tools()),
            Asked::Call { name, arguments } => return self.call(&name, &arguments, call).await,
            Asked::Resources(_) => done(json!({ "resources": [
                { "uri": "test://static-text", "name": "Static text", "description": "Text.", "mimeType": "text/plain" },
                { "uri": "test://static-binary", "name": "Static binary", "description": "A pixel.", "mimeType": "image/png" },
                { "uri": "test://watched-resource", "name": "Watched", "description": "Changes.", "mimeType": "text/plain" },
            ] })),
            Asked::Templates => done(json!({ "resourceTemplates": [{
                "uriTemplate": "test://template/{id}/data", "name": "Template", "description": "Data of an id.",
                "mimeType": "application/json",
            }] })),
            Asked::Read { uri } => return read(&uri, call.era),
            Asked::Prompts => done(prompts()),
            Asked::Prompt { name, arguments } => return prompt(&name, &arguments, call),
            Asked::Complete(_) => {
                done(json!({ "completion": { "values": [], "total": 0, "hasMore": false } }))
            }
            Asked::Subscribe(_) | Asked::Unsubscribe(_) => done(json!({})),
        })
    }

    async fn listen(&self, wanted: Wanted, (): (), out: Out) {
        let (mut tools, mut prompts) = (self.changed.0.subscribe(), self.changed.1.subscribe());
        loop {
            let method = tokio::select! {
                changed = tools.changed(), if wanted.tools => changed.map(|()| "notifications/tools/list_changed"),
                changed = prompts.changed(), if wanted.prompts => changed.map(|()| "notifications/prompts/list_changed"),
                () = std::future::pending() => return,
            };
            match method {
                Ok(method) => out.tell(method, json!({})).await,
                Err(_) => return,
            }
        }
    }
}
