//! Rules about command lines and tools, per tier: the operator's rules grant, every other tier only narrows.
use crate::command::{CommandOutcome, CommandRule, CommandRuleError, CommandRules, judge};
use crate::decide::Outcome;
use crate::effective::Sourced;
use crate::toolrule::ToolRule;
use bastle_contract::Code;

/// Which list a rule stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    Allow,
    Ask,
    Deny,
}

/// Why a rule was refused.
#[derive(Clone, Debug)]
pub(crate) struct RuleFault {
    pub(crate) code: Code,
    pub(crate) message: String,
}

/// The rules of one tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandTier {
    /// Allowed; `None`: this tier states no allow list.
    pub allow: Option<Vec<Sourced<String>>>,
    /// Asked about.
    pub ask: Vec<Sourced<String>>,
    /// Refused.
    pub deny: Vec<Sourced<String>>,
    /// Ready for judging.
    compiled: CommandRules,
}

/// What the tiers say about one line.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) outcome: Outcome,
    pub(crate) rule: Option<Sourced<String>>,
    pub(crate) reason: String,
}

pub(crate) fn check_exec_rule(text: &str, list: List) -> Result<(), RuleFault> {
    // Only an allow rule can be too wide: denying or asking about much is a person's right.
    let read = match list {
        List::Allow => CommandRule::parse(text),
        List::Ask | List::Deny => CommandRule::parse_restriction(text),
    };
    match read {
        Ok(_) => Ok(()),
        Err(why @ (CommandRuleError::TooWide { .. } | CommandRuleError::PatternAsProgram { .. })) => {
            Err(RuleFault {
                code: Code::PolicyCommandRule,
                message: why.to_string(),
            })
        }
        Err(
            why @ (CommandRuleError::Empty
            | CommandRuleError::TooLong
            | CommandRuleError::NotOneCommand { .. }),
        ) => Err(RuleFault {
            code: Code::PolicySchema,
            message: why.to_string(),
        }),
    }
}

pub(crate) fn check_tool_rule(text: &str, list: List) -> Result<(), RuleFault> {
    let rule = ToolRule::new(text).map_err(|message| RuleFault {
        code: Code::PolicySchema,
        message,
    })?;
    let wide = |message: &str| {
        Err(RuleFault {
            code: Code::PolicyCommandRule,
            message: message.to_owned(),
        })
    };
    match (list, rule.is_shell(), &rule.argument) {
        (List::Allow, true, None) => wide("allows every command line"),
        (_, true, Some(line)) => check_exec_rule(line, list),
        (List::Allow, false, _) if rule.name.chars().all(|c| c == '*') => wide("allows every tool"),
        (List::Allow | List::Ask | List::Deny, _, _) => Ok(()),
    }
}

impl CommandTier {
    /// The tier of these lists, ready for judging command lines.
    pub(crate) fn new(
        allow: Option<Vec<Sourced<String>>>,
        ask: Vec<Sourced<String>>,
        deny: Vec<Sourced<String>>,
    ) -> Self {
        let allowed = |list: &[Sourced<String>]| {
            list.iter()
                .filter_map(|s| CommandRule::parse(&s.value).ok())
                .collect()
        };
        let restricted = |list: &[Sourced<String>]| {
            list.iter()
                .filter_map(|s| CommandRule::parse_restriction(&s.value).ok())
                .collect()
        };
        let compiled = CommandRules {
            allow: allow.as_deref().map(allowed).unwrap_or_default(),
            ask: restricted(&ask),
            deny: restricted(&deny),
        };
        Self {
            allow,
            ask,
            deny,
            compiled,
        }
    }

    /// Whether this tier says nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.allow.is_none() && self.ask.is_empty() && self.deny.is_empty()
    }

    /// Judges a command line.
    pub(crate) fn judge_line(&self, line: &str) -> Judged {
        if self.is_empty() {
            return Judged {
                outcome: Outcome::Allow,
                rule: None,
                reason: "no command rule speaks about it".to_owned(),
            };
        }
        let default = if self.allow.is_some() {
            CommandOutcome::Deny
        } else {
            CommandOutcome::Allow
        };
        let verdict = judge(line, &self.compiled, default);
        let outcome = match verdict.outcome {
            CommandOutcome::Allow => Outcome::Allow,
            CommandOutcome::Ask => Outcome::Ask,
            CommandOutcome::Deny => Outcome::Deny,
        };
        let rule = verdict.rule.as_deref().and_then(|text| self.source_of(text));
        let reason = if verdict.part.is_empty() || verdict.part == line {
            verdict.reason
        } else {
            format!("in `{}`: {}", verdict.part, verdict.reason)
        };
        Judged {
            outcome,
            rule,
            reason,
        }
    }

    fn source_of(&self, text: &str) -> Option<Sourced<String>> {
        let lists = || {
            self.deny
                .iter()
                .chain(&self.ask)
                .chain(self.allow.iter().flatten())
        };
        // As it is written in nearly every list; only then as the argument of a tool, which must be read first.
        let written = lists().find(|s| s.value == text);
        let argument = |s: &&Sourced<String>| {
            ToolRule::new(&s.value).is_ok_and(|rule| rule.argument.as_deref() == Some(text))
        };
        written.or_else(|| lists().find(argument)).cloned()
    }

    /// Judges the use of a tool.
    pub(crate) fn judge_tool(&self, used: &ToolRule) -> Judged {
        if used.is_shell()
            && let Some(line) = &used.argument
        {
            return self.judge_shell_tool(line);
        }
        let hit = |list: &[Sourced<String>], matches: fn(&ToolRule, &ToolRule) -> bool| {
            list.iter()
                .find(|s| ToolRule::new(&s.value).is_ok_and(|rule| matches(&rule, used)))
                .cloned()
        };
        let judged = |outcome, rule: Option<Sourced<String>>, reason: &str| Judged {
            outcome,
            rule,
            reason: reason.to_owned(),
        };
        if let Some(rule) = hit(&self.deny, ToolRule::meets) {
            return judged(Outcome::Deny, Some(rule), "a deny rule names it");
        }
        if let Some(rule) = hit(&self.ask, ToolRule::meets) {
            return judged(Outcome::Ask, Some(rule), "an ask rule names it");
        }
        match &self.allow {
            None => judged(Outcome::Allow, None, "no tool rule speaks about it"),
            Some(list) => match hit(list, ToolRule::allows) {
                Some(rule) => judged(Outcome::Allow, Some(rule), "an allow rule names it"),
                None => judged(Outcome::Deny, None, "there is an allow list and it is not on it"),
            },
        }
    }

    /// A shell tool's line is judged like any other, against the rules written as `Bash(…)`.
    fn judge_shell_tool(&self, line: &str) -> Judged {
        let lines = |list: &[Sourced<String>]| -> Vec<Sourced<String>> {
            let inner = |s: &Sourced<String>| {
                let rule = ToolRule::new(&s.value).ok().filter(ToolRule::is_shell)?;
                Some(Sourced {
                    value: rule.argument?,
                    origin: s.origin.clone(),
                })
            };
            list.iter().filter_map(inner).collect()
        };
        let bare = |list: &[Sourced<String>]| {
            let names_it = |s: &&Sourced<String>| {
                ToolRule::new(&s.value).is_ok_and(|r| r.argument.is_none() && r.meets(&ToolRule::shell()))
            };
            list.iter().find(names_it).cloned()
        };
        if let Some(rule) = bare(&self.deny) {
            return Judged {
                outcome: Outcome::Deny,
                rule: Some(rule),
                reason: "a deny rule names the tool".to_owned(),
            };
        }
        let tier = Self::new(
            self.allow.as_deref().map(lines),
            lines(&self.ask),
            lines(&self.deny),
        );
        let judged = tier.judge_line(line);
        match bare(&self.ask) {
            Some(rule) if judged.outcome == Outcome::Allow => Judged {
                outcome: Outcome::Ask,
                rule: Some(rule),
                reason: "an ask rule names the tool".to_owned(),
            },
            Some(_) | None => judged,
        }
    }
}

/// The strictest judgement of all tiers.
pub(crate) fn strictest(judged: impl Iterator<Item = Judged>) -> Judged {
    // `Allow` with a rule says more than `Allow` without one: of equals the first that names a rule stays.
    let none = Judged {
        outcome: Outcome::Allow,
        rule: None,
        reason: "no rule speaks about it".to_owned(),
    };
    judged.fold(none, |best, next| {
        let more_telling = next.outcome == best.outcome
            && best.rule.is_none()
            && (next.rule.is_some() || best.reason.starts_with("no "));
        if next.outcome < best.outcome || more_telling {
            next
        } else {
            best
        }
    })
}
