//! What a run changed, with the import gate's answer for every change.
//!
//! **Trust:** the tree is the agent's and is read through `bastle-workspace` only: what is compared, judged and later
//! applied are immutable contents by digest, never the living files. Git sees ignore files of ours and nothing else.
use bastle_contract::{Code, Fault};
use bastle_workspace::audit_delta::{Change, Scope, delta};
use bastle_workspace::blobs::Blobs;
use bastle_workspace::diff::{FileDiff, diff};
use bastle_workspace::durable::Durable;
use bastle_workspace::finding::Finding;
use bastle_workspace::gate::{Assessed, Rules, Tier, Tree, assess_all};
use bastle_workspace::git::{HostGit, HostRepo, ObjectFormat, Scratch, ignored_paths};
use bastle_workspace::manifest::{Content, Kind, Manifest};
use bastle_workspace::meta::{SnapshotName, Which};
use bastle_workspace::path::TreePath;
use bastle_workspace::refs::RefTree;
use bastle_workspace::workspace::Workspace;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// One end of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The tree as it was copied.
    Base,
    /// The tree as it is; a snapshot is taken, so that what is shown is kept.
    Now,
    /// A snapshot.
    At(Which),
}

/// What differs between two states of a copy.
pub struct Look {
    /// The older state.
    pub before: Manifest,
    /// The newer state.
    pub after: Manifest,
    /// The name of the newer state.
    pub digest: Content,
    /// Names that could not be kept as they are.
    pub findings: Vec<Finding>,
    /// Every change, judged.
    pub assessed: Vec<Assessed>,
}

/// What a run did, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Files and links changed, without ignored ones.
    pub files: usize,
    /// Lines added.
    pub added: usize,
    /// Lines removed.
    pub removed: usize,
    /// Changes that apply would leave out until they are approved.
    pub held: usize,
    /// Changes that are never applied.
    pub refused: usize,
    /// Changes that the project's ignore files name.
    pub ignored: usize,
}

/// Reads a number or a name of a snapshot, or `base`, `now` and `last`.
///
/// # Errors
/// When it is neither.
pub fn read_end(text: &str) -> Result<End, Fault> {
    Ok(match text {
        "base" => End::Base,
        "now" => End::Now,
        other => End::At(read_which(other)?),
    })
}

/// Reads a number or a name of a snapshot; `last` is the newest.
///
/// # Errors
/// When it is neither.
pub fn read_which(text: &str) -> Result<Which, Fault> {
    if text == "last" {
        return Ok(Which::Last);
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let number = text.parse().map_err(|_| {
            let what = format!("no snapshot has the number {text}");
            Fault::new(Code::UsageArgument, what, "numbers count from 0")
        })?;
        return Ok(Which::Number(number));
    }
    SnapshotName::try_from(text.to_owned()).map(Which::Name)
}

/// Compares and judges.
///
/// # Errors
/// When a state is missing or damaged, or the tree cannot be read.
pub fn look(space: &Workspace, from: &End, to: &End) -> Result<Look, Fault> {
    let mut findings = Vec::new();
    let (after, digest) = state(space, to, &mut findings)?;
    let (before, _) = state(space, from, &mut findings)?;
    let changes = delta(&before, &after, Scope::Work);
    let asked: Vec<&TreePath> = changes.iter().map(|change| &change.path).collect();
    // The base comes first: what it tracks is never ignored, and the agent had no hand in its index.
    let base = match from {
        End::Base => None,
        End::Now | End::At(_) => Some(space.base()?),
    };
    let first = base.as_ref().unwrap_or(&before);
    let mut ignored = ignored(space, &[first, &before, &after], &asked)?;
    ignore_empty_shells(&changes, &mut ignored);
    let rules = Rules::new(bastle_policy::host_executed::catalogue()?)?;
    // A link on the host may name the project by either path.
    let canonical = std::fs::canonicalize(space.source()).unwrap_or_else(|_| space.source().to_owned());
    let tree = Tree::rooted(&before, &after, &[space.source(), &canonical]);
    let assessed = assess_all(&rules, &tree, &changes, &ignored, space)?;
    Ok(Look {
        before,
        after,
        digest,
        findings,
        assessed,
    })
}

/// Compares and judges what a reference of the agent's repository names with what the copy began with.
///
/// # Errors
/// When there is no such reference, or its objects cannot be read.
pub fn look_at_ref(space: &Workspace, name: &str) -> Result<(Look, RefTree), Fault> {
    let tree = space.ref_tree(name)?;
    let changes = delta(&tree.before, &tree.after, Scope::Work);
    let rules = Rules::new(bastle_policy::host_executed::catalogue()?)?;
    let canonical = std::fs::canonicalize(space.source()).unwrap_or_else(|_| space.source().to_owned());
    let names = Tree::rooted(&tree.before, &tree.after, &[space.source(), &canonical]);
    // What is committed is not ignored, whatever the ignore files say.
    let assessed = assess_all(&rules, &names, &changes, &BTreeSet::new(), &tree)?;
    let look = Look {
        before: tree.before.clone(),
        after: tree.after.clone(),
        digest: tree.after.id(),
        findings: Vec::new(),
        assessed,
    };
    Ok((look, tree))
}

fn state(space: &Workspace, end: &End, findings: &mut Vec<Finding>) -> Result<(Manifest, Content), Fault> {
    match end {
        End::Base => {
            let base = space.base()?;
            let digest = base.id();
            Ok((base, digest))
        }
        End::Now => {
            let (taken, manifest) = space.current()?;
            findings.extend(taken.findings);
            Ok((manifest, taken.snapshot.manifest))
        }
        End::At(which) => {
            let snapshot = space.find(which)?;
            Ok((space.manifest(&snapshot)?, snapshot.manifest))
        }
    }
}

/// How the project's repository names its objects.
#[must_use]
pub fn object_format(space: &Workspace) -> ObjectFormat {
    let repo = HostRepo::open(space.source()).ok().flatten();
    repo.map_or(ObjectFormat::Sha1, |repo| repo.format)
}

/// A directory of the run's own for short-lived files of git.
pub(super) fn scratch_directory(space: &Workspace) -> Result<PathBuf, Fault> {
    let directory = space.path("scratch");
    Durable::default().make_dir(&directory)?;
    Ok(directory)
}

fn ignored(
    space: &Workspace,
    manifests: &[&Manifest],
    asked: &[&TreePath],
) -> Result<BTreeSet<TreePath>, Fault> {
    if asked.is_empty() {
        return Ok(BTreeSet::new());
    }
    // A repository that cannot be used, or none at all, still has ignore files; only its own list is unknown.
    let repo = HostRepo::open(space.source()).ok().flatten();
    let git = match (HostGit::find(), &repo) {
        (Ok(git), _) => git,
        (Err(_), None) => return Ok(BTreeSet::new()),
        (Err(fault), Some(_)) => return Err(fault),
    };
    let format = repo.as_ref().map_or(ObjectFormat::Sha1, |repo| repo.format);
    let exclude = repo.as_ref().map(|repo| repo.common_dir.join("info/exclude"));
    let scratch = Scratch::new(&scratch_directory(space)?, format, &[])?;
    ignored_paths(&git, &scratch, exclude.as_deref(), manifests, space, asked)
}

/// A directory that holds ignored changes only is ignored with them: a pattern such as `out/` names what lies below.
fn ignore_empty_shells(changes: &[Change], ignored: &mut BTreeSet<TreePath>) {
    let above = |path: &TreePath| std::iter::successors(path.parent(), TreePath::parent);
    let directory = |change: &&Change| is_directory(change);
    let files = changes.iter().filter(|change| !is_directory(change));
    let (out, kept): (Vec<&Change>, Vec<&Change>) = files.partition(|change| ignored.contains(&change.path));
    let needed: BTreeSet<TreePath> = kept.iter().flat_map(|change| above(&change.path)).collect();
    let filled: BTreeSet<TreePath> = out.iter().flat_map(|change| above(&change.path)).collect();
    let shells = changes.iter().filter(directory).map(|change| &change.path);
    let shells = shells.filter(|path| filled.contains(*path) && !needed.contains(*path));
    ignored.extend(shells.cloned());
}

impl Look {
    /// The differences that a reader is shown: those of `paths`, or all that are not ignored.
    ///
    /// # Errors
    /// When a content cannot be read.
    pub fn diffs(&self, blobs: &dyn Blobs, shown: &[&Assessed]) -> Result<Vec<FileDiff>, Fault> {
        shown.iter().map(|one| diff(&one.change, blobs)).collect()
    }

    /// The changes that a reader is shown, without directories that only hold other changes. A directory that is held is
    /// shown: it needs an approval of its own, and is part of the hash that approves all.
    #[must_use]
    pub fn shown(&self, paths: &[TreePath], ignored: Ignored) -> Vec<&Assessed> {
        let named = |one: &Assessed| paths.iter().any(|path| one.change.path.starts_with(path));
        let wanted: Vec<&Assessed> = self
            .assessed
            .iter()
            .filter(|one| match (paths.is_empty(), ignored) {
                (false, _) => named(one),
                (true, Ignored::Shown) => true,
                (true, Ignored::Counted) => !one.ignored,
            })
            .collect();
        let above: BTreeSet<TreePath> = wanted
            .iter()
            .flat_map(|one| std::iter::successors(one.change.path.parent(), TreePath::parent))
            .collect();
        wanted
            .into_iter()
            .filter(|one| {
                let shell = is_directory(&one.change) && above.contains(&one.change.path);
                !shell || one.tier() >= Tier::Approve
            })
            .collect()
    }

    /// How many changes are ignored.
    #[must_use]
    pub fn ignored(&self) -> usize {
        self.assessed.iter().filter(|one| one.ignored).count()
    }
}

/// Whether changes that the project's ignore files name are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// They are.
    Shown,
    /// Only their number is told.
    Counted,
}

fn is_directory(change: &Change) -> bool {
    let directory = |kind: &Option<Kind>| matches!(kind, None | Some(Kind::Dir));
    directory(&change.before) && directory(&change.after)
}

/// What a run did since its base, in numbers.
///
/// # Errors
/// See [`look`].
pub fn summary(space: &Workspace) -> Result<Summary, Fault> {
    let look = look(space, &End::Base, &End::Now)?;
    let shown = look.shown(&[], Ignored::Counted);
    let mut summary = Summary {
        files: shown.len(),
        ignored: look.ignored(),
        ..Summary::default()
    };
    for one in &shown {
        match one.tier() {
            Tier::Note | Tier::Flag => {}
            Tier::Approve => summary.held += 1,
            Tier::Refuse => summary.refused += 1,
        }
    }
    for diff in look.diffs(space, &shown)? {
        summary.added += diff.added;
        summary.removed += diff.removed;
    }
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_names_no_state_is_refused_and_no_name_is_taken_for_a_number() {
        assert_eq!(read_end("base").unwrap(), End::Base);
        assert_eq!(read_end("now").unwrap(), End::Now);
        assert_eq!(read_end("last").unwrap(), End::At(Which::Last));
        assert_eq!(read_end("007").unwrap(), End::At(Which::Number(7)));
        assert!(matches!(read_end("v1").unwrap(), End::At(Which::Name(_))));
        for bad in ["", "-1", "1x", "../x", "a b", "99999999999", "x\n", "\u{1b}"] {
            assert!(read_end(bad).is_err(), "{bad:?}");
        }
    }
}
