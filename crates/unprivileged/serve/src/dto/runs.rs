//! Runs, what was done to them, and their events, as answers.
use super::{FaultForm, time};
use crate::errors::Told;
use bastle_contract::runs::ModelsReported;
use bastle_control::fleet::{Acted, BatchReport, Page, RunRecord, StoredEvent};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A run.
#[derive(Serialize, ToSchema)]
#[schema(as = Run)]
pub(crate) struct RunForm {
    /// Its name.
    pub(crate) name: String,
    /// The batch it belongs to.
    batch: Option<String>,
    /// Its place in the batch, from 0.
    index: Option<u32>,
    /// `queued`, `building`, `running`, `needs-input`, `needs-credential`, `suspended`, `completed`, `failed`, `cancelled` or `refused`.
    pub(crate) state: String,
    /// Why it is there. Where it is `needs-input` this is the question, told as `question` is.
    reason: Option<String>,
    /// The run whose write scope it waits for.
    waits_for: Option<String>,
    /// When it was asked for.
    created: String,
    /// The same in milliseconds since 1970.
    created_ms: u64,
    /// When the agent started, in milliseconds since 1970.
    started_ms: Option<u64>,
    /// When everything of it was gone, in milliseconds since 1970.
    ended_ms: Option<u64>,
    /// Exit code.
    code: Option<u8>,
    /// Why it did not run.
    fault: Option<FaultForm>,
    /// Labels.
    tags: BTreeMap<String, String>,
    /// Its profile.
    profile: Option<String>,
    /// The first word of its command.
    agent: String,
    /// Its project.
    workspace: String,
    /// The run that asked for it.
    parent: Option<String>,
    /// Who asked for it.
    caller: String,
    /// Attempts that were denied.
    denials: u64,
    /// Its open question, in words; only for whoever may answer it or act inside the run. Others see it by its state.
    question: Option<String>,
    /// Tokens of models.
    model_tokens: u64,
    /// Cost in millionths of a dollar.
    micro_usd: u64,
    /// Number of its last event.
    last_event: u64,
    /// What a driven agent reports that it used of models, as of its last turn; told of one run, not in lists. It may report
    /// anything: what is counted and held against budgets are `model_tokens` and `micro_usd`.
    reported: Option<ReportedForm>,
    /// What its keeper wrote last; only for an admin whole.
    file: Option<Value>,
}

/// What an agent reports of itself.
#[derive(Serialize, ToSchema)]
#[schema(as = Reported)]
pub(crate) struct ReportedForm {
    /// Answers of the model.
    turns: u64,
    /// Tokens read.
    input_tokens: u64,
    /// Tokens written.
    output_tokens: u64,
    /// Cost in millionths of a dollar, where it tells.
    cost_micro_usd: Option<u64>,
}

impl From<ModelsReported> for ReportedForm {
    fn from(told: ModelsReported) -> Self {
        Self {
            turns: told.turns,
            input_tokens: told.input_tokens,
            output_tokens: told.output_tokens,
            cost_micro_usd: told.cost_micro_usd,
        }
    }
}

impl RunForm {
    /// A run as this caller may see it.
    pub(crate) fn of(run: RunRecord, told: Told) -> Self {
        let reported = run.file.as_ref().and_then(|file| file.reported);
        let file = run.file.map(|mut file| {
            if told == Told::Outside {
                file.fault = None;
                file.keeper = None;
                file.init = None;
            }
            serde_json::to_value(file).unwrap_or(Value::Null)
        });
        Self {
            name: run.name.to_string(),
            batch: run.batch,
            index: run.index,
            state: run.state.to_string(),
            reason: run.reason,
            waits_for: run.waits_for.map(String::from),
            created: time(run.created_ms),
            created_ms: run.created_ms,
            started_ms: run.started_ms,
            ended_ms: run.ended_ms,
            code: run.code,
            fault: run.fault.as_ref().map(|fault| FaultForm::of(fault, told)),
            tags: run.tags.into(),
            profile: run.profile,
            agent: run.agent,
            workspace: run.workspace,
            parent: run.parent.map(String::from),
            caller: run.caller,
            denials: run.denials,
            question: run.question,
            model_tokens: run.model_tokens,
            micro_usd: run.micro_usd,
            last_event: run.last_event,
            reported: reported.map(ReportedForm::from),
            file,
        }
    }
}

/// A page of runs.
#[derive(Serialize, ToSchema)]
#[schema(as = Runs)]
pub(crate) struct RunsForm {
    /// The runs.
    pub(crate) items: Vec<RunForm>,
    /// The cursor of the next page.
    pub(crate) next: Option<String>,
}

impl RunsForm {
    /// A page as this caller may see it.
    pub(crate) fn of(page: Page<RunRecord>, told: Told) -> Self {
        Self {
            items: page.items.into_iter().map(|run| RunForm::of(run, told)).collect(),
            next: page.next,
        }
    }
}

/// What became of a request for runs.
#[derive(Serialize, ToSchema)]
#[schema(as = BatchReport)]
pub(crate) struct BatchReportForm {
    /// Id of the batch.
    pub(crate) batch: String,
    /// The runs, in the order of the request.
    pub(crate) runs: Vec<SpawnedForm>,
    /// Whether this is the answer to an earlier request of the same key.
    pub(crate) repeated: bool,
}

/// One run of a report.
#[derive(Serialize, ToSchema)]
#[schema(as = Spawned)]
pub(crate) struct SpawnedForm {
    /// Place in the request, from 0.
    index: usize,
    /// Its name; none when it was refused.
    pub(crate) name: Option<String>,
    /// Why it was refused.
    faults: Vec<FaultForm>,
    /// Its own token, where one was asked for. Not told again.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    /// What was decided about how it is run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

impl BatchReportForm {
    /// A report as this caller may see it.
    pub(crate) fn of(report: BatchReport, told: Told) -> Self {
        let runs = report.runs.into_iter().map(|run| SpawnedForm {
            index: run.index,
            name: run.name.map(String::from),
            faults: run
                .faults
                .iter()
                .map(|fault| FaultForm::of(fault, told))
                .collect(),
            token: run.token,
            notes: run.notes,
        });
        Self {
            batch: report.batch,
            runs: runs.collect(),
            repeated: report.repeated,
        }
    }
}

/// What was done to some runs.
#[derive(Serialize, ToSchema)]
#[schema(as = ActedOn)]
pub(crate) struct ActedList {
    /// One per run.
    pub(crate) runs: Vec<ActedForm>,
}

/// What was done to one run.
#[derive(Serialize, ToSchema)]
#[schema(as = Acted)]
pub(crate) struct ActedForm {
    /// Its name.
    name: String,
    /// What kept it from being done.
    fault: Option<FaultForm>,
}

impl ActedList {
    /// As this caller may see it.
    pub(crate) fn of(acted: Vec<Acted>, told: Told) -> Self {
        let runs = acted.into_iter().map(|one| ActedForm {
            name: one.name.to_string(),
            fault: one.fault.as_ref().map(|fault| FaultForm::of(fault, told)),
        });
        Self { runs: runs.collect() }
    }
}

/// An event as CloudEvents 1.0 has it.
#[derive(Serialize, ToSchema)]
#[schema(as = Event)]
pub(crate) struct EventForm {
    /// `1.0`.
    specversion: &'static str,
    /// Unique: the number among all events.
    id: String,
    /// `/runs/NAME`, or `/daemon`.
    source: String,
    /// `dev.bastle.run.KIND.v1`, or `dev.bastle.daemon.KIND.v1`.
    #[serde(rename = "type")]
    kind: String,
    /// Name of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    /// When.
    time: String,
    /// `application/json`.
    datacontenttype: &'static str,
    /// The number among all events, as text.
    sequence: String,
    /// The number within the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    runsequence: Option<u64>,
    /// The batch of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<String>,
    /// The trace of the run and its place in it, where the event tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
    /// The rest. Text of the agent is in it as it came: show it escaped. Without it, and without prompt, paths and rules of the
    /// run, for whoever may not act inside the run.
    data: Value,
}

impl From<StoredEvent> for EventForm {
    fn from(event: StoredEvent) -> Self {
        let of = if event.run.is_some() { "run" } else { "daemon" };
        Self {
            specversion: "1.0",
            id: event.seq.to_string(),
            source: event
                .run
                .as_ref()
                .map_or_else(|| "/daemon".to_owned(), |run| format!("/runs/{run}")),
            kind: format!("dev.bastle.{of}.{}.v1", event.kind),
            subject: event.run.map(String::from),
            time: time(event.time_ms),
            datacontenttype: "application/json",
            sequence: event.seq.to_string(),
            runsequence: event.run_seq,
            batch: event.batch,
            // Only what has its form: data of other events comes from agents.
            traceparent: (event.kind == "state")
                .then(|| event.data.get("traceparent")?.as_str())
                .flatten()
                .filter(|text| bastle_contract::TraceParent::parse(text).is_ok())
                .map(str::to_owned),
            data: event.data,
        }
    }
}

/// Events, and where the next ones begin.
#[derive(Serialize, ToSchema)]
#[schema(as = Events)]
pub(crate) struct EventsForm {
    /// The events.
    pub(crate) items: Vec<EventForm>,
    /// `since` of the next request.
    pub(crate) next: u64,
}
