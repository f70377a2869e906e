//! A driven agent: what it prints is read in its protocol, what is said to it goes through its driver.
//!
//! **Trust:** everything it says is untrusted and becomes an event or a question. A permission that its own layer asks for
//! is answered with yes only by a person, and never widens the fence.
use super::Relay;
use super::standing::TERMINATE;
use crate::keeper::{After, Driven};
use bastle_agents::{AgentUsage, DriverError, Heard, Said, TurnEnd};
use bastle_audit::AuditEvent;
use bastle_contract::runs::ModelsReported;
use bastle_contract::{Code, Fault, ToInit};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Bytes of what an agent says that become events; the rest is in its output.
const MOST_SAID: usize = 64 * 1024 * 1024;
/// Bytes of a line of the audit log.
const MOST_NOTE: usize = 4096;
/// Answers that wait for an agent which does not read them; more are dropped.
const MOST_UNREAD: usize = 1024 * 1024;
/// How long an agent whose input is closed may take to end by itself, and after it was asked to.
const LEAVING: Duration = Duration::from_secs(15);
const GOING: Duration = Duration::from_secs(5);
/// How long an agent whose budget is used up may take to end its turn in order.
const WINDING_UP: Duration = Duration::from_secs(10);

impl Relay<'_> {
    pub(super) fn driven(&mut self) -> Option<&mut Driven> {
        self.front.kept().and_then(|kept| kept.driven.as_mut())
    }

    /// Whether words to the agent would begin a turn.
    pub(super) fn begins_turn(&mut self) -> bool {
        self.driven().is_some_and(|driven| !driven.driver.is_working())
    }

    /// Takes what the agent printed, where it is driven.
    pub(super) fn hear_agent(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let Some(driven) = self.driven() else {
            return Ok(());
        };
        let Heard { said, reply } = driven.driver.take(bytes);
        self.answer_or_drop(reply);
        for said in said {
            self.agent_said(said)?;
        }
        self.feed()
    }

    /// An agent that asks and does not read must not fill our memory with answers.
    fn answer_or_drop(&mut self, reply: Vec<u8>) {
        if self.pending.len() + reply.len() <= MOST_UNREAD {
            self.pending.extend(reply);
            return;
        }
        if let Some(driven) = self.driven()
            && !std::mem::replace(&mut driven.deaf, true)
        {
            let text = "the agent does not read its input: what it asks is not answered";
            self.voice.happened("note", json!({ "text": text }));
        }
    }

    fn agent_said(&mut self, said: Said) -> Result<(), Fault> {
        let event = json!(said);
        if let Some(driven) = self.driven() {
            let before = driven.told;
            driven.told = before.saturating_add(event.to_string().len());
            let after = driven.told;
            if after <= MOST_SAID {
                self.voice.happened("agent", event);
            } else if before <= MOST_SAID {
                let text = "what the agent says further is in its output only";
                self.voice.happened("note", json!({ "text": text }));
            }
        }
        match said {
            Said::Permission(permission) => self.permission(permission),
            Said::Withdrawn { id } => self.withdrawn_permission(&id),
            Said::TurnEnded { how, .. } => self.turn_ended(how),
            Said::TurnBegan => {
                if let Some(driven) = self.driven() {
                    driven.idle = false;
                }
                self.stand()
            }
            Said::Ready { .. } => self.stand(),
            Said::Text { .. }
            | Said::Thought { .. }
            | Said::Tool { .. }
            | Said::Steered { .. }
            | Said::Trouble { .. }
            | Said::Noise { .. } => Ok(()),
            // Told and shown. Budgets are held by egress, which counts for itself.
            Said::Usage(usage) => {
                self.voice.reported(reported(&usage));
                Ok(())
            }
        }
    }

    /// What the agent says that it used, where it says anything.
    pub(super) fn reports(&self) -> Option<ModelsReported> {
        let driven = self.front.kept_ref()?.driven.as_ref()?;
        let told = reported(&driven.driver.usage());
        (told != ModelsReported::default()).then_some(told)
    }

    /// With its turn the work of an agent is done, unless it is kept open. One that a person interrupted waits for what
    /// that person says.
    fn turn_ended(&mut self, how: TurnEnd) -> Result<(), Fault> {
        let Some(driven) = self.driven() else {
            return Ok(());
        };
        driven.last = Some(how);
        if driven.driver.is_working() {
            return Ok(());
        }
        if driven.spent.take().is_some() {
            self.end_for_budget();
            return Ok(());
        }
        if driven.after == After::End && how != TurnEnd::Interrupted {
            self.dismiss();
            return Ok(());
        }
        driven.idle = true;
        self.stand()
    }

    /// Closes the agent's input, which it takes for the end.
    fn dismiss(&mut self) {
        let Some(driven) = self.driven() else {
            return;
        };
        let last = driven.driver.close();
        driven.leaving = Some(Instant::now() + LEAVING);
        self.pending.extend(last);
        self.input_ended = true;
    }

    /// Nobody asks the agent anything more.
    pub(super) fn finish(&mut self) -> Result<(), Fault> {
        if self.leaving().is_some() {
            // It goes already.
            return Ok(());
        }
        if self.idles() {
            if let Some(driven) = self.driven() {
                driven.idle = false;
            }
            self.dismiss();
        } else {
            self.stop(GOING, "person");
        }
        self.stand()
    }

    /// When somebody who should have gone is ended.
    pub(super) fn leaving(&self) -> Option<Instant> {
        let driven = self.front.kept_ref()?.driven.as_ref()?;
        [driven.leaving, driven.spent].into_iter().flatten().min()
    }

    /// Has an agent whose budget is used up end its turn in order; `false` where it cannot be told. It is ended when it
    /// has, or when its time for that is over.
    pub(super) fn wind_up(&mut self) -> Result<bool, Fault> {
        let Some(driven) = self.driven() else {
            return Ok(false);
        };
        if driven.spent.is_some() {
            return Ok(true);
        }
        let Ok(bytes) = driven.driver.interrupt() else {
            return Ok(false);
        };
        driven.spent = Some(Instant::now() + WINDING_UP);
        self.pending.extend(bytes);
        self.hear_agent(&[])?;
        self.voice
            .happened("said", json!({ "how": "interrupted", "why": "budget" }));
        Ok(true)
    }

    /// What was decided about how the agent is run, told and recorded before it starts.
    pub(super) fn tell_notes(&mut self) -> Result<(), Fault> {
        let notes = self.driven().map(|driven| std::mem::take(&mut driven.notes));
        for text in notes.into_iter().flatten() {
            self.note_durably("how the agent is run", &text)?;
            self.voice.happened("note", json!({ "text": text }));
        }
        Ok(())
    }

    /// Whether the agent waits for what it is told.
    pub(super) fn idles(&self) -> bool {
        let driven = self.front.kept_ref().and_then(|kept| kept.driven.as_ref());
        driven.is_some_and(|driven| driven.idle)
    }

    /// Not every agent takes the end of its input for the end: after a while it is ended, and its work counts.
    pub(super) fn see_off(&mut self) {
        if self.ended || self.leaving().is_none_or(|until| Instant::now() < until) {
            return;
        }
        if let Some(driven) = self.driven() {
            if driven.spent.take().is_some() {
                self.end_for_budget();
                return;
            }
            driven.leaving = None;
            driven.dismissed = true;
        }
        self.tell_init(&ToInit::Signal { signal: TERMINATE });
        let until = Instant::now() + GOING;
        self.patience = Some(self.patience.map_or(until, |known| known.min(until)));
    }

    /// A line of the audit log, cut to what a record takes.
    pub(super) fn note_durably(&mut self, topic: &str, text: &str) -> Result<(), Fault> {
        let text = text[..text.floor_char_boundary(MOST_NOTE)].to_owned();
        self.record.durable(&AuditEvent::Note {
            topic: topic.to_owned(),
            text,
        })
    }

    /// Asks the agent something, or says something to it while it works.
    pub(super) fn say(&mut self, words: &str) -> Result<Result<Value, Vec<Fault>>, Fault> {
        let run = self.plan.run.clone();
        let Some(driven) = self.driven() else {
            return Ok(Err(vec![undriven(&run)]));
        };
        let (sent, how) = if driven.driver.is_working() {
            (driven.driver.steer(words), "steered")
        } else {
            (driven.driver.prompt(words), "asked")
        };
        self.put(sent, how)
    }

    /// Has the agent stop what it does; the run goes on.
    pub(super) fn interrupt_agent(&mut self) -> Result<Result<Value, Vec<Fault>>, Fault> {
        let run = self.plan.run.clone();
        let Some(driven) = self.driven() else {
            return Ok(Err(vec![undriven(&run)]));
        };
        let sent = driven.driver.interrupt();
        let answer = self.put(sent, "interrupted")?;
        // Requests that it withdrew: the agent may say nothing for long.
        self.hear_agent(&[])?;
        Ok(answer)
    }

    fn put(
        &mut self,
        sent: Result<Vec<u8>, DriverError>,
        how: &str,
    ) -> Result<Result<Value, Vec<Fault>>, Fault> {
        match sent {
            Ok(_) if self.streams.input.is_none() || self.input_ended => Ok(Err(vec![Fault::new(
                Code::RunState,
                "nothing more can be said to this agent",
                "its input is closed",
            )])),
            Ok(bytes) => {
                // That somebody did, and what by its digest: the words themselves are the person's and the agent's.
                let digest = blake3::hash(&bytes).to_hex();
                self.note_durably("a person spoke to the agent", &format!("{how}, blake3 {digest}"))?;
                self.pending.extend(bytes);
                self.feed()?;
                self.voice.happened("said", json!({ "how": how }));
                if how != "interrupted"
                    && let Some(driven) = self.driven()
                {
                    driven.idle = false;
                }
                self.stand()?;
                Ok(Ok(json!({ "run": self.plan.run, "how": how })))
            }
            Err(error) => Ok(Err(vec![Fault::new(
                Code::RunState,
                format!("the agent of {} was not {how}", self.plan.run),
                error.to_string(),
            )])),
        }
    }
}

/// An agent's word about itself in our units. A cost that is no amount is none.
fn reported(usage: &AgentUsage) -> ModelsReported {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "neither negative nor without end, and what is too large becomes the largest"
    )]
    let micro = |usd: f64| (usd * 1_000_000.0).round() as u64;
    ModelsReported {
        turns: usage.turns,
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        cost_micro_usd: usage
            .cost_usd
            .filter(|usd| usd.is_finite() && *usd >= 0.0)
            .map(micro),
    }
}

fn undriven(run: &bastle_contract::RunId) -> Fault {
    Fault::new(
        Code::RunState,
        format!("the agent of {run} is not driven"),
        "it was started as a plain command",
    )
    .help("bastle run -d --driver claude|codex|acp|opencode -- CMD")
    .help(format!("bastle attach {run}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_that_is_no_amount_is_not_shown_as_one_and_a_huge_one_does_not_overflow() {
        let told = |cost_usd: Option<f64>| {
            let usage = AgentUsage {
                turns: 2,
                cost_usd,
                ..AgentUsage::default()
            };
            reported(&usage).cost_micro_usd
        };
        assert_eq!(told(Some(0.25)), Some(250_000));
        assert_eq!(told(None), None);
        for none in [f64::NAN, f64::INFINITY, -1.0] {
            assert_eq!(told(Some(none)), None, "{none}");
        }
        assert_eq!(told(Some(1e300)), Some(u64::MAX));
    }
}
