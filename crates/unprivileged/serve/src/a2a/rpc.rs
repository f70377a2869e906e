//! The binding JSON-RPC: one address, one call each.
use super::calls::{Done, Op, extensions, perform, version};
use super::rest::{MOST_BODY, caller, is_json, streamed, tell_extensions, told};
use super::wrong::{Kind, Wrong};
use crate::app::App;
use crate::guard::Who;
use crate::json;
use crate::routes::extract::bytes_of;
use axum::body::Body;
use axum::extract::{RawPathParams, Request, State};
use axum::http::{Response, StatusCode};
use serde_json::{Map, Value, json};

/// Longest id of a call.
const MOST_ID: usize = 256;

/// One call.
pub(super) async fn serve(
    State(app): State<App>,
    who: Who,
    path: RawPathParams,
    request: Request,
) -> Response<Body> {
    let extensions = extensions(request.headers());
    let mut id = Value::Null;
    let mut response = match call(app, who, &path, request, &mut id).await {
        Ok(Done::Value(value)) => {
            let value = json!({ "jsonrpc": "2.0", "id": id, "result": value });
            told(StatusCode::OK, "application/json", &value)
        }
        Ok(Done::Stream(stream)) => streamed(*stream, Some(id)),
        Err(wrong) => refused(&id, &wrong),
    };
    tell_extensions(&mut response, extensions);
    response
}

/// A refusal: a good answer of HTTP, unless it is about the connection.
pub(super) fn refused(id: &Value, wrong: &Wrong) -> Response<Body> {
    let status = if wrong.kind.of_transport() {
        wrong.kind.status()
    } else {
        StatusCode::OK
    };
    told(status, "application/json", &wrong.rpc(id))
}

async fn call(
    app: App,
    who: Who,
    path: &RawPathParams,
    request: Request,
    id: &mut Value,
) -> Result<Done, Wrong> {
    // Before the body is looked at: what is no JSON is not parsed.
    is_json(request.headers())?;
    let named = path
        .iter()
        .find(|(name, _)| *name == "run")
        .map(|(_, value)| value);
    let (parts, body) = request.into_parts();
    let told = crate::routes::runs::told(&who.0);
    let bytes = bytes_of(body, MOST_BODY)
        .await
        .map_err(|refusal| Wrong::of(&refusal, told))?;
    let (method, params) = envelope(&bytes, id)?;
    version(&parts.headers, &parts.uri)?;
    let op = Op::of(&method).ok_or_else(|| {
        Wrong::new(
            Kind::Method,
            format!("there is no method {}", crate::dto::plain(&method)),
        )
    })?;
    let call = caller(app, who, named, &parts.headers).await?;
    perform(call, op, params).await
}

/// The method and the parameters of a call; its id as soon as it is known.
pub(super) fn envelope(bytes: &[u8], id: &mut Value) -> Result<(String, Map<String, Value>), Wrong> {
    let value = json::value(bytes).map_err(|wrong| Wrong::new(Kind::Parse, wrong.to_string()))?;
    let bad = |why: &str| Wrong::new(Kind::Request, why);
    let Value::Object(mut members) = value else {
        return Err(bad("one call is one object"));
    };
    let given = match members.remove("id") {
        Some(Value::String(given)) if given.len() <= MOST_ID => Value::String(given),
        Some(given @ Value::Number(_)) => given,
        Some(_) => return Err(bad("an id is a text or a number")),
        None => return Err(bad("a call has an id")),
    };
    *id = given;
    if members.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(bad("jsonrpc is \"2.0\""));
    }
    let Some(Value::String(method)) = members.remove("method") else {
        return Err(bad("a call names a method"));
    };
    match members.remove("params") {
        None | Some(Value::Null) => Ok((method, Map::new())),
        Some(Value::Object(params)) => Ok((method, params)),
        Some(_) => Err(Wrong::field("params", "an object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_call_is_refused_with_the_number_that_says_why() {
        for (text, kind) in [
            ("", Kind::Parse),
            ("{", Kind::Parse),
            ("{\"id\":1,\"id\":2}", Kind::Parse),
            ("[]", Kind::Request),
            (
                "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"GetTask\"}]",
                Kind::Request,
            ),
            ("1", Kind::Request),
            ("{\"jsonrpc\":\"2.0\",\"method\":\"GetTask\"}", Kind::Request),
            (
                "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"GetTask\"}",
                Kind::Request,
            ),
            (
                "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"GetTask\"}",
                Kind::Request,
            ),
            ("{\"jsonrpc\":\"2.0\",\"id\":1}", Kind::Request),
            (
                "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"GetTask\",\"params\":[]}",
                Kind::Params,
            ),
        ] {
            assert_eq!(
                envelope(text.as_bytes(), &mut Value::Null).unwrap_err().kind,
                kind,
                "{text}"
            );
        }
        let mut id = Value::Null;
        let call = envelope(
            b"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"GetTask\"}",
            &mut id,
        );
        assert_eq!((call.unwrap().0.as_str(), id), ("GetTask", json!("a")));
    }

    #[test]
    fn no_bytes_make_an_envelope_fail_otherwise() {
        let text =
            br#"{"jsonrpc":"2.0","id":"a","method":"ListTasks","params":{"pageSize":3,"x":[1,{"y":null}]}}"#;
        for at in 0..text.len() {
            drop(envelope(&text[..at], &mut Value::Null));
            for flip in [1u8, 0x20, 0x80, 0xff] {
                let mut bent = text.to_vec();
                bent[at] ^= flip;
                drop(envelope(&bent, &mut Value::Null));
            }
        }
    }
}
