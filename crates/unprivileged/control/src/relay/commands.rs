//! Commands from another terminal: rules and answers for a living run.
use super::Relay;
use super::net::{Asker, Change, Once};
use super::questions::PERSON;
use super::reserve::Force;
use crate::egress::{Rules, table_digest};
use crate::grants::Grants;
use crate::keeper::Hands;
use crate::live::{Command, GrantWish, Heard, Scope};
use crate::voice::Reply;
use bastle_audit::AuditEvent;
use bastle_contract::egress::{Face, NetDecision};
use bastle_contract::{Code, Fault};
use bastle_policy::{NetPolicy, NetRule, NetTarget};
use serde_json::{Value, json};
use std::time::Duration;

impl Relay<'_> {
    /// Takes what came over the run's socket.
    pub(super) fn hear_live(&mut self) -> Result<(), Fault> {
        let told = self
            .live
            .as_mut()
            .map(crate::live::Live::hear)
            .unwrap_or_default();
        for (peer, heard) in told {
            match heard {
                Heard::Command(command) => {
                    if let Some(answer) = self.keep_first(peer, command)? {
                        self.reply(peer, &answer);
                    }
                }
                Heard::Frame(frame) => {
                    if !self.typed(peer, &frame)? {
                        self.exec_frame(peer, &frame);
                    }
                }
                Heard::Gone => {
                    self.left(peer)?;
                    self.waits_no_more(peer);
                    self.exec_gone(peer);
                }
            }
        }
        Ok(())
    }

    pub(super) fn reply(&mut self, peer: u64, answer: &Result<Value, Vec<Fault>>) {
        if let Some(live) = &mut self.live {
            live.answer(peer, answer);
        }
    }

    /// The answer, or nothing where egress has the last word.
    pub(super) fn carry_out(
        &mut self,
        peer: u64,
        command: Command,
    ) -> Result<Option<Result<Value, Vec<Fault>>>, Fault> {
        match command {
            Command::Status {} => Ok(Some(Ok(self.status()))),
            Command::RevokeSecret { stored } => self.revoke_secret(&stored).map(|done| Some(Ok(done))),
            Command::Grant {
                path,
                access,
                way,
                seconds,
                by,
            } => self.grant(
                peer,
                GrantWish {
                    path,
                    access,
                    way,
                    lasts: seconds.map(Duration::from_secs),
                    by: by.unwrap_or_else(|| PERSON.to_owned()),
                },
            ),
            Command::Withdraw { path, by } => self.withdraw(Asker::at(peer, by), &path, "revoked"),
            Command::Reload {} => self.change(Asker::at(peer, None), "reload".to_owned(), Rules::reread),
            Command::Attach { since, input } => {
                let hands = if input { Hands::Type } else { Hands::Rest };
                Ok(self.attach(peer, since, hands))
            }
            Command::Watch { since, hold } => {
                if hold && let Some(kept) = self.front.kept() {
                    kept.holder = Some(peer);
                }
                Ok(self.watch(peer, since))
            }
            Command::Finish {} => {
                self.finish()?;
                Ok(Some(Ok(json!({ "finishing": self.plan.run }))))
            }
            Command::Exec { argv, env, cwd, tty } => self.exec(peer, argv, env, cwd, tty),
            Command::Dial { port } => self.dial(peer, port),
            Command::Stop { grace_ms } => {
                self.stop(Duration::from_millis(grace_ms), "person");
                self.stand()?;
                Ok(Some(Ok(
                    json!({ "stopping": self.plan.run, "grace_ms": grace_ms }),
                )))
            }
            Command::Kill {} => {
                self.stop(Duration::ZERO, "person");
                Ok(Some(Ok(json!({ "killing": self.plan.run }))))
            }
            Command::Say { text } => self.say(&text).map(Some),
            Command::Interrupt {} => self.interrupt_agent().map(Some),
            Command::Pause {} => self.pause().map(Some),
            Command::Resume { force } => {
                let force = if force { Force::Yes } else { Force::No };
                self.go_on(force).map(Some)
            }
            Command::Allow {
                target,
                scope,
                hash,
                by,
            } => {
                let answered =
                    self.try_answer(&target, hash.as_deref(), (Reply::Yes, scope), by.as_deref())?;
                if answered.is_some() {
                    return Ok(answered);
                }
                self.allow_rule(Asker::at(peer, by), &target, scope)
            }
            Command::Deny { target, hash, by } => {
                let answered =
                    self.try_answer(&target, hash.as_deref(), (Reply::No, Scope::Once), by.as_deref())?;
                if answered.is_some() {
                    return Ok(answered);
                }
                self.deny_rule(Asker::at(peer, by), &target)
            }
            Command::Revoke { target, by } => self.revoke_rule(Asker::at(peer, by), &target),
        }
    }

    /// Answers an open question of that id; `None` where there is none and no digest of one was named.
    fn try_answer(
        &mut self,
        target: &str,
        hash: Option<&str>,
        reply: (Reply, Scope),
        by: Option<&str>,
    ) -> Result<Option<Result<Value, Vec<Fault>>>, Fault> {
        Ok(
            match self.answer_by_id(target, hash, reply, by.unwrap_or(PERSON))? {
                Ok(true) => Some(Ok(json!({ "answered": target }))),
                Ok(false) if hash.is_some() => Some(Err(vec![no_question(target)])),
                Ok(false) => None,
                Err(fault) => Some(Err(vec![fault])),
            },
        )
    }

    fn revoke_rule(
        &mut self,
        asker: Asker,
        target: &str,
    ) -> Result<Option<Result<Value, Vec<Fault>>>, Fault> {
        self.change(asker, format!("revoke {target}"), |rules| rules.withdraw(target))
    }

    fn deny_rule(&mut self, asker: Asker, target: &str) -> Result<Option<Result<Value, Vec<Fault>>>, Fault> {
        match self.rule_for(target) {
            Ok(rule) => {
                let text = rule.text;
                self.change(asker, format!("deny {text}"), |rules| rules.refuse(&text))
            }
            Err(fault) => Ok(Some(Err(vec![fault]))),
        }
    }

    fn allow_rule(
        &mut self,
        asker: Asker,
        target: &str,
        scope: Scope,
    ) -> Result<Option<Result<Value, Vec<Fault>>>, Fault> {
        let rule = match self.rule_for(target) {
            Ok(rule) => rule,
            Err(fault) => return Ok(Some(Err(vec![fault]))),
        };
        if scope == Scope::Once
            && let Some(net) = &mut self.net
        {
            net.once.push(Once {
                rule: rule.text.clone(),
                host: rule.host,
                seq: None,
            });
        }
        let text = rule.text;
        self.change(asker, format!("allow {text}"), |rules| rules.grant(&text))
    }

    /// Reads the policy again on a signal.
    pub(super) fn reload(&mut self) -> Result<(), Fault> {
        if let Some(Err(faults)) = self.change(Asker::nobody(), "reload".to_owned(), Rules::reread)? {
            for fault in &faults {
                self.voice.unchanged(fault);
            }
        }
        Ok(())
    }

    fn change(
        &mut self,
        asker: Asker,
        text: String,
        change: impl FnOnce(&mut Rules) -> Result<NetPolicy, Vec<Fault>>,
    ) -> Result<Option<Result<Value, Vec<Fault>>>, Fault> {
        let Some(net) = &mut self.net else {
            let fault = Fault::new(
                Code::NetNone,
                "this run has no network",
                "it was started with --net none",
            )
            .help("start it again without --net none");
            return Ok(Some(Err(vec![fault])));
        };
        let before = net.rules.clone();
        match change(&mut net.rules) {
            Ok(table) => {
                self.send_change(Change {
                    text,
                    table,
                    before,
                    asker,
                })?;
                Ok(None)
            }
            Err(faults) => {
                self.record.append(&AuditEvent::Note {
                    topic: "network rules not replaced".to_owned(),
                    text: faults.first().map(ToString::to_string).unwrap_or_default(),
                })?;
                Ok(Some(Err(faults)))
            }
        }
    }

    /// Hands a table to egress; the change is told and recorded when it is in force.
    pub(super) fn send_change(&mut self, change: Change) -> Result<(), Fault> {
        let Some(net) = &mut self.net else {
            return Ok(());
        };
        let sent = match &net.egress {
            Some(egress) => egress.reload(&change.table),
            None => Ok(()),
        };
        net.changes.push_back(change);
        match sent {
            // A process that is gone is replaced where it is heard; the change waits for the next one.
            Ok(()) => Ok(()),
            Err(fault) if fault.why.contains("at most") => self.not_reloaded(fault),
            Err(_) => Ok(()),
        }
    }

    /// The oldest change is in force.
    pub(super) fn reloaded(&mut self, cut: u32) -> Result<(), Fault> {
        let Some(net) = &mut self.net else {
            return Ok(());
        };
        let Some(change) = net.changes.pop_front() else {
            return Ok(());
        };
        self.record.durable(&AuditEvent::NetChanged {
            change: change.text.clone(),
            table: table_digest(&change.table)?,
            cut,
            by: change.asker.by.clone(),
        })?;
        net.setup.table = change.table;
        self.voice.changed(&change.text, cut, &change.asker.by);
        if let Some(peer) = change.asker.peer {
            self.reply(peer, &Ok(json!({ "changed": change.text, "cut": cut })));
        }
        Ok(())
    }

    /// The oldest change was refused; everything stays as it was.
    pub(super) fn not_reloaded(&mut self, fault: Fault) -> Result<(), Fault> {
        let Some(net) = &mut self.net else {
            return Ok(());
        };
        let Some(change) = net.changes.pop_front() else {
            return Ok(());
        };
        net.rules = change.before;
        self.record.append(&AuditEvent::Note {
            topic: "network rules not replaced".to_owned(),
            text: fault.to_string(),
        })?;
        self.voice.unchanged(&fault);
        if let Some(peer) = change.asker.peer {
            self.reply(peer, &Err(vec![fault]));
        }
        Ok(())
    }

    /// What a rule for once let through is over: the rule is taken back.
    pub(super) fn once_over(&mut self, seq: u64) {
        let Some(net) = &mut self.net else { return };
        let Some(at) = net.once.iter().position(|once| once.seq == Some(seq)) else {
            return;
        };
        let once = net.once.swap_remove(at);
        let text = format!("revoke {}", once.rule);
        // It was a rule a moment ago: taking it back cannot fail for the rule's sake, and is told if it does.
        if let Ok(Some(Err(faults))) = self.change(Asker::nobody(), text, |rules| rules.withdraw(&once.rule))
        {
            for fault in &faults {
                self.voice.unchanged(fault);
            }
        }
    }

    /// The rule that a person means: as written, or the host of a denial by its id.
    fn rule_for(&self, target: &str) -> Result<Meant, Fault> {
        let denial = self
            .net
            .iter()
            .flat_map(|net| &net.recent)
            .find(|denial| denial.id == target);
        let text = match denial {
            Some(denial) => narrowest(denial),
            None => target.to_owned(),
        };
        let unknown = |why: String| {
            Fault::new(
                Code::UsageArgument,
                format!("{target:?} is no rule and no id of this run"),
                why,
            )
            .help("bastle allow RUN net HOST, or the id of a denial such as d_8f2k")
        };
        let rule = NetRule::new(&text).map_err(unknown)?;
        let host = match &rule.target {
            NetTarget::Host(pattern) => pattern.host().as_str().to_owned(),
            NetTarget::Group(_) => String::new(),
        };
        Ok(Meant { text, host })
    }

    fn status(&self) -> Value {
        let grants = self.grants.as_ref().map(Grants::status).unwrap_or_default();
        let (state, reason) = self.standing_state();
        let mut status = json!({
            "run": self.plan.run,
            "argv": self.plan.argv,
            "state": state,
            "reason": reason,
            "denials": self.record.denials,
            "findings": {
                "count": self.unusual.found.count,
                "worst": self.unusual.found.worst.map(crate::anomaly::Severity::word),
            },
            "net": null,
            "grants": grants,
        });
        if let Some(told) = self.reports() {
            status["reported"] = json!(told);
        }
        if let Some(net) = &self.net {
            let (allow, deny) = net.rules.added();
            let questions: Vec<&str> = net.questions.iter().map(|asked| asked.id.as_str()).collect();
            let asks: Vec<Value> = net
                .questions
                .iter()
                .map(super::questions::Asked::document)
                .collect();
            status["net"] = json!(net.totals);
            status["questions"] = json!(questions);
            status["asks"] = json!(asks);
            status["allowed"] = json!(allow);
            status["denied"] = json!(deny);
        }
        status
    }
}

/// An answer to a question that nobody asks any more.
fn no_question(id: &str) -> Fault {
    Fault::new(
        Code::UsageArgument,
        format!("nobody asks {id:?} any more"),
        "it was answered, or its time is over",
    )
    .help("bastle ps")
}

struct Meant {
    text: String,
    host: String,
}

/// The narrowest rule that lets what was denied through.
fn narrowest(denial: &NetDecision) -> String {
    let place = match denial.port {
        0 | 80 | 443 => denial.host.clone(),
        port => format!("{}:{port}", denial.host),
    };
    let readable = matches!(denial.face, Face::Http | Face::Https);
    match (&denial.method, &denial.path) {
        (Some(method), Some(path)) if readable => {
            let rule = format!("{method} {place}{path}");
            // A path that a rule cannot spell leaves the host.
            if NetRule::new(&rule).is_ok() { rule } else { place }
        }
        _ => place,
    }
}
