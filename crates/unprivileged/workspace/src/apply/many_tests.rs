//! Transactions of so many paths that several threads stage and exchange them.
use super::journal::{JournalState, Journals, Progress};
use super::settle::Exchange;
use super::tests::{tree, world};
use super::*;
use crate::durable::{Durable, Observer, Step};
use crate::gate::Approvals;
use crate::rooted::Root;
use crate::testing::write;
use bastle_contract::Code;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const FILES: usize = 300;

fn name(number: usize) -> String {
    format!("d{}/e{}/f{number}", number % 5, number % 3)
}

fn base(root: &Path) {
    for number in 0..FILES {
        write(root, &name(number), format!("{number}\n").as_bytes());
    }
    for gone in ["gone/x", "gone/deep/y", "turned/x", "turns"] {
        write(root, gone, b"old\n");
    }
}

fn agent(root: &Path) {
    for number in 0..FILES {
        match number % 10 {
            0 => std::fs::remove_file(root.join(name(number))).unwrap(),
            1 => write(root, &format!("{}-new", name(number)), b"new\n"),
            _ => write(root, &name(number), format!("{number}\nnew\n").as_bytes()),
        }
    }
    for directory in ["gone", "turned"] {
        std::fs::remove_dir_all(root.join(directory)).unwrap();
    }
    std::fs::remove_file(root.join("turns")).unwrap();
    write(root, "turned", b"a file\n");
    write(root, "turns/into/x", b"a directory\n");
    write(root, "comes/deep/x", b"x\n");
}

#[test]
fn many_changes_are_applied_and_taken_back() {
    let world = world(base, agent);
    let (old, new) = (tree(&world.host()), tree(&world.agent()));
    for _ in 0..2 {
        let applied = world.apply(Resolve::Refuse).unwrap();
        assert!(applied.paths.len() > FILES, "{}", applied.paths.len());
        assert_eq!(tree(&world.host()), new);
        world.undo().unwrap();
        assert_eq!(tree(&world.host()), old);
    }
    assert_eq!(world.undo().unwrap_err().code, Code::WorkspaceApply);
}

#[test]
fn an_apply_of_many_changes_that_was_cut_off_anywhere_is_finished_or_undone() {
    for direction in [Direction::Either, Direction::Forward, Direction::Back] {
        let world = world(base, agent);
        let (old, new) = (tree(&world.host()), tree(&world.agent()));
        let number = world.apply(Resolve::Refuse).unwrap().number;
        let durable = Durable::default();
        world.with(&durable, |target| {
            let journals = Journals::new(target.journals);
            let (journal, _) = journals.read(number).unwrap().unwrap();
            let committing = Progress::at(JournalState::Committing);
            journals.advance(number, &committing, &durable).unwrap();
            let root = &Root::open(target.source).unwrap();
            let area = &Root::open(&journals.folder(number).join("slots")).unwrap();
            for swap in journal.swaps.iter().step_by(3) {
                Exchange { root, area, swap }.back().unwrap();
            }
            recover_to(target, direction).unwrap();
        });
        let expected = if direction == Direction::Back { &old } else { &new };
        assert_eq!(&tree(&world.host()), expected, "{direction:?}");
    }
}

/// Edits one file when its turn comes in a certain step or after it.
struct Editor {
    host: PathBuf,
    at: usize,
    seen: AtomicUsize,
    done: AtomicBool,
}

impl Observer for Editor {
    fn before(&self, step: Step<'_>) {
        let Step::Tree(path) = step else { return };
        let file = self.host.join(path);
        let now = self.seen.fetch_add(1, Ordering::SeqCst) >= self.at && file.is_file();
        if now && !self.done.swap(true, Ordering::SeqCst) {
            std::fs::write(file, "edited meanwhile\n").unwrap();
        }
    }
}

#[test]
fn an_edit_among_many_changes_is_kept_and_everything_else_is_as_it_was() {
    for at in [10, 200, FILES + 20, FILES + 200] {
        let world = world(base, agent);
        let old = tree(&world.host());
        let plan = world.plan(&Approvals::default(), &[], Resolve::Refuse);
        let durable = Durable::observed(Arc::new(Editor {
            host: world.host(),
            at,
            seen: AtomicUsize::new(0),
            done: AtomicBool::new(false),
        }));
        let failed = world.with(&durable, |target| apply(target, &plan, &world.blobs));
        assert_eq!(failed.unwrap_err().code, Code::WorkspaceConflict, "step {at}");
        let now = tree(&world.host());
        assert_eq!(now.len(), old.len(), "step {at}");
        let edited = old.iter().zip(&now).filter(|(old, now)| old != now);
        let edited: Vec<_> = edited.map(|(_, now)| now.2.as_slice()).collect();
        assert_eq!(edited, [b"edited meanwhile\n"], "step {at}");
    }
}
