//! A request that was written down, made into what a launch starts from: as the flags of `run` are.
use crate::egress::{Attendance, Egress, Rules};
use crate::load::{Loaded, Sources, load};
use crate::pipeline::{Helpers, Launch, Ready, prepare_in};
use crate::place::Place;
use crate::presets;
use crate::review;
use crate::runs::RunDir;
use crate::spawner::Spawner;
use crate::workspaces::{self, Making, Which, WorkHistory, WorkWish};
use crate::writers::Sharing;
use bastle_contract::egress::BudgetKind;
use bastle_contract::runs::{Attended, RawSpec};
use bastle_contract::{Code, Fault, RunId, Stdio, Waiver};
use bastle_policy::{At, AuthorityCeiling, Effective, NetMode};
use std::path::Path;

/// Judges and plans what was asked for; the policy that holds comes with it.
pub(super) fn prepare(state: &Path, spec: &RawSpec) -> Result<(Place, Ready, Effective), Vec<Fault>> {
    let one = |fault| vec![fault];
    // First of all: it looks at the host while the policy is read here.
    let spawner = Spawner::start().map_err(one)?;
    let mode = spec.net.as_deref().map(net_mode).transpose().map_err(one)?;
    let egress = match mode {
        Some(NetMode::None | NetMode::Offline) => None,
        Some(_) | None => Some(Egress::start().map_err(one)?),
    };
    let place = place(state, spec).map_err(one)?;
    let mut sources = sources(spec, mode)?;
    if let Some(bounds) = &spec.bounds {
        sources.bind(bounds)?;
        unmoved(&place, spec, sources.ceiling.as_ref()).map_err(one)?;
    }
    let mut loaded = load(&place, &sources)?;
    let rules = Rules::new(&place, &sources, &mut loaded).map_err(one)?;
    let helpers = Helpers { spawner, egress };
    let ready = plan(&place, &loaded, rules, helpers, spec).map_err(one)?;
    Ok((place, ready, loaded.effective))
}

fn plan(
    place: &Place,
    loaded: &Loaded,
    rules: Rules,
    helpers: Helpers,
    spec: &RawSpec,
) -> Result<Ready, Fault> {
    let launch = Launch {
        run: spec.name.clone(),
        argv: spec.argv.clone(),
        env: spec.env.clone(),
        stdio: match spec.tty {
            Some(size) => Stdio::Pty {
                rows: size.rows,
                cols: size.cols,
            },
            None => Stdio::Pipes,
        },
        waivers: spec
            .waive
            .iter()
            .filter(|name| BudgetKind::waivable(name).is_none())
            .map(|name| waiver(name))
            .collect::<Result<_, _>>()?,
        debuggers: !spec.no_debuggers,
        approval: if spec.approved {
            bastle_policy::LaunchApproval::Person
        } else {
            bastle_policy::LaunchApproval::None
        },
        attendance: match spec.attended {
            Attended::Nobody => Attendance::Nobody,
            Attended::Elsewhere => Attendance::Elsewhere,
        },
        parent: spec.parent.clone(),
        sharing: if spec.share_workspace {
            Sharing::Allowed
        } else {
            Sharing::Refused
        },
    };
    let mode = match spec.mode.as_deref() {
        Some(word) => Some(workspaces::mode(word).ok_or_else(|| {
            wrong(
                format!("there is no workspace mode {word:?}"),
                "modes are copy, overlay, worktree and in-place",
            )
        })?),
        None => None,
    };
    let wish = WorkWish {
        mode,
        from: spec.from.as_deref().map(origin).transpose()?,
        branch: spec.branch.clone(),
        history: WorkHistory::from(spec.hide_history),
        making: Making::Now,
        progress: &mut |_| {},
    };
    prepare_in(place, loaded, rules, helpers, launch, Some(wish))
}

/// The directories of the run: the project and where to start are of the request, the state is where its files are.
fn place(state: &Path, spec: &RawSpec) -> Result<Place, Fault> {
    let mut place = Place::find(Some(spec.workspace.as_path()))?;
    if let Some(cwd) = &spec.cwd {
        if !cwd.as_path().starts_with(place.workspace.as_path()) {
            return Err(Fault::new(
                Code::WorkspaceInvalid,
                format!("cannot start in {cwd}"),
                format!("it is not in the workspace {}", place.workspace),
            ));
        }
        place.cwd = cwd.clone();
    }
    place.state = state.to_path_buf();
    Ok(place)
}

/// The project was judged when the run was asked for; a link that was put in its way since then leads somewhere else.
fn unmoved(place: &Place, spec: &RawSpec, ceiling: Option<&AuthorityCeiling>) -> Result<(), Fault> {
    let inside = ceiling.is_none_or(|ceiling| ceiling.allows_root(&place.workspace));
    if place.workspace == spec.workspace && inside {
        return Ok(());
    }
    Err(Fault::new(
        Code::TokenCeiling,
        format!("the workspace {} is not where it was", spec.workspace),
        format!("it now leads to {}", place.workspace),
    ))
}

fn sources(spec: &RawSpec, mode: Option<NetMode>) -> Result<Sources, Vec<Fault>> {
    let mut flags = match &spec.policy {
        Some(document) => {
            let text = serde_json::to_string_pretty(document)
                .map_err(|error| vec![wrong("the policy cannot be read".to_owned(), &error.to_string())])?;
            Some(bastle_policy::parse("request", text.as_bytes())?)
        }
        None => None,
    };
    if let Some(mode) = mode {
        // No file can say this, so it has no text.
        flags.get_or_insert_default().net.mode = Some(At::nowhere(mode));
    }
    Ok(Sources {
        preset: spec.preset.clone(),
        argv: match &spec.parent {
            Some(_) => presets::of_child(spec.argv.as_slice()),
            None => spec.argv.as_slice().to_vec(),
        },
        client_command: spec.client_command,
        files: spec
            .policy_files
            .iter()
            .map(|file| file.as_path().to_path_buf())
            .collect(),
        flags,
        expand: spec.expand,
        unprotect: spec.unprotect.clone(),
        waived: spec
            .waive
            .iter()
            .filter_map(|name| BudgetKind::waivable(name))
            .collect(),
        scopes: spec.scopes.clone(),
        ..Sources::default()
    })
}

fn net_mode(word: &str) -> Result<NetMode, Fault> {
    NetMode::parse(word).ok_or_else(|| {
        wrong(format!("the reach {word:?} is not known"), "").help("none, allowlist, open or offline")
    })
}

fn waiver(name: &str) -> Result<Waiver, Fault> {
    let unknown = || wrong(format!("there is no limit {name:?} to give up"), "");
    Waiver::named(name).ok_or_else(unknown)
}

/// `RUN[@SNAPSHOT]`.
fn origin(text: &str) -> Result<(RunId, Which), Fault> {
    let (run, which) = match text.rsplit_once('@') {
        Some((run, snapshot)) => (run, review::read_which(snapshot)?),
        None => (text, Which::Last),
    };
    RunId::try_from(run.to_owned())
        .map(|run| (run, which))
        .map_err(|error| wrong(format!("{text:?} is no run to begin with"), &error.to_string()))
}

fn wrong(what: String, why: &str) -> Fault {
    Fault::new(Code::UsageArgument, what, why)
}

/// Whether somebody wanted it ended while it was built.
pub(super) fn is_unwanted(dir: &RunDir) -> bool {
    dir.path().join(super::lost::STOP).exists()
}
