//! The eleven operations, whatever binding they came by: who is spoken to, in which version, and what is answered.
use super::asked::{Params, flag, history, object, spelled, text};
use super::live::Live;
use super::modes::Modes;
use super::stream::{TaskStream, filter};
use super::task::{Shown, TaskState, WithArtifacts, Words, settle, standing, task};
use super::wrong::{Kind, Wrong};
use super::{card, listing, push, send};
use crate::app::App;
use crate::dto::plain;
use crate::errors::{Refusal, Told};
use crate::guard::Who;
use crate::routes::events::{Feed, Next};
use crate::routes::runs::told;
use axum::http::{HeaderMap, Uri};
use bastle_contract::RunId;
use bastle_control::fleet::{Fleet, StopHow, Verb, Which};
use serde_json::{Value, json};
use std::time::Duration;

/// The version that is spoken.
pub(crate) const VERSION: &str = "1.0";
/// Time between being asked to end and being ended, and how long an answer to that is waited for.
const GRACE: Duration = Duration::from_secs(10);
const ENDING: Duration = Duration::from_secs(60);

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Send,
    Stream,
    Get,
    List,
    Cancel,
    Subscribe,
    PushCreate,
    PushGet,
    PushList,
    PushDelete,
    Card,
}

impl Op {
    /// By its name in JSON-RPC.
    pub(crate) fn of(method: &str) -> Option<Self> {
        Some(match method {
            "SendMessage" => Self::Send,
            "SendStreamingMessage" => Self::Stream,
            "GetTask" => Self::Get,
            "ListTasks" => Self::List,
            "CancelTask" => Self::Cancel,
            "SubscribeToTask" => Self::Subscribe,
            "CreateTaskPushNotificationConfig" => Self::PushCreate,
            "GetTaskPushNotificationConfig" => Self::PushGet,
            "ListTaskPushNotificationConfigs" => Self::PushList,
            "DeleteTaskPushNotificationConfig" => Self::PushDelete,
            "GetExtendedAgentCard" => Self::Card,
            _ => return None,
        })
    }
}

/// Who is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// The door, which starts workers.
    Door,
    /// One worker.
    Worker(RunId),
}

/// Somebody who calls, and whom.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) app: App,
    pub(crate) who: Who,
    pub(crate) at: At,
    pub(crate) base: String,
}

/// What is answered.
pub(crate) enum Done {
    Value(Value),
    Stream(Box<TaskStream>),
}

/// Which version a request speaks. Nothing is 0.3, as the protocol has it; the patch number does not count.
pub(crate) fn version(headers: &HeaderMap, uri: &Uri) -> Result<(), Wrong> {
    let header = headers
        .get("a2a-version")
        .map(|value| value.to_str().unwrap_or("?").to_owned());
    let query = || {
        let all = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri).ok()?;
        let mut all = all.0.into_iter();
        all.find(|(name, _)| name.eq_ignore_ascii_case("a2a-version"))
            .map(|(_, value)| value)
    };
    let asked = header.or_else(query).unwrap_or_default();
    let asked = asked.trim();
    let mut parts = asked.split('.');
    let digits = |part: Option<&str>| part.is_none_or(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    let same = parts.next() == Some("1") && parts.next() == Some("0");
    if same && digits(parts.next()) && parts.next().is_none() {
        return Ok(());
    }
    let asked = if asked.is_empty() { "0.3" } else { asked };
    Err(Wrong::new(
        Kind::Version,
        format!(
            "version {} is not spoken here: A2A-Version: {VERSION}",
            plain(asked)
        ),
    ))
}

/// Extensions that a request names and that are known: they are told back.
pub(crate) fn extensions(headers: &HeaderMap) -> Option<String> {
    let all = headers
        .get_all("a2a-extensions")
        .iter()
        .filter_map(|value| value.to_str().ok());
    let known: Vec<&str> = all
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|uri| *uri == super::task::SPAWN || *uri == super::task::APPROVAL)
        .take(8)
        .collect();
    (!known.is_empty()).then(|| known.join(", "))
}

impl Call {
    pub(crate) fn told(&self) -> Told {
        told(&self.who.0)
    }

    /// Makes a refusal of ours one of the protocol.
    pub(crate) fn wrong(&self, refusal: &Refusal) -> Wrong {
        Wrong::of(refusal, self.told())
    }

    /// Calls the fleet where waiting is allowed.
    pub(crate) async fn ask<T: Send + 'static, E: Into<Refusal> + Send + 'static>(
        &self,
        work: impl FnOnce(&Fleet) -> Result<T, E> + Send + 'static,
    ) -> Result<T, Wrong> {
        self.app.ask(work).await.map_err(|refusal| self.wrong(&refusal))
    }

    /// The run of a task, if it is one of the caller's for this. Whole names only: a task has one id.
    pub(crate) async fn run(&self, verb: Verb, task: &str) -> Result<RunId, Wrong> {
        let found = self.app.named(&self.who.0, verb, task).await;
        let name = found.map_err(|refusal| match self.wrong(&refusal) {
            wrong if wrong.kind == Kind::TaskNotFound || wrong.kind == Kind::Unsupported => {
                Wrong::no_task(task)
            }
            wrong => wrong,
        })?;
        let here = match &self.at {
            At::Door => true,
            At::Worker(run) => *run == name,
        };
        match here && name.as_str() == task {
            true => Ok(name),
            false => Err(Wrong::no_task(task)),
        }
    }

    /// The same to act inside it, or to see what it prints.
    pub(crate) async fn entered(&self, verb: Verb, task: &str) -> Result<RunId, Wrong> {
        let run = self.run(verb, task).await?;
        let (who, name) = (self.who.0.clone(), run.clone());
        self.ask(move |fleet| fleet.may_enter(&who, &name)).await?;
        Ok(run)
    }

    /// The same for whoever a request names as its tenant.
    async fn for_tenant(&self, params: &Params) -> Result<Self, Wrong> {
        let Some(tenant) = text(params, "tenant")? else {
            return Ok(self.clone());
        };
        let unknown = |_| Wrong::field("tenant", "there is no such tenant");
        let run = self.run(Verb::Read, tenant).await.map_err(unknown)?;
        Ok(Self {
            at: At::Worker(run),
            ..self.clone()
        })
    }

    /// A task as the caller sees it.
    pub(crate) async fn task(&self, run: &RunId, history: Option<usize>) -> Result<Value, Wrong> {
        let shown = Shown {
            history,
            artifacts: WithArtifacts::Yes,
            told: self.told(),
            words: Words::Hidden,
        };
        settle(&self.app, run).await;
        let (run, state, who) = (run.clone(), self.app.state.clone(), self.who.0.clone());
        self.ask(move |fleet| {
            let shown = shown.within(fleet, &who, &run);
            task(fleet, &state, &run, shown)
        })
        .await
    }

    /// What happens to a task after an event; the task itself comes first.
    pub(crate) async fn watch(
        &self,
        run: RunId,
        since: u64,
        (history, modes): (Option<usize>, Modes),
    ) -> Result<TaskStream, Wrong> {
        let feed = Feed::of(self.app.clone(), self.who.clone(), filter(&run), since);
        let feed = feed.map_err(|refusal| self.wrong(&refusal))?;
        let mut first = self.task(&run, history).await?;
        let context = first["contextId"].as_str().unwrap_or_default();
        let live = Live::begin(&self.app, &run, context).await;
        let (live, printed) = live.map_err(|refusal| self.wrong(&refusal))?;
        // What it printed so far goes on in pieces; one that ended has left it behind already.
        if let (Some(printed), Some(all)) = (printed, first["artifacts"].as_array_mut())
            && all.is_empty()
        {
            all.push(printed);
        }
        let first = modes.task(first);
        let stream = TaskStream::new(self.app.clone(), feed, run, self.told(), Some(first))
            .read_by(self.who.0.clone());
        Ok(stream.in_modes(modes).with_output(live))
    }

    pub(crate) async fn newest(&self) -> Result<u64, Wrong> {
        self.ask(Fleet::newest_event).await
    }

    /// Waits until a task stands still or has ended; `heard` is a kind of event that must come first.
    pub(crate) async fn wait(&self, run: &RunId, since: u64, mut heard: Option<&str>) -> Result<(), Wrong> {
        let feed = Feed::of(self.app.clone(), self.who.clone(), filter(run), since);
        let mut feed = feed.map_err(|refusal| self.wrong(&refusal))?;
        loop {
            let name = run.clone();
            let state = self.ask(move |fleet| standing(fleet, &name)).await?.state;
            if state.is_final() || (state.is_interrupted() && heard.is_none()) {
                return Ok(());
            }
            match feed.next().await {
                Next::Events(events) => {
                    if events.iter().any(|event| Some(event.kind.as_str()) == heard) {
                        heard = None;
                    }
                }
                Next::Quiet => {}
                Next::Over => return Err(Wrong::new(Kind::Unavailable, "the daemon ends; ask again")),
            }
        }
    }
}

/// Does what is asked.
pub(crate) async fn perform(call: Call, op: Op, params: Params) -> Result<Done, Wrong> {
    let params = spelled(params)?;
    let call = call.for_tenant(&params).await?;
    let id = || text(&params, "id")?.ok_or_else(|| Wrong::field("id", "is missing"));
    Ok(match op {
        Op::Send => Done::Value(send::send(&call, &params).await?),
        Op::Stream => Done::Stream(Box::new(send::stream(&call, &params).await?)),
        Op::Get => {
            let history = history(&params)?;
            let run = call.run(Verb::Read, id()?).await?;
            Done::Value(call.task(&run, history).await?)
        }
        Op::List => Done::Value(listing::list(&call, &params).await?),
        Op::Cancel => Done::Value(cancel(&call, id()?).await?),
        Op::Subscribe => {
            let run = call.entered(Verb::Read, id()?).await?;
            // The number first: what happens while the task is read is told after it.
            let since = call.newest().await?;
            let name = run.clone();
            let state = call.ask(move |fleet| standing(fleet, &name)).await?.state;
            if state.is_final() {
                return Err(Wrong::new(
                    Kind::Unsupported,
                    "the task has ended: nothing more happens to it",
                ));
            }
            Done::Stream(Box::new(call.watch(run, since, (None, Modes::default())).await?))
        }
        Op::PushCreate => Done::Value(push::create(&call, &params).await?),
        Op::PushGet => Done::Value(push::one(&call, &params).await?),
        Op::PushList => Done::Value(push::list(&call, &params).await?),
        Op::PushDelete => Done::Value(push::remove(&call, &params).await?),
        Op::Card => Done::Value(card::extended(&call).await?),
    })
}

/// Ends a task and gives it as it then is.
async fn cancel(call: &Call, id: &str) -> Result<Value, Wrong> {
    let run = call.run(Verb::Control, id).await?;
    let name = run.clone();
    let state = call.ask(move |fleet| standing(fleet, &name)).await?.state;
    if state.is_final() {
        return Err(Wrong::new(
            Kind::NotCancelable,
            format!("the task has ended: {}", state.word()),
        ));
    }
    let since = call.newest().await?;
    let (caller, which) = (call.who.0.clone(), Which::Name(run.as_str().to_owned()));
    let acted = call
        .ask(move |fleet| fleet.stop(&caller, &which, StopHow::Stop { grace: GRACE }))
        .await?;
    let fault = acted.into_iter().find_map(|one| one.fault);
    if let Some(fault) = fault {
        let name = run.clone();
        // One that ended meanwhile is not the failure of whoever wanted it to end.
        if !call
            .ask(move |fleet| standing(fleet, &name))
            .await?
            .state
            .is_final()
        {
            return Err(call.wrong(&fault.into()));
        }
    }
    let ends = tokio::time::timeout(ENDING, ended(call, &run, since));
    // One that takes longer is told as it is.
    if let Ok(waited) = ends.await {
        waited?;
    }
    call.task(&run, None).await
}

async fn ended(call: &Call, run: &RunId, since: u64) -> Result<(), Wrong> {
    let feed = Feed::of(call.app.clone(), call.who.clone(), filter(run), since);
    let mut feed = feed.map_err(|refusal| call.wrong(&refusal))?;
    loop {
        let name = run.clone();
        let state: TaskState = call.ask(move |fleet| standing(fleet, &name)).await?.state;
        if state.is_final() {
            return Ok(());
        }
        if let Next::Over = feed.next().await {
            return Ok(());
        }
    }
}

/// Whether a caller wants the answer at once.
pub(crate) fn at_once(params: &Params) -> Result<bool, Wrong> {
    flag(&object(params, "configuration")?, "returnImmediately")
}

/// A task as an answer to a message.
pub(crate) fn answered(task: &Value) -> Value {
    json!({ "task": task })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_version_1_0_is_spoken_and_none_means_an_older_one() {
        let asks = |header: Option<&str>, uri: &str| {
            let mut headers = HeaderMap::new();
            if let Some(version) = header {
                headers.insert("a2a-version", version.parse().unwrap());
            }
            version(&headers, &uri.parse().unwrap()).is_ok()
        };
        assert!(asks(Some("1.0"), "/"));
        assert!(asks(Some("1.0.1"), "/"));
        assert!(asks(None, "/?A2A-Version=1.0"));
        for bad in ["", "0.3", "1", "1.1", "10.0", "2.0", "1.0.x", "1.0.1.2", "x", " "] {
            assert!(!asks(Some(bad), "/"), "{bad}");
        }
        assert!(!asks(None, "/"));
        assert!(!asks(Some("0.3"), "/?A2A-Version=1.0"));
    }
}
