//! An interrupted apply whose journal is damaged: everything that it keeps can be had, and a person can leave it behind.
use super::journal::{JournalState, Journals, Progress};
use super::settle::Exchange;
use super::tests::{World, some_base, some_changes, tree, world};
use super::*;
use crate::durable::Durable;
use crate::rooted::Root;
use bastle_contract::Code;
use std::path::Path;

/// An apply of which every other name is exchanged.
fn interrupted() -> World {
    let world = world(some_base, some_changes);
    let number = world.apply(Resolve::Refuse).unwrap().number;
    let durable = Durable::default();
    world.with(&durable, |target| {
        let journals = Journals::new(target.journals);
        let (journal, _) = journals.read(number).unwrap().unwrap();
        let committing = Progress::at(JournalState::Committing);
        journals.advance(number, &committing, &durable).unwrap();
        let root = &Root::open(target.source).unwrap();
        let area = &Root::open(&journals.folder(number).join("slots")).unwrap();
        for swap in journal.swaps.iter().step_by(2) {
            Exchange { root, area, swap }.back().unwrap();
        }
    });
    world
}

/// The contents of all files below a directory.
fn contents(root: &Path) -> Vec<Vec<u8>> {
    tree(root).into_iter().map(|(_, _, bytes)| bytes).collect()
}

#[test]
fn what_a_damaged_journal_keeps_can_be_had_and_the_journal_be_left_behind() {
    for record in ["state.json", "journal.json"] {
        let world = interrupted();
        let journals = world.stage.path().join("applied");
        let folder = journals.join("000001");
        std::fs::write(folder.join(record), b"{\"torn").unwrap();
        let with = |act: &dyn Fn(&Target<'_>)| world.with(&Durable::default(), act);

        let half = tree(&world.host());
        with(&|target| {
            let fault = recover(target).unwrap_err();
            assert_eq!(fault.code, Code::WorkspaceDamaged, "{record}");
            let told = fault.to_string();
            for file in [folder.join(record), folder.join("slots")] {
                assert!(told.contains(&file.display().to_string()), "{told}");
            }
        });
        assert_eq!(tree(&world.host()), half, "{record}");
        let kept = kept_originals(&journals).unwrap();
        assert!(!kept.is_empty() && is_interrupted(&journals).unwrap(), "{record}");

        let saved = world.stage.path().join("saved");
        with(&|target| drop(extract(target, &saved).unwrap()));
        let slots = contents(&folder.join("slots"));
        assert!(!slots.is_empty());
        let had = contents(&saved);
        for one in slots.iter().filter(|bytes| !bytes.is_empty()) {
            assert!(had.contains(one), "{record}: {:?}", String::from_utf8_lossy(one));
        }

        with(&|target| {
            let ended = abandon(target).unwrap();
            let [Recovered::SetAside { number: 1, at }] = ended.as_slice() else {
                panic!("not set aside: {ended:?}");
            };
            assert!(at.join("slots").is_dir() && !folder.exists());
            assert!(recover(target).unwrap().is_empty());
        });
        assert_eq!(tree(&world.host()), half, "{record}");
        assert!(!is_interrupted(&journals).unwrap());
        // What it keeps is kept nowhere else and can still be had.
        assert_eq!(kept_originals(&journals).unwrap().len(), kept.len());
        let again = world.stage.path().join("again");
        with(&|target| drop(extract(target, &again).unwrap()));
        assert_eq!(contents(&again).len(), had.len());
        assert_eq!(world.apply(Resolve::Theirs).unwrap().number, 2);
    }
}

#[test]
fn a_whole_journal_is_finished_or_undone_and_not_set_aside() {
    let world = interrupted();
    let new = tree(&world.agent());
    let ended = world.with(&Durable::default(), |target| abandon(target).unwrap());
    assert_eq!(ended, [Recovered::Finished(1)]);
    assert_eq!(tree(&world.host()), new);
}
