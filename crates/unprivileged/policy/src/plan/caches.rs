//! What a plan gets for named caches: a writable place of the run's own where each tool looks for its cache.
//!
//! **Trust:** the sources are made by control for this run alone; no other run sees them.
use super::{PlanLine, Planned, built_in};
use bastle_contract::{
    AbsPath, Access, Code, EnvName, Fault, Guarantee, GuardedTree, LandlockRule, Mechanism, Mount, MountKind,
    NameList, TreeKind,
};

/// One cache of a run.
#[derive(Clone, Debug)]
pub struct LentCache {
    /// The name of the cache in the catalogue.
    pub name: String,
    /// Each place inside, and what is shown there.
    pub places: Vec<(AbsPath, LentPlace)>,
    /// Variables that lead the tool there.
    pub env: Vec<(EnvName, String)>,
    /// Settings that stay those of the directory to which the variable led before.
    pub settings: Vec<String>,
}

/// What is shown where a tool looks for its cache.
#[derive(Clone, Debug)]
pub enum LentPlace {
    /// A directory of the run's own.
    Own(AbsPath),
    /// The shared directory, only read, below a layer of the run's own.
    Layered {
        /// What is shared.
        lower: AbsPath,
        /// Has `upper` and `work`.
        layer: AbsPath,
    },
}

impl Planned {
    /// Puts caches into the plan.
    pub fn with_caches(&mut self, caches: &[LentCache]) -> Result<(), Fault> {
        for cache in caches {
            for (at, source) in &cache.places {
                self.place(cache, at, source)?;
            }
            for (name, value) in &cache.env {
                self.settings(cache, name, value);
                self.plan.env.retain(|(known, _)| known != name);
                self.plan.env.push((name.clone(), value.clone()));
            }
        }
        self.plan.env.sort();
        self.plan.check().map_err(|error| {
            Fault::new(
                Code::FenceStep,
                "the caches compile to a plan that nobody can execute",
                error.to_string(),
            )
        })
    }

    /// Leads from beside the cache to settings that the tool would have read without it. What they lead to shows only
    /// where the policy shows it.
    fn settings(&mut self, cache: &LentCache, name: &EnvName, value: &str) {
        let before = self.plan.env.iter().find(|(known, _)| known == name);
        let Some((_, before)) = before.filter(|(_, before)| before != value) else {
            return;
        };
        let links: Vec<Mount> = cache
            .settings
            .iter()
            .filter_map(|file| {
                let target = AbsPath::new(format!("{before}/{file}")).ok()?;
                Some(Mount {
                    at: AbsPath::new(format!("{value}/{file}")).ok()?,
                    kind: MountKind::Symlink {
                        target: target.to_string(),
                    },
                })
            })
            .collect();
        self.plan.mounts.extend(links);
    }

    fn place(&mut self, cache: &LentCache, at: &AbsPath, source: &LentPlace) -> Result<(), Fault> {
        let taken = |mount: &Mount| {
            let inner = mount.at.is_within(at);
            let outer = at.is_within(&mount.at) && !matches!(mount.kind, MountKind::Scratch { .. });
            inner || outer
        };
        if let Some(mount) = self.plan.mounts.iter().find(|mount| taken(mount)) {
            return Err(Fault::new(
                Code::CacheUnusable,
                format!("cache {} cannot be shown at {at}", cache.name),
                format!("the policy shows something of its own at {}", mount.at),
            )
            .help("leave the cache out, or do not grant that path"));
        }
        self.plan.mounts.push(Mount {
            at: at.clone(),
            kind: match source {
                LentPlace::Own(source) => MountKind::Bind {
                    source: source.clone(),
                    access: Access::ReadWrite,
                    owned: true,
                },
                LentPlace::Layered { lower, layer } => MountKind::Overlay {
                    lower: lower.clone(),
                    layer: layer.clone(),
                    access: Access::ReadWrite,
                    owned: true,
                },
            },
        });
        self.plan.landlock.push(LandlockRule {
            path: at.clone(),
            access: Access::ReadWrite,
        });
        // So that the limits on files and bytes hold there as in the workspace.
        self.plan.guard.trees.push(GuardedTree {
            root: at.clone(),
            hide: NameList::default(),
            protect: NameList::default(),
            pinned: NameList::default(),
            kind: TreeKind::Own,
        });
        self.listing.push(PlanLine {
            section: "cache".to_owned(),
            rule: format!("{} at {at}", cache.name),
            origin: built_in(),
            mechanism: Mechanism::Mount,
            probe: Some(Guarantee::WritesConfined),
            note: match source {
                LentPlace::Own(_) => "a copy of the run's own; shared by nobody before it is merged",
                LentPlace::Layered { .. } => {
                    "shared read-only below a layer of the run's own; nothing is shared before it is merged"
                }
            }
            .to_owned(),
        });
        Ok(())
    }
}
