//! What a plan may show: only what lies below the caller's roots and what the caller itself may open. Attack first, then
//! the same by somebody who may.
use crate::client::{showing, tried};
use crate::daemon::{Place, usual};
use crate::support::{Identity, Lab, identities, skip};
use bastle_contract::{Access, Code};
use rustix::fs::{CWD, RenameFlags};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The lab of an ordinary user, where root can have one.
pub(crate) fn ordinary(test: &str) -> Option<Lab> {
    let found = identities()
        .into_iter()
        .find(|identity| matches!(identity, Identity::Ordinary(_)));
    if found.is_none() {
        skip(test, "needs root");
    }
    found.map(Lab::new)
}

/// A directory of root's in a place of the user's, and something in it.
fn closed(lab: &Lab, name: &str) -> PathBuf {
    let directory = lab.workspace().join(name);
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::write(directory.join("secret"), "root's own").unwrap();
    directory
}

#[test]
fn a_plan_that_shows_what_its_caller_may_not_have_is_refused_and_roots_own_is_built() {
    let Some(lab) = ordinary("a_plan_that_shows_what_its_caller_may_not_have") else {
        return;
    };
    let place = Place::new();
    place.usual_ceiling(&lab);
    let _daemon = place.start(1);
    let uid = lab.identity.uid();
    let below = closed(&lab, "closed");
    let link = lab.workspace().join("link");
    symlink("/root", &link).unwrap();
    let beside = PathBuf::from(format!("{}-evil", lab.workspace().display()));
    std::fs::create_dir(&beside).unwrap();
    let try_as = |uid: u32, path: &Path, access| {
        tried(&place.socket(), uid, &showing(path, access)).map_err(|fault| fault.code)
    };
    let outside = lab.outside();
    for (path, access) in [
        (Path::new("/etc/shadow"), Access::ReadOnly),
        (Path::new("/root"), Access::ReadOnly),
        (Path::new("/etc"), Access::ReadOnly),
        (Path::new("/usr/bin"), Access::ReadWrite),
        (&outside, Access::ReadOnly),
        (&beside, Access::ReadOnly),
        // Below the roots, but not the caller's: opened with its rights, not with root's.
        (&below, Access::ReadOnly),
        (&below.join("secret"), Access::ReadOnly),
        (&link, Access::ReadOnly),
        (&link.join(".ssh"), Access::ReadOnly),
    ] {
        let refused = try_as(uid, path, access);
        assert_eq!(refused, Err(Code::SpawnPath), "{} {access:?}", path.display());
    }
    let shadow = try_as(0, Path::new("/etc/shadow"), Access::ReadOnly);
    let root = try_as(0, Path::new("/root"), Access::ReadOnly);
    std::fs::remove_dir(&beside).unwrap();
    assert_eq!(
        (shadow, root),
        (Ok(()), Ok(())),
        "root's own runs show what root names"
    );
    assert_eq!(try_as(uid, &lab.workspace(), Access::ReadWrite), Ok(()));
    assert_eq!(try_as(uid, Path::new("/usr/bin"), Access::ReadOnly), Ok(()));
}

/// Says so when it goes.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_name_that_becomes_a_link_while_it_is_looked_at_never_leads_outside() {
    let Some(lab) = ordinary("a_name_that_becomes_a_link") else {
        return;
    };
    let place = Place::new();
    place.ceiling(&usual(&lab, r#", "rate": {"per_second": 1000, "burst": 1000}"#));
    let daemon = place.start(2);
    // Two names that change places all the time: a directory of the user's, and a link to one outside its roots.
    let (real, link) = (lab.workspace().join("a"), lab.workspace().join("b"));
    std::fs::create_dir(&real).unwrap();
    std::fs::write(real.join("mark"), "inside").unwrap();
    lab.hand_over(&real);
    let target = lab.outside();
    std::fs::write(target.join("mark"), "OUTSIDE").unwrap();
    symlink(&target, &link).unwrap();
    let stop = AtomicBool::new(false);
    let (mut built, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(CWD, &real, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
        });
        // Also when something here fails: nobody else ends the other.
        let _stop = Stop(&stop);
        for _ in 0..60 {
            match tried(
                &place.socket(),
                lab.identity.uid(),
                &showing(&real, Access::ReadOnly),
            ) {
                Ok(()) => built += 1,
                // Those before end in their own time, and each caller has so many places.
                Err(fault) if fault.code == Code::SpawnWorkers => assert!(daemon.has(0)),
                Err(fault) => {
                    assert_eq!(fault.code, Code::SpawnPath, "{fault}");
                    assert!(fault.why.contains("symbolic links"), "{fault}");
                    refused += 1;
                }
            }
        }
    });
    // The kernel opens either the directory or nothing; both must have happened for this to say something.
    assert!(built > 0 && refused > 0, "{built} built, {refused} refused");
    assert!(daemon.has(0));
}

#[test]
fn an_unready_limit_is_refused_and_within_the_ceiling_it_runs() {
    let Some(lab) = ordinary("an_unready_limit_is_refused") else {
        return;
    };
    let place = Place::new();
    place.ceiling(&usual(&lab, r#", "limits": {"memory": "512MiB", "pids": 200}"#));
    let _daemon = place.start(1);
    let socket = place.socket();
    let fence = |flags: &[&str]| {
        lab.fence()
            .env("BASTLE_SPAWNER", socket.to_str().unwrap())
            .flags(["--net", "none", "--workspace", "in-place"])
            .flags(flags)
    };
    for (flags, code) in [
        (&["--pids", "100"][..], "BST-SPAWN-005"),
        (&["--mem", "1G", "--pids", "100"], "BST-SPAWN-005"),
        (&["--mem", "256M", "--pids", "1000"], "BST-SPAWN-005"),
    ] {
        let output = fence(flags).run(["true"]);
        assert_eq!(output.ended.code, 125, "{flags:?} {output:?}");
        assert!(output.ended.stderr.contains(code), "{flags:?} {output:?}");
    }
    let output = fence(&["--mem", "256M", "--pids", "100"]).sh("echo made > made; cat /proc/self/uid_map");
    assert_eq!(output.ended.code, 0, "{output:?}");
    let outside: u32 = output.said().split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(outside >= 0x6ba5_0000, "a uid of its own: {outside}");
    let owner =
        std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(lab.workspace().join("made")).unwrap());
    assert_eq!(owner, lab.identity.uid(), "what the agent makes is the caller's");
}

#[test]
fn names_and_documents_of_a_plan_are_checked_by_type() {
    let Some(lab) = ordinary("names_and_documents_of_a_plan") else {
        return;
    };
    let place = Place::new();
    place.ceiling(&usual(&lab, r#", "rate": {"per_second": 1000, "burst": 1000}"#));
    let daemon = place.start(1);
    let uid = lab.identity.uid();
    let good = serde_json::to_value(showing(&lab.workspace(), Access::ReadOnly)).unwrap();
    let with = |pointer: &str, value: serde_json::Value| {
        let mut plan = good.clone();
        match plan.pointer_mut(pointer) {
            Some(place) => *place = value,
            None => plan[pointer.trim_start_matches('/')] = value,
        }
        tried(&place.socket(), uid, &plan)
    };
    let long = "a".repeat(65);
    for bad in ["../etc", "a;rm", "A", "", &long, "calm\n", "a\u{661}", "-x"] {
        assert!(with("/run", bad.into()).is_err(), "run {bad:?}");
    }
    let evil = format!("{}/../outside", lab.workspace().display());
    for bad in [evil.as_str(), "relative", "/srv//ws", "/srv/ws\u{0}", ""] {
        assert!(
            with("/mounts/0/kind/source", bad.into()).is_err(),
            "source {bad:?}"
        );
    }
    assert!(with("/extra", 1.into()).is_err(), "an unknown field");
    assert!(with("/debuggers", "yes".into()).is_err(), "a wrong type");
    assert!(with("/backend", "host".into()).is_err(), "no fence");
    assert_eq!(with("/debuggers", false.into()), Ok(()));
    assert!(daemon.has(0));
}
