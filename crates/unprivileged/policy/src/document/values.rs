//! Sections made of single values: secrets, git, limits, budget, approvals, audit, tests.
use super::read::{MAX_ITEMS, Reader};
use super::{
    Approvals, At, AuditLevel, AuditSection, Budget, Decided, GitSection, Limits, OnExceed, OnTimeout,
    Secret, TestCase,
};
use crate::host::HostPattern;
use crate::json::{Member, Node};
use crate::net::SecretHeader;
use crate::query::Query;
use crate::units;
use crate::urlpath::check_path;
use bastle_contract::{LandlockPart, LandlockParts, LimitKind};

/// Most `tests`.
const MAX_TESTS: usize = 200;

/// Beyond 2^53 - 1 a number is not the same to every reader of JSON (RFC 8259, section 6).
const MOST_EXACT: u64 = (1 << 53) - 1;

impl Reader<'_> {
    pub(super) fn secrets(&mut self, node: &Node) -> Vec<At<Secret>> {
        let mut secrets = Vec::new();
        for item in self.items(node, MAX_ITEMS) {
            if let Some(secret) = self.secret(item) {
                secrets.push(self.at(item.span, secret));
            }
        }
        secrets
    }

    pub(crate) fn secret(&mut self, node: &Node) -> Option<Secret> {
        const KNOWN: &[&str] = &["name", "from", "hosts", "methods", "paths", "ports", "header"];
        let members = self.members(node, KNOWN);
        let (mut name, mut from, mut hosts) = (None, None, None);
        let (mut methods, mut paths, mut ports, mut header) =
            (Vec::new(), Vec::new(), Vec::new(), SecretHeader::default());
        for Member { key, value, .. } in members {
            match key.as_str() {
                "name" => {
                    let text = self.text(value)?;
                    if text.bytes().any(|b| b.is_ascii_lowercase()) {
                        self.fault(value.span, "a secret's name is upper case");
                    }
                    name = self.env_name(value.span, text);
                }
                "from" => from = self.text(value).map(str::to_owned),
                "hosts" => {
                    hosts = Some(
                        self.list(value, host_pattern)
                            .into_iter()
                            .map(|at| at.value)
                            .collect(),
                    )
                }
                "methods" => methods = self.list(value, method).into_iter().map(|at| at.value).collect(),
                "paths" => paths = self.list(value, path).into_iter().map(|at| at.value).collect(),
                "ports" => ports = self.ports(value).into_iter().map(|at| at.value).collect(),
                "header" => header = self.header(value)?,
                _ => {}
            }
        }
        match (name, from, hosts) {
            (Some(name), Some(from), Some(hosts)) => Some(Secret {
                name,
                from,
                hosts,
                methods,
                paths,
                ports,
                header,
            }),
            (name, from, hosts) => {
                let missing = [
                    ("name", name.is_none()),
                    ("from", from.is_none()),
                    ("hosts", hosts.is_none()),
                ];
                let names: Vec<&str> = missing
                    .iter()
                    .filter(|(_, gone)| *gone)
                    .map(|(n, _)| *n)
                    .collect();
                self.fault(node.span, format!("a secret needs {}", names.join(", ")));
                None
            }
        }
    }

    fn header(&mut self, node: &Node) -> Option<SecretHeader> {
        match SecretHeader::new(self.text(node)?) {
            Ok(header) => Some(header),
            Err(why) => {
                self.fault(node.span, why);
                None
            }
        }
    }

    pub(super) fn decided(&mut self, node: &Node) -> Option<At<Decided>> {
        self.choice(
            node,
            &[
                ("allow", Decided::Allow),
                ("ask", Decided::Ask),
                ("deny", Decided::Deny),
            ],
        )
    }

    pub(super) fn git(&mut self, node: &Node) -> GitSection {
        const KNOWN: &[&str] = &["push", "forcePush", "branches", "remotes", "hosts", "pushOptions"];
        let mut git = GitSection::default();
        for Member { key, value, .. } in self.members(node, KNOWN) {
            match key.as_str() {
                "push" => git.push = self.decided(value),
                "forcePush" => git.force_push = self.decided(value),
                "branches" => git.branches = Some(self.strings(value)),
                "remotes" => git.remotes = Some(self.strings(value)),
                "pushOptions" => git.push_options = Some(self.strings(value)),
                "hosts" => {
                    git.hosts = Some(
                        self.list(value, |reader, item, text| match HostPattern::new(text) {
                            Ok(_) => Some(text.to_owned()),
                            Err(why) => {
                                reader.fault(item.span, why.to_string());
                                None
                            }
                        }),
                    );
                }
                _ => {}
            }
        }
        git
    }

    pub(crate) fn unit(
        &mut self,
        node: &Node,
        read: fn(&str) -> Option<u64>,
        example: &str,
    ) -> Option<At<u64>> {
        let text = self.text(node)?;
        match read(text) {
            Some(value) if value <= MOST_EXACT => return Some(self.at(node.span, value)),
            Some(_) => self.fault(node.span, format!("{text:?} is too large")),
            None => self.fault(
                node.span,
                format!("{text:?} is not understood; write it like {example}"),
            ),
        }
        None
    }

    pub(super) fn limits(&mut self, node: &Node) -> Limits {
        let names = LimitKind::ALL.map(LimitKind::name);
        let mut limits = Vec::new();
        for Member { key, value, .. } in self.members(node, &names) {
            let Some(kind) = LimitKind::ALL.into_iter().find(|kind| kind.name() == key) else {
                continue;
            };
            let read = match kind {
                LimitKind::WallTime => self.unit(value, units::duration, "\"30m\""),
                LimitKind::CpuTime => self.unit(value, units::duration, "\"10m\"").map(|at| At {
                    value: at.value.div_ceil(1000),
                    ..at
                }),
                LimitKind::Cpu => self.cpu(value),
                LimitKind::Memory
                | LimitKind::Disk
                | LimitKind::BytesWritten
                | LimitKind::Output
                | LimitKind::FileSize
                | LimitKind::DiskReserve => self.unit(value, units::size, "\"4GiB\""),
                LimitKind::Pids | LimitKind::OpenFiles | LimitKind::Inodes | LimitKind::Files => {
                    self.whole(value)
                }
            };
            limits.extend(read.map(|at| (kind, at)));
        }
        limits.sort_by_key(|(kind, _)| *kind);
        Limits(limits)
    }

    pub(super) fn cpu(&mut self, node: &Node) -> Option<At<u64>> {
        let number = self.number(node)?;
        let thousandths = (number * 1000.0).ceil();
        if number > 0.0 && thousandths <= 1e12 {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "positive and in range, see above"
            )]
            let value = thousandths as u64;
            return Some(self.at(node.span, value));
        }
        self.fault(node.span, "expected a number of processors above 0, e.g. 1.5");
        None
    }

    /// One to which parts belong that the fence is built with.
    pub(super) fn landlock_abi(&mut self, node: &Node) -> Option<At<u64>> {
        let most = LandlockPart::ALL.map(LandlockPart::abi).into_iter().max();
        let known = u64::from(LandlockParts::FLOOR)..=u64::from(most.unwrap_or(0));
        let abi = self.whole(node)?;
        if !known.contains(&abi.value) {
            self.fault(
                node.span,
                format!(
                    "a Landlock ABI lies between {} and {}",
                    known.start(),
                    known.end()
                ),
            );
            return None;
        }
        Some(abi)
    }

    pub(super) fn budget(&mut self, node: &Node) -> Budget {
        const KNOWN: &[&str] = &[
            "usd",
            "tokens",
            "turns",
            "bytesOut",
            "bytesIn",
            "requests",
            "connections",
            "onExceed",
        ];
        let mut budget = Budget::default();
        for Member { key, value, .. } in self.members(node, KNOWN) {
            match key.as_str() {
                "usd" => match self.number(value) {
                    Some(usd) if usd >= 0.0 => budget.usd = Some(self.at(value.span, usd)),
                    Some(_) => self.fault(value.span, "a budget is 0 or more"),
                    None => {}
                },
                "tokens" => budget.tokens = self.whole(value),
                "turns" => budget.turns = self.whole(value),
                "bytesOut" => budget.bytes_out = self.unit(value, units::size, "\"1GiB\""),
                "bytesIn" => budget.bytes_in = self.unit(value, units::size, "\"1GiB\""),
                "requests" => budget.requests = self.whole(value),
                "connections" => budget.connections = self.whole(value),
                "onExceed" => {
                    budget.on_exceed =
                        self.choice(value, &[("pause", OnExceed::Pause), ("stop", OnExceed::Stop)]);
                }
                _ => {}
            }
        }
        budget
    }

    pub(super) fn approvals(&mut self, node: &Node) -> Approvals {
        let mut approvals = Approvals::default();
        for Member { key, value, .. } in self.members(node, &["timeout", "onTimeout", "reviewers"]) {
            match key.as_str() {
                "timeout" => approvals.timeout = self.unit(value, units::duration, "\"15m\""),
                "onTimeout" => {
                    approvals.on_timeout =
                        self.choice(value, &[("deny", OnTimeout::Deny), ("pause", OnTimeout::Pause)]);
                }
                "reviewers" => approvals.reviewers = self.strings(value),
                _ => {}
            }
        }
        approvals
    }

    pub(super) fn audit(&mut self, node: &Node) -> AuditSection {
        let mut audit = AuditSection::default();
        for Member { key, value, .. } in self.members(node, &["level", "redact", "canary"]) {
            match key.as_str() {
                "level" => {
                    audit.level = self.choice(
                        value,
                        &[("metadata", AuditLevel::Metadata), ("full", AuditLevel::Full)],
                    );
                }
                "redact" => audit.redact = self.strings(value),
                "canary" => audit.canary = self.flag(value),
                _ => {}
            }
        }
        audit
    }

    pub(super) fn tests(&mut self, node: &Node) -> Vec<At<TestCase>> {
        let mut tests = Vec::new();
        for item in self.items(node, MAX_TESTS) {
            let (mut can, mut is) = (None, None);
            for Member { key, value, .. } in self.members(item, &["can", "is"]) {
                match key.as_str() {
                    "can" => can = self.question(value),
                    "is" => is = self.decided(value),
                    _ => {}
                }
            }
            match (can, is) {
                (Some(can), Some(is)) => tests.push(self.at(item.span, TestCase { can, is: is.value })),
                _ => self.fault(item.span, "a test needs \"can\" and \"is\""),
            }
        }
        tests
    }

    pub(super) fn question(&mut self, node: &Node) -> Option<String> {
        let text = self.text(node)?;
        match Query::check(text) {
            Ok(()) => Some(text.to_owned()),
            Err(why) => {
                self.fault(node.span, why);
                None
            }
        }
    }
}

fn host_pattern(reader: &mut Reader<'_>, item: &Node, text: &str) -> Option<HostPattern> {
    match HostPattern::new(text) {
        Ok(pattern) => Some(pattern),
        Err(why) => {
            reader.fault(item.span, why.to_string());
            None
        }
    }
}

fn path(reader: &mut Reader<'_>, item: &Node, text: &str) -> Option<String> {
    let absolute = text.starts_with('/');
    match check_path(text) {
        Ok(path) if absolute => Some(path),
        Ok(_) | Err(_) => {
            reader.fault(item.span, format!("{text:?} is not a plain path such as /v1/**"));
            None
        }
    }
}

fn method(reader: &mut Reader<'_>, item: &Node, text: &str) -> Option<String> {
    if text.len() <= 20 && text.bytes().all(|b| b.is_ascii_uppercase()) {
        return Some(text.to_owned());
    }
    reader.fault(item.span, format!("{text:?} is not a method such as GET"));
    None
}
