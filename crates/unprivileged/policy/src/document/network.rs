//! The `net` section: rules as text or as objects, ranges of addresses, the way out.
//!
//! **Trust:** reads a file of an untrusted workspace.
use super::read::{MAX_ITEMS, Reader};
use super::{At, NetDefault, NetSection};
use crate::commands::List;
use crate::json::{Member, Node, Value};
use crate::net::{Cidr, UpstreamProxy};
use crate::netrule::{NetRule, NetTarget, RuleObject};
use crate::terms::Terms;
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

/// Most ranges of addresses, and most resolvers.
const MAX_RANGES: usize = 64;
const MAX_RESOLVERS: usize = 8;

/// Port of a name server that names none.
const DNS: u16 = 53;

impl Reader<'_> {
    pub(super) fn net(&mut self, node: &Node) -> NetSection {
        const KNOWN: &[&str] = &[
            "default",
            "allow",
            "ask",
            "deny",
            "ipLiterals",
            "ports",
            "listen",
            "addresses",
            "resolvers",
            "upstream",
            "models",
        ];
        let mut net = NetSection::default();
        for Member { key, value, .. } in self.members(node, KNOWN) {
            match key.as_str() {
                "default" => {
                    net.default = self.choice(value, &[("deny", NetDefault::Deny), ("ask", NetDefault::Ask)]);
                }
                "allow" => net.allow = Some(self.net_allow(value)),
                "ask" => net.ask = self.net_rules(value, List::Ask),
                "deny" => net.deny = self.net_rules(value, List::Deny),
                "ipLiterals" => net.ip_literals = self.flag(value),
                "ports" => net.ports = Some(self.ports(value)),
                "listen" => net.listen = Some(self.ports(value)),
                "addresses" => net.addresses = Some(self.addresses(value)),
                "resolvers" => net.resolvers = Some(self.resolvers(value)),
                "upstream" => net.upstream = self.upstream(value),
                "models" => net.models = self.models(value),
                _ => {}
            }
        }
        net
    }

    pub(super) fn flag(&mut self, node: &Node) -> Option<At<bool>> {
        match node.value {
            Value::Bool(flag) => Some(self.at(node.span, flag)),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                self.wrong(node, "true or false");
                None
            }
        }
    }

    fn net_rules(&mut self, node: &Node, which: List) -> Vec<At<NetRule>> {
        let mut texts = HashSet::new();
        let mut objects: Vec<RuleObject> = Vec::new();
        let mut taken: Vec<At<NetRule>> = Vec::new();
        for item in self.items(node, MAX_ITEMS) {
            let (shown, read) = match &item.value {
                Value::Object(_) => {
                    let Some(object) = self.rule_object(item, which) else {
                        continue;
                    };
                    if objects.contains(&object) {
                        self.fault(item.span, format!("{:?} is listed twice", object.rule));
                        continue;
                    }
                    let read = NetRule::new(&object.rule)
                        .and_then(|rule| Terms::read(&object).and_then(|terms| rule.with(terms)));
                    objects.push(object.clone());
                    (object.rule, read)
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    let Some(text) = self.text(item) else { continue };
                    if !texts.insert(text) {
                        self.fault(item.span, format!("{text:?} is listed twice"));
                        continue;
                    }
                    (text.to_owned(), NetRule::new(text))
                }
            };
            match read {
                Ok(rule) => {
                    let entry = self.at(item.span, rule);
                    if !taken.contains(&entry) {
                        taken.push(entry);
                    }
                }
                Err(why) => self.fault(item.span, format!("network rule {shown:?}: {why}")),
            }
        }
        taken
    }

    /// `{"rule": …, "rpc": […]}`; what only an allow rule can say is refused elsewhere.
    fn rule_object(&mut self, node: &Node, which: List) -> Option<RuleObject> {
        let known: &[&str] = match which {
            List::Allow => &[
                "rule",
                "rpc",
                "graphql",
                "maxBody",
                "websocket",
                "opaque",
                "headers",
            ],
            List::Ask | List::Deny => &["rule", "rpc", "graphql"],
        };
        let mut object = RuleObject::default();
        for Member { key, value, .. } in self.members(node, known) {
            match key.as_str() {
                "rule" => object.rule = self.text(value)?.to_owned(),
                "rpc" => object.rpc = Some(self.operations(value)),
                "graphql" => object.graphql = Some(self.operations(value)),
                "maxBody" => object.max_body = Some(self.text(value)?.to_owned()),
                "websocket" => object.websocket = self.flag(value)?.value,
                "opaque" => object.opaque = self.flag(value)?.value,
                "headers" => object.headers = Some(self.operations(value)),
                _ => {}
            }
        }
        if object.rule.is_empty() {
            self.fault(node.span, "a rule in braces needs \"rule\"");
            return None;
        }
        Some(object)
    }

    fn operations(&mut self, node: &Node) -> Vec<String> {
        self.strings(node).into_iter().map(|at| at.value).collect()
    }

    fn net_allow(&mut self, node: &Node) -> Vec<At<NetRule>> {
        let rules = self.net_rules(node, List::Allow);
        for rule in &rules {
            let NetTarget::Host(pattern) = &rule.value.target else {
                continue;
            };
            if pattern.host().is_forbidden() {
                let message = format!(
                    "{} names this machine or a metadata service and cannot be allowed",
                    rule.value
                );
                self.fault(node.span, message);
            }
        }
        rules
    }

    /// IP addresses in rules, when the document does not say `ipLiterals: true`.
    pub(super) fn refuse_literals(&mut self, root: &Node) {
        let lists = child(root, "net")
            .into_iter()
            .flat_map(|net| ["allow", "ask"].map(|list| child(net, list)));
        let items: Vec<&Node> = lists.flatten().flat_map(elements).collect();
        for item in items {
            let text = match &item.value {
                Value::String(text) => text,
                Value::Object(_) => match child(item, "rule").map(|rule| &rule.value) {
                    Some(Value::String(text)) => text,
                    Some(_) | None => continue,
                },
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => continue,
            };
            let literal = NetRule::new(text).is_ok_and(
                |rule| matches!(&rule.target, NetTarget::Host(pattern) if pattern.host().is_literal()),
            );
            if literal {
                let help = Some("set net.ipLiterals to true to name addresses".to_owned());
                self.fault_with_help(item.span, format!("{text:?} is an IP address"), help);
            }
        }
    }

    fn addresses(&mut self, node: &Node) -> Vec<At<Cidr>> {
        let ranges = self.list(node, |reader, item, text| match Cidr::new(text) {
            Ok(range) => Some(range),
            Err(why) => {
                reader.fault(item.span, why);
                None
            }
        });
        self.at_most(node, ranges, MAX_RANGES)
    }

    fn resolvers(&mut self, node: &Node) -> Vec<At<SocketAddr>> {
        let resolvers = self.list(node, |reader, item, text| {
            let address = resolver(text);
            if address.is_none() {
                reader.fault(item.span, format!("{text:?} is not ADDRESS or ADDRESS:PORT"));
            }
            address
        });
        self.at_most(node, resolvers, MAX_RESOLVERS)
    }

    fn at_most<T>(&mut self, node: &Node, list: Vec<At<T>>, most: usize) -> Vec<At<T>> {
        if list.len() > most {
            self.fault(
                node.span,
                format!("{} entries; at most {most} are accepted", list.len()),
            );
        }
        list
    }

    fn upstream(&mut self, node: &Node) -> Option<At<UpstreamProxy>> {
        let text = self.text(node)?;
        match UpstreamProxy::new(text) {
            Ok(upstream) => Some(self.at(node.span, upstream)),
            Err(why) => {
                self.fault(node.span, why);
                None
            }
        }
    }
}

/// `ADDRESS`, `ADDRESS:PORT` or `[ADDRESS]:PORT`; nothing that is no single place.
fn resolver(text: &str) -> Option<SocketAddr> {
    let address = match text.parse::<IpAddr>() {
        Ok(address) => SocketAddr::new(address, DNS),
        Err(_) => text.parse::<SocketAddr>().ok()?,
    };
    let place = address.ip();
    (address.port() > 0 && !place.is_unspecified() && !place.is_multicast()).then_some(address)
}

fn child<'n>(node: &'n Node, key: &str) -> Option<&'n Node> {
    match &node.value {
        Value::Object(members) => members.iter().find(|m| m.key == key).map(|m| &m.value),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
    }
}

fn elements(node: &Node) -> &[Node] {
    match &node.value {
        Value::Array(items) => items,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => &[],
    }
}
