//! Rules about an agent's own tools: `Read`, `Edit(./src/**)`, `Bash(cargo test *)`, `mcp__github__get_*`.
use crate::host::{Host, HostPattern};
use crate::names::glob;
use std::fmt;

/// A tool, or a pattern of tools, with an optional argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolRule {
    pub(crate) name: String,
    pub(crate) argument: Option<String>,
}

impl ToolRule {
    /// Checks `text`: `NAME` or `NAME(ARGUMENT)`.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let (name, argument) = match text.split_once('(') {
            Some((name, rest)) => match rest.strip_suffix(')') {
                Some(argument) => (name, Some(argument)),
                None => return Err("the parenthesis is not closed".to_owned()),
            },
            None => (text, None),
        };
        let fits = (1..=128).contains(&name.len())
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b':' | b'*'));
        if !fits {
            return Err(format!("{name:?} is not the name of a tool"));
        }
        // `Bash(*)` and `Bash()` say no more than `Bash`.
        let argument = argument
            .filter(|a| !matches!(*a, "" | "*" | "**" | ":*"))
            .map(str::to_owned);
        Ok(Self {
            name: name.to_owned(),
            argument,
        })
    }

    /// The shell tool, with any line.
    pub(crate) fn shell() -> Self {
        Self {
            name: "Bash".to_owned(),
            argument: None,
        }
    }

    /// Whether this is the tool that takes command lines.
    pub(crate) fn is_shell(&self) -> bool {
        ["bash", "shell", "sh"]
            .iter()
            .any(|shell| self.name.eq_ignore_ascii_case(shell))
    }

    fn names(&self, used: &Self) -> bool {
        glob(
            self.name.to_ascii_lowercase().as_bytes(),
            used.name.to_ascii_lowercase().as_bytes(),
        )
    }

    /// Whether this rule allows the use; without its argument in sight it does not.
    pub(crate) fn allows(&self, used: &Self) -> bool {
        let argument = match (&self.argument, &used.argument) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(pattern), Some(argument)) => argument_matches(pattern, argument),
        };
        self.names(used) && argument
    }

    /// Whether this rule speaks about the use; in doubt it does.
    pub(crate) fn meets(&self, used: &Self) -> bool {
        let argument = match (&self.argument, &used.argument) {
            (None, _) | (Some(_), None) => true,
            (Some(pattern), Some(argument)) => argument_matches(pattern, argument),
        };
        self.names(used) && argument
    }
}

fn argument_matches(pattern: &str, argument: &str) -> bool {
    if let (Some(rule), Some(asked)) = (pattern.strip_prefix("domain:"), argument.strip_prefix("domain:")) {
        return match (HostPattern::new(rule), Host::new(asked)) {
            (Ok(rule), Ok(host)) => rule.matches(&host),
            (Ok(_) | Err(_), Ok(_) | Err(_)) => false,
        };
    }
    // `..` could lead out of what the pattern names, so it matches nothing but itself.
    if argument.split('/').any(|part| part == "..") {
        return pattern == argument;
    }
    let pattern: Vec<&str> = pattern.strip_prefix("./").unwrap_or(pattern).split('/').collect();
    let argument: Vec<&str> = argument
        .strip_prefix("./")
        .unwrap_or(argument)
        .split('/')
        .collect();
    parts_match(&pattern, &argument)
}

fn parts_match(pattern: &[&str], parts: &[&str]) -> bool {
    match pattern.split_first() {
        None => parts.is_empty(),
        Some((&"**", rest)) => (0..=parts.len()).any(|skipped| parts_match(rest, &parts[skipped..])),
        Some((first, rest)) => parts
            .split_first()
            .is_some_and(|(part, below)| glob(first.as_bytes(), part.as_bytes()) && parts_match(rest, below)),
    }
}

impl fmt::Display for ToolRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.argument {
            Some(argument) => write!(f, "{}({argument})", self.name),
            None => f.write_str(&self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> ToolRule {
        ToolRule::new(text).unwrap()
    }

    #[test]
    fn a_pattern_allows_what_it_names_and_nothing_beside_it() {
        assert!(rule("mcp__github__get_*").allows(&rule("mcp__github__get_issue")));
        assert!(!rule("mcp__github__get_*").allows(&rule("mcp__github__delete_repo")));
        assert!(rule("Edit(./src/**)").allows(&rule("Edit(src/a/b.rs)")));
        for out in ["Edit(src/../x)", "Edit(tests/a)", "Edit", "Read(src/a)"] {
            assert!(!rule("Edit(./src/**)").allows(&rule(out)), "{out}");
        }
        assert!(!rule("WebFetch(domain:x.com)").allows(&rule("WebFetch(domain:x.com.evil.org)")));
        assert!(rule("WebFetch(domain:x.com)").allows(&rule("WebFetch(domain:X.com.)")));
    }

    #[test]
    fn a_deny_rule_holds_for_a_tool_whose_argument_is_not_known() {
        assert!(rule("Edit(./src/**)").meets(&rule("Edit")));
    }

    #[test]
    fn a_malformed_rule_is_refused() {
        for bad in ["", "(x)", "Bash(", "Bash(x", "a b", "é", "Bash(x) y"] {
            assert!(ToolRule::new(bad).is_err(), "{bad:?}");
        }
    }
}
