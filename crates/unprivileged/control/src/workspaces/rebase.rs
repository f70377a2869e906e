//! The copy in the plan, in place of the project: same places inside, other files behind them.
//!
//! **Trust:** pure. The consequence of a bind that is forgotten here is an agent that writes the project, so the
//! finished plan is looked over once more.
use super::making::OBJECTS_INSIDE;
use bastle_contract::{AbsPath, Access, Code, Fault, LandlockRule, LaunchPlan, Mount, MountKind};
use bastle_workspace::mounting::Mounting;
use bastle_workspace::workspace::Workspace;
use std::path::Path;

/// What stands in the project's place.
pub(super) enum Standing<'a> {
    /// This tree.
    Tree(&'a AbsPath),
    /// The project itself, only read, below a layer that takes every change.
    Layered {
        /// The project.
        lower: AbsPath,
        /// The layer.
        layer: AbsPath,
    },
}

impl<'a> Standing<'a> {
    pub(super) fn of(space: &Workspace, tree: &'a AbsPath) -> Result<Self, Fault> {
        let path = |path: &Path| AbsPath::from_path(path).map_err(|error| broken(&error.to_string()));
        Ok(match space.mounting() {
            Mounting::Tree(_) => Self::Tree(tree),
            Mounting::Layered { lower, layer } => Self::Layered {
                lower: path(&lower)?,
                layer: path(&layer)?,
            },
        })
    }

    /// The whole of it. It was made by the invoking user, so it is always shown as the agent's own.
    fn whole(&self, access: Access) -> MountKind {
        match self {
            Self::Tree(tree) => MountKind::Bind {
                source: (*tree).clone(),
                access,
                owned: true,
            },
            Self::Layered { lower, layer } => MountKind::Overlay {
                lower: lower.clone(),
                layer: layer.clone(),
                access,
                owned: true,
            },
        }
    }
}

/// Leads every bind of the project to the copy.
pub(super) fn rebase(
    plan: &mut LaunchPlan,
    project: &AbsPath,
    standing: &Standing<'_>,
    objects: Option<&AbsPath>,
) -> Result<(), Fault> {
    for mount in &mut plan.mounts {
        if let MountKind::Bind {
            source,
            access,
            owned,
        } = &mut mount.kind
            && let Some(below) = source.relative_to(project)
        {
            let (access, owned) = (*access, *owned);
            mount.kind = match standing {
                _ if mount.at == *project => standing.whole(access),
                Standing::Tree(tree) => MountKind::Bind {
                    source: beneath(tree, below)?,
                    access,
                    owned,
                },
                // A part of what is mounted by then, so that the layer's own files are in it.
                Standing::Layered { .. } => MountKind::Again {
                    of: source.clone(),
                    access,
                },
            };
        }
    }
    cover(plan, project, standing)?;
    if let Some(objects) = objects {
        let inside = AbsPath::new(OBJECTS_INSIDE).map_err(|error| broken(&error.to_string()))?;
        let kind = MountKind::Bind {
            source: objects.clone(),
            access: Access::ReadOnly,
            owned: true,
        };
        add(plan, inside, Access::ReadOnly, kind);
    }
    check(plan, project, standing)
}

fn beneath(tree: &AbsPath, below: &str) -> Result<AbsPath, Fault> {
    if below.is_empty() {
        return Ok(tree.clone());
    }
    tree.join(below).map_err(|error| broken(&error.to_string()))
}

/// Where a directory above the project is granted as well, the copy is mounted over the project's place in it.
fn cover(plan: &mut LaunchPlan, project: &AbsPath, standing: &Standing<'_>) -> Result<(), Fault> {
    let above = plan
        .mounts
        .iter()
        .filter(|mount| project.is_within(&mount.at))
        .max_by_key(|mount| mount.at.as_str().len());
    match above {
        Some(Mount {
            at,
            kind: MountKind::Bind { access, .. },
        }) if at != project => {
            let access = *access;
            add(plan, project.clone(), access, standing.whole(access));
            Ok(())
        }
        Some(Mount {
            kind: MountKind::Overlay { .. },
            ..
        }) => Ok(()),
        Some(_) | None => match standing {
            Standing::Tree(_) => Ok(()),
            Standing::Layered { .. } => Err(Fault::new(
                Code::WorkspaceOverlay,
                "the policy grants only parts of the project",
                "an overlay shows the whole of it",
            )
            .help("bastle run --workspace copy -- CMD")),
        },
    }
}

fn add(plan: &mut LaunchPlan, at: AbsPath, access: Access, kind: MountKind) {
    let rule = LandlockRule {
        path: at.clone(),
        access,
    };
    if !plan.landlock.contains(&rule) {
        plan.landlock.push(rule);
        plan.landlock.sort_by(|a, b| a.path.cmp(&b.path));
    }
    // Text order puts parents before children.
    let index = plan.mounts.partition_point(|mount| mount.at < at);
    plan.mounts.insert(index, Mount { at, kind });
}

/// No path of the project is shown by itself; its git objects, and what lies below a layer, which nobody can write, are.
fn check(plan: &LaunchPlan, project: &AbsPath, standing: &Standing<'_>) -> Result<(), Fault> {
    // The state directory may lie in the project.
    let own = |source: &AbsPath| match standing {
        Standing::Tree(tree) => source.is_within(tree),
        Standing::Layered { layer, .. } => source.is_within(layer),
    };
    let shows = |mount: &&Mount| {
        mount.at.as_str() != OBJECTS_INSIDE
            && !matches!(mount.kind, MountKind::Overlay { .. })
            && mount
                .kind
                .sources()
                .into_iter()
                .flatten()
                .any(|(source, _)| source.is_within(project) && !own(source))
    };
    match plan.mounts.iter().find(shows) {
        Some(mount) => Err(broken(&format!("{} would show the project itself", mount.at))),
        None => Ok(()),
    }
}

fn broken(why: &str) -> Fault {
    Fault::new(
        Code::FenceStep,
        "the copy cannot be put in the project's place",
        why,
    )
}
