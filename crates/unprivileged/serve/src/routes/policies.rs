//! Policies: presets, what a policy comes to, and what it says to a question. Nothing is started.
use super::meta::Anything;
use super::{Body, Params, PathOf, Route};
use crate::app::App;
use crate::dto::{CanI, Nothing, PolicySource, answers, plain};
use crate::errors::Refusal;
use crate::guard::{Need, Who};
use axum::Json;
use axum::extract::State;
use bastle_contract::{BackendKind, Code, Fault};
use bastle_control::fleet::{Caller, Fleet, Verb};
use bastle_control::{Place, Sources};
use bastle_policy::{
    Decision, Effective, Grade, Layer, LayerKind, MergeOptions, Query, Sourced, Surroundings, decide, lint,
    score, selftest,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use utoipa::IntoParams;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get(
            "/api/v1/presets",
            Need::Within(Verb::Read),
            "List presets",
            presets,
        )
        .params::<Nothing>()
        .gives::<answers::PresetList>(),
        Route::get(
            "/api/v1/presets/{name}",
            Need::Within(Verb::Read),
            "One preset",
            preset,
        )
        .params::<Nothing>()
        .gives::<answers::PresetDocument>(),
        Route::get(
            "/api/v1/blocked-commands",
            Need::Within(Verb::Read),
            "Commands and tools that the usual policy stops",
            blocked,
        )
        .params::<BlockedOf>()
        .gives::<answers::BlockedCommands>(),
        // A question may name a project of the host: only for whoever may start runs there.
        Route::post(
            "/api/v1/policies/effective",
            Need::OnAll(Verb::Spawn),
            "What a policy comes to",
            effective,
        )
        .takes::<PolicySource>()
        .gives::<answers::EffectivePolicy>(),
        Route::post(
            "/api/v1/policies/dry-run",
            Need::OnAll(Verb::Spawn),
            "Check a policy: its own tests, findings and score",
            dry_run,
        )
        .takes::<PolicySource>()
        .gives::<answers::PolicyCheck>(),
        Route::post(
            "/api/v1/policies/can-i",
            Need::OnAll(Verb::Spawn),
            "Ask a policy",
            can_i,
        )
        .takes::<CanI>()
        .gives::<answers::PolicyAnswer>(),
    ]
}

fn object(value: Value) -> Json<Anything> {
    Json(Anything(match value {
        Value::Object(members) => members,
        other => Map::from_iter([("result".to_owned(), other)]),
    }))
}

async fn presets(Params(_): Params<Nothing>) -> Result<Json<Anything>, Refusal> {
    let mut items = Vec::new();
    for name in bastle_policy::names() {
        let layer = bastle_policy::preset(name)?;
        let version = layer.name.split_once('@').map(|(_, version)| version);
        items.push(json!({ "name": name, "version": version }));
    }
    Ok(object(json!({ "items": items })))
}

async fn preset(PathOf(name): PathOf<String>, Params(_): Params<Nothing>) -> Result<Json<Anything>, Refusal> {
    let known = bastle_policy::names().iter().any(|known| *known == name);
    if !known {
        return Err(
            Refusal::missing(format!("there is no preset {}", plain(&name))).help("GET /api/v1/presets")
        );
    }
    let layer = bastle_policy::preset(&name)?;
    let document: Value = serde_json::from_str(&layer.document.to_json()).unwrap_or(Value::Null);
    Ok(object(json!({ "name": layer.name, "document": document })))
}

/// Whose policy is listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct BlockedOf {
    /// The profile; default the usual policy.
    #[serde(default)]
    profile: Option<String>,
    /// Preset to start from; default that of the profile, or `default`.
    #[serde(default)]
    preset: Option<String>,
}

async fn blocked(State(app): State<App>, Params(of): Params<BlockedOf>) -> Result<Json<Anything>, Refusal> {
    blocked_by(&app, of).await
}

/// What a policy stops: every entry with the decision that `can-i` gives on its example.
pub(super) async fn blocked_by(app: &App, of: BlockedOf) -> Result<Json<Anything>, Refusal> {
    let value = app
        .ask(move |fleet| {
            let (preset, document) = match &of.profile {
                Some(profile) => fleet
                    .profile_policy(profile)
                    .map(|(preset, document)| (preset, Some(document)))?,
                None => (None, None),
            };
            let preset = of.preset.or(preset);
            let effective = merged_of(preset.as_deref(), document)?;
            let list = bastle_policy::blocked_list(&effective);
            Ok::<_, Refusal>(json!({
                "profile": of.profile, "preset": preset.as_deref().unwrap_or("default"),
                "rules": list.rules, "tier3": list.tier3,
                "held": "command and tool rules act at launch and for driven agents; inside others they are advisory, and the fence holds without them",
            }))
        })
        .await?;
    Ok(object(value))
}

/// The policy that is meant: with a project, as a run there would have it; without, the preset and the document alone.
fn merged(fleet: &Fleet, caller: &Caller, source: &PolicySource) -> Result<Effective, Refusal> {
    let flags = source.policy.as_ref().map(document).transpose()?;
    merged_with(fleet, caller, source, flags)
}

/// The same with a document that was read already.
fn merged_with(
    fleet: &Fleet,
    caller: &Caller,
    source: &PolicySource,
    flags: Option<bastle_policy::Document>,
) -> Result<Effective, Refusal> {
    let Some(workspace) = &source.workspace else {
        return merged_of(source.preset.as_deref(), flags);
    };
    if !workspace.starts_with('/') {
        return Err(Refusal::bad("workspace: an absolute path"));
    }
    let sources = Sources {
        preset: source.preset.clone(),
        flags,
        ..Sources::default()
    };
    Ok(fleet.policy_for(caller, workspace, sources)?)
}

/// A preset and a document, without a project.
fn merged_of(preset: Option<&str>, document: Option<bastle_policy::Document>) -> Result<Effective, Refusal> {
    let mut layers = bastle_policy::default_layers(preset.unwrap_or("default"))?;
    layers.extend(document.map(|document| Layer {
        kind: LayerKind::Flags,
        name: "request".to_owned(),
        document: document.into(),
    }));
    let place = Place::without_project()?;
    let surroundings = Surroundings {
        home: place.home,
        workspace: place.workspace,
    };
    Ok(bastle_policy::merge(
        &layers,
        &surroundings,
        &MergeOptions::default(),
    )?)
}

fn document(policy: &BTreeMap<String, Value>) -> Result<bastle_policy::Document, Vec<Fault>> {
    let text = serde_json::to_vec(policy).unwrap_or_default();
    bastle_policy::parse("request", &text)
}

async fn effective(
    State(app): State<App>,
    Who(caller, _): Who,
    Body(source): Body<PolicySource>,
) -> Result<Json<Anything>, Refusal> {
    let value = app
        .ask(move |fleet| merged(fleet, &caller, &source).map(|effective| describe(&effective)))
        .await?;
    Ok(object(value))
}

fn describe(effective: &Effective) -> Value {
    let paths = |grade: Grade| {
        effective
            .granted(grade)
            .iter()
            .map(|path| json!({ "path": path.value, "origin": path.origin }))
            .collect::<Vec<_>>()
    };
    let names = |rules: &[Sourced<bastle_policy::PathRule>]| {
        rules
            .iter()
            .map(|rule| json!({ "rule": rule.value.to_string(), "origin": rule.origin }))
            .collect::<Vec<_>>()
    };
    let limits: Vec<Value> = effective
        .limits
        .iter()
        .map(|(kind, value)| json!({ "limit": kind, "value": value.value, "origin": value.origin }))
        .collect();
    json!({
        "headline": effective.headline(), "digest": effective.digest(), "mode": effective.mode.value,
        "layers": effective.layers.iter().map(|(kind, name)| json!({ "layer": kind, "name": name })).collect::<Vec<_>>(),
        "read": paths(Grade::Read), "write": paths(Grade::Write),
        "hide": names(&effective.hide), "protect": names(&effective.protect), "limits": limits,
        "not_granted": effective.not_granted, "inactive": effective.inactive, "summary": effective.summary,
    })
}

async fn dry_run(
    State(app): State<App>,
    Who(caller, _): Who,
    Body(source): Body<PolicySource>,
) -> Result<Json<Anything>, Refusal> {
    let value = app
        .ask(move |fleet| {
            let effective = merged(fleet, &caller, &source)?;
            let tests: Vec<Value> = selftest(&effective)
                .iter()
                .map(|test| json!({ "passed": test.passed(), "fault": test.fault() }))
                .collect();
            Ok::<_, Refusal>(json!({
                "policy": describe(&effective),
                "tests": tests,
                "findings": lint(&effective),
                "score": score(&effective, BackendKind::Native),
            }))
        })
        .await?;
    Ok(object(value))
}

async fn can_i(
    State(app): State<App>,
    Who(caller, _): Who,
    Body(asked): Body<CanI>,
) -> Result<Json<Anything>, Refusal> {
    if !matches!(asked.kind.as_str(), "read" | "write" | "exec" | "net" | "tool") {
        return Err(Refusal::bad("kind: read, write, exec, net or tool"));
    }
    if asked.target.is_empty() || asked.target.len() > 128 * 1024 {
        return Err(Refusal::new(
            Code::ApiRequest,
            "target: between 1 and 131072 bytes",
            "",
        ));
    }
    if asked.profile.is_some() && asked.policy.is_some() {
        return Err(Refusal::bad("profile: a profile has its own policy"));
    }
    let mut source = PolicySource {
        preset: asked.preset,
        policy: asked.policy,
        workspace: asked.workspace,
    };
    let profile = asked.profile;
    let value = app
        .ask(move |fleet| {
            let effective = match &profile {
                Some(profile) => {
                    let (preset, document) = fleet.profile_policy(profile)?;
                    source.preset = source.preset.or(preset);
                    merged_with(fleet, &caller, &source, Some(document))?
                }
                None => merged(fleet, &caller, &source)?,
            };
            let question = format!("{} {}", asked.kind, asked.target);
            let query = Query::parse(&question, &effective.surroundings)?;
            Ok::<_, Refusal>(answer(&query, &decide(&effective, &query)))
        })
        .await?;
    Ok(object(value))
}

fn answer(query: &Query, decision: &Decision) -> Value {
    let rule = |rule: &Option<(String, bastle_policy::Origin)>| {
        rule.as_ref()
            .map(|(text, origin)| json!({ "text": text, "origin": origin }))
    };
    json!({
        "query": query.to_string(), "outcome": decision.outcome, "code": decision.code, "reason": decision.reason,
        "rule": rule(&decision.rule), "nearest": rule(&decision.nearest), "mechanism": decision.mechanism,
        "enforced": decision.enforced, "tier": decision.tier.number(), "help": decision.help,
    })
}
