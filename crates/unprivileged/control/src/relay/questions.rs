//! Questions to a person. While one is open the whole run stands still; without an answer the answer is no.
use super::Relay;
use crate::egress::Attendance;
use crate::live::Scope;
use crate::record::Keep;
use crate::voice::{About, Question, Reply, ToolWish};
use bastle_audit::AuditEvent;
use bastle_contract::egress::{BudgetReached, NetDecision, NetVerdict, ToEgress};
use bastle_contract::{Code, Fault};
use bastle_policy::OnTimeout;
use std::time::{Duration, Instant};

/// How long a question waits where no layer says so.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
/// Questions that wait at once; more are answered with no.
const MOST_QUESTIONS: usize = 64;
/// Answers that are remembered for the rest of the run.
const MOST_REMEMBERED: usize = 256;
/// Who answers at the keyboard, or at the run's own socket without a daemon between.
pub(super) const PERSON: &str = "person";
/// How a question about a budget is named.
const BUDGET_ID: &str = "budget";
/// ^C in a terminal that passes every key on.
const INTERRUPT: u8 = 3;

/// An open question.
pub(crate) struct Asked {
    pub(super) id: String,
    pub(super) hash: String,
    pub(super) until: Option<Instant>,
    what: What,
}

enum What {
    Request { ask: u64, decision: Box<NetDecision> },
    Budget(BudgetReached),
    Tool(ToolWish),
}

/// What an answer for the rest of the run covers: the same method at the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    host: String,
    port: u16,
    method: Option<String>,
    operation: Option<String>,
}

impl From<&NetDecision> for Subject {
    fn from(decision: &NetDecision) -> Self {
        Self {
            host: decision.host.clone(),
            port: decision.port,
            method: decision.method.clone(),
            operation: decision.operation.clone(),
        }
    }
}

impl Asked {
    /// What is shown of it elsewhere.
    pub(super) fn document(&self) -> serde_json::Value {
        let about = self.about();
        serde_json::json!({ "id": self.id, "hash": self.hash, "text": about.words(), "about": about.document() })
    }

    pub(super) fn about(&self) -> About<'_> {
        match &self.what {
            What::Request { decision, .. } => About::Request(decision),
            What::Budget(reached) => About::Budget(reached),
            What::Tool(wish) => About::Tool(wish),
        }
    }
}

impl Relay<'_> {
    /// A request waits for a person.
    pub(super) fn ask(&mut self, ask: u64, mut decision: NetDecision) -> Result<(), Fault> {
        decision.verdict = NetVerdict::Asked;
        self.record
            .net(&AuditEvent::Net(decision.clone()), Keep::Always)?;
        let Some(net) = &mut self.net else {
            return Ok(());
        };
        net.totals.decided(&decision);
        let subject = Subject::from(&decision);
        let id = if decision.id.is_empty() {
            format!("q_{ask}")
        } else {
            decision.id.clone()
        };
        let settled = if net.remembered.contains(&subject) {
            Some((Reply::Yes, PERSON))
        } else if net.setup.attendance == Attendance::Nobody || net.questions.len() >= MOST_QUESTIONS {
            Some((Reply::No, "unattended"))
        } else {
            None
        };
        if let Some((reply, by)) = settled {
            let allow = reply.is_yes();
            self.record.durable(&AuditEvent::NetAnswered {
                seq: decision.seq,
                id,
                allow,
                by: by.to_owned(),
            })?;
            if let Some(net) = &self.net {
                net.tell(&ToEgress::Answer { ask, allow });
            }
            return Ok(());
        }
        self.open(
            id,
            What::Request {
                ask,
                decision: Box::new(decision),
            },
        )
    }

    /// A budget is used up: a person lets the run go on, or it ends.
    pub(super) fn ask_budget(&mut self, reached: BudgetReached) -> Result<(), Fault> {
        let nobody = self
            .net
            .as_ref()
            .is_none_or(|net| net.setup.attendance == Attendance::Nobody);
        if nobody {
            return self.out_of_budget();
        }
        self.open(BUDGET_ID.to_owned(), What::Budget(reached))
    }

    /// The agent's own permission layer asks; `false` where nobody can be asked.
    pub(super) fn ask_tool(&mut self, id: String, wish: ToolWish) -> Result<bool, Fault> {
        let nobody = self.net.as_ref().is_none_or(|net| {
            net.setup.attendance == Attendance::Nobody || net.questions.len() >= MOST_QUESTIONS
        });
        if nobody {
            return Ok(false);
        }
        self.open(id, What::Tool(wish)).map(|()| true)
    }

    /// Whoever asked does not wait any more.
    pub(super) fn forget_question(&mut self, id: &str) -> Result<(), Fault> {
        let Some(net) = &mut self.net else {
            return Ok(());
        };
        let Some(at) = net.questions.iter().position(|asked| asked.id == id) else {
            return Ok(());
        };
        net.questions.remove(at);
        self.voice.answered(id, Reply::No, "withdrawn");
        self.next_question(at)
    }

    fn open(&mut self, id: String, what: What) -> Result<(), Fault> {
        let until = match self.approvals {
            (_, Some(OnTimeout::Pause)) => None,
            (timeout, _) => Some(Instant::now() + timeout.unwrap_or(PATIENCE)),
        };
        let run = &self.plan.run;
        let Some(net) = &mut self.net else {
            return Ok(());
        };
        let mut asked = Asked {
            id,
            hash: String::new(),
            until,
            what,
        };
        let text = format!("{run}\n{}\n{}", asked.id, asked.about().document());
        asked.hash = blake3::hash(text.as_bytes()).to_hex().to_string();
        self.voice.asked(&Question {
            id: &asked.id,
            hash: &asked.hash,
            about: asked.about(),
            keyboard: false,
        });
        net.questions.push_back(asked);
        let first = net.questions.len() == 1;
        self.stand()?;
        if first {
            self.pose();
        }
        Ok(())
    }

    /// Puts the oldest question to the person.
    fn pose(&mut self) {
        let Some(net) = &self.net else { return };
        if let Some(asked) = net.questions.front() {
            // What was typed before the question was no answer to it. Input that is no terminal has nothing to flush.
            match rustix::termios::tcflush(std::io::stdin(), rustix::termios::QueueSelector::IFlush) {
                Ok(()) | Err(_) => {}
            }
            self.voice.question(&Question {
                id: &asked.id,
                hash: &asked.hash,
                about: asked.about(),
                keyboard: net.setup.attendance == Attendance::Keyboard,
            });
        }
    }

    /// Whether keys answer a question right now.
    pub(super) fn asks_keyboard(&self) -> bool {
        self.net
            .as_ref()
            .is_some_and(|net| net.setup.attendance == Attendance::Keyboard && !net.questions.is_empty())
    }

    /// Keys: `a` once, `A` for the rest of the run, `d` no.
    pub(super) fn keys(&mut self) -> Result<(), Fault> {
        let mut bytes = [0; 64];
        let count = match rustix::io::read(std::io::stdin(), &mut bytes) {
            Ok(0) => {
                // Nobody will type any more: only another terminal can answer.
                if let Some(net) = &mut self.net {
                    net.setup.attendance = Attendance::Elsewhere;
                }
                return Ok(());
            }
            Ok(count) => count,
            Err(_) => return Ok(()),
        };
        for key in &bytes[..count] {
            match key {
                b'a' | b'y' => self.answer_oldest(Reply::Yes, Scope::Once, PERSON)?,
                b'A' => self.answer_oldest(Reply::Yes, Scope::Session, PERSON)?,
                b'd' | b'D' | b'n' | &INTERRUPT => self.answer_oldest(Reply::No, Scope::Once, PERSON)?,
                _ => {}
            }
            if !self.asks_keyboard() {
                break;
            }
        }
        Ok(())
    }

    /// Answers what waited too long.
    pub(super) fn expire_questions(&mut self) -> Result<(), Fault> {
        while self
            .net
            .as_ref()
            .and_then(super::net::Net::deadline)
            .is_some_and(|until| Instant::now() >= until)
        {
            self.answer_oldest(Reply::No, Scope::Once, "timeout")?;
        }
        Ok(())
    }

    /// Answers a question by its id; `false` where none has it. An answer to what was asked under the same id before
    /// is refused.
    pub(super) fn answer_by_id(
        &mut self,
        id: &str,
        hash: Option<&str>,
        reply: (Reply, Scope),
        by: &str,
    ) -> Result<Result<bool, Fault>, Fault> {
        let Some(net) = &mut self.net else {
            return Ok(Ok(false));
        };
        let Some(at) = net.questions.iter().position(|asked| asked.id == id) else {
            return Ok(Ok(false));
        };
        let stale = net
            .questions
            .get(at)
            .is_some_and(|asked| hash.is_some_and(|hash| hash != asked.hash));
        if stale {
            return Ok(Err(Fault::new(
                Code::UsageArgument,
                format!("the question {id} is not the one that was answered"),
                "its hash is another: what is asked now is not what was shown",
            )
            .help(format!("bastle approvals ls, or bastle ps: {}", self.plan.run))));
        }
        if let Some(asked) = net.questions.remove(at) {
            self.settle(asked, reply.0, reply.1, by)?;
            self.next_question(at)?;
        }
        Ok(Ok(true))
    }

    fn answer_oldest(&mut self, reply: Reply, scope: Scope, by: &str) -> Result<(), Fault> {
        if let Some(asked) = self.net.as_mut().and_then(|net| net.questions.pop_front()) {
            self.settle(asked, reply, scope, by)?;
            self.next_question(0)?;
        }
        Ok(())
    }

    fn settle(&mut self, asked: Asked, reply: Reply, scope: Scope, by: &str) -> Result<(), Fault> {
        let allow = reply.is_yes();
        let (id, by_whom) = (asked.id.clone(), by.to_owned());
        let seq = match &asked.what {
            What::Request { decision, .. } => decision.seq,
            What::Budget(_) | What::Tool(_) => 0,
        };
        self.record.durable(&match &asked.what {
            What::Tool(wish) => AuditEvent::ToolAnswered {
                id,
                used: wish.title[..wish.title.floor_char_boundary(1024)].to_owned(),
                allow,
                by: by_whom,
                rule: None,
                hash: Some(asked.hash.clone()),
            },
            What::Request { .. } | What::Budget(_) => AuditEvent::NetAnswered {
                seq,
                id,
                allow,
                by: by_whom,
            },
        })?;
        self.voice.answered(&asked.id, reply, by);
        match asked.what {
            What::Request { ask, decision } => {
                let Some(net) = &mut self.net else {
                    return Ok(());
                };
                if allow && scope == Scope::Session && net.remembered.len() < MOST_REMEMBERED {
                    net.remembered.push(Subject::from(&*decision));
                }
                net.tell(&ToEgress::Answer { ask, allow });
            }
            What::Budget(_) if allow => {
                if let Some(net) = &mut self.net {
                    net.tell(&ToEgress::Extend);
                    // It extends every budget that was reached: one answer is enough.
                    net.questions
                        .retain(|asked| !matches!(asked.what, What::Budget(_)));
                }
            }
            What::Budget(_) => self.out_of_budget()?,
            What::Tool(wish) => self.permit(&asked.id, &wish, reply, scope),
        }
        Ok(())
    }

    /// The next question, or the run goes on. `answered` is the place of the one that was: only the oldest was told.
    fn next_question(&mut self, answered: usize) -> Result<(), Fault> {
        if self.net.as_ref().is_some_and(|net| net.questions.is_empty()) {
            self.stand()?;
        } else if answered == 0 {
            self.pose();
        }
        Ok(())
    }

    /// Who asked is gone, and with it what would act on an answer.
    pub(super) fn forget_questions(&mut self) -> Result<(), Fault> {
        let Some(net) = &mut self.net else {
            return Ok(());
        };
        for asked in &net.questions {
            match asked.what {
                What::Request { .. } => self.voice.answered(&asked.id, Reply::No, "lost"),
                What::Budget(_) | What::Tool(_) => {}
            }
        }
        net.questions
            .retain(|asked| !matches!(asked.what, What::Request { .. }));
        self.stand()
    }
}
