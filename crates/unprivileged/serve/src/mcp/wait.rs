//! Waiting for workers: the events of the fleet are followed with the caller's own right, and a worker is looked at again
//! when something happened to it.
//!
//! Nothing outlives the question: dropped, it lets go of the stream of events and of its place among the caller's streams.
use super::content::escaped;
use super::door::{Asker, Door, News, Rest};
use super::tools::brief;
use bastle_contract::{Code, Fault};
use bastle_mcp::Call;
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// What is followed: all that changes whether a worker is waited for.
const EVENTS: &str = "/api/v1/events?kind=state,question,answered,ended,removed";
/// Between two looks where the events cannot be followed, or looking was too much.
const SLOW: Duration = Duration::from_secs(2);
/// A worker says that it ended, then how. So long that is waited for, and so often it is looked at.
const SETTLES: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(50);
/// How long when nobody says.
const USUAL: u64 = 60;

/// States that no run leaves.
const ENDED: [&str; 4] = ["completed", "failed", "cancelled", "refused"];
/// States in which somebody must do something.
const ASKS: [&str; 2] = ["needs-input", "needs-credential"];

/// One that is waited for.
struct Watched {
    asked: String,
    /// As it was last seen.
    seen: Value,
    /// Whether something happened since.
    stale: bool,
}

/// Everything that one question waits for.
struct Waiting<'c> {
    door: &'c Door,
    asker: &'c Asker,
    workers: Vec<Watched>,
    news: Option<News>,
    /// Since when all have ended and not all have said how.
    settling: Option<Instant>,
}

pub(super) async fn wait(
    door: &Door,
    arguments: &Map<String, Value>,
    call: &Call<Asker>,
) -> Result<Value, Vec<Fault>> {
    let any = arguments.get("until").and_then(Value::as_str) == Some("any");
    let seconds = arguments.get("timeout_s").and_then(Value::as_u64);
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(USUAL));
    let names = arguments["workers"].as_array().into_iter().flatten();
    let mut waiting = Waiting {
        door,
        asker: &call.caller,
        workers: names
            .filter_map(Value::as_str)
            .map(|name| Watched {
                asked: name.to_owned(),
                seen: Value::Null,
                stale: true,
            })
            .collect(),
        // Before anybody is looked at: what happens meanwhile is heard.
        news: door.follow(&call.caller, EVENTS).await.ok(),
        settling: None,
    };
    let mut step = 0;
    let mut before = String::new();
    loop {
        let pace = waiting.look().await?;
        let (ended, asks) = (waiting.count(&ENDED), waiting.count(&ASKS));
        let over = match any {
            true => ended > 0 || waiting.workers.is_empty(),
            false => ended == waiting.workers.len(),
        };
        let late = Instant::now() >= until;
        let why = match (over && waiting.settled(), asks > 0 && !over, late) {
            (true, _, _) => Some("ended"),
            (_, true, _) => Some("question"),
            (_, _, true) => Some("timeout"),
            (false, false, false) => None,
        };
        if let Some(why) = why {
            let workers: Vec<Value> = waiting.workers.into_iter().map(|one| one.seen).collect();
            return Ok(json!({ "why": why, "workers": workers }));
        }
        let now = told(&waiting.workers);
        if now != before && call.out.wants_progress() {
            step += 1;
            call.out.progress(step, None, &now).await;
            before = now;
        }
        waiting.sleep(until, if over { Pace::Ending } else { pace }).await;
    }
}

/// How soon it is looked again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// When something happens.
    Usual,
    /// Later: looking was too much.
    Slower,
    /// Soon: it has to be said only how they ended.
    Ending,
}

impl Waiting<'_> {
    /// Looks at those to whom something happened.
    async fn look(&mut self) -> Result<Pace, Vec<Fault>> {
        for one in self.workers.iter_mut().filter(|one| one.stale) {
            let path = format!("/api/v1/runs/{}", escaped(&one.asked));
            match self.door.ask(self.asker, Rest::get(path)).await {
                Ok(run) => {
                    one.seen = brief(&run);
                    one.stale = false;
                }
                // Looking too often is ours to slow down, not a reason to stop waiting.
                Err(faults) if faults.first().is_some_and(|fault| fault.code == Code::ApiRate) => {
                    return Ok(Pace::Slower);
                }
                Err(faults) => return Err(faults),
            }
        }
        Ok(Pace::Usual)
    }

    fn count(&self, states: &[&str]) -> usize {
        self.workers.iter().filter(|one| is_in(&one.seen, states)).count()
    }

    /// Whether everybody who ended has said how, or had the time to.
    fn settled(&mut self) -> bool {
        let open = |one: &&mut Watched| {
            is_in(&one.seen, &ENDED) && one.seen["code"].is_null() && one.seen["reason"].is_null()
        };
        let mut any = false;
        for one in self.workers.iter_mut().filter(open) {
            one.stale = true;
            any = true;
        }
        !any || self.settling.get_or_insert_with(Instant::now).elapsed() >= SETTLES
    }

    /// Until something happens to one of them, or it is time.
    async fn sleep(&mut self, until: Instant, pace: Pace) {
        let news = match (pace, &mut self.news) {
            (Pace::Ending, _) => return tokio::time::sleep(LOOK).await,
            (Pace::Usual, Some(news)) => Some(news),
            (Pace::Slower, _) | (Pace::Usual, None) => None,
        };
        let Some(news) = news else {
            self.workers.iter_mut().for_each(|one| one.stale = true);
            return tokio::time::sleep_until(until.min(Instant::now() + SLOW)).await;
        };
        loop {
            let heard = tokio::select! {
                heard = news.next() => heard,
                () = tokio::time::sleep_until(until) => return,
            };
            let Some(event) = heard else {
                // The stream is over; what is still there is looked at as before.
                self.news = None;
                self.workers.iter_mut().for_each(|one| one.stale = true);
                return;
            };
            let subject = event["subject"].as_str();
            let mut ours = false;
            for one in &mut self.workers {
                if one.seen["name"].as_str() == subject {
                    one.stale = true;
                    ours = true;
                }
            }
            if ours {
                return;
            }
        }
    }
}

fn is_in(worker: &Value, states: &[&str]) -> bool {
    worker["state"]
        .as_str()
        .is_some_and(|state| states.contains(&state))
}

/// `calm-otter: running, …`. Names and states are ours.
fn told(workers: &[Watched]) -> String {
    let word = |worker: &Watched, name: &str| worker.seen[name].as_str().unwrap_or("?").to_owned();
    let all: Vec<String> = workers
        .iter()
        .map(|worker| format!("{}: {}", word(worker, "name"), word(worker, "state")))
        .collect();
    all.join(", ")
}
