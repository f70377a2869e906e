//! From [`Document`] back to text that reads as the same document.
use super::{At, CommandLists, Decided, Document, Mode, NetDefault, OnExceed, OnTimeout, Reference, Section};
use crate::caches::CacheMerge;
use crate::net::SecretHeader;
use crate::netrule::NetRule;
use crate::units::{show_duration, show_size};
use bastle_contract::LimitKind;
use serde_json::{Map, Value, json};

impl Document {
    /// The document as JSON text.
    #[must_use]
    pub fn to_json(&self) -> String {
        format!("{:#}", Value::Object(self.object()))
    }

    pub(crate) fn object(&self) -> Map<String, Value> {
        let mut root = Map::new();
        put(&mut root, "$schema", self.schema.as_ref().map(|s| json!(s)));
        put(&mut root, "version", Some(json!(1)));
        put(&mut root, "extends", list(&self.extends, reference));
        put(
            &mut root,
            "mode",
            self.mode.as_ref().map(|at| json!(mode(at.value))),
        );
        put(
            &mut root,
            "lock",
            list(&self.lock, |section| section_name(*section).to_owned()),
        );
        if !self.system.is_empty() {
            put(&mut root, "system", Some(json!({ "read": texts(&self.system) })));
        }
        put(&mut root, "fs", self.fs_object());
        put(&mut root, "net", self.net_object());
        put(&mut root, "exec", commands(&self.exec));
        put(&mut root, "tools", commands(&self.tools));
        put(&mut root, "env", self.env_object());
        put(&mut root, "secrets", self.secrets_list());
        put(&mut root, "git", self.git_object());
        put(&mut root, "limits", self.limits_object());
        put(&mut root, "cache", list(&self.cache, Clone::clone));
        let merge = |merge: CacheMerge| match merge {
            CacheMerge::Never => "never",
            CacheMerge::NewFiles => "new-files",
        };
        put(
            &mut root,
            "cacheMerge",
            self.cache_merge.as_ref().map(|at| json!(merge(at.value))),
        );
        put(
            &mut root,
            "minLandlockAbi",
            self.min_landlock_abi.as_ref().map(|at| json!(at.value)),
        );
        put(&mut root, "budget", self.budget_object());
        put(&mut root, "approvals", self.approvals_object());
        put(&mut root, "audit", self.audit_object());
        if !self.tests.is_empty() {
            let tests = self
                .tests
                .iter()
                .map(|at| json!({ "can": at.value.can, "is": decided(at.value.is) }));
            put(&mut root, "tests", Some(Value::Array(tests.collect())));
        }
        root
    }

    fn fs_object(&self) -> Option<Value> {
        let mut fs = Map::new();
        put(&mut fs, "read", self.fs.read.as_deref().map(texts));
        put(&mut fs, "write", self.fs.write.as_deref().map(texts));
        put(&mut fs, "hide", list(&self.fs.hide, ToString::to_string));
        put(&mut fs, "protect", list(&self.fs.protect, ToString::to_string));
        filled(fs)
    }

    fn net_object(&self) -> Option<Value> {
        let mut net = Map::new();
        let default = |d: NetDefault| match d {
            NetDefault::Deny => "deny",
            NetDefault::Ask => "ask",
        };
        let ports = |ports: &Vec<At<u16>>| json!(ports.iter().map(|at| at.value).collect::<Vec<_>>());
        put(
            &mut net,
            "default",
            self.net.default.as_ref().map(|at| json!(default(at.value))),
        );
        put(&mut net, "allow", self.net.allow.as_deref().map(rules));
        let stated = |list: &[At<NetRule>]| (!list.is_empty()).then(|| rules(list));
        put(&mut net, "ask", stated(&self.net.ask));
        put(&mut net, "deny", stated(&self.net.deny));
        put(
            &mut net,
            "ipLiterals",
            self.net.ip_literals.as_ref().map(|at| json!(at.value)),
        );
        put(&mut net, "ports", self.net.ports.as_ref().map(ports));
        put(&mut net, "listen", self.net.listen.as_ref().map(ports));
        put(&mut net, "addresses", self.net.addresses.as_deref().map(texts));
        put(&mut net, "resolvers", self.net.resolvers.as_deref().map(texts));
        let upstream = self.net.upstream.as_ref();
        put(
            &mut net,
            "upstream",
            upstream.map(|at| json!(at.value.to_string())),
        );
        let models: Vec<Value> = self
            .net
            .models
            .iter()
            .map(|at| super::models::print(&at.value))
            .collect();
        put(
            &mut net,
            "models",
            (!models.is_empty()).then_some(Value::Array(models)),
        );
        filled(net)
    }

    fn env_object(&self) -> Option<Value> {
        let mut env = Map::new();
        let pass = self
            .env
            .pass
            .as_ref()
            .map(|names| json!(names.iter().map(|at| at.value.as_str()).collect::<Vec<_>>()));
        put(&mut env, "pass", pass);
        let set: Map<String, Value> = self
            .env
            .set
            .iter()
            .map(|(name, value)| (name.value.as_str().to_owned(), json!(value)))
            .collect();
        put(&mut env, "set", filled(set));
        filled(env)
    }

    fn secrets_list(&self) -> Option<Value> {
        let secrets = self.secrets.iter().map(|at| {
            let hosts: Vec<String> = at.value.hosts.iter().map(ToString::to_string).collect();
            let mut secret = Map::new();
            put(&mut secret, "name", Some(json!(at.value.name.as_str())));
            put(&mut secret, "from", Some(json!(at.value.from)));
            put(&mut secret, "hosts", Some(json!(hosts)));
            put(
                &mut secret,
                "methods",
                (!at.value.methods.is_empty()).then(|| json!(at.value.methods)),
            );
            put(
                &mut secret,
                "paths",
                (!at.value.paths.is_empty()).then(|| json!(at.value.paths)),
            );
            put(
                &mut secret,
                "ports",
                (!at.value.ports.is_empty()).then(|| json!(at.value.ports)),
            );
            let usual = at.value.header == SecretHeader::default();
            put(
                &mut secret,
                "header",
                (!usual).then(|| json!(at.value.header.to_string())),
            );
            Value::Object(secret)
        });
        let secrets: Vec<Value> = secrets.collect();
        (!secrets.is_empty()).then_some(Value::Array(secrets))
    }

    fn git_object(&self) -> Option<Value> {
        let mut git = Map::new();
        put(
            &mut git,
            "push",
            self.git.push.as_ref().map(|at| json!(decided(at.value))),
        );
        put(
            &mut git,
            "forcePush",
            self.git.force_push.as_ref().map(|at| json!(decided(at.value))),
        );
        put(&mut git, "branches", self.git.branches.as_deref().map(texts));
        put(&mut git, "remotes", self.git.remotes.as_deref().map(texts));
        put(&mut git, "hosts", self.git.hosts.as_deref().map(texts));
        put(
            &mut git,
            "pushOptions",
            self.git.push_options.as_deref().map(texts),
        );
        filled(git)
    }

    fn limits_object(&self) -> Option<Value> {
        let mut limits = Map::new();
        for (kind, at) in &self.limits.0 {
            let shown = match kind {
                LimitKind::WallTime => json!(show_duration(at.value)),
                LimitKind::CpuTime => json!(format!("{}s", at.value)),
                LimitKind::Cpu => cpu(at.value),
                LimitKind::Memory
                | LimitKind::Disk
                | LimitKind::BytesWritten
                | LimitKind::Output
                | LimitKind::FileSize
                | LimitKind::DiskReserve => {
                    json!(show_size(at.value))
                }
                LimitKind::Pids | LimitKind::OpenFiles | LimitKind::Inodes | LimitKind::Files => {
                    json!(at.value)
                }
            };
            put(&mut limits, kind.name(), Some(shown));
        }
        filled(limits)
    }

    fn budget_object(&self) -> Option<Value> {
        let mut budget = Map::new();
        let exceed = |e: OnExceed| match e {
            OnExceed::Pause => "pause",
            OnExceed::Stop => "stop",
        };
        put(
            &mut budget,
            "usd",
            self.budget.usd.as_ref().map(|at| json!(at.value)),
        );
        put(
            &mut budget,
            "tokens",
            self.budget.tokens.as_ref().map(|at| json!(at.value)),
        );
        put(
            &mut budget,
            "turns",
            self.budget.turns.as_ref().map(|at| json!(at.value)),
        );
        for (key, bytes) in [
            ("bytesOut", &self.budget.bytes_out),
            ("bytesIn", &self.budget.bytes_in),
        ] {
            put(
                &mut budget,
                key,
                bytes.as_ref().map(|at| json!(show_size(at.value))),
            );
        }
        for (key, number) in [
            ("requests", &self.budget.requests),
            ("connections", &self.budget.connections),
        ] {
            put(&mut budget, key, number.as_ref().map(|at| json!(at.value)));
        }
        put(
            &mut budget,
            "onExceed",
            self.budget.on_exceed.as_ref().map(|at| json!(exceed(at.value))),
        );
        filled(budget)
    }

    fn approvals_object(&self) -> Option<Value> {
        let mut approvals = Map::new();
        let timeout = |t: OnTimeout| match t {
            OnTimeout::Deny => "deny",
            OnTimeout::Pause => "pause",
        };
        put(
            &mut approvals,
            "timeout",
            self.approvals
                .timeout
                .as_ref()
                .map(|at| json!(show_duration(at.value))),
        );
        put(
            &mut approvals,
            "onTimeout",
            self.approvals
                .on_timeout
                .as_ref()
                .map(|at| json!(timeout(at.value))),
        );
        put(
            &mut approvals,
            "reviewers",
            list(&self.approvals.reviewers, Clone::clone),
        );
        filled(approvals)
    }

    fn audit_object(&self) -> Option<Value> {
        let mut audit = Map::new();
        put(
            &mut audit,
            "level",
            self.audit.level.as_ref().map(|at| json!(at.value)),
        );
        put(&mut audit, "redact", list(&self.audit.redact, Clone::clone));
        put(
            &mut audit,
            "canary",
            self.audit.canary.as_ref().map(|at| json!(at.value)),
        );
        filled(audit)
    }
}

fn put(object: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    if let Some(value) = value {
        object.insert(key.to_owned(), value);
    }
}

fn filled(object: Map<String, Value>) -> Option<Value> {
    (!object.is_empty()).then_some(Value::Object(object))
}

fn texts<T: ToString>(list: &[At<T>]) -> Value {
    Value::Array(
        list.iter()
            .map(|at| Value::String(at.value.to_string()))
            .collect(),
    )
}

/// Rules as text, or as objects where they ask for more than text says.
fn rules(list: &[At<NetRule>]) -> Value {
    Value::Array(list.iter().map(|at| json!(at.value)).collect())
}

fn list<T>(list: &[At<T>], show: impl Fn(&T) -> String) -> Option<Value> {
    let shown: Vec<Value> = list.iter().map(|at| Value::String(show(&at.value))).collect();
    (!shown.is_empty()).then_some(Value::Array(shown))
}

fn commands(lists: &CommandLists) -> Option<Value> {
    let mut object = Map::new();
    put(&mut object, "allow", lists.allow.as_deref().map(texts));
    put(&mut object, "ask", list(&lists.ask, Clone::clone));
    put(&mut object, "deny", list(&lists.deny, Clone::clone));
    filled(object)
}

/// Whole processors as whole numbers, so that what is printed reads as it was written.
fn cpu(thousandths: u64) -> Value {
    if thousandths.is_multiple_of(1000) {
        return json!(thousandths / 1000);
    }
    // At most 2^43 thousandths are accepted: exact in a double.
    #[expect(clippy::cast_precision_loss, reason = "see above")]
    let number = thousandths as f64 / 1000.0;
    json!(number)
}

fn reference(reference: &Reference) -> String {
    let (kind, name, version) = match reference {
        Reference::Preset(name, version) => ("preset", name, version),
        Reference::Group(group) => ("group", &group.name, &group.version),
    };
    version.map_or(format!("{kind}:{name}"), |version| {
        format!("{kind}:{name}@{version}")
    })
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Learn => "learn",
        Mode::Audit => "audit",
        Mode::Enforce => "enforce",
    }
}

fn decided(decided: Decided) -> &'static str {
    match decided {
        Decided::Allow => "allow",
        Decided::Ask => "ask",
        Decided::Deny => "deny",
    }
}

fn section_name(section: Section) -> &'static str {
    match section {
        Section::Fs => "fs",
        Section::Net => "net",
        Section::Exec => "exec",
        Section::Tools => "tools",
        Section::Git => "git",
        Section::Limits => "limits",
    }
}
