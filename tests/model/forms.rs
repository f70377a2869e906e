//! Work as a branch and as a patch: compared with what git itself makes of the same files.
use super::predict::{self};
use super::random::{Approve, Layout};
use super::session::Session;
use super::support::{Ended, Limit, run, text};
use super::tree::{Name, State, Thing, is_at_or_below, read, told, write};
use super::verbs::shown;
use super::world::{Checked, answer, ensure, names, repository};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

fn git(session: &Session<'_>, directory: &Path, words: &[&str], input: &[u8]) -> Ended {
    let mut command = session.lab.command(Path::new("git"));
    command.current_dir(directory).args(words);
    run(&mut command, input, Limit::HANG)
}

/// Names of files and links among changes; a commit and a patch hold no directory.
fn of_files(taken: &BTreeSet<Name>, base: &State, agent: &State) -> BTreeSet<Name> {
    let is_file =
        |state: &State, name: &Name| matches!(state.get(name), Some(Thing::File(..) | Thing::Link(_)));
    taken
        .iter()
        .filter(|name| is_file(base, name) || is_file(agent, name))
        .cloned()
        .collect()
}

impl Session<'_> {
    pub(crate) fn branch(&mut self, named: &[Name]) -> Checked {
        let branch = format!("made-{}", self.next());
        let ended = self.ask(&["apply", "--branch", &branch, "--json"], named, Approve::Set)?;
        if ended.code != 0 {
            let agent = self.agent.state();
            let wanted = |name: &Name| {
                !name.starts_with(b"out")
                    && (named.is_empty() || named.iter().any(|above| is_at_or_below(name, above)))
            };
            let any = of_files(&self.changes(), &self.base, &agent).iter().any(wanted);
            let empty = ended.stderr.contains("nothing to commit");
            return ensure(!any && empty || self.cannot_be_converted(), || {
                format!("no branch: {ended:?}")
            });
        }
        let value = answer(&ended)?;
        let taken = self.taken(&value, named, Approve::Set)?;
        self.expect_branch(&branch)?;
        let lacking = self.compare_lacking(&value["not_in_branch"], &taken)?;
        let whole = self.is_whole(&value) && lacking.is_empty();
        let checked = self.compare_commit(&branch, &taken);
        if whole {
            let now = self.now();
            self.saved.push(now);
        }
        checked.map_err(|told| format!("{told}\n{value:#}"))
    }

    /// Directories without a file are named as what git does not carry.
    fn compare_lacking(&self, told: &serde_json::Value, taken: &BTreeSet<Name>) -> Checked<BTreeSet<Name>> {
        let agent = self.agent.state();
        let files = of_files(taken, &self.base, &agent);
        // Of a file that became an empty directory the removal is carried, and the directory is not.
        let is_dir = |name: &Name| matches!(agent.get(name), Some(Thing::Dir));
        let of_agent = |file: &&Name| !is_dir(file) && agent.contains_key(*file);
        let lacking: BTreeSet<Name> = taken
            .iter()
            .filter(|name| match files.contains(*name) {
                false => !files.iter().any(|file| is_at_or_below(file, name)),
                true => {
                    is_dir(name)
                        && !files
                            .iter()
                            .filter(of_agent)
                            .any(|file| is_at_or_below(file, name))
                }
            })
            .cloned()
            .collect();
        let found: BTreeSet<Name> = names(told).into_iter().collect();
        // A directory is told by the innermost one.
        let is_told = |name: &Name| found.iter().any(|one| is_at_or_below(one, name));
        ensure(found.is_subset(&lacking) && lacking.iter().all(is_told), || {
            format!("lacking: expected {:?}: {told:#}", shown(&lacking))
        })?;
        Ok(found)
    }

    /// A content that its attributes cannot encode is no content of a commit: git refuses it, too.
    fn cannot_be_converted(&self) -> bool {
        let agent = self.agent.state();
        let wide = |name: &Name| name.ends_with(b".u16") && matches!(agent.get(name), Some(Thing::File(..)));
        self.case.attributes && self.changes().iter().any(wide)
    }

    /// The repository has one new branch, and nothing else is new.
    fn expect_branch(&mut self, branch: &str) -> Checked {
        let mut now = repository(self.lab);
        let is_of_it = |path: &Path| path.ends_with(format!("refs/heads/{branch}"));
        ensure(now.keys().any(|path| is_of_it(path)), || {
            "no branch was made".to_owned()
        })?;
        let made = now.clone();
        now.retain(|path, _| !is_of_it(path));
        ensure(now == self.repository, || {
            "more than a branch was made".to_owned()
        })?;
        self.repository = made;
        Ok(())
    }

    fn compare_commit(&mut self, branch: &str, taken: &BTreeSet<Name>) -> Checked {
        let (root, agent) = (self.lab.workspace(), self.agent.state());
        let files = of_files(taken, &self.base, &agent);
        if self.case.layout == Layout::Submodule && files.iter().any(|name| name.starts_with(b"sub")) {
            return Ok(());
        }
        let clone = self.lab.home().join(format!("clone{}", self.next()));
        let unborn = self.case.layout == Layout::Unborn;
        let cloned = match unborn {
            true => git(self, &self.lab.home(), &["init", "-q", text(&clone)], b""),
            false => {
                let words = [
                    "clone",
                    "-q",
                    "--no-checkout",
                    "--shared",
                    text(&root),
                    text(&clone),
                ];
                git(self, &self.lab.home(), &words, b"")
            }
        };
        ensure(cloned.code == 0, || format!("{cloned:?}"))?;
        write(&clone, &agent);
        if !unborn {
            git(self, &clone, &["read-tree", "HEAD"], b"");
        }
        let list = files
            .iter()
            .flat_map(|name| [&name[..], b"\0"].concat())
            .collect::<Vec<u8>>();
        let words = ["update-index", "--add", "--remove", "--replace", "-z", "--stdin"];
        let added = git(self, &clone, &words, &list);
        ensure(added.code == 0 || self.case.attributes, || format!("{added:?}"))?;
        if added.code != 0 {
            return Ok(());
        }
        let expected = git(self, &clone, &["write-tree"], b"").stdout;
        let found = git(self, &root, &["rev-parse", &format!("{branch}^{{tree}}")], b"").stdout;
        let list =
            |directory: &Path, tree: &str| git(self, directory, &["ls-tree", "-r", tree.trim()], b"").stdout;
        ensure(expected == found, || {
            format!(
                "the commit: git has\n{}\nbastle has\n{}\n{:?}",
                list(&clone, &expected),
                list(&root, &found),
                shown(&files)
            )
        })
    }

    pub(crate) fn side_branch(&mut self) -> Checked {
        let Some(side) = self.deeds.sides.first().copied() else {
            return Ok(());
        };
        let branch = format!("taken-{}", self.next());
        let from = format!("side-{side}");
        let ended = self.say(&["apply", "--branch", &branch, "--from-branch", &from, "--json"]);
        ensure(ended.code == 0, || format!("{ended:?}"))?;
        let value = answer(&ended)?;
        self.expect_branch(&branch)?;
        let words = ["ls-tree", "--name-only", &branch, &format!("side{side}.txt")];
        let listed = git(self, &self.lab.workspace(), &words, b"").stdout;
        ensure(!listed.is_empty(), || {
            format!("the branch lacks its file: {value:#}")
        })?;
        if self.is_whole(&value) {
            self.saved_sides.insert(side);
        }
        Ok(())
    }

    pub(crate) fn patch(&mut self, named: &[Name]) -> Checked {
        let number = self.next();
        let file = self.lab.home().join(format!("p{number}.patch"));
        let ended = self.ask(&["apply", "--patch", text(&file), "--json"], named, Approve::Set)?;
        ensure(ended.code < 2, || format!("{ended:?}"))?;
        let value = answer(&ended)?;
        let taken = self.taken(&value, named, Approve::Set)?;
        let agent = self.agent.state();
        let files = of_files(&taken, &self.base, &agent);
        let found = self.compare_lacking(&value["not_in_patch"], &taken)?;
        ensure((ended.code == 1) != found.is_empty(), || format!("{ended:?}"))?;
        let scratch = self.lab.home().join(format!("p{number}"));
        std::fs::create_dir(&scratch).expect("a new name");
        write(&scratch, &super::tree::without_git(&self.base));
        if !files.is_empty() {
            let mut command = Command::new("git");
            command.current_dir(&scratch).arg("apply").arg(&file);
            let applied = run(&mut command, b"", Limit::HANG);
            ensure(applied.code == 0, || {
                let patch = std::fs::read(&file).unwrap_or_default();
                format!("{applied:?}\n{}", String::from_utf8_lossy(&patch))
            })?;
        }
        let base = super::tree::Tree::of(&self.base);
        let expected = predict::apply(&base, &self.base, &agent, &files, super::random::Resolve::Refuse);
        let without_dirs = |state: State| -> State {
            let mut state = super::tree::without_git(&state);
            state.retain(|_, thing| *thing != Thing::Dir);
            state
        };
        let (found, expected) = (
            without_dirs(read(&scratch).0),
            without_dirs(expected.host.state()),
        );
        ensure(found == expected, || {
            format!("the patch makes:\n{}", told(&expected, &found))
        })?;
        if self.is_whole(&value) && ended.code == 0 {
            let now = self.now();
            self.saved.push(now);
        }
        Ok(())
    }
}
