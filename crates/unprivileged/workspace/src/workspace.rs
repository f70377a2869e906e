//! One run's copy: made, opened, described.
//!
//! **Trust:** see the crate. Making is undone at the next start unless its last step, the record of state `ready`,
//! is on disk.
use crate::beneath::Dir;
use crate::blobs::Blobs;
use crate::contents::{Contents, not_kept};
use crate::copy::{Hidden, Progress, copy_tree};
use crate::faults::io_fault;
use crate::finding::{About, Finding, MAX_FINDINGS};
use crate::manifest::{Content, Kind, Manifest};
use crate::meta::{Base, FORMAT, HostPath, Meta, Reason, Snapshot, State, WorkMode};
use crate::path::TreePath;
use crate::place::{Held, Place, Wait, missing, write_record};
use crate::reserve;
use crate::restore::sweep;
use crate::scan::{Known, scan};
use crate::seen::{Alive, SeenList, now};
use crate::store::{Batch, Keep, Store};
use bastle_contract::{Code, Fault, RunId};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The directory of a copy's apply journals.
pub const JOURNALS: &str = "applied";
/// Entries that are settled in one go.
const SETTLE_PIECE: usize = 256;

/// Gives the fresh copy its own repository; called after the files are there and before the base is recorded.
pub type GitHook<'a> = &'a mut dyn FnMut(&Fresh<'_>) -> Result<GitMade, Fault>;

/// A copy whose files are there and whose repository is not.
#[derive(Clone, Copy, Debug)]
pub struct Fresh<'a> {
    /// The host's tree.
    pub source: &'a Path,
    /// The copy.
    pub tree: &'a Path,
    /// For short-lived files, outside the copy; emptied afterwards.
    pub scratch: &'a Path,
    /// Names of the source that the copy does not have.
    pub absent: &'a [TreePath],
}

/// What the copy's repository is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitMade {
    /// The commit that the source has checked out.
    pub head: Option<String>,
    /// The branch that the source has checked out.
    pub branch: Option<String>,
    /// The agent's branch in the copy.
    pub agent_branch: Option<String>,
    /// What is worth knowing.
    pub findings: Vec<Finding>,
    /// Whether the copy's repository has one commit and no hidden names in its index.
    pub without_history: bool,
}

/// What a copy is made of.
pub struct CreateRequest<'a> {
    /// Whose copy.
    pub run: RunId,
    /// The tree to copy.
    pub source: &'a Path,
    /// Names that stay out of it: those the policy hides, and ignored files that look like secrets.
    pub hidden: Hidden<'a>,
    /// Makes the copy's repository.
    pub git: GitHook<'a>,
    /// Told about ten times a second.
    pub progress: &'a mut dyn FnMut(Progress),
}

/// A fresh tree, before it is recorded.
pub(crate) struct Made {
    pub(crate) scan: crate::scan::Scan,
    /// What the source's files looked like.
    pub(crate) source: Option<SeenList>,
    /// What is worth knowing.
    pub(crate) findings: Vec<Finding>,
    /// Its repository.
    pub(crate) git: GitMade,
}

/// One run's copy.
#[derive(Clone)]
pub struct Workspace {
    pub(crate) place: Place,
    pub(crate) run: RunId,
    pub(crate) source: PathBuf,
    pub(crate) store: Store,
    pub(crate) mode: WorkMode,
}

impl Workspace {
    /// Opens the copy of a run.
    ///
    /// # Errors
    /// When there is none, or what is recorded about it is damaged.
    pub fn open(place: &Place, run: &RunId) -> Result<Self, Fault> {
        let meta = place.meta(run)?;
        if meta.state == State::Making {
            return Err(missing(run));
        }
        Self::of(place, &meta)
    }

    pub(crate) fn of(place: &Place, meta: &Meta) -> Result<Self, Fault> {
        let source = meta.source.as_path().to_path_buf();
        Ok(Self {
            place: place.clone(),
            run: meta.run.clone(),
            store: place.store(&source)?,
            mode: meta.mode,
            source,
        })
    }

    /// Makes the copy.
    ///
    /// # Errors
    /// When the source cannot be read, the copy cannot be written, or the run has one already. What was made is
    /// removed again.
    pub fn create(place: &Place, request: CreateRequest<'_>) -> Result<Self, Fault> {
        Self::create_as(place, WorkMode::Copy, request)
    }

    /// Makes the agent's tree in the way that `mode` says.
    ///
    /// # Errors
    /// See [`Self::create`]; when the source cannot be had in that way, and for `in-place`, which has no tree of its own.
    pub fn create_as(place: &Place, mode: WorkMode, request: CreateRequest<'_>) -> Result<Self, Fault> {
        Self::create_shown(place, mode, request).map(|(space, _)| space)
    }

    /// The same, and what the tree shows: its base, which whoever plans need not look up again.
    ///
    /// # Errors
    /// See [`Self::create_as`].
    pub fn create_shown(
        place: &Place,
        mode: WorkMode,
        request: CreateRequest<'_>,
    ) -> Result<(Self, Manifest), Fault> {
        let source = canonical(request.source)?;
        let from = Dir::open(source.as_path()).map_err(|e| unusable(source.as_path(), e))?;
        let meta = Meta {
            format: FORMAT,
            run: request.run.clone(),
            source: source.clone(),
            mode,
            created: now(),
            base: Base {
                manifest: None,
                head: None,
                branch: None,
            },
            agent_branch: None,
            state: State::Making,
            applied: None,
            exported: Vec::new(),
            identity: crate::identity::Identity::of(source.as_path()),
            origin: None,
            findings: Vec::new(),
            findings_total: 0,
        };
        let (space, held) = Self::begin(place, &meta)?;
        let made = match mode {
            WorkMode::Copy => space.fill(&from, meta, request),
            WorkMode::Overlay => space.lay(&from, meta, request),
            WorkMode::Worktree => space.check_out(meta, request),
            WorkMode::InPlace => Err(unusable(source.as_path(), std::io::ErrorKind::Unsupported)),
        };
        drop(held);
        if made.is_err() {
            space.abandon()?;
        }
        made.map(|base| (space, base))
    }

    /// Makes the directories of a copy that is being made.
    pub(crate) fn begin(place: &Place, meta: &Meta) -> Result<(Self, Held), Fault> {
        let all = place.hold_all()?;
        let dir = place.run(&meta.run);
        if dir.exists() {
            let what = format!("run {} has a copy already", meta.run);
            let why = "names of runs are used once";
            return Err(Fault::new(Code::WorkspaceBusy, what, why).help("another name, or none: bastle ls"));
        }
        let space = Self::of(place, meta)?;
        place.durable().make_dir(&dir)?;
        // While there is room: a removal on a full disk must need none.
        let trash = place.durable().make_dir(&place.trash());
        reserve::keep(place.state());
        let held = trash.and_then(|()| place.hold(&meta.run, Wait::Yes));
        drop(all);
        let begun = held.and_then(|held| space.make_directories(meta).map(|()| held));
        match begun {
            Ok(held) => Ok((space, held)),
            Err(fault) => {
                space.abandon()?;
                Err(fault)
            }
        }
    }

    fn make_directories(&self, meta: &Meta) -> Result<(), Fault> {
        let dir = self.place.run(&meta.run);
        let own = crate::layers::directories(meta.mode);
        let names = own.iter().chain(&["tmp", "snapshots", "kept"]);
        let names: Vec<_> = names.map(|name| dir.join(name)).collect();
        let durable = self.place.durable();
        durable.make_dirs(&names)?;
        if self.is_layered() {
            durable.sync_dir(&dir.join(crate::layers::LAYER))?;
        }
        // The first record syncs the directory that it is in, and with it the names of all of them.
        self.place.write_meta(meta)
    }

    fn fill(&self, from: &Dir, meta: Meta, request: CreateRequest<'_>) -> Result<Manifest, Fault> {
        let tree = self.open_tree()?;
        let copied = copy_tree(from, &tree, &self.source, request.hidden, request.progress)?;
        let absent: Vec<TreePath> = copied
            .findings
            .iter()
            .filter_map(Finding::absent)
            .cloned()
            .collect();
        let git = (request.git)(&Fresh {
            source: &self.source,
            tree: &self.tree(),
            scratch: &self.path("tmp"),
            absent: &absent,
        })?;
        sweep(&self.path("tmp"))?;
        let _shared = self.store.lock_shared()?;
        let batch = self.batch(Keep::Small);
        batch.take_all(&copied.attributes)?;
        let known = Known {
            manifest: &copied.manifest,
            seen: &copied.tree,
        };
        let scan = scan(&tree, &self.tree(), Some(known), &batch, Alive::No)?;
        self.finish(
            meta,
            batch,
            Made {
                scan,
                source: Some(copied.source),
                findings: copied.findings,
                git,
            },
        )
    }

    /// Records the fresh tree as the base, and returns that; the last step makes it ready.
    pub(crate) fn finish(&self, mut meta: Meta, batch: Batch<'_>, made: Made) -> Result<Manifest, Fault> {
        let Made {
            scan,
            source,
            findings,
            git,
        } = made;
        let id = batch.take_manifest(&scan.manifest)?;
        batch.commit()?;
        if let Some(source) = source {
            self.place
                .durable()
                .write_cache(&self.path("source.seen"), &source.encode())?;
        }
        self.write_seen(&scan.seen)?;
        self.keep_times(0, &scan)?;
        self.record(0, None, Reason::Base, &scan.manifest, id)?;
        meta.note(findings.into_iter().chain(git.findings));
        meta.base = Base {
            manifest: Some(id),
            head: git.head,
            branch: git.branch,
        };
        meta.agent_branch = git.agent_branch;
        meta.state = State::Ready;
        self.place.write_meta(&meta)?;
        Ok(scan.manifest)
    }

    /// Removes a copy that no agent has seen.
    pub(crate) fn abandon(&self) -> Result<(), Fault> {
        let work = self.place.work();
        let dir = Dir::open_own(&work).map_err(|e| io_fault("open", &work, e))?;
        dir.remove_all(self.run.as_str().as_bytes())
            .map_err(|e| io_fault("remove", &self.place.run(&self.run), e))
    }

    /// The run.
    #[must_use]
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// How the tree was made.
    #[must_use]
    pub fn mode(&self) -> WorkMode {
        self.mode
    }

    /// The agent's own files: the whole tree, or in mode `overlay` what differs from the source. What the sandbox gets
    /// is [`Self::mounting`].
    #[must_use]
    pub fn tree(&self) -> PathBuf {
        self.path(if self.is_layered() {
            crate::layers::UPPER
        } else {
            "tree"
        })
    }

    /// The host's tree.
    #[must_use]
    pub fn source(&self) -> &Path {
        &self.source
    }

    /// A file or directory of this copy's own.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.place.run(&self.run).join(name)
    }

    /// Makes the fresh copy durable and takes every content of the base into the store, so that no later edit of the
    /// source can take it away. Costs about as much as the copy where the file system cannot share extents: for a
    /// thread beside the agent's start.
    ///
    /// # Errors
    /// The kernel's; contents that are gone already are left out and told.
    pub fn settle(&self) -> Result<Vec<Finding>, Fault> {
        let tree = self.open_tree()?;
        rustix::fs::syncfs(&tree).map_err(|e| io_fault("sync", &self.tree(), e))?;
        let base = self.base()?;
        let contents = self.contents();
        let mut buffer = Vec::new();
        let mut lost = Vec::new();
        // In pieces, so that a snapshot before the first command waits for one piece only.
        for piece in base.entries().chunks(SETTLE_PIECE) {
            let _held = self.hold()?;
            let _shared = self.store.lock_shared()?;
            let batch = self.batch(Keep::All);
            for entry in piece {
                let Kind::File { digest, .. } = &entry.kind else {
                    continue;
                };
                // Below an overlay the source itself is what there is; snapshots take what the agent replaces.
                if self.is_layered() && !entry.path.in_git() {
                    continue;
                }
                if !contents.ensure(digest, &batch, &mut buffer)? {
                    lost.push(Finding {
                        path: entry.path.clone(),
                        about: About::BeforeLost,
                    });
                }
            }
            batch.commit()?;
        }
        Ok(lost)
    }

    /// What is recorded.
    ///
    /// # Errors
    /// When it is gone or damaged.
    pub fn meta(&self) -> Result<Meta, Fault> {
        self.place.meta(&self.run)
    }

    /// Records where the copy is in its life.
    ///
    /// # Errors
    /// When the kernel refuses one of the calls; the error is the kernel's own.
    pub fn set_state(&self, state: State) -> Result<(), Fault> {
        let _held = self.hold()?;
        let mut meta = self.meta()?;
        meta.state = state;
        self.place.write_meta(&meta)
    }

    /// The tree as it was copied.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn base(&self) -> Result<Manifest, Fault> {
        self.store.manifest(&self.base_id()?)
    }

    pub(crate) fn base_id(&self) -> Result<Content, Fault> {
        self.meta()?.base.manifest.ok_or_else(|| missing(&self.run))
    }

    pub(crate) fn hold(&self) -> Result<Held, Fault> {
        self.place.hold(&self.run, Wait::Yes)
    }

    pub(crate) fn open_tree(&self) -> Result<Dir, Fault> {
        Dir::open_own(&self.tree()).map_err(|e| io_fault("open", &self.tree(), e))
    }

    pub(crate) fn batch(&self, keep: Keep) -> Batch<'_> {
        Batch::new(&self.store, self.path("tmp"), keep)
    }

    pub(crate) fn write_seen(&self, seen: &SeenList) -> Result<(), Fault> {
        self.place
            .durable()
            .write_cache(&self.path("tree.seen"), &seen.encode())
    }

    /// The last look at the tree, when it is whole and its manifest is still there.
    pub(crate) fn known(&self) -> Option<(Manifest, SeenList)> {
        let seen = SeenList::decode(&fs::read(self.path("tree.seen")).ok()?)?;
        let manifest = self.store.manifest(&seen.manifest).ok()?;
        (manifest.entries().len() == seen.seen.len()).then_some((manifest, seen))
    }

    pub(crate) fn record(
        &self,
        number: u32,
        name: Option<crate::meta::SnapshotName>,
        reason: Reason,
        manifest: &Manifest,
        id: Content,
    ) -> Result<Snapshot, Fault> {
        let snapshot = Snapshot {
            format: FORMAT,
            number,
            name,
            reason,
            created: now(),
            manifest: id,
            totals: manifest.totals(),
        };
        let path = self.path("snapshots").join(format!("{number}.json"));
        write_record(self.place.durable(), &path, &snapshot)?;
        Ok(snapshot)
    }

    /// The store, the source and the tree, for contents of the base and of the last look.
    pub(crate) fn contents(&self) -> Contents<'_> {
        Contents::new(&self.store, Box::new(|| self.lenders()), self.path("tmp"))
    }
}

impl Blobs for Workspace {
    /// Content that is only lent is taken into the store first, so that nobody changes it while it is read.
    fn open(&self, digest: &Content) -> Result<File, Fault> {
        if let Ok(file) = self.store.open_object(digest) {
            return Ok(file);
        }
        let _held = self.hold()?;
        let _shared = self.store.lock_shared()?;
        let batch = self.batch(Keep::All);
        let found = self.contents().ensure(digest, &batch, &mut Vec::new())?;
        batch.commit()?;
        if !found {
            let path =
                TreePath::new(digest.to_string()).map_err(|e| crate::faults::damaged(&self.source, e))?;
            return Err(not_kept(&[path]));
        }
        self.store
            .open_object(digest)
            .map_err(|e| io_fault("open content", &self.source, e))
    }
}

impl Meta {
    /// Keeps the first findings and their number.
    pub(crate) fn note(&mut self, findings: impl IntoIterator<Item = Finding>) {
        for finding in findings {
            self.findings_total += 1;
            if self.findings.len() < MAX_FINDINGS {
                self.findings.push(finding);
            }
        }
    }
}

fn canonical(source: &Path) -> Result<HostPath, Fault> {
    let path = fs::canonicalize(source).map_err(|e| unusable(source, e))?;
    HostPath::new(path).ok_or_else(|| unusable(source, std::io::ErrorKind::InvalidInput))
}

fn unusable(source: &Path, error: impl Into<std::io::Error>) -> Fault {
    Fault::new(
        Code::WorkspaceInvalid,
        format!("{} cannot be copied", source.display()),
        error.into().to_string(),
    )
}
