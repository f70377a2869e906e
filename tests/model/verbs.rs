//! What each verb must answer and leave behind, compared with the model.
use super::predict::{self, Expected};
use super::random::{Approve, Mode, Resolve};
use super::session::{Applied, Kept, Session};
use super::support::Ended;
use super::tree::{Name, State, Thing, Tree, differing, is_at_or_below, is_git, read, told, without_git};
use super::world::{Checked, answer, ensure, name, names, verb};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// How a name is shown in a failure.
pub(crate) fn shown(names: &BTreeSet<Name>) -> Vec<String> {
    names
        .iter()
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect()
}

fn same(what: &str, expected: &BTreeSet<Name>, found: &BTreeSet<Name>) -> Checked {
    ensure(expected == found, || {
        format!("{what}: expected {:?}, found {:?}", shown(expected), shown(found))
    })
}

impl Session<'_> {
    /// Every change is shown, and nothing else; of directories those that no file shows.
    pub(crate) fn diff(&mut self) -> Checked {
        let ended = self.say(&["diff", "--ignored", "--json"]);
        ensure(ended.code == 0, || format!("{ended:?}"))?;
        let value = answer(&ended)?;
        let found: BTreeSet<Name> = names(&value["changes"])
            .into_iter()
            .filter(|name| !is_git(name))
            .collect();
        let (changes, agent) = (self.changes(), self.agent.state());
        let is_dir = |state: &State, name: &Name| matches!(state.get(name), None | Some(Thing::Dir));
        let of_files: BTreeSet<Name> = changes
            .iter()
            .filter(|name| !is_dir(&self.base, name) || !is_dir(&agent, name))
            .cloned()
            .collect();
        ensure(of_files.is_subset(&found) && found.is_subset(&changes), || {
            format!(
                "changes: expected {:?}, found {:?}",
                shown(&changes),
                shown(&found)
            )
        })?;
        for directory in changes.difference(&of_files) {
            let told = found.iter().any(|one| is_at_or_below(one, directory));
            ensure(told, || {
                format!("{:?} is not told", String::from_utf8_lossy(directory))
            })?;
        }
        let listed = value["refs"].as_array().map_or(0, Vec::len);
        let expected = self.deeds.sides.len() + usize::from(self.deeds.stashes > 0);
        ensure(listed >= expected && (listed > 0) == (expected > 0), || {
            format!("references: {expected} expected: {}", value["refs"])
        })
    }

    /// Words that approve what is held, as `diff` prints them.
    pub(crate) fn approvals(&self, named: &[Name], approve: Approve) -> Checked<Vec<OsString>> {
        if approve == Approve::Nothing {
            return Ok(Vec::new());
        }
        let words: &[&str] = if named.is_empty() {
            &["diff", "--json"]
        } else {
            &["diff", "--ignored", "--json"]
        };
        let ended = self.say(words);
        ensure(ended.code == 0, || format!("{ended:?}"))?;
        let value = answer(&ended)?;
        let changes = value["changes"].as_array().ok_or("no changes")?;
        let held: Vec<&Value> = changes.iter().filter(|one| one["tier"] == 3).collect();
        if held.is_empty() {
            return Ok(Vec::new());
        }
        let hash = |one: &Value| one["approval"].as_str().unwrap_or_default().to_owned();
        let words = match approve {
            Approve::Set => vec![hash(&value)],
            Approve::Each | Approve::Nothing => held.into_iter().map(hash).collect(),
        };
        Ok(words
            .into_iter()
            .flat_map(|word| ["--approve".into(), word.into()])
            .collect())
    }

    /// A verb with names and approvals behind it.
    pub(crate) fn ask(&self, words: &[&str], named: &[Name], approve: Approve) -> Checked<Ended> {
        let mut line: Vec<OsString> = vec![words[0].into(), (&self.run).into()];
        line.extend(words[1..].iter().map(OsString::from));
        line.extend(self.approvals(named, approve)?);
        for name in named {
            line.push("--paths".into());
            // A name that begins with a dash is no flag.
            line.push(OsStr::from_bytes(&[b"./", &name[..]].concat()).to_owned());
        }
        Ok(verb(self.lab, &line))
    }

    /// Which changes an answer says are taken, after its reasons for the others were looked at.
    pub(crate) fn taken(&self, value: &Value, named: &[Name], approve: Approve) -> Checked<BTreeSet<Name>> {
        let mut taken = self.changes();
        for one in value["left_out"]
            .as_array()
            .ok_or_else(|| format!("no list: {value}"))?
        {
            let name = name(one);
            let is_named = named.iter().any(|above| is_at_or_below(&name, above));
            let fits = match one["reason"].as_str() {
                Some("kept-ours") => continue,
                Some("refused") => is_git(&name),
                Some("ignored") => named.is_empty() && name.starts_with(b"out"),
                Some("not-named") => !named.is_empty() && !is_named,
                Some("needs-approval") => approve == Approve::Nothing,
                _ => false,
            };
            ensure(fits, || format!("left out without need: {one}"))?;
            taken.remove(&name);
        }
        for name in &taken {
            let is_named = named.is_empty() || named.iter().any(|above| is_at_or_below(name, above));
            ensure(is_named, || {
                format!("{:?} was not named", String::from_utf8_lossy(name))
            })?;
        }
        Ok(taken)
    }

    /// Whether all of the work is in what an answer is about.
    pub(crate) fn is_whole(&self, value: &Value) -> bool {
        let left = value["left_out"].as_array().into_iter().flatten();
        left.into_iter().all(|one| one["reason"] == "ignored")
    }

    pub(crate) fn apply(&mut self, resolve: Resolve, named: &[Name], approve: Approve) -> Checked {
        let words: &[&str] = match resolve {
            Resolve::Refuse => &["apply", "--json"],
            Resolve::Ours => &["apply", "--json", "--ours"],
            Resolve::Theirs => &["apply", "--json", "--theirs"],
        };
        let before = read(&self.lab.workspace());
        let ended = self.ask(words, named, approve)?;
        let value = answer(&ended)?;
        let taken = self.taken(&value, named, approve)?;
        let agent = self.agent.state();
        let expected = predict::apply(&self.host, &self.base, &agent, &taken, resolve);
        let in_detail = |told: String| format!("{told}\n{value:#}\n{}", ended.stderr);
        self.compare_answer(&ended, &value, &expected)
            .map_err(in_detail)?;
        if !expected.conflicts.is_empty() {
            return ensure(read(&self.lab.workspace()) == before, || {
                "a conflict wrote something".to_owned()
            });
        }
        self.host = expected.host;
        let (found, stamps) = read(&self.lab.workspace());
        let wanted = self.host.state();
        ensure(found == wanted, || {
            format!("the project:\n{}\n{value:#}", told(&wanted, &found))
        })?;
        for (name, stamp) in &before.1 {
            let touched = expected.written.iter().any(|one| {
                one == name
                    || one
                        .rsplitn(2, |byte| *byte == b'/')
                        .nth(1)
                        .is_some_and(|parent| parent == &name[..])
            });
            let now = stamps.get(name).map(|now| (now.mode, now.modified, now.inode));
            let was = Some((stamp.mode, stamp.modified, stamp.inode));
            ensure(touched || now == was, || {
                format!("{:?} was touched: {was:?} {now:?}", String::from_utf8_lossy(name))
            })?;
        }
        if !expected.written.is_empty() {
            self.applies.push(Applied {
                before: before.0,
                stamps: before.1,
                after: found,
                written: expected.written,
                disturbed: false,
            });
        }
        if self.is_whole(&value) {
            self.applied = Some(self.now());
        }
        Ok(())
    }

    fn compare_answer(&self, ended: &Ended, value: &Value, expected: &Expected) -> Checked {
        let code = i32::from(!expected.conflicts.is_empty());
        let set = |list: &Value| names(list).into_iter().collect::<BTreeSet<Name>>();
        same("conflicts", &expected.conflicts, &set(&value["conflicts"]))?;
        ensure(ended.code == code, || format!("code {code} expected"))?;
        if code == 0 {
            same("merged", &expected.merged, &set(&value["merged"]))?;
            same("written", &expected.written, &set(&value["paths"]))?;
        }
        Ok(())
    }

    pub(crate) fn undo(&mut self) -> Checked {
        let before = read(&self.lab.workspace());
        let ended = self.say(&["apply", "--undo", "--json"]);
        let Some(last) = self.applies.pop() else {
            return ensure(ended.code == 1, || {
                format!("nothing was to be taken back: {ended:?}")
            });
        };
        let after = read(&self.lab.workspace());
        if ended.code != 0 {
            ensure(last.disturbed, || {
                format!("an undo that nobody disturbed: {ended:?}")
            })?;
            ensure(after == before, || {
                "an undo that was refused wrote something".to_owned()
            })?;
            self.applies.push(last);
            return Ok(());
        }
        self.applied = None;
        if last.disturbed {
            let expected = predict::undo(&before.0, &last)
                .map_err(|lost| format!("an undo over the user's {:?}", shown(&lost)))?;
            ensure(after.0 == expected, || {
                format!("after the undo beside an edit:\n{}", told(&expected, &after.0))
            })?;
            self.host = super::world::from_disk(&self.lab.workspace());
            return Ok(());
        }
        let mut expected = before.0;
        for name in &last.written {
            match last.before.get(name) {
                Some(thing) => expected.insert(name.clone(), thing.clone()),
                None => expected.remove(name),
            };
        }
        ensure(after.0 == expected, || {
            format!("after the undo:\n{}", told(&expected, &after.0))
        })?;
        for name in &last.written {
            let (was, now) = (last.stamps.get(name), after.1.get(name));
            ensure(was == now, || {
                format!(
                    "{:?} is not as it was: {was:?} {now:?}",
                    String::from_utf8_lossy(name)
                )
            })?;
        }
        if after.0 == last.before {
            ensure(after.1 == last.stamps, || {
                let differ = last
                    .stamps
                    .iter()
                    .filter(|(name, was)| after.1.get(*name) != Some(*was));
                let each = differ.map(|(name, was)| (String::from_utf8_lossy(name), was, after.1.get(name)));
                format!("times or links after the undo: {:?}", each.collect::<Vec<_>>())
            })?;
        }
        self.host = super::world::from_disk(&self.lab.workspace());
        Ok(())
    }

    pub(crate) fn snapshot(&mut self) -> Checked {
        let word = format!("s{}", self.next());
        let ended = self.say(&["snapshot", &word, "--json"]);
        ensure(ended.code == 0, || format!("{ended:?}"))?;
        let stamps = match self.mode {
            Mode::Overlay => Default::default(),
            Mode::Copy | Mode::Worktree | Mode::InPlace => read(&self.tree_of(&self.run)).1,
        };
        self.kept.push(Kept {
            word,
            state: self.agent.state(),
            deeds: self.deeds.clone(),
            stamps,
        });
        let now = self.now();
        self.asked.push(now);
        Ok(())
    }

    pub(crate) fn rollback(&mut self, number: usize) -> Checked {
        let base = Kept {
            word: "0".to_owned(),
            state: self.base.clone(),
            deeds: Default::default(),
            stamps: Default::default(),
        };
        let to = self.kept.get(number).cloned().unwrap_or(base);
        let ended = self.say(&["rollback", &to.word, "--json"]);
        ensure(ended.code == 0, || format!("{ended:?}"))?;
        let value = answer(&ended)?;
        let now = self.agent.state();
        let expected: BTreeSet<Name> = differing(&now, &to.state)
            .into_iter()
            .filter(|name| !is_git(name))
            .collect();
        let found: BTreeSet<Name> = names(&value["changes"])
            .into_iter()
            .filter(|name| !is_git(name))
            .collect();
        same("told by the rollback", &expected, &found)?;
        let left = self.now();
        if left != (without_git(&to.state), to.deeds.clone()) {
            self.asked.push(left);
        }
        // A state has no hard links.
        self.agent = Tree::of(&to.state);
        self.deeds = to.deeds;
        if self.mode == Mode::Overlay {
            return self.diff();
        }
        let stamps = read(&self.tree_of(&self.run)).1;
        for name in expected {
            let contents = |state: &State| match state.get(&name) {
                Some(Thing::File(bytes, _)) => Some(bytes.clone()),
                _ => None,
            };
            let (was, is) = (contents(&now), contents(&to.state));
            if let (Some(then), true, true) = (to.stamps.get(&name), is.is_some(), was != is) {
                let here = stamps.get(&name).map(|stamp| stamp.modified);
                ensure(here == Some(then.modified), || {
                    format!("{:?} came back with another time", String::from_utf8_lossy(&name))
                })?;
            }
        }
        Ok(())
    }

    pub(crate) fn fork(&mut self) -> Checked {
        let number = self.next();
        let child = format!("{}-child{number}", self.run);
        let ended = verb(
            self.lab,
            &[
                "fork".into(),
                (&self.run).into(),
                "--name".into(),
                (&child).into(),
            ],
        );
        ensure(ended.code == 0, || format!("{ended:?}"))?;
        let found = without_git(&read(&self.tree_of(&child)).0);
        self.compare_shown("the fork", found)?;
        let parent = std::mem::replace(&mut self.run, child);
        let checked = if self.shown().1.is_empty() {
            self.diff()
        } else {
            Ok(())
        };
        self.run = parent;
        checked.map_err(|told| format!("the fork: {told}"))
    }

    /// Compares a tree that was written out.
    fn compare_shown(&self, what: &str, mut found: State) -> Checked {
        let (mut expected, open) = self.shown();
        let is_open = |name: &Name| open.iter().any(|one| is_at_or_below(name, one));
        found.retain(|name, _| !is_open(name));
        expected.retain(|name, _| !is_open(name));
        ensure(found == expected, || {
            format!("{what}:\n{}", told(&expected, &found))
        })
    }

    pub(crate) fn export(&mut self) -> Checked {
        let number = self.next();
        let file = self.lab.home().join(format!("x{number}.tar"));
        let ended = self.say(&["export", super::support::text(&file), "--json"]);
        ensure(ended.code == 0, || format!("{ended:?}"))?;
        let value = answer(&ended)?;
        let into = self.lab.home().join(format!("x{number}"));
        std::fs::create_dir(&into).expect("a new name");
        let mut command = std::process::Command::new("tar");
        command.arg("-xf").arg(&file).arg("-C").arg(&into);
        let output = super::support::run(&mut command, b"", super::support::Limit::HANG);
        ensure(output.code == 0, || format!("{output:?}"))?;
        let mut found = without_git(&read(&into).0);
        found.retain(|name, _| !name.starts_with(b"bastle-refs"));
        self.compare_shown("the archive", found)?;
        let has_git = self.agent.state().values().any(|thing| *thing == Thing::Git);
        let whole = value["whole"] == true;
        // What a stash holds of a submodule is in no patch.
        let stashed = self.deeds.stashes > 0;
        ensure(whole || has_git || stashed, || {
            format!("an archive with everything is not whole: {value:#}")
        })?;
        for one in names(&value["left_out"]) {
            ensure(is_git(&one), || format!("left out of the archive: {value:#}"))?;
        }
        if whole {
            let now = self.now();
            self.saved.push(now);
            self.saved_sides.extend(&self.deeds.sides);
            self.saved_stashes = self.deeds.stashes;
        }
        Ok(())
    }

    /// Refuses exactly while something is nowhere else.
    pub(crate) fn remove(&mut self) -> Checked {
        let now = self.now();
        let base = (without_git(&self.base), super::session::Deeds::default());
        let mut saved = vec![base];
        saved.extend(self.applied.clone());
        saved.extend(self.saved.iter().cloned());
        let is_saved = |one: &(State, super::session::Deeds)| saved.contains(one);
        let has_files = |one: &(State, super::session::Deeds)| saved.iter().any(|other| other.0 == one.0);
        let all = || self.asked.iter().chain([&now]);
        let sides = self
            .deeds
            .sides
            .iter()
            .any(|side| !self.saved_sides.contains(side));
        let must_refuse = !all().all(has_files) || sides || self.deeds.stashes > self.saved_stashes;
        let git = self.agent.state().values().any(|thing| *thing == Thing::Git);
        let must_allow = all().all(is_saved) && !sides && self.deeds.stashes == 0 && !git;
        let ended = self.say(&["rm"]);
        self.removed = ended.code == 0;
        ensure(!(self.removed && must_refuse), || {
            format!("work is gone: {ended:?}")
        })?;
        ensure(self.removed || !must_allow, || {
            format!("refused without need: {ended:?}")
        })?;
        ensure(
            self.removed != self.tree_of(&self.run).exists() || self.mode == Mode::Overlay,
            || format!("the tree does not fit the answer: {ended:?}"),
        )
    }
}
