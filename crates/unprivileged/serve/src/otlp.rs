//! Traces for a collector: one trace of spans for each run that ended, by OTLP over HTTP as JSON.
//!
//! Off unless the settings name a collector. It reads what the store has, after the fact and at its own pace: no run and
//! no request ever waits for it, and nothing gathers in memory. What a collector does not take is given up after a
//! few attempts and counted.
//! **Trust:** names and reasons in spans may be an agent's words, so they are cut to a length. What was asked and said is
//! never in them.
use crate::app::App;
use crate::outward::Reader;
use crate::webhook::Address;
use bastle_contract::runs::{LaunchSpec, RunState};
use bastle_contract::{RunId, TRACE_VARIABLE, TraceParent};
use bastle_control::fleet::{EventFilter, RunRecord, StoredEvent};
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long one attempt may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pauses between attempts; after the last the spans are given up.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// Events of one run that are looked at.
const MOST_EVENTS: usize = 2000;
/// Spans of one run.
const MOST_SPANS: usize = 500;
/// Longest text of an attribute.
const MOST_TEXT: usize = 256;

/// Sends the trace of every run that ends, until the daemon does.
pub(crate) async fn follow(app: App, address: Address, at: std::sync::Arc<AtomicU64>) {
    let mut closing = app.closing.clone();
    let work = async {
        let mut reader = Reader::open(app.clone(), vec!["state".to_owned()], &at).await?;
        loop {
            let mut spans = Vec::new();
            let events = reader.next().await?;
            for event in &events {
                if let Some(run) = ended(event) {
                    spans.extend(trace(&app, run).await.unwrap_or_default());
                }
            }
            if !spans.is_empty() && !send(&address, &document(spans)).await {
                app.metrics.trace_failures.fetch_add(1, Ordering::Relaxed);
            }
            if let Some(last) = events.last() {
                at.store(last.seq, Ordering::Relaxed);
            }
        }
    };
    tokio::select! {
        done = work => { let none: Option<()> = done; none.unwrap_or(()) },
        _ = closing.wait_for(|closing| *closing) => {}
    }
}

/// The run that this event is the end of.
fn ended(event: &StoredEvent) -> Option<RunId> {
    let word = event.data.get("state")?.as_str()?;
    let last = RunState::ALL
        .into_iter()
        .find(|state| state.word() == word)?
        .is_final();
    last.then(|| event.run.clone())?
}

async fn trace(app: &App, run: RunId) -> Option<Vec<Value>> {
    app.ask(move |fleet| {
        let filter = EventFilter {
            run: Some(run.clone()),
            kinds: ["state", "agent", "question", "answered"]
                .map(str::to_owned)
                .to_vec(),
            ..EventFilter::default()
        };
        let events = fleet.events(0, &filter, MOST_EVENTS)?;
        Ok::<_, bastle_contract::Fault>(spans(&fleet.run(&run)?, &fleet.spec(&run)?, &events))
    })
    .await
    .ok()
}

async fn send(address: &Address, document: &Value) -> bool {
    let body = Bytes::from(document.to_string());
    for pause in PAUSES.into_iter().map(Some).chain([None]) {
        let sent = address.post(&[("content-type", "application/json")], body.clone());
        if tokio::time::timeout(PATIENCE, sent).await.unwrap_or(false) {
            return true;
        }
        match pause {
            Some(pause) => tokio::time::sleep(pause).await,
            None => break,
        }
    }
    false
}

/// What is sent: who we are, and the spans.
fn document(spans: Vec<Value>) -> Value {
    json!({ "resourceSpans": [{
        "resource": { "attributes": attributes(&[
            ("service.name", json!("bastle")),
            ("service.version", json!(env!("CARGO_PKG_VERSION"))),
        ]) },
        "scopeSpans": [{
            "scope": { "name": "bastle", "version": env!("CARGO_PKG_VERSION") },
            "schemaUrl": "https://opentelemetry.io/schemas/gen-ai/1.42.0",
            "spans": spans,
        }],
    }] })
}

/// `key` and a value by its type, as OTLP writes them.
fn attributes(pairs: &[(&str, Value)]) -> Value {
    let typed = |value: &Value| match value {
        Value::Bool(value) => json!({ "boolValue": value }),
        Value::Number(number) if number.is_u64() || number.is_i64() => {
            json!({ "intValue": number.to_string() })
        }
        Value::Number(number) => json!({ "doubleValue": number }),
        Value::String(text) => json!({ "stringValue": cut(text) }),
        other => json!({ "stringValue": cut(&other.to_string()) }),
    };
    let known = pairs.iter().filter(|(_, value)| !value.is_null());
    known
        .map(|(key, value)| json!({ "key": key, "value": typed(value) }))
        .collect()
}

fn cut(text: &str) -> String {
    text.chars()
        .take(MOST_TEXT)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Milliseconds as OTLP writes times.
fn nanos(ms: u64) -> String {
    format!("{ms}000000")
}

/// A number for a span that is the same whenever it is asked for.
fn numbered(own: &TraceParent, at: u64) -> String {
    let mixed = u64::from_be_bytes(own.span) ^ (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{:016x}", mixed.max(1))
}

/// The spans of a run: itself, the states it went through, and the tools its agent told of.
fn spans(run: &RunRecord, spec: &LaunchSpec, events: &[StoredEvent]) -> Vec<Value> {
    let raw = spec.get();
    let variable = raw.env.iter().find(|(name, _)| name.as_str() == TRACE_VARIABLE);
    let Some(own) = variable.and_then(|(_, value)| TraceParent::parse(value).ok()) else {
        // It was started beside the daemon, by somebody who traces nothing.
        return Vec::new();
    };
    let last = events.last().map_or(run.created_ms, |event| event.time_ms);
    let end = run.ended_ms.unwrap_or(last).max(run.created_ms);
    let mut spans = vec![whole(run, raw, &own, end, events)];
    let mut add = |name: String, (from, to): (u64, u64), about: Value| {
        if spans.len() < MOST_SPANS {
            let number = numbered(&own, spans.len() as u64);
            spans.push(json!({
                "traceId": own.trace_hex(), "spanId": number, "parentSpanId": own.span_hex(),
                "name": cut(&name), "kind": INTERNAL,
                "startTimeUnixNano": nanos(from), "endTimeUnixNano": nanos(to.max(from)), "attributes": about,
            }));
        }
    };
    let states: Vec<&StoredEvent> = events.iter().filter(|event| event.kind == "state").collect();
    for pair in states.windows(2) {
        if let Some(word) = pair[0].data.get("state").and_then(Value::as_str) {
            let about = attributes(&[
                ("bastle.run.name", json!(run.name)),
                ("bastle.run.state", json!(word)),
                (
                    "bastle.run.reason",
                    pair[0].data.get("reason").cloned().unwrap_or_default(),
                ),
            ]);
            add(word.to_owned(), (pair[0].time_ms, pair[1].time_ms), about);
        }
    }
    for (event, (id, name, to)) in events
        .iter()
        .filter_map(|event| Some((event, tool(event, events, end)?)))
    {
        let about = attributes(&[
            ("gen_ai.operation.name", json!("execute_tool")),
            ("gen_ai.tool.name", json!(name)),
            ("gen_ai.tool.call.id", json!(id)),
            ("gen_ai.agent.id", json!(run.name)),
        ]);
        add(format!("execute_tool {name}"), (event.time_ms, to), about);
    }
    spans
}

/// `SPAN_KIND_INTERNAL`, `STATUS_CODE_OK`, `STATUS_CODE_ERROR`.
const INTERNAL: u8 = 1;
const OK: u8 = 1;
const ERROR: u8 = 2;

/// The span of the whole run.
fn whole(
    run: &RunRecord,
    raw: &bastle_contract::runs::RawSpec,
    own: &TraceParent,
    end: u64,
    events: &[StoredEvent],
) -> Value {
    let used = |key: &str| {
        let told = events.iter().rev().filter(|event| said(event, "usage"));
        told.filter_map(|event| event.data.get(key).and_then(Value::as_u64))
            .next()
    };
    let provider = match raw.driver.as_deref() {
        Some("claude") => "anthropic",
        Some("codex") => "openai",
        Some(_) | None => "bastle",
    };
    let status = match run.state {
        RunState::Completed => json!({ "code": OK }),
        RunState::Failed | RunState::Refused => {
            json!({ "code": ERROR, "message": cut(run.reason.as_deref().unwrap_or("refused")) })
        }
        _ => json!({}),
    };
    let mut span = json!({
        "traceId": own.trace_hex(), "spanId": own.span_hex(),
        "name": cut(&format!("invoke_agent {}", run.agent)), "kind": INTERNAL,
        "startTimeUnixNano": nanos(run.created_ms), "endTimeUnixNano": nanos(end),
        "status": status,
        "attributes": attributes(&[
            ("gen_ai.operation.name", json!("invoke_agent")),
            ("gen_ai.provider.name", json!(provider)),
            ("gen_ai.agent.name", json!(run.agent)),
            ("gen_ai.agent.id", json!(run.name)),
            ("gen_ai.conversation.id", json!(run.name)),
            ("gen_ai.usage.input_tokens", json!(used("input_tokens"))),
            ("gen_ai.usage.output_tokens", json!(used("output_tokens"))),
            ("bastle.run.name", json!(run.name)),
            ("bastle.run.state", json!(run.state)),
            ("bastle.run.reason", json!(run.reason)),
            ("bastle.run.profile", json!(run.profile)),
            ("bastle.run.batch", json!(run.batch)),
            ("bastle.run.parent", json!(run.parent)),
            ("bastle.run.exit_code", json!(run.code)),
            ("bastle.run.denials", json!(run.denials)),
            ("bastle.model.tokens", json!((run.model_tokens > 0).then_some(run.model_tokens))),
            ("bastle.model.micro_usd", json!((run.micro_usd > 0).then_some(run.micro_usd))),
        ]),
    });
    if let Some(above) = raw.trace.as_ref().filter(|above| above.trace == own.trace) {
        span["parentSpanId"] = json!(above.span_hex());
    }
    span
}

fn said(event: &StoredEvent, word: &str) -> bool {
    event.kind == "agent" && event.data.get("said").and_then(Value::as_str) == Some(word)
}

/// A tool whose use begins with this event: its id, its name, and when it was over.
fn tool<'e>(event: &'e StoredEvent, all: &[StoredEvent], end: u64) -> Option<(&'e str, &'e str, u64)> {
    let field = |event: &'e StoredEvent, key: &str| event.data.get(key).and_then(Value::as_str);
    let (id, name) = (field(event, "id")?, field(event, "name")?);
    let same = |other: &&StoredEvent| {
        said(other, "tool") && other.data.get("id").and_then(Value::as_str) == Some(id)
    };
    let first = all.iter().find(same)?;
    if !said(event, "tool") || first.seq != event.seq {
        return None;
    }
    let last = all.iter().rev().find(same).filter(|last| last.seq != event.seq);
    Some((id, name, last.map_or(end, |last| last.time_ms)))
}
