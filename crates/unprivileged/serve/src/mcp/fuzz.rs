//! What must hold of every call of a tool that is carried out, whatever a model wrote.
use super::schema::{At, check, request};
use super::tools::table;
use super::{prompts, resources};
use crate::json;
use axum::http::Uri;
use serde_json::{Map, Value};

/// Bytes as the parameters of `tools/call`, `resources/read` and `prompts/get`.
pub(crate) fn fuzz(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Some((name, _)) = resources::parse(text)
    {
        assert!(!name.is_empty() && name.len() <= 64, "{name}");
    }
    let Ok(Value::Object(mut params)) = json::value(bytes) else {
        return;
    };
    let Some(Value::Object(arguments)) = params.remove("arguments") else {
        return;
    };
    let named = params.get("name").and_then(Value::as_str).unwrap_or_default();
    drop(prompts::get(named, &arguments));
    for tool in table() {
        match check(tool.params, &arguments) {
            Ok(()) => carried(tool.operation, tool.params, &arguments),
            Err(wrong) => assert!(!wrong.chars().any(char::is_control), "{wrong:?}"),
        }
    }
}

/// The arguments stay in their places: no name of a worker leads to another operation.
fn carried(operation: &str, params: &[super::schema::Param], arguments: &Map<String, Value>) {
    let rest = request(operation, params, arguments);
    let uri = rest.path.parse::<Uri>();
    assert!(uri.is_ok(), "no address: {}", rest.path);
    let Ok(uri) = uri else {
        return;
    };
    let (_, meant) = operation.split_once(' ').unwrap_or_default();
    let (there, wanted): (Vec<&str>, Vec<&str>) =
        (uri.path().split('/').collect(), meant.split('/').collect());
    assert_eq!(there.len(), wanted.len(), "{operation}: {uri}");
    for (there, wanted) in there.iter().zip(wanted) {
        assert!(wanted.starts_with('{') || *there == wanted, "{operation}: {uri}");
    }
    let is = |name: &str, place: At| params.iter().any(|param| param.name == name && param.at == place);
    for pair in uri.query().into_iter().flat_map(|query| query.split('&')) {
        let name = pair.split('=').next().unwrap_or_default();
        assert!(is(name, At::Query), "{operation}: {uri}");
    }
    for name in rest.body.iter().filter_map(Value::as_object).flat_map(Map::keys) {
        assert!(is(name, At::Body), "{operation}: {name}");
    }
}
