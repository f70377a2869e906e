//! The way back to the host: the tree itself, a branch, or a patch; and the way back from that.
//!
//! **Trust:** takes only what [`select`] lets through, by digest. One apply of this user at a time plans and writes, so
//! that the second one sees the first one's result; the library locks the project against everybody else. The mark
//! that work is elsewhere is set only when nothing of it stays behind.
use super::apply_lock::ApplyLock;
use super::keep::is_no_work;
use super::look::{End, Look, look, look_at_ref, object_format, scratch_directory};
use super::recover::{Marker, repair_project_alone};
use crate::afterwards::Change;
use bastle_contract::{Code, Fault};
use bastle_workspace::apply::{self, LeftOut, Plan, Reason, Resolve, Selection, Target, select};
use bastle_workspace::audit_delta;
use bastle_workspace::blobs::Blobs;
use bastle_workspace::diff::{FileDiff, Lacking, Patch, WhyLacking, diff, exact_patch_for, not_in_a_commit};
use bastle_workspace::durable::Durable;
use bastle_workspace::gate::{Approvals, Assessed, set_hash};
use bastle_workspace::git::{
    BranchName, CommitRequest, Contents, HostGit, HostRepo, Identity, ObjectId, commit_to_branch,
};
use bastle_workspace::manifest::Content;
use bastle_workspace::meta::State;
use bastle_workspace::path::{TreePath, visible};
use bastle_workspace::place::Place;
use bastle_workspace::refs::RefTree;
use bastle_workspace::rooted::Root;
use bastle_workspace::workspace::Workspace;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The directory of a run's journals.
pub(crate) use bastle_workspace::workspace::JOURNALS;

/// Where accepted changes go.
#[derive(Clone, Debug)]
pub enum Destination {
    /// Into the project's tree.
    Tree(Resolve),
    /// On a new branch of the project's repository; the tree stays as it is.
    Branch {
        /// The name of the branch that is made.
        name: BranchName,
        /// The message of the commit; one that names the run unless given.
        message: Option<String>,
    },
    /// Into a patch that the caller writes.
    Patch,
}

/// Whether to do it or to show what would be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Do it.
    Do,
    /// Only show.
    DryRun,
}

/// What a person wants to have.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Where to.
    pub destination: Destination,
    /// Only these paths and what lies below them; all when empty.
    pub paths: Vec<TreePath>,
    /// Hashes of changes, or `PATH=HASH`.
    pub approvals: Vec<Approval>,
    /// What a reference of the agent's repository names, instead of the files of its tree.
    pub from_ref: Option<String>,
    /// Whether to do it.
    pub act: Act,
    /// Who wants it, for the record: the kind of principal and its id.
    pub principal: String,
}

/// One approval as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// The path it is for; any when absent.
    pub path: Option<TreePath>,
    /// The hash or its beginning.
    pub hash: String,
}

/// What became of the accepted changes.
#[derive(Clone, Debug)]
pub enum Taken {
    /// They are in the tree, or would be.
    Tree(Plan),
    /// They are a commit, none on a dry run; what is listed cannot be in one.
    Branch(BranchName, Option<ObjectId>, Vec<Lacking>),
    /// They are this patch; the others cannot be expressed in one.
    Patch(Vec<u8>, Vec<Lacking>),
}

/// What an apply did, or would do.
pub struct Outcome {
    /// What was looked at.
    pub look: Look,
    /// Every path that is taken.
    pub paths: Vec<TreePath>,
    /// Every change that stays.
    pub left_out: Vec<LeftOut>,
    /// The hash that approves everything that was asked for and is held.
    pub approval: Content,
    /// How it is taken.
    pub taken: Taken,
    /// What was repaired before.
    pub notes: Vec<String>,
    /// The reference of the agent's repository that it is about, and what that names; none for the files of the tree.
    saves: Option<(String, String)>,
    /// Whether its files are all that the reference holds.
    all_of_it: bool,
}

impl Outcome {
    /// The paths that the result has: of a file that only lacks its extended attributes it has the rest.
    pub fn carried(&self) -> impl Iterator<Item = &TreePath> {
        let lacking: &[Lacking] = match &self.taken {
            Taken::Tree(_) => &[],
            Taken::Branch(.., lacking) | Taken::Patch(_, lacking) => lacking,
        };
        let absent = lacking.iter().filter(|one| one.why != WhyLacking::Attributes);
        let absent: BTreeSet<&TreePath> = absent.map(|one| &one.path).collect();
        self.paths.iter().filter(move |path| !absent.contains(path))
    }
}

/// Reviews and applies.
///
/// # Errors
/// When an approval fits nothing, on conflicts, or when something fails; the host is as before then.
pub fn carry(place: &Place, state: &Path, space: &Workspace, wish: &Wish) -> Result<Outcome, Fault> {
    match wish.destination {
        // Not even shown against a project that is another one.
        Destination::Tree(_) | Destination::Branch { .. } => space.check_project()?,
        Destination::Patch => {}
    }
    let (look, tree) = match &wish.from_ref {
        None => (look(space, &End::Base, &End::Now)?, None),
        Some(name) => {
            let (look, tree) = look_at_ref(space, name)?;
            (look, Some(tree))
        }
    };
    let blobs: &dyn Blobs = match &tree {
        None => space,
        Some(tree) => tree,
    };
    let selection = select(&look.assessed, &approvals(&look, wish)?, &wish.paths);
    let approval = set_hash(&asked(&look.assessed, &wish.paths));
    let paths = selection
        .taken()
        .iter()
        .map(|change| change.path.clone())
        .collect();
    let mut outcome = Outcome {
        paths,
        left_out: selection.left_out().to_vec(),
        approval,
        taken: Taken::Patch(Vec::new(), Vec::new()),
        notes: Vec::new(),
        saves: tree.as_ref().map(|tree| (tree.name.clone(), tree.tip.clone())),
        all_of_it: tree.as_ref().is_none_or(|tree| tree.index_only.is_empty()),
        look,
    };
    outcome.taken = match &wish.destination {
        Destination::Tree(_) if tree.is_some() => {
            let what = "--from-branch needs --branch NAME or --patch FILE";
            let why = "what a branch of the agent holds is not merged into the project's tree";
            return Err(Fault::new(Code::UsageArgument, what, why));
        }
        Destination::Tree(resolve) => {
            // Planning and writing belong together.
            let alone = ApplyLock::wait(state)?;
            outcome.notes = repair_project_alone(place, space.source(), &alone)?;
            let (plan, linked) = into_tree((place, &alone), space, &selection, *resolve, wish)?;
            let told =
                |path: &TreePath| format!("{path} has other names (hard links); they keep the old content");
            outcome.notes.extend(linked.iter().map(told));
            outcome.left_out = plan.left_out().to_vec();
            Taken::Tree(plan)
        }
        Destination::Branch { name, message } => {
            let commit = match wish.act {
                Act::Do => Some(into_branch(
                    state,
                    (space, tree.as_ref()),
                    &selection,
                    (name, message.as_deref()),
                    wish,
                )?),
                Act::DryRun => None,
            };
            Taken::Branch(name.clone(), commit, not_in_a_commit(selection.taken()))
        }
        Destination::Patch => {
            let patch = patch_of(space, blobs, selection.taken())?;
            Taken::Patch(patch.bytes, patch.left_out)
        }
    };
    let done = match &outcome.taken {
        Taken::Tree(plan) => plan.conflicts().is_empty(),
        Taken::Branch(.., lacking) => lacking.is_empty(),
        // The caller writes it first.
        Taken::Patch(..) => false,
    };
    if done && wish.act == Act::Do && is_everything(&outcome) {
        mark(space, &outcome)?;
    }
    Ok(outcome)
}

/// Records that all of what was looked at is elsewhere.
fn mark(space: &Workspace, outcome: &Outcome) -> Result<(), Fault> {
    match &outcome.saves {
        Some((name, tip)) if outcome.all_of_it => space.mark_ref_saved(name, tip),
        Some(_) => Ok(()),
        None => match outcome.taken {
            // A branch and a patch stay where a later undo of the tree does not reach.
            Taken::Branch(..) | Taken::Patch(..) => space.mark_saved(outcome.look.digest),
            Taken::Tree(_) => space.mark_applied(outcome.look.digest),
        },
    }
}

/// Changes as one patch, whose blobs are named as the project's repository names them.
pub(super) fn patch_of(
    space: &Workspace,
    blobs: &dyn Blobs,
    changes: &[audit_delta::Change],
) -> Result<Patch, Fault> {
    let diffs: Vec<FileDiff> = changes
        .iter()
        .map(|change| diff(change, blobs))
        .collect::<Result<_, _>>()?;
    exact_patch_for(&diffs, blobs, object_format(space))
}

/// Records that a patch with all of the work is in a file.
///
/// # Errors
/// When the kernel refuses one of the calls; the error is the kernel's own.
pub(super) fn patch_is_kept(space: &Workspace, outcome: &Outcome) -> Result<(), Fault> {
    match &outcome.taken {
        Taken::Patch(_, lacking) if lacking.is_empty() && is_everything(outcome) => mark(space, outcome),
        Taken::Patch(..) | Taken::Tree(_) | Taken::Branch(..) => Ok(()),
    }
}

/// Whether nothing stays behind but what the project itself calls disposable.
fn is_everything(outcome: &Outcome) -> bool {
    outcome.look.findings.iter().all(is_no_work)
        && outcome.left_out.iter().all(|one| match one.reason {
            Reason::Ignored => true,
            Reason::NotNamed | Reason::NeedsApproval { .. } | Reason::Refused | Reason::KeptOurs => false,
        })
}

/// Takes back the last apply of the run that was not taken back. Returns the paths.
///
/// # Errors
/// When there is none, or when the tree changed since.
pub fn undo(
    place: &Place,
    state: &Path,
    space: &Workspace,
    principal: &str,
) -> Result<(Vec<TreePath>, Vec<String>), Fault> {
    space.check_project()?;
    let alone = ApplyLock::wait(state)?;
    let mut notes = repair_project_alone(place, space.source(), &alone)?;
    let meta = space.meta()?;
    // Before the tree changes: a crash then leaves work that counts as unsaved, never the other way round.
    if let (Some(_), Some(base)) = (meta.applied, meta.base.manifest) {
        space.mark_applied(base)?;
        if meta.state == State::Applied {
            space.set_state(State::Finished)?;
        }
    }
    let journals = space.path(JOURNALS);
    let durable = Durable::default();
    let change = Change {
        run: space.run(),
        by: "undo",
        at: shown(space.source()),
        names: Vec::new(),
        approvals: Vec::new(),
        principal,
    };
    let target = target(space, &journals, &durable);
    let marker = Marker::set(place, space.source(), &alone)?;
    let undone = change.make(state, || apply::undo(&target));
    marker.settle();
    if let (Err(_), Some(applied)) = (&undone, meta.applied) {
        space.mark_applied(applied)?;
    }
    let undone = undone?;
    let stays = |path: &TreePath| format!("{path}/ stays: it holds files that were added since");
    notes.extend(undone.kept.iter().map(stays));
    Ok((undone.paths, notes))
}

fn target<'a>(space: &'a Workspace, journals: &'a Path, durable: &'a Durable) -> Target<'a> {
    Target {
        source: space.source(),
        journals,
        durable,
    }
}

fn shown(path: &Path) -> String {
    visible(path.as_os_str().as_encoded_bytes())
}

/// What was approved, as it is recorded.
fn approved(wish: &Wish) -> Vec<String> {
    let one = |Approval { path, hash }: &Approval| match path {
        Some(path) => format!("{path}={hash}"),
        None => hash.clone(),
    };
    wish.approvals.iter().map(one).collect()
}

fn into_tree(
    (place, alone): (&Place, &ApplyLock),
    space: &Workspace,
    selection: &Selection,
    resolve: Resolve,
    wish: &Wish,
) -> Result<(Plan, Vec<TreePath>), Fault> {
    let source = space.source();
    let root = Root::open(source).map_err(|error| {
        Fault::new(
            Code::WorkspaceApply,
            format!("open {}", source.display()),
            error.to_string(),
        )
    })?;
    let plan = apply::plan(&root, selection, resolve, space)?;
    if wish.act == Act::DryRun || !plan.conflicts().is_empty() || plan.operations().is_empty() {
        return Ok((plan, Vec::new()));
    }
    let journals = space.path(JOURNALS);
    let durable = Durable::default();
    let change = Change {
        run: space.run(),
        by: "apply",
        at: shown(source),
        names: plan.operations().iter().map(|one| one.path.to_string()).collect(),
        approvals: approved(wish),
        principal: &wish.principal,
    };
    let target = target(space, &journals, &durable);
    let marker = Marker::set(place, source, alone)?;
    let applied = change.make(place.state(), || apply::apply(&target, &plan, space));
    marker.settle();
    let linked = applied?.linked;
    Ok((plan, linked))
}

fn into_branch(
    state: &Path,
    (space, tree): (&Workspace, Option<&RefTree>),
    selection: &Selection,
    (name, message): (&BranchName, Option<&str>),
    wish: &Wish,
) -> Result<ObjectId, Fault> {
    let source = space.source();
    let none = || {
        let what = format!("{} is no git repository", source.display());
        Fault::new(Code::WorkspaceGit, what, "a branch needs one").help("bastle apply --patch FILE")
    };
    let repo = HostRepo::open(source)?.ok_or_else(none)?;
    let files = selection.files();
    if files.is_empty() {
        let what = "nothing to commit";
        return Err(Fault::new(Code::WorkspaceApply, what, "every change is left out").help("bastle diff"));
    }
    let meta = space.meta()?;
    let parent = meta.base.head.as_deref().and_then(ObjectId::parse);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let usual = match tree {
        Some(tree) => format!("Changes of {} on {}", space.run(), tree.name),
        None => format!("Changes of {}", space.run()),
    };
    let base = space.base()?;
    let contents = match tree {
        // The agent's git has converted them when they were committed.
        Some(_) => Contents::AsStored,
        None => Contents::AsInTree(&base),
    };
    let configs = configs(&repo);
    let configs: Vec<&Path> = configs.iter().map(PathBuf::as_path).collect();
    let request = CommitRequest {
        repo: &repo,
        parent: parent.as_ref(),
        branch: name,
        message: message.unwrap_or(&usual),
        identity: &Identity::from_files(&configs),
        seconds: since.as_secs(),
        files: &files,
        contents,
        scratch: &scratch_directory(space)?,
    };
    let change = Change {
        run: space.run(),
        by: "apply-branch",
        at: format!("{} in {}", name.as_str(), shown(source)),
        names: files.iter().map(|(path, _)| path.to_string()).collect(),
        approvals: approved(wish),
        principal: &wish.principal,
    };
    let git = HostGit::find()?;
    let blobs: &dyn Blobs = match tree {
        Some(tree) => tree,
        None => space,
    };
    Ok(change.make(state, || commit_to_branch(&git, &request, blobs))?.id)
}

/// Where the user's name may stand; the project's own settings win, as they do for git.
fn configs(repo: &HostRepo) -> Vec<PathBuf> {
    let variable = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let home = variable("HOME");
    let general = variable("XDG_CONFIG_HOME").or_else(|| home.as_ref().map(|home| home.join(".config")));
    let own = home.map(|home| home.join(".gitconfig"));
    let general = general.map(|config| config.join("git/config"));
    let repo = repo.common_dir.join("config");
    std::iter::once(repo).chain(own).chain(general).collect()
}

/// The changes that were asked for: what one hash for all of them is about.
fn asked(assessed: &[Assessed], paths: &[TreePath]) -> Vec<Assessed> {
    let named = |one: &Assessed| paths.iter().any(|path| one.change.path.starts_with(path));
    let wanted = assessed.iter().filter(|one| {
        if paths.is_empty() {
            !one.ignored
        } else {
            named(one)
        }
    });
    wanted.cloned().collect()
}

/// Every approval must fit a change as it is now: one that does not was given to something else.
fn approvals(look: &Look, wish: &Wish) -> Result<Approvals, Fault> {
    let sets = [
        set_hash(&look.assessed),
        set_hash(&asked(&look.assessed, &wish.paths)),
    ];
    let mut approvals = Approvals::default();
    for Approval { path, hash } in &wish.approvals {
        approvals
            .add(hash)
            .map_err(|error| Fault::new(Code::UsageArgument, "unusable approval", error.to_string()))?;
        let fits = |content: &Content| content.to_string().starts_with(hash.as_str());
        let of_change = |one: &Assessed| {
            let there = path.as_ref().is_none_or(|path| one.change.path == *path);
            there && fits(&one.approval)
        };
        if look.assessed.iter().any(of_change) || (path.is_none() && sets.iter().any(fits)) {
            continue;
        }
        let what = match path {
            Some(path) => format!("the change of {path} is not the one that {hash} approves"),
            None => format!("no change is the one that {hash} approves"),
        };
        return Err(Fault::new(
            Code::WorkspaceApproval,
            what,
            "it changed since, or belongs to another run",
        )
        .help("bastle diff"));
    }
    Ok(approvals)
}
