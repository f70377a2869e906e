//! The effective policy as one canonical text, and its digest: equal policies have equal text, wherever their rules stand.
use crate::commands::CommandTier;
use crate::effective::{Effective, NetRules, Sourced};
use crate::layers::LayerKind;
use crate::pathrule::PathRule;
use bastle_contract::Digest;
use std::fmt::Debug;

/// Lines of `SECTION TEXT`; the text is escaped, so that no rule can forge a line.
struct Lines(String);

impl Lines {
    fn add(&mut self, section: &str, text: &str) {
        self.0.extend(["\n", section, " "]);
        // Escaping goes letter by letter, and nearly no rule has a letter that needs it.
        let plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'\\' | b'"' | b'\'');
        if text.bytes().all(plain) {
            self.0.push_str(text);
        } else {
            self.0.extend(text.escape_default());
        }
    }

    fn names(&mut self, section: &str, rules: &[Sourced<PathRule>]) {
        for rule in rules {
            // Only the floor's can be re-opened, so whose rule it is belongs to what the policy says.
            let mark = if rule.origin.layer == LayerKind::Floor {
                "!"
            } else {
                ""
            };
            self.add(&format!("{section}{mark}"), &rule.value.to_string());
        }
    }

    fn list<T: ToString>(&mut self, section: &str, rules: &[Sourced<T>]) {
        for rule in rules {
            self.add(section, &rule.value.to_string());
        }
    }

    fn net(&mut self, tier: usize, rules: &NetRules) {
        self.add(&format!("net.{tier}"), &rules.allow.is_some().to_string());
        self.list(
            &format!("net.allow.{tier}"),
            rules.allow.as_deref().unwrap_or_default(),
        );
        self.list(&format!("net.ask.{tier}"), &rules.ask);
        self.list(&format!("net.deny.{tier}"), &rules.deny);
        let ports: Option<Vec<u16>> = rules
            .ports
            .as_ref()
            .map(|ports| ports.iter().map(|port| port.value).collect());
        self.add(&format!("net.ports.{tier}"), &format!("{ports:?}"));
    }

    fn commands(&mut self, section: &str, tiers: &[CommandTier]) {
        for (tier, rules) in tiers.iter().enumerate() {
            self.add(&format!("{section}.{tier}"), &rules.allow.is_some().to_string());
            self.list(
                &format!("{section}.allow.{tier}"),
                rules.allow.as_deref().unwrap_or_default(),
            );
            self.list(&format!("{section}.ask.{tier}"), &rules.ask);
            self.list(&format!("{section}.deny.{tier}"), &rules.deny);
        }
    }

    fn value<T: Debug>(&mut self, section: &str, value: Option<&Sourced<T>>) {
        self.add(section, &format!("{:?}", value.map(|sourced| &sourced.value)));
    }
}

impl Effective {
    /// One line per rule in a fixed order, without origins.
    #[must_use]
    pub fn canonical(&self) -> String {
        let mut lines = Lines("bastle.policy/v1".to_owned());
        lines.value("mode", Some(&self.mode));
        lines.add("home", self.surroundings.home.as_str());
        lines.add("workspace", self.surroundings.workspace.as_str());
        for (path, reach) in self.fs.iter() {
            let kind = if reach.system { "system" } else { "fs" };
            lines.add(kind, &format!("{:?} {path}", reach.grade));
        }
        lines.names("hide", &self.hide);
        lines.names("protect", &self.protect);
        for open in &self.unprotect {
            lines.add("unprotect", &open.to_string());
        }
        lines.value("net.default", Some(&self.net.default));
        lines.add("net.ipLiterals", &self.net.ip_literals.to_string());
        for (tier, rules) in self.net.tiers.iter().enumerate() {
            lines.net(tier, rules);
        }
        lines.add("net.mode", self.net.mode.name());
        for pattern in self.net.within.iter().flatten() {
            lines.add("net.within", &pattern.to_string());
        }
        if self.net.within.is_some() {
            lines.add("net.within", "nothing else");
        }
        lines.list("net.addresses", &self.net.addresses);
        lines.add("net.resolvers", &format!("{:?}", self.net.resolvers));
        lines.add("net.upstream", &format!("{:?}", self.net.upstream));
        for endpoint in &self.net.models {
            lines.add("net.models", &format!("{endpoint:?}"));
        }
        lines.list("net.listen", &self.listen);
        lines.commands("exec", &self.exec);
        lines.commands("tools", &self.tools);
        for name in &self.env_pass {
            lines.add("env.pass", name.value.as_str());
        }
        for entry in &self.env_set {
            lines.add(
                "env.set",
                &format!("{}={}", entry.value.0.as_str(), entry.value.1),
            );
        }
        for secret in &self.secrets {
            lines.add("secrets", &format!("{:?}", secret.value));
        }
        lines.value("git.push", self.git.push.as_ref());
        lines.value("git.forcePush", self.git.force_push.as_ref());
        for (section, list) in [
            ("git.branches", &self.git.branches),
            ("git.remotes", &self.git.remotes),
        ] {
            lines.add(section, &list.is_some().to_string());
            lines.list(section, list.as_deref().unwrap_or_default());
        }
        lines.list("git.pushOptions", &self.git.push_options);
        for (kind, value) in &self.limits {
            lines.add("limits", &format!("{kind} {}", value.value));
        }
        lines.list("cache", &self.caches);
        if self.min_landlock_abi.is_some() {
            lines.value("minLandlockAbi", self.min_landlock_abi.as_ref());
        }
        if self.cache_merge.is_some() {
            lines.value("cacheMerge", self.cache_merge.as_ref());
        }
        self.budget_lines(&mut lines);
        lines.0
    }

    fn budget_lines(&self, lines: &mut Lines) {
        let budgets = &self.budgets;
        lines.value("budget.usd", budgets.usd.as_ref());
        lines.value("budget.tokens", budgets.tokens.as_ref());
        lines.value("budget.turns", budgets.turns.as_ref());
        lines.value("budget.bytesOut", budgets.bytes_out.as_ref());
        lines.value("budget.bytesIn", budgets.bytes_in.as_ref());
        lines.value("budget.requests", budgets.requests.as_ref());
        lines.value("budget.connections", budgets.connections.as_ref());
        lines.value("budget.onExceed", budgets.on_exceed.as_ref());
        for kind in &self.net.budget.waived {
            lines.add("budget.waived", kind.name());
        }
        lines.value("approvals.timeout", budgets.approval_timeout.as_ref());
        lines.value("approvals.onTimeout", budgets.on_timeout.as_ref());
        lines.list("approvals.reviewers", &budgets.reviewers);
        lines.value("audit.level", budgets.audit_level.as_ref());
        lines.list("audit.redact", &budgets.redact);
        lines.value("audit.canary", budgets.canary.as_ref());
    }

    /// The BLAKE3 digest of [`Self::canonical`].
    #[must_use]
    pub fn digest(&self) -> Digest {
        let hex = blake3::hash(self.canonical().as_bytes()).to_hex().to_string();
        Digest::try_from(hex)
            .unwrap_or_else(|_| unreachable!("BLAKE3 gives 64 lower-case hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;

    #[test]
    fn a_text_is_escaped_letter_by_letter_or_needs_none() {
        for text in [
            "",
            "/usr/bin ~!*",
            "a\nfs /etc",
            "it's",
            "\"x\"",
            "c:\\x",
            "\u{7f}",
            "ä",
            "\u{202e}",
        ] {
            let mut lines = Lines("first".to_owned());
            lines.add("fs", text);
            lines.add("end", "x");
            assert_eq!(lines.0, format!("first\nfs {}\nend x", text.escape_default()));
        }
    }
}
