//! Groups on real files in the layout of a hierarchy. No privilege is used.
use super::*;
use std::cell::Cell;

#[test]
fn what_dead_spawners_left_goes_and_few_of_the_living_are_looked_at() {
    let place = std::env::temp_dir().join(format!("bastle-sweep-{}", std::process::id()));
    std::fs::create_dir(&place).unwrap();
    let make = |owner: &str, count: u32| {
        for number in 0..count {
            std::fs::create_dir(place.join(format!("bastle-{owner}-run-{number}"))).unwrap();
        }
    };
    let left = |owner: &str| {
        let entries = std::fs::read_dir(&place).unwrap().flatten();
        let of = format!("bastle-{owner}-");
        entries
            .filter(|entry| entry.file_name().to_str().unwrap().starts_with(&of))
            .count()
    };
    std::fs::create_dir(place.join("user.slice")).unwrap();
    make("7", 60);
    make("9", 20);
    let looked = Cell::new(0);
    let lives = |owner: &str| {
        looked.set(looked.get() + usize::from(owner == "7"));
        owner == "7"
    };
    let turns = (1..1000)
        .find(|_| {
            sweep(&place, lives);
            left("9") == 0
        })
        .unwrap();
    assert!(
        looked.get() <= turns * MOST_LOOKED_AT,
        "{} in {turns} turns",
        looked.get()
    );
    assert_eq!(left("7"), 60);
    sweep(&place, |_| false);
    assert_eq!(left("7"), 0);
    assert!(place.join("user.slice").exists());
    std::fs::remove_dir_all(place).unwrap();
}

/// A group of real files, as the kernel shows one, that the process with this number is in.
fn group_of(place: &Path, pid: u32) -> Group {
    std::fs::write(place.join("cgroup.procs"), format!("1\n{pid}\n")).unwrap();
    std::fs::write(place.join("pids.max"), "50\n").unwrap();
    let rule = LimitRule {
        limit: LimitKind::Pids,
        value: 50,
        mechanism: LimitMechanism::CgroupV2,
    };
    Group {
        flavour: CgroupFlavour::V2,
        directories: vec![Directory {
            path: place.to_path_buf(),
            controller: None,
            limits: vec![rule],
            values: vec![Value {
                rule,
                path: place.join("pids.max"),
                text: "50".to_owned(),
            }],
        }],
        evidence: Vec::new(),
        parent_control: None,
    }
}

#[test]
fn a_limit_is_lost_when_its_file_says_something_else_or_is_gone_or_the_process_is_elsewhere() {
    let place = std::env::temp_dir().join(format!("bastle-lost-{}", std::process::id()));
    std::fs::create_dir(&place).unwrap();
    // No process has that number, so that only the list of members can say where it is.
    let pid = 0x7fff_fff0;
    let mut group = group_of(&place, pid);
    let sign = |group: &Group| group.lost(pid).map(|lost| lost.sign);
    assert_eq!(sign(&group), None, "control");
    std::fs::write(place.join("cgroup.procs"), "1\n").unwrap();
    assert_eq!(sign(&group), Some(LossSign::Moved));
    let (set, found) = ("50".to_owned(), "max".to_owned());
    std::fs::write(place.join("pids.max"), "max\n").unwrap();
    assert_eq!(sign(&group), Some(LossSign::Changed { set, found }));
    std::fs::remove_file(place.join("pids.max")).unwrap();
    assert_eq!(sign(&group), Some(LossSign::Gone));
    group.directories.clear();
    std::fs::remove_dir_all(place).unwrap();
}

#[test]
fn somebody_who_writes_to_a_limit_or_takes_controllers_away_is_noticed() {
    let place = std::env::temp_dir().join(format!("bastle-watched-{}", std::process::id()));
    std::fs::create_dir(&place).unwrap();
    let mut group = group_of(&place, 1);
    let control = place.join("cgroup.subtree_control");
    std::fs::write(&control, "cpu pids\n").unwrap();
    group.parent_control = Some(control.clone());
    let mut watch = crate::cgroup::LimitWatch::begin(&group).unwrap();
    let told = |watch: &crate::cgroup::LimitWatch| {
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let events = watch.events().unwrap();
        let mut waiting = [rustix::event::PollFd::from_borrowed_fd(
            events,
            rustix::event::PollFlags::IN,
        )];
        rustix::event::poll(&mut waiting, Some(&at_once)).unwrap() == 1
    };
    assert!(!told(&watch), "control");
    for file in [place.join("pids.max"), control] {
        std::fs::write(&file, "50\n").unwrap();
        assert!(told(&watch), "{}", file.display());
        drop(watch.check(&group, 1));
        assert!(!told(&watch), "it was taken");
    }
    group.directories.clear();
    std::fs::remove_dir_all(place).unwrap();
}

#[test]
fn only_memory_may_be_rounded_and_only_to_whole_pages() {
    let page = u64::try_from(rustix::param::page_size()).unwrap();
    let memory = |written: u64, found: u64| {
        is_what_was_set(&written.to_string(), &found.to_string(), LimitKind::Memory)
    };
    assert!(memory(10 * page, 10 * page));
    assert!(memory(10 * page + 5, 10 * page));
    assert!(!memory(10 * page, 11 * page));
    assert!(!memory(10 * page, 9 * page));
    assert!(!is_what_was_set("50", "49", LimitKind::Pids));
    assert!(!is_what_was_set("50", "max", LimitKind::Pids));
    assert!(is_what_was_set("50000 100000", "50000 100000", LimitKind::Cpu));
}
