//! `net.models`: endpoints of models that the built-in data does not know.
//!
//! **Trust:** reads a file of an untrusted workspace.
use super::At;
use super::read::Reader;
use crate::host::HostPattern;
use crate::json::{Member, Node};
use crate::net::{Declared, ModelApi, ModelEndpoint, ModelPrice};
use crate::urlpath::check_path;
use serde_json::{Map, Value, json};

/// Most entries, and most paths of one.
const MAX_MODELS: usize = 64;
/// Dearest price taken, in dollars for a million tokens.
const MAX_PRICE: f64 = 1_000_000.0;

impl Reader<'_> {
    pub(super) fn models(&mut self, node: &Node) -> Vec<At<ModelEndpoint>> {
        let mut taken: Vec<At<ModelEndpoint>> = Vec::new();
        for item in self.items(node, MAX_MODELS) {
            if let Some(endpoint) = self.endpoint(item) {
                taken.push(self.at(item.span, endpoint));
            }
        }
        taken
    }

    fn endpoint(&mut self, node: &Node) -> Option<ModelEndpoint> {
        let (mut host, mut port, mut paths) = (None, None, Vec::new());
        let (mut api, mut price) = (Declared::Any, None);
        for Member { key, value, .. } in self.members(node, &["host", "port", "paths", "api", "price"]) {
            match key.as_str() {
                "host" => {
                    let text = self.text(value)?;
                    match HostPattern::new(text) {
                        Ok(pattern) => host = Some(pattern),
                        Err(why) => self.fault(value.span, why.to_string()),
                    }
                }
                "port" => port = Some(self.port(value)?),
                "paths" => paths = self.model_paths(value),
                "api" => {
                    let text = self.text(value)?;
                    match Declared::parse(text) {
                        Some(declared) => api = declared,
                        None => {
                            let known: Vec<&str> = ModelApi::ALL.iter().map(|api| api.name()).collect();
                            self.fault_with_help(
                                value.span,
                                format!("{text:?} is no known API of models"),
                                Some(format!("any, none, {}", known.join(", "))),
                            );
                        }
                    }
                }
                "price" => price = Some(self.price(value)?),
                _ => {}
            }
        }
        let Some(host) = host else {
            self.fault(node.span, "an endpoint of a model needs \"host\"");
            return None;
        };
        if api == Declared::None && (!paths.is_empty() || price.is_some()) {
            self.fault(
                node.span,
                "\"api\": \"none\" says that no model answers there: it has no paths and no price",
            );
        }
        Some(ModelEndpoint {
            host,
            port,
            paths,
            api,
            price,
        })
    }

    fn port(&mut self, node: &Node) -> Option<u16> {
        let number = self.whole(node)?.value;
        match u16::try_from(number) {
            Ok(port) if port > 0 => Some(port),
            Ok(_) | Err(_) => {
                self.fault(node.span, "a port lies between 1 and 65535");
                None
            }
        }
    }

    fn model_paths(&mut self, node: &Node) -> Vec<String> {
        let mut paths = Vec::new();
        for at in self.strings(node) {
            match check_path(&at.value) {
                Ok(path) if path.starts_with('/') => paths.push(path),
                Ok(path) => self.fault(node.span, format!("path {path:?} must begin with a slash")),
                Err(why) => self.fault(node.span, why),
            }
        }
        if paths.is_empty() || paths.len() > MAX_MODELS {
            self.fault(node.span, format!("1 to {MAX_MODELS} paths"));
        }
        paths
    }

    fn price(&mut self, node: &Node) -> Option<ModelPrice> {
        let mut price = ModelPrice {
            input: 0,
            output: 0,
            cache_read: 0,
            cache_write: 0,
        };
        let known = ["input", "output", "cacheRead", "cacheWrite"];
        let members = self.members(node, &known);
        for name in &known[..2] {
            if !members.iter().any(|member| member.key == *name) {
                self.fault(
                    node.span,
                    format!("a price needs {name:?}, in dollars for a million tokens"),
                );
                return None;
            }
        }
        for Member { key, value, .. } in members {
            let dollars = self.number(value)?;
            if !(0.0..=MAX_PRICE).contains(&dollars) {
                self.fault(
                    value.span,
                    "a price is 0 or more, in dollars for a million tokens",
                );
                return None;
            }
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the range was checked above"
            )]
            let nano = (dollars * 1000.0).round() as u64;
            match key.as_str() {
                "input" => price.input = nano,
                "output" => price.output = nano,
                "cacheRead" => price.cache_read = nano,
                "cacheWrite" => price.cache_write = nano,
                _ => {}
            }
        }
        Some(price)
    }
}

/// An endpoint as it is written.
pub(super) fn print(endpoint: &ModelEndpoint) -> Value {
    let mut object = Map::new();
    object.insert("host".to_owned(), json!(endpoint.host.to_string()));
    if let Some(port) = endpoint.port {
        object.insert("port".to_owned(), json!(port));
    }
    if !endpoint.paths.is_empty() {
        object.insert("paths".to_owned(), json!(endpoint.paths));
    }
    if endpoint.api != Declared::Any {
        object.insert("api".to_owned(), json!(endpoint.api.name()));
    }
    if let Some(price) = endpoint.price {
        let dollars = |nano: u64| json!(nano as f64 / 1000.0);
        let price = json!({
            "input": dollars(price.input), "output": dollars(price.output),
            "cacheRead": dollars(price.cache_read), "cacheWrite": dollars(price.cache_write),
        });
        object.insert("price".to_owned(), price);
    }
    Value::Object(object)
}
