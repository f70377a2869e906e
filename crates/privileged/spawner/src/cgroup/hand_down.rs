//! Handing the controllers of the given group down to the groups of runs, as the "no internal processes" rule of cgroups(7)
//! wants it: its processes go into a leaf first. Done when a run needs a group, never while the host is looked at.
use super::detect::words;
use super::given::LEAF;
use bastle_contract::{CgroupFacts, CgroupFlavour, Code, Fault};
use std::io;
use std::path::Path;

/// Processes that are started while others are moved make another round necessary.
const MOST_ROUNDS: usize = 16;

/// Makes the controllers of the facts available to groups below the given one. Nothing is written where they are already.
pub(super) fn hand_down(facts: &CgroupFacts) -> Result<(), Fault> {
    let (CgroupFlavour::V2, Some(group)) = (facts.flavour, &facts.unified) else {
        return Ok(());
    };
    let group = group.as_path();
    let wanted: Vec<&str> = facts.controllers.iter().map(|(one, _)| one.name()).collect();
    let control = group.join("cgroup.subtree_control");
    let missing = || {
        let handed = words(&control);
        let lacks = wanted
            .iter()
            .filter(|name| !handed.iter().any(|one| one == *name));
        lacks.map(|name| format!("+{name}")).collect::<Vec<_>>().join(" ")
    };
    let mut last = Ok(());
    for _ in 0..MOST_ROUNDS {
        let change = missing();
        if change.is_empty() {
            return Ok(());
        }
        last = std::fs::write(&control, &change);
        match &last {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => empty(group)?,
            Err(error) => return Err(fault(&control, &error.to_string())),
            // Read back in the next round.
            Ok(()) => {}
        }
    }
    let why = last.err().map_or_else(
        || format!("it does not show {}", missing()),
        |error: io::Error| format!("{error}: the group gets new processes all the time"),
    );
    Err(fault(&control, &why))
}

/// Moves every process of the group into its leaf.
fn empty(group: &Path) -> Result<(), Fault> {
    let leaf = group.join(LEAF);
    match std::fs::create_dir(&leaf) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(fault(&leaf, &error.to_string())),
    }
    let target = leaf.join("cgroup.procs");
    for pid in words(&group.join("cgroup.procs")) {
        if pid == "0" {
            let why = "it has a process of another PID namespace, which cannot be moved from here";
            return Err(fault(group, why));
        }
        match std::fs::write(&target, &pid) {
            Ok(()) => {}
            // Ended meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => return Err(fault(&target, &format!("process {pid}: {error}"))),
        }
    }
    Ok(())
}

fn fault(path: &Path, why: &str) -> Fault {
    let what = format!("cannot hand cgroup controllers down to runs ({})", path.display());
    Fault::new(Code::FenceStep, what, why).help("bastle doctor")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bastle_contract::{AbsPath, Controller};
    use std::path::PathBuf;

    fn place(name: &str, handed: &str) -> (PathBuf, CgroupFacts) {
        let place = std::env::temp_dir().join(format!("bastle-hand-{name}-{}", std::process::id()));
        std::fs::create_dir(&place).unwrap();
        std::fs::write(place.join("cgroup.subtree_control"), handed).unwrap();
        std::fs::write(place.join("cgroup.procs"), "0\n").unwrap();
        let group = AbsPath::from_path(&place).unwrap();
        let facts = CgroupFacts {
            flavour: CgroupFlavour::V2,
            controllers: vec![
                (Controller::Memory, group.clone()),
                (Controller::Cpu, group.clone()),
            ],
            unified: Some(group),
            problem: None,
        };
        (place, facts)
    }

    #[test]
    fn nothing_is_written_and_nobody_moved_where_all_controllers_are_handed_down() {
        let (place, facts) = place("done", "cpuset cpu memory pids\n");
        let file = place.join("cgroup.subtree_control");
        assert_eq!(hand_down(&facts), Ok(()));
        assert_eq!(std::fs::read_to_string(file).unwrap(), "cpuset cpu memory pids\n");
        assert!(!place.join(LEAF).exists());
        std::fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn controllers_that_do_not_show_after_they_were_handed_down_are_a_fault() {
        // A file that keeps what was written: the kernel would say `cpu memory`.
        let (place, facts) = place("silent", "memory\n");
        let fault = hand_down(&facts).unwrap_err();
        assert!(fault.why.contains("does not show"), "{fault:?}");
        std::fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn a_process_that_cannot_be_moved_is_named_as_the_cause() {
        let (place, _) = place("foreign", "");
        let fault = empty(&place).unwrap_err();
        assert!(fault.why.contains("another PID namespace"), "{fault:?}");
        std::fs::remove_dir_all(place).unwrap();
    }
}
