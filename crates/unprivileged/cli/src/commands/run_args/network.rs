//! Flags about the network: reach, rules, secrets, budgets, and who is asked.
use super::{RunArgs, usage};
use bastle_contract::egress::BudgetKind;
use bastle_contract::{Fault, Stdio};
use bastle_control::Attendance;
use bastle_policy::NetMode;
use clap::builder::FalseyValueParser;
use serde_json::{Map, Value, json};
use std::io::IsTerminal;
use std::path::PathBuf;

/// Network flags of `run`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct NetArgs {
    /// none | allowlist | open | offline; allowlist is what rules allow, open all that no rule denies
    #[arg(long, value_name = "REACH", env = "BASTLE_NET", help_heading = "Network")]
    pub(crate) net: Option<String>,
    /// Host or rule the agent may reach, e.g. example.com or "GET api.example.com/v1/**" (repeatable)
    #[arg(long, value_name = "RULE", env = "BASTLE_ALLOW_NET", help_heading = "Network")]
    pub(crate) allow_net: Vec<String>,
    /// Host or rule it may not reach, whoever allows it (repeatable)
    #[arg(long, value_name = "RULE", env = "BASTLE_DENY_NET", help_heading = "Network")]
    pub(crate) deny_net: Vec<String>,
    /// Secret for hosts; the agent sees a placeholder in NAME (repeatable)
    #[arg(
        long,
        value_name = "NAME=FROM@HOST[,HOST]",
        env = "BASTLE_SECRET",
        help_heading = "Network"
    )]
    pub(crate) secret: Vec<String>,
    /// Most that models may cost, e.g. 5usd
    #[arg(long, value_name = "COST", env = "BASTLE_MAX_COST", help_heading = "Network")]
    pub(crate) max_cost: Option<String>,
    /// Most model tokens, in and out
    #[arg(long, value_name = "N", env = "BASTLE_MAX_TOKENS", help_heading = "Network")]
    pub(crate) max_tokens: Option<u64>,
    /// Let reads of unknown hosts through and record them; writes the rules to FILE at the end
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, help_heading = "Network")]
    pub(crate) learn: Option<Option<PathBuf>>,
    /// Ask a person where the policy says so, here or with `bastle allow RUN ID`
    #[arg(long, env = "BASTLE_ASK", value_parser = FalseyValueParser::new(), help_heading = "Network")]
    pub(crate) ask: bool,
}

impl NetArgs {
    /// How much network was asked for.
    pub(crate) fn mode(&self) -> Result<Option<NetMode>, Fault> {
        let Some(word) = &self.net else {
            return Ok(None);
        };
        let mode = NetMode::parse(word).ok_or_else(|| {
            usage(format!("--net {word} is not known"), "").help("--net none, allowlist, open or offline")
        })?;
        let rules = [
            ("--allow-net", !self.allow_net.is_empty()),
            ("--learn", self.learn.is_some()),
        ];
        match (mode, rules.iter().find(|(_, given)| *given)) {
            (NetMode::None | NetMode::Offline, Some((flag, _))) => Err(usage(
                format!("--net {word} and {flag} contradict each other"),
                "without a network nothing can be allowed",
            )
            .help("leave one of them out")),
            _ => Ok(Some(mode)),
        }
    }

    /// Whether it is clear already that nothing goes out.
    pub(crate) fn is_offline(&self) -> bool {
        matches!(self.net.as_deref(), Some("none" | "offline"))
    }

    /// The sections of the flags' document.
    pub(super) fn sections(&self) -> Result<Vec<(&'static str, Value)>, Fault> {
        let mut sections = Vec::new();
        let mut net = Map::new();
        for (key, rules) in [("allow", &self.allow_net), ("deny", &self.deny_net)] {
            if !rules.is_empty() {
                net.insert(key.to_owned(), json!(rules));
            }
        }
        if !net.is_empty() {
            sections.push(("net", Value::Object(net)));
        }
        if !self.secret.is_empty() {
            let secrets = self
                .secret
                .iter()
                .map(|text| secret(text))
                .collect::<Result<Vec<_>, _>>()?;
            sections.push(("secrets", Value::Array(secrets)));
        }
        let mut budget = Map::new();
        if let Some(cost) = &self.max_cost {
            budget.insert("usd".to_owned(), json!(dollars(cost)?));
        }
        if let Some(tokens) = self.max_tokens {
            budget.insert("tokens".to_owned(), json!(tokens));
        }
        if !budget.is_empty() {
            sections.push(("budget", Value::Object(budget)));
        }
        Ok(sections)
    }
}

impl RunArgs {
    /// Who can answer a question. A terminal that the agent uses itself is no place to ask, unless that is wished.
    pub(crate) fn attendance(&self, stdio: Stdio) -> Attendance {
        let (stdin, stderr) = (std::io::stdin().is_terminal(), std::io::stderr().is_terminal());
        match (self.net.ask, stdio) {
            (true, _) if stdin => Attendance::Keyboard,
            (true, _) => Attendance::Elsewhere,
            (false, Stdio::Pipes) if stdin && stderr && !self.quiet => Attendance::Keyboard,
            (false, Stdio::Pipes | Stdio::Pty { .. }) => Attendance::Nobody,
        }
    }
}

/// `NAME=FROM@HOST[,HOST]`; FROM itself may hold `=` and `@`.
fn secret(text: &str) -> Result<Value, Fault> {
    let wrong = || {
        usage(
            "--secret is not understood",
            "it names a secret, where it is kept and the hosts it is for",
        )
        .help("--secret GH_TOKEN=store:gh@api.github.com")
    };
    let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
    let (from, hosts) = rest.rsplit_once('@').ok_or_else(wrong)?;
    let hosts: Vec<&str> = hosts
        .split(',')
        .map(str::trim)
        .filter(|host| !host.is_empty())
        .collect();
    if name.is_empty() || from.is_empty() || hosts.is_empty() {
        return Err(wrong());
    }
    Ok(json!({ "name": name, "from": from, "hosts": hosts }))
}

/// `5usd`, `5`, `$5`, `0.50usd`.
fn dollars(text: &str) -> Result<f64, Fault> {
    let number = text.trim().trim_start_matches('$');
    let number = number
        .strip_suffix("usd")
        .or_else(|| number.strip_suffix("USD"))
        .unwrap_or(number);
    let amount = number
        .trim()
        .parse::<f64>()
        .ok()
        .filter(|amount| amount.is_finite() && *amount >= 0.0);
    amount.ok_or_else(|| usage(format!("--max-cost {text} is no amount"), "").help("--max-cost 5usd"))
}

/// Budgets among the names behind `--waive`.
pub(super) fn waived(names: &[String]) -> Vec<BudgetKind> {
    names
        .iter()
        .filter_map(|name| BudgetKind::waivable(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_without_name_place_or_host_is_refused() {
        for bad in [
            "",
            "A",
            "A=file:/x",
            "=file:/x@h",
            "A=@h",
            "A=file:/x@",
            "A=file:/x@,",
        ] {
            assert!(secret(bad).is_err(), "{bad}");
        }
        let read = secret("A=exec:get a=b@c@h.example,i.example").unwrap();
        assert_eq!(read["from"], "exec:get a=b@c");
        assert_eq!(read["hosts"], json!(["h.example", "i.example"]));
    }

    #[test]
    fn a_cost_that_is_no_amount_is_refused() {
        for bad in ["", "usd", "-1", "inf", "5eur", "NaN"] {
            assert!(dollars(bad).is_err(), "{bad}");
        }
        assert_eq!(dollars("5usd").unwrap(), 5.0);
        assert_eq!(dollars("$0.50").unwrap(), 0.5);
    }
}
