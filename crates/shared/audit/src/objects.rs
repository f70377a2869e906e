//! The OCSF objects that records are made of.
use crate::sanitize::cut;
use bastle_contract::RunId;
use serde_json::{Value, json};

/// The OCSF version whose classes are used.
pub(crate) const OCSF_VERSION: &str = "1.8.0";

/// Longest text of a descriptive field. The full text stands in the payload.
const MOST_TEXT: usize = 1024;

/// A descriptive field.
pub(crate) fn text(text: &str) -> &str {
    cut(text, MOST_TEXT)
}

/// bastle itself, as the one who reports.
pub(crate) fn product() -> Value {
    json!({ "name": "bastle", "vendor_name": "bastle", "version": env!("CARGO_PKG_VERSION") })
}

/// bastle itself, as the one who acts.
pub(crate) fn actor_bastle() -> Value {
    json!({ "app_name": "bastle" })
}

/// A process of the agent, as the one who acts.
pub(crate) fn actor_agent(run: &RunId, pid: u32, comm: &str) -> Value {
    json!({ "app_name": "agent", "app_uid": run.as_str(), "process": { "name": text(comm), "pid": pid } })
}

/// The sandbox, as the machine on which the agent acts. 6: virtual.
pub(crate) fn device(run: &RunId) -> Value {
    json!({ "name": "sandbox", "type_id": 6, "uid": run.as_str() })
}

/// Where a request came from: this host.
pub(crate) fn here() -> Value {
    json!({ "name": "localhost" })
}

/// The sandbox, as the end of a connection.
pub(crate) fn sandbox(run: &RunId) -> Value {
    json!({ "name": "sandbox", "uid": run.as_str() })
}

/// The other end of a connection: its name, and its address and port where they are known.
pub(crate) fn peer(host: &str, address: Option<std::net::IpAddr>, port: u16) -> Value {
    let mut peer = json!({ "hostname": text(host) });
    if let Some(object) = peer.as_object_mut() {
        if let Some(address) = address {
            object.insert("ip".into(), address.to_string().into());
        }
        if port != 0 {
            object.insert("port".into(), port.into());
        }
    }
    peer
}

/// The agent, where nobody can tell which of its processes.
pub(crate) fn actor_run(run: &RunId) -> Value {
    json!({ "app_name": "agent", "app_uid": run.as_str() })
}

/// The run, as an application that starts and stops.
pub(crate) fn app(run: &RunId) -> Value {
    json!({ "name": "agent run", "uid": run.as_str() })
}

/// The run, as what a request is about.
pub(crate) fn resources(run: &RunId) -> Value {
    json!([{ "name": run.as_str(), "type": "run", "uid": run.as_str() }])
}

/// An operation of a named service.
pub(crate) fn api(service: &str, operation: &str) -> Value {
    json!({ "operation": text(operation), "service": { "name": service } })
}

/// A file by its path. 0: nobody looked what kind it is.
pub(crate) fn file(path: &str) -> Value {
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let name = if name.is_empty() { path } else { name };
    json!({ "name": text(name), "path": path, "type_id": 0 })
}

/// A process by its program and arguments.
pub(crate) fn process(pid: u32, path: &str, argv: &[String]) -> Value {
    let mut line = String::new();
    for argument in argv {
        if line.len() >= MOST_TEXT {
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(argument);
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut process = json!({ "file": file(path), "name": text(name), "pid": pid });
    if let Some(object) = process.as_object_mut().filter(|_| !line.is_empty()) {
        object.insert("cmd_line".into(), Value::from(text(&line)));
    }
    process
}
