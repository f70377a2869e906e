//! Runs: listed, looked at, ended, made to stand still, removed; what they printed and what happened to them.
use super::meta::{OK, Status};
use super::spawn::Preamble;
use super::{Body, Params, PathOf, Route};
use crate::app::App;
use crate::dto::{
    ActedList, EventForm, EventsForm, ListEvents, ListRuns, LogView, Logs, Nothing, Removing, RunForm,
    RunsForm, StopMany, Stopping, plain, time,
};
use crate::errors::{Refusal, Told};
use crate::event_view::EventView;
use crate::guard::{Need, Who};
use crate::question_view;
use crate::transcript;
use axum::Json;
use axum::extract::State;
use bastle_contract::RunId;
use bastle_contract::runs::RunState;
use bastle_contract::stream::StreamKind;
use bastle_control::fleet::{Caller, EventFilter, Fleet, Page, Role, RunQuery, StopHow, Verb, Which};
use serde::Serialize;
use std::time::Duration;
use utoipa::ToSchema;

const RUN: &str = "/api/v1/runs/{id}";
/// Usual time between being asked to end and being ended.
const GRACE: Duration = Duration::from_secs(10);
/// Longest such time: an hour.
const MOST_GRACE_MS: u64 = 3_600_000;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/runs", Need::Within(Verb::Read), "List runs", list)
            .params::<ListRuns>()
            .gives::<RunsForm>(),
        Route::get(RUN, Need::OnRun(Verb::Read), "One run", one)
            .params::<Nothing>()
            .gives::<RunForm>(),
        Route::delete(
            RUN,
            Need::OnRun(Verb::Remove),
            "Remove a run that ended, with its copy",
            remove,
        )
        .params::<Removing>()
        .gives::<Status>(),
        Route::post(
            "/api/v1/stop",
            Need::Within(Verb::Control),
            "End many runs",
            stop_many,
        )
        .takes::<StopMany>()
        .gives::<ActedList>(),
        Route::post(
            "/api/v1/runs/{id}/stop",
            Need::OnRun(Verb::Control),
            "Ask a run to end, then end it",
            stop,
        )
        .takes::<Stopping>()
        .gives::<ActedList>(),
        Route::post(
            "/api/v1/runs/{id}/kill",
            Need::OnRun(Verb::Control),
            "End a run at once",
            kill,
        )
        .takes::<Nothing>()
        .gives::<ActedList>(),
        Route::post(
            "/api/v1/runs/{id}/pause",
            Need::OnRun(Verb::Control),
            "Make a run stand still",
            pause,
        )
        .takes::<Nothing>()
        .gives::<Status>(),
        Route::post(
            "/api/v1/runs/{id}/resume",
            Need::OnRun(Verb::Control),
            "Let a run go on",
            resume,
        )
        .takes::<Nothing>()
        .gives::<Status>(),
    ]
    .into_iter()
    .chain(told_of_one())
    .collect()
}

/// What one run printed and what happened to it.
fn told_of_one() -> Vec<Route> {
    vec![
        Route::get(
            "/api/v1/runs/{id}/logs",
            Need::OnRun(Verb::Read),
            "What a run printed",
            logs,
        )
        .params::<Logs>()
        .gives::<Printed>(),
        Route::get(
            "/api/v1/runs/{id}/events",
            Need::OnRun(Verb::Read),
            "What happened to a run",
            events,
        )
        .params::<ListEvents>()
        .gives::<EventsForm>(),
        Route::get(
            "/api/v1/runs/{id}/preamble",
            Need::OnRun(Verb::Read),
            "What was put before the prompt of a run",
            preamble,
        )
        .params::<Nothing>()
        .gives::<Preamble>(),
    ]
}

/// How much a caller is told.
pub(crate) fn told(caller: &Caller) -> Told {
    if caller.role == Role::Admin {
        Told::All
    } else {
        Told::Outside
    }
}

/// What a run printed.
#[derive(Serialize, ToSchema)]
struct Printed {
    /// In order.
    records: Vec<PrintedRecord>,
    /// `since` of the next request.
    next: u64,
    /// Whether everything that is there now was given.
    whole: bool,
}

/// Something a run printed at once.
#[derive(Serialize, ToSchema)]
struct PrintedRecord {
    /// When.
    time: String,
    /// `output` or `errors`.
    stream: &'static str,
    /// As text; bytes that are none are replaced. Text of the agent: show it escaped.
    text: String,
}

async fn list(
    State(app): State<App>,
    Who(caller, _): Who,
    Params(asked): Params<ListRuns>,
) -> Result<Json<RunsForm>, Refusal> {
    let query = query(&caller, asked)?;
    let told = told(&caller);
    let Some(query) = query else {
        let none = Page {
            items: Vec::new(),
            next: None,
        };
        return Ok(Json(RunsForm::of(none, told)));
    };
    let mut page = app.ask(move |fleet| fleet.runs(&query)).await?;
    page.items.retain(|run| caller.may_on(Verb::Read, &run.name));
    page.items = question_view::runs(&app, &caller, page.items).await?;
    Ok(Json(RunsForm::of(page, told)))
}

/// What is asked for within what the caller may see; `None` when the two have nothing in common.
fn query(caller: &Caller, asked: ListRuns) -> Result<Option<RunQuery>, Refusal> {
    let states = match asked.state.as_deref() {
        None | Some("") => Vec::new(),
        Some(words) => words.split(',').map(state).collect::<Result<_, _>>()?,
    };
    let own = caller
        .run
        .as_ref()
        .map(|run| run.as_str().to_owned())
        .or(caller.prefix.clone());
    let prefix = match (asked.prefix, own) {
        (Some(asked), Some(own)) if asked.starts_with(&own) => Some(asked),
        (Some(asked), Some(own)) if own.starts_with(&asked) => Some(own),
        (Some(_), Some(_)) => return Ok(None),
        (asked, own) => asked.or(own),
    };
    Ok(Some(RunQuery {
        states,
        tag: asked.tag,
        prefix,
        batch: asked.batch,
        parent: asked.parent.as_deref().map(run_id).transpose()?,
        after: asked.cursor,
        limit: limit(asked.limit)?,
    }))
}

/// A limit within what is served.
pub(super) fn limit(asked: Option<usize>) -> Result<usize, Refusal> {
    match asked {
        None => Ok(100),
        Some(limit @ 1..=1000) => Ok(limit),
        Some(_) => Err(Refusal::bad("limit: between 1 and 1000")),
    }
}

fn state(word: &str) -> Result<RunState, Refusal> {
    RunState::ALL
        .into_iter()
        .find(|state| state.word() == word)
        .ok_or_else(|| Refusal::bad(format!("state: {} is none", plain(word))))
}

/// A whole name of a run.
pub(super) fn run_id(text: &str) -> Result<RunId, Refusal> {
    RunId::try_from(text.to_owned()).map_err(|_| Refusal::bad(format!("{} is no name of a run", plain(text))))
}

async fn one(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Params(_): Params<Nothing>,
) -> Result<Json<RunForm>, Refusal> {
    let run = app.run(&caller, Verb::Read, &id).await?;
    let run = question_view::run(&app, &caller, run).await?;
    Ok(Json(RunForm::of(run, told(&caller))))
}

async fn remove(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Params(how): Params<Removing>,
) -> Result<Json<Status>, Refusal> {
    let name = app.named(&caller, Verb::Remove, &id).await?;
    app.ask(move |fleet| match how.now {
        Some(true) => fleet.remove_at_once(&caller, &name, how.discard),
        Some(false) | None => fleet.remove(&caller, &name, how.discard),
    })
    .await?;
    Ok(OK)
}

fn grace(asked: Option<u64>) -> Result<Duration, Refusal> {
    match asked {
        None => Ok(GRACE),
        Some(ms) if ms <= MOST_GRACE_MS => Ok(Duration::from_millis(ms)),
        Some(_) => Err(Refusal::bad(format!("grace_ms: at most {MOST_GRACE_MS}"))),
    }
}

async fn stop(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Body(how): Body<Stopping>,
) -> Result<Json<ActedList>, Refusal> {
    let how = StopHow::Stop {
        grace: grace(how.grace_ms)?,
    };
    end(&app, caller, &id, how).await
}

async fn kill(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Body(_): Body<Nothing>,
) -> Result<Json<ActedList>, Refusal> {
    end(&app, caller, &id, StopHow::Kill).await
}

async fn end(app: &App, caller: Caller, id: &str, how: StopHow) -> Result<Json<ActedList>, Refusal> {
    let name = app.named(&caller, Verb::Control, id).await?;
    stop_which(app, caller, Which::Name(name.into()), how).await
}

/// Ends runs; one that could not be ended is in the list with its reason.
pub(super) async fn stop_which(
    app: &App,
    caller: Caller,
    which: Which,
    how: StopHow,
) -> Result<Json<ActedList>, Refusal> {
    let told = told(&caller);
    let single = matches!(which, Which::Name(_));
    let acted = app.ask(move |fleet| fleet.stop(&caller, &which, how)).await?;
    // Of one run alone, the reason is the answer.
    if let (true, [one]) = (single, acted.as_slice())
        && let Some(fault) = &one.fault
    {
        return Err(fault.clone().into());
    }
    Ok(Json(ActedList::of(acted, told)))
}

async fn stop_many(
    State(app): State<App>,
    Who(caller, _): Who,
    Body(asked): Body<StopMany>,
) -> Result<Json<ActedList>, Refusal> {
    let which = match (asked.tag, asked.batch, asked.prefix, asked.all) {
        (Some(tag), None, None, None) => Which::Tag(tag),
        (None, Some(batch), None, None) => Which::Batch(batch),
        (None, None, Some(prefix), None) => Which::Prefix(prefix),
        (None, None, None, Some(true)) => Which::All,
        _ => return Err(Refusal::bad("exactly one of tag, batch, prefix and all: true")),
    };
    let how = if asked.kill {
        StopHow::Kill
    } else {
        StopHow::Stop {
            grace: grace(asked.grace_ms)?,
        }
    };
    stop_which(&app, caller, which, how).await
}

async fn pause(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Body(_): Body<Nothing>,
) -> Result<Json<Status>, Refusal> {
    let name = app.named(&caller, Verb::Control, &id).await?;
    app.ask(move |fleet| fleet.pause(&caller, &name)).await?;
    Ok(OK)
}

async fn resume(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Body(_): Body<Nothing>,
) -> Result<Json<Status>, Refusal> {
    let name = app.named(&caller, Verb::Control, &id).await?;
    app.ask(move |fleet| fleet.resume(&caller, &name)).await?;
    Ok(OK)
}

async fn logs(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Params(asked): Params<Logs>,
) -> Result<Json<Printed>, Refusal> {
    let name = app.entered(&caller, Verb::Read, &id).await?;
    let most = match asked.limit {
        None => 256 * 1024,
        Some(most @ 1..=1_048_576) => most,
        Some(_) => return Err(Refusal::bad("limit: between 1 and 1048576")),
    };
    let only = match asked.stream.as_deref() {
        None => None,
        Some("output") => Some(StreamKind::Output),
        Some("errors") => Some(StreamKind::Errors),
        Some(_) => return Err(Refusal::bad("stream: output or errors")),
    };
    let since = asked.since.unwrap_or(0);
    let view = asked.view.unwrap_or(LogView::Raw);
    let printed = app
        .ask(move |fleet| {
            let spoken = view == LogView::Agent && only != Some(StreamKind::Errors);
            if spoken && transcript::speaks_a_protocol(fleet, &name)? {
                return read_transcript(fleet, &name, since, most);
            }
            read_log(fleet, &name, since, most, only)
        })
        .await?;
    Ok(Json(printed))
}

fn read_transcript(fleet: &Fleet, name: &RunId, since: u64, most: usize) -> Result<Printed, Refusal> {
    let part = transcript::read(fleet, name, since, most)?;
    Ok(Printed {
        records: part
            .pieces
            .into_iter()
            .map(|piece| PrintedRecord {
                time: time(piece.time_ms),
                stream: "output",
                text: piece.text,
            })
            .collect(),
        next: part.next,
        whole: part.whole,
    })
}

fn read_log(
    fleet: &Fleet,
    name: &RunId,
    since: u64,
    most: usize,
    only: Option<StreamKind>,
) -> Result<Printed, Refusal> {
    let nowhere = |_| Refusal::bad("since: no record begins there");
    let mut reader = fleet.output(name)?;
    reader.seek(since).map_err(nowhere)?;
    let mut printed = Printed {
        records: Vec::new(),
        next: since,
        whole: false,
    };
    let mut size = 0;
    while size < most {
        let Some(record) = reader.next_record().map_err(nowhere)? else {
            printed.whole = true;
            break;
        };
        printed.next = reader.at();
        if only.is_some_and(|only| only != record.kind) {
            continue;
        }
        size += record.bytes.len();
        printed.records.push(PrintedRecord {
            time: time(record.time_ms),
            stream: if record.kind == StreamKind::Errors {
                "errors"
            } else {
                "output"
            },
            text: String::from_utf8_lossy(&record.bytes).into_owned(),
        });
    }
    Ok(printed)
}

async fn events(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Params(asked): Params<ListEvents>,
) -> Result<Json<EventsForm>, Refusal> {
    let name = app.named(&caller, Verb::Read, &id).await?;
    if asked.run.is_some() || asked.batch.is_some() || asked.tag.is_some() {
        return Err(Refusal::bad("the address names the run already"));
    }
    let filter = EventFilter {
        run: Some(name),
        kinds: super::events::kinds(asked.kind.as_deref())?,
        ..EventFilter::default()
    };
    let (since, most) = (asked.since.unwrap_or(0), limit(asked.limit)?);
    let mut found = app.ask(move |fleet| fleet.events(since, &filter, most)).await?;
    EventView::of(app, &caller).narrow(&mut found).await;
    let next = found.last().map_or(since, |last| last.seq);
    Ok(Json(EventsForm {
        items: found.into_iter().map(EventForm::from).collect(),
        next,
    }))
}

async fn preamble(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Params(_): Params<Nothing>,
) -> Result<Json<Preamble>, Refusal> {
    // It tells paths and rules of the run.
    let name = app.entered(&caller, Verb::Read, &id).await?;
    let preamble = app.ask(move |fleet| fleet.preamble_of(&name)).await?;
    Ok(Json(Preamble { preamble }))
}
