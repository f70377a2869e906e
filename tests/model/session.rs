//! One round: a project, a run of an agent in it, then steps of user, agent and bastle; after each the disk must be as the
//! model says.
use super::predict::changes;
use super::random::{Case, GitDeed, Mode, Step};
use super::support::{Lab, text};
use super::tree::{Name, Stamp, State, Tree, differing, is_at_or_below, is_git, read, told, without_git};
use super::world::{
    Checked, as_agent, as_user, beginning, deed, ensure, from_disk, prepare, repository, script, verb,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;

/// What the agent has in its repository beside its files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Deeds {
    pub(crate) commits: usize,
    pub(crate) sides: BTreeSet<usize>,
    pub(crate) stashes: usize,
}

/// A state of the agent's tree that can be had again.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) word: String,
    pub(crate) state: State,
    pub(crate) deeds: Deeds,
    /// Of files, where the tree lies on the disk as it is.
    pub(crate) stamps: BTreeMap<Name, Stamp>,
}

/// An apply that can be taken back.
pub(crate) struct Applied {
    pub(crate) before: State,
    pub(crate) stamps: BTreeMap<Name, Stamp>,
    pub(crate) after: State,
    pub(crate) written: BTreeSet<Name>,
    /// Whether the user did something near it since.
    pub(crate) disturbed: bool,
}

/// The model beside the disk.
pub(crate) struct Session<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) mode: Mode,
    pub(crate) run: String,
    pub(crate) host: Tree,
    pub(crate) base: State,
    pub(crate) agent: Tree,
    pub(crate) deeds: Deeds,
    pub(crate) repository: BTreeMap<PathBuf, Vec<u8>>,
    pub(crate) kept: Vec<Kept>,
    /// States that somebody asked to keep, or that a rollback took away.
    pub(crate) asked: Vec<(State, Deeds)>,
    /// States that are elsewhere as a whole.
    pub(crate) saved: Vec<(State, Deeds)>,
    pub(crate) applied: Option<(State, Deeds)>,
    pub(crate) saved_sides: BTreeSet<usize>,
    /// Entries of the stash that are in an archive, as patches.
    pub(crate) saved_stashes: usize,
    pub(crate) applies: Vec<Applied>,
    pub(crate) count: usize,
    pub(crate) removed: bool,
    pub(crate) case: &'a Case,
}

/// Plays a round. The error is a sentence about the first difference.
pub(crate) fn play(lab: &Lab, case: &Case) -> Checked {
    let host = prepare(lab, case);
    let found = read(&lab.workspace()).0;
    assert_eq!(host.state(), found, "the script does not do what the model says");
    let base = beginning(lab, case, &host);
    let mut session = Session {
        lab,
        mode: case.mode,
        run: String::new(),
        agent: match case.mode {
            Mode::InPlace => host.clone(),
            Mode::Copy | Mode::Overlay | Mode::Worktree => Tree::of(&base),
        },
        host,
        base,
        deeds: Deeds::default(),
        repository: repository(lab),
        kept: Vec::new(),
        asked: Vec::new(),
        saved: Vec::new(),
        applied: None,
        saved_sides: BTreeSet::new(),
        saved_stashes: 0,
        applies: Vec::new(),
        count: 0,
        removed: false,
        case,
    };
    session.work(case)?;
    for (number, step) in case.steps.iter().enumerate() {
        if session.removed {
            return Ok(());
        }
        let named = |told: String| format!("step {number}, {step:?}: {told}");
        session.step(step).map_err(named)?;
        session.check().map_err(named)?;
    }
    if case.mode != Mode::InPlace && !session.removed {
        let named = |told: String| format!("at the end: {told}");
        session.remove().map_err(named)?;
        if !session.removed {
            session.export().map_err(named)?;
            session.remove().map_err(named)?;
        }
    }
    Ok(())
}

impl Session<'_> {
    fn work(&mut self, case: &Case) -> Checked {
        let mut lines = b"first=$(git rev-parse -q --verify HEAD) || first=\n".to_vec();
        for op in &case.agent {
            op.perform(&mut self.agent, &mut lines);
        }
        for one in &case.deeds {
            lines.extend(deed(*one));
            match one {
                GitDeed::Commit => self.deeds.commits += 1,
                GitDeed::Branch(n) => {
                    self.deeds.sides.insert(*n);
                }
                GitDeed::Stash => self.deeds.stashes += 1,
            }
        }
        let file = script(self.lab, &lines);
        let before = read(&self.lab.workspace());
        let fence = self.lab.fence().flags(["--workspace", case.mode.word()]);
        fence.name().clone_into(&mut self.run);
        let output = fence.run(["sh", text(&file)]);
        ensure(output.ended.code == 0, || {
            format!("the run: {output:?}\n{}", String::from_utf8_lossy(&lines))
        })?;
        if case.mode == Mode::InPlace {
            self.host = self.agent.clone();
            self.check()?;
            let ended = self.say(&["diff"]);
            return ensure(ended.code != 0, || {
                format!("a run in place has a difference: {ended:?}")
            });
        }
        ensure(read(&self.lab.workspace()) == before, || {
            "the run wrote the project".to_owned()
        })?;
        self.check()
    }

    fn step(&mut self, step: &Step) -> Checked {
        match step {
            Step::User(op) => {
                let mut lines = Vec::new();
                let linked = op.names().iter().any(|name| self.host.is_linked(name));
                op.perform(&mut self.host, &mut lines);
                let linked = linked || op.names().iter().any(|name| self.host.is_linked(name));
                as_user(self.lab, &self.lab.workspace(), &lines);
                for apply in &mut self.applies {
                    let near = |name: &&Name| {
                        apply
                            .written
                            .iter()
                            .any(|one| is_at_or_below(one, name) || is_at_or_below(name, one))
                    };
                    apply.disturbed |= linked || op.names().iter().any(near);
                }
                Ok(())
            }
            Step::Agent(op) => {
                let mut lines = Vec::new();
                op.perform(&mut self.agent, &mut lines);
                as_agent(self.lab, &self.tree_of(&self.run), &lines);
                Ok(())
            }
            Step::Diff => self.diff(),
            Step::Apply(resolve, named, approve) => self.apply(*resolve, named, *approve),
            Step::Undo => self.undo(),
            Step::Branch(named) => self.branch(named),
            Step::SideBranch => self.side_branch(),
            Step::Patch(named) => self.patch(named),
            Step::Snapshot => self.snapshot(),
            Step::Rollback(number) => self.rollback(*number),
            Step::Fork => self.fork(),
            Step::Export => self.export(),
            Step::Remove => self.remove(),
        }
    }

    /// Project, repository and agent's tree are as the model has them.
    pub(crate) fn check(&mut self) -> Checked {
        let (found, _) = read(&self.lab.workspace());
        let expected = self.host.state();
        ensure(found == expected, || {
            format!("the project:\n{}", told(&expected, &found))
        })?;
        // The same files, by names that are one file now.
        self.host = from_disk(&self.lab.workspace());
        let now = repository(self.lab);
        ensure(now == self.repository, || {
            let names: BTreeSet<&PathBuf> = now.keys().chain(self.repository.keys()).collect();
            let differ = names
                .into_iter()
                .filter(|name| now.get(*name) != self.repository.get(*name));
            format!(
                "the repository of the project changed: {:?}",
                differ.collect::<Vec<_>>()
            )
        })?;
        if self.removed || matches!(self.mode, Mode::Overlay | Mode::InPlace) {
            return Ok(());
        }
        let (found, expected) = (read(&self.tree_of(&self.run)).0, self.agent.state());
        let (found, expected) = (without_git(&found), without_git(&expected));
        ensure(found == expected, || {
            format!("the agent's tree:\n{}", told(&expected, &found))
        })
    }

    /// Where the files of a run lie.
    pub(crate) fn tree_of(&self, run: &str) -> PathBuf {
        self.lab
            .home()
            .join(".local/state/bastle/work")
            .join(run)
            .join("tree")
    }

    /// A verb about the run, with words before its name and after it.
    pub(crate) fn say(&self, words: &[&str]) -> super::support::Ended {
        let (first, rest) = words.split_first().expect("a verb");
        let mut line: Vec<OsString> = vec![first.into(), (&self.run).into()];
        line.extend(rest.iter().map(OsString::from));
        verb(self.lab, &line)
    }

    /// What the agent changed.
    pub(crate) fn changes(&self) -> BTreeSet<Name> {
        changes(&self.base, &self.agent.state())
    }

    pub(crate) fn now(&self) -> (State, Deeds) {
        (without_git(&self.agent.state()), self.deeds.clone())
    }

    /// A number that no other file of the round has.
    pub(crate) fn next(&mut self) -> usize {
        self.count += 1;
        self.count
    }

    /// What an archive or a fork has to have, and names about which nothing is promised: those that the agent left alone
    /// in an overlay and the user changed.
    pub(crate) fn shown(&self) -> (State, BTreeSet<Name>) {
        let agent = without_git(&self.agent.state());
        let mut open = BTreeSet::new();
        if self.mode == Mode::Overlay {
            let host = self.host.state();
            open = differing(&self.base, &host);
            open.retain(|name| !is_git(name) && agent.get(name) == self.base.get(name));
        }
        (agent, open)
    }
}
