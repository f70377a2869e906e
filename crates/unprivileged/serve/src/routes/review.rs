//! What a run changed and how it comes back: the same calls as the command line makes.
//!
//! **Trust:** trees are the agents'. They are read, judged and applied by `control::review` only; nothing here opens them.
use super::meta::Anything;
use super::{Body, Params, PathOf, Route};
use crate::app::App;
use crate::dto::{Applying, Nothing, Ranged, RollingBack, Snapshotting, answers, plain, time};
use crate::errors::{Refusal, Told};
use crate::guard::{Need, Who};
use crate::routes::runs::told;
use axum::Json;
use axum::extract::State;
use bastle_audit::{Verdict, show, verify};
use bastle_contract::{Code, Fault, RunId};
use bastle_control::fleet::{Caller, Verb};
use bastle_control::review::library::apply::{Reason as Left, Resolve};
use bastle_control::review::library::diff::{Lacking, json as diff_json};
use bastle_control::review::library::gate::Assessed;
use bastle_control::review::library::git::BranchName;
use bastle_control::review::library::meta::{Snapshot, SnapshotName};
use bastle_control::review::library::path::TreePath;
use bastle_control::review::library::workspace::Workspace;
use bastle_control::review::{
    Act, AppliedAs, Approval, Destination, End, Ignored, Outcome, Whereabouts, Wish, carry, look, open,
    read_end, read_which, rollback as go_back, snapshot as take_snapshot, undo,
};
use serde_json::{Map, Value, json};
use std::path::Path;

const SNAPSHOTS: &str = "/api/v1/runs/{id}/snapshots";
/// Records of an audit log in one answer.
const MOST_RECORDS: usize = 1000;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get(
            "/api/v1/runs/{id}/diff",
            Need::OnRun(Verb::Read),
            "What a run changed",
            diff,
        )
        .params::<Ranged>()
        .gives::<answers::RunDiff>(),
        // Bringing an agent's work to the host is a person's answer, not only control of the run.
        Route::post(
            "/api/v1/runs/{id}/apply",
            Need::OnRun(Verb::Answer),
            "Bring changes to the project",
            apply,
        )
        .takes::<Applying>()
        .gives::<answers::Applied>(),
        Route::get(
            SNAPSHOTS,
            Need::OnRun(Verb::Read),
            "Kept states of a run's copy",
            snapshots,
        )
        .params::<Nothing>()
        .gives::<answers::SnapshotList>(),
        Route::post(
            SNAPSHOTS,
            Need::OnRun(Verb::Control),
            "Keep a run's copy as it is now",
            snapshot,
        )
        .takes::<Snapshotting>()
        .gives::<answers::SnapshotTaken>()
        .status(201),
        Route::post(
            "/api/v1/runs/{id}/rollback",
            Need::OnRun(Verb::Control),
            "Make a run's copy what it was",
            rollback,
        )
        .takes::<RollingBack>()
        .gives::<answers::RolledBack>(),
        Route::get(
            "/api/v1/runs/{id}/audit",
            Need::OnRun(Verb::Read),
            "What was recorded about a run",
            audit,
        )
        .params::<Nothing>()
        .gives::<answers::AuditLog>(),
    ]
}

fn object(value: Value) -> Json<Anything> {
    Json(Anything(match value {
        Value::Object(members) => members,
        other => Map::from_iter([("result".to_owned(), other)]),
    }))
}

pub(crate) fn copy_of(state: &Path, name: &RunId) -> Result<(Whereabouts, Workspace), Fault> {
    let at = Whereabouts {
        state: state.to_path_buf(),
        project: None,
    };
    let space = open(&at, Some(name.as_str()))?.space;
    Ok((at, space))
}

async fn diff(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Params(asked): Params<Ranged>,
) -> Result<Json<Anything>, Refusal> {
    let name = app.entered(&caller, Verb::Read, &id).await?;
    let from = asked.from.as_deref().map_or(Ok(End::Base), read_end)?;
    let to = asked.to.as_deref().map_or(Ok(End::Now), read_end)?;
    let ignored = if asked.ignored {
        Ignored::Shown
    } else {
        Ignored::Counted
    };
    let state = app.state.clone();
    let value = app
        .ask(move |_| {
            let (_, space) = copy_of(&state, &name)?;
            let seen = look(&space, &from, &to)?;
            let shown = seen.shown(&[], ignored);
            let diffs = seen.diffs(&space, &shown)?;
            let shown: Vec<Assessed> = shown.into_iter().cloned().collect();
            let mut value = diff_json(&diffs, &shown, name.as_str());
            value["run"] = json!(name);
            value["state"] = json!(seen.digest);
            value["ignored"] = json!(seen.ignored());
            Ok::<_, Fault>(value)
        })
        .await?;
    Ok(object(value))
}

async fn apply(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Body(asked): Body<Applying>,
) -> Result<Json<Anything>, Refusal> {
    let name = app.entered(&caller, Verb::Answer, &id).await?;
    // What reaches the host is an answer, whether the gate holds it or not, and so is taking it back: a program gives none
    // for its own runs. Looking is not.
    if asked.undo || !asked.dry_run || !asked.approve.is_empty() {
        let (caller, name) = (caller.clone(), name.clone());
        app.ask(move |fleet| {
            let allowed = fleet.may_approve(&caller, &name);
            allowed.map_err(|fault| not_of_a_program(fault, &caller, &name))
        })
        .await?;
    }
    let (state, principal) = (app.state.clone(), caller.described());
    let value = app
        .ask(move |_| {
            let (at, space) = copy_of(&state, &name)?;
            if asked.undo {
                let (paths, notes) = undo(&at.place(), &state, &space, &principal)?;
                return Ok(json!({ "run": name, "to": "undo", "paths": shown(&paths), "notes": notes }));
            }
            let wish = wish(&asked, principal)?;
            let outcome = carry(&at.place(), &state, &space, &wish)?;
            if let AppliedAs::Tree(plan) = &outcome.taken
                && let Some(fault) = plan.conflict_fault()
            {
                return Err(fault.into());
            }
            Ok::<_, Refusal>(applied(&name, &asked, &outcome))
        })
        .await?;
    Ok(object(value))
}

/// The refusal of a program that would bring over what its own run made.
fn not_of_a_program(fault: Fault, caller: &Caller, name: &RunId) -> Fault {
    if fault.code != Code::TokenRefused {
        return fault;
    }
    Fault::new(
        fault.code,
        format!("{} may not bring the work of {name} to the host", caller.id),
        fault.why,
    )
    .help(format!("a person does it on this machine: bastle apply {name}"))
}

pub(super) fn wish(asked: &Applying, principal: String) -> Result<Wish, Refusal> {
    let destination = match (&asked.branch, asked.resolve.as_deref()) {
        (Some(_), Some(_)) => return Err(Refusal::bad("resolve: a branch has no conflicts")),
        (Some(name), None) => Destination::Branch {
            name: BranchName::new(name.clone()).map_err(|error| Refusal::bad(format!("branch: {error}")))?,
            message: asked.message.clone(),
        },
        (None, None) => Destination::Tree(Resolve::Refuse),
        (None, Some("ours")) => Destination::Tree(Resolve::Ours),
        (None, Some("theirs")) => Destination::Tree(Resolve::Theirs),
        (None, Some(_)) => return Err(Refusal::bad("resolve: ours or theirs")),
    };
    let path = |text: &String| {
        TreePath::new(text.as_bytes())
            .map_err(|error| Refusal::bad(format!("paths: {}: {error}", plain(text))))
    };
    Ok(Wish {
        from_ref: None,
        destination,
        paths: asked.paths.iter().map(path).collect::<Result<_, _>>()?,
        approvals: asked
            .approve
            .iter()
            .map(|hash| Approval {
                path: None,
                hash: hash.clone(),
            })
            .collect(),
        act: if asked.dry_run { Act::DryRun } else { Act::Do },
        principal,
    })
}

fn shown<'a>(paths: impl IntoIterator<Item = &'a TreePath>) -> Vec<String> {
    paths.into_iter().map(ToString::to_string).collect()
}

fn applied(name: &RunId, asked: &Applying, outcome: &Outcome) -> Value {
    let left: Vec<Value> = outcome
        .left_out
        .iter()
        .map(|one| {
            let (reason, approval) = match &one.reason {
                Left::NotNamed => ("not-named", None),
                Left::Ignored => ("ignored", None),
                Left::NeedsApproval { approval } => ("needs-approval", Some(approval.to_string())),
                Left::Refused => ("refused", None),
                Left::KeptOurs => ("kept-ours", None),
            };
            let judged = outcome
                .look
                .assessed
                .iter()
                .find(|other| other.change.path == one.path);
            json!({
                "path": one.path.to_string(), "reason": reason, "approval": approval,
                "why": judged.map(Assessed::reason),
                "approve": judged.and_then(|judged| judged.approve_command(name.as_str())),
            })
        })
        .collect();
    let mut value = json!({
        "run": name, "dry_run": asked.dry_run, "paths": shown(outcome.carried()), "left_out": left,
        "approval": outcome.approval,
    });
    match &outcome.taken {
        AppliedAs::Tree(plan) => {
            value["to"] = json!("tree");
            value["merged"] = plan.merged().iter().map(ToString::to_string).collect();
        }
        AppliedAs::Branch(branch, commit, lacking) => {
            value["to"] = json!("branch");
            value["not_in_branch"] = lacking.iter().map(lacking_json).collect();
            value["branch"] = json!(branch);
            value["commit"] = json!(commit.as_ref().map(|id| id.as_str()));
        }
        AppliedAs::Patch(_, lacking) => {
            value["to"] = json!("patch");
            value["not_in_patch"] = lacking.iter().map(lacking_json).collect();
        }
    }
    value
}

fn lacking_json(one: &Lacking) -> Value {
    json!({ "path": one.path.to_string(), "why": one.why.to_string() })
}

fn snapshot_json(snapshot: &Snapshot) -> Value {
    let created = u64::try_from(snapshot.created / 1_000_000).unwrap_or(0);
    json!({
        "number": snapshot.number, "name": snapshot.name, "reason": snapshot.reason, "created": time(created),
        "state": snapshot.manifest, "files": snapshot.totals.0, "bytes": snapshot.totals.1,
    })
}

async fn snapshots(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Params(_): Params<Nothing>,
) -> Result<Json<Anything>, Refusal> {
    let name = app.entered(&caller, Verb::Read, &id).await?;
    let state = app.state.clone();
    let all = app
        .ask(move |_| copy_of(&state, &name).and_then(|(_, space)| space.snapshots()))
        .await?;
    Ok(object(
        json!({ "items": all.iter().map(snapshot_json).collect::<Vec<_>>() }),
    ))
}

async fn snapshot(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Body(asked): Body<Snapshotting>,
) -> Result<(axum::http::StatusCode, Json<Anything>), Refusal> {
    let name = app.entered(&caller, Verb::Control, &id).await?;
    let called = asked.name.map(SnapshotName::try_from).transpose()?;
    let state = app.state.clone();
    let taken = app
        .ask(move |_| copy_of(&state, &name).and_then(|(_, space)| take_snapshot(&space, called)))
        .await?;
    let value = json!({ "snapshot": snapshot_json(&taken.snapshot) });
    Ok((axum::http::StatusCode::CREATED, object(value)))
}

async fn rollback(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Body(asked): Body<RollingBack>,
) -> Result<Json<Anything>, Refusal> {
    let name = app.entered(&caller, Verb::Control, &id).await?;
    // The base is always the first one.
    let which = read_which(if asked.to == "base" { "0" } else { &asked.to })?;
    let state = app.state.clone();
    let done = app
        .ask(move |_| copy_of(&state, &name).and_then(|(_, space)| go_back(&space, &which)))
        .await?;
    let paths: Vec<String> = done
        .changes
        .iter()
        .map(|change| change.path.to_string())
        .collect();
    Ok(object(json!({
        "to": snapshot_json(&done.to), "before": snapshot_json(&done.before), "paths": paths,
    })))
}

async fn audit(
    State(app): State<App>,
    Who(caller, _): Who,
    PathOf(id): PathOf<String>,
    Params(_): Params<Nothing>,
) -> Result<Json<Anything>, Refusal> {
    let name = app.named(&caller, Verb::Read, &id).await?;
    let state = app.state.clone();
    // Records hold the plan, and with it paths of this host.
    let most = match told(&caller) {
        Told::All => MOST_RECORDS,
        Told::Outside => 0,
    };
    let value = app.ask(move |_| read_audit(&state, &name, most)).await?;
    Ok(object(value))
}

fn read_audit(state: &Path, name: &RunId, most: usize) -> Result<Value, Fault> {
    let report = verify(state, name).map_err(|error| error.fault())?;
    let verdict = match &report.verdict {
        Verdict::Sealed => "sealed",
        Verdict::Unsealed { .. } => "unsealed",
        Verdict::Tampered(_) => "tampered",
    };
    let mut records = Vec::new();
    for record in show(state, name).map_err(|error| error.fault())?.take(most) {
        let record = record.map_err(|error| error.fault())?;
        records.push(Value::Object(record.value().clone()));
    }
    Ok(json!({
        "run": name, "verdict": verdict, "records": report.records, "signed": report.signed, "head": report.head,
        "items": records,
    }))
}
