//! Whose rights are used, and what lies within the bounds.
use super::*;

fn path(text: &str) -> AbsPath {
    AbsPath::new(text).unwrap()
}

fn bounds(uid: u32, roots: &[&str]) -> Bounds {
    Bounds {
        caller: Caller {
            uid,
            gid: uid,
            groups: vec![7],
        },
        allowance: Allowance {
            reach: Reach::Below(roots.iter().map(|root| path(root)).collect()),
            limits: Vec::new(),
            backends: vec![BackendKind::Native],
            landlock_abi: 0,
            unconfined: false,
        },
    }
}

#[test]
fn a_path_beside_the_roots_is_refused_and_the_system_is_for_reading_only() {
    let bounds = bounds(1000, &["/srv/ws"]);
    for (inside, access) in [
        ("/srv/ws", Access::ReadWrite),
        ("/srv/ws/a/b", Access::ReadWrite),
        ("/usr/lib/x", Access::ReadOnly),
        ("/etc/ssl/certs", Access::ReadOnly),
    ] {
        assert!(bounds.allows(&path(inside), access), "{inside}");
    }
    for outside in [
        "/",
        "/srv",
        "/srv/ws-evil",
        "/srv/wsx/a",
        "/etc",
        "/etc/shadow",
        "/etc/ssl/private",
        "/etc/ssl/certs-evil",
        "/root",
        "/usrx",
    ] {
        assert!(
            !bounds.allows(&path(outside), Access::ReadOnly),
            "{outside} for reading"
        );
    }
    for read_only in ["/usr", "/usr/local/bin", "/etc/ssl/certs", "/opt"] {
        assert!(
            !bounds.allows(&path(read_only), Access::ReadWrite),
            "{read_only} for writing"
        );
    }
}

#[test]
fn only_the_callers_own_files_appear_as_the_agents() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let file = std::fs::File::open("/etc/hostname")
        .or_else(|_| std::fs::File::open("/etc/passwd"))
        .unwrap();
    let stat = rustix::fs::fstat(&file).unwrap();
    assert_eq!(
        bounds(1000, &["/"]).owner(&stat),
        (1000, 1000),
        "root's file stays root's"
    );
    assert_eq!(
        bounds(0, &["/"]).owner(&stat),
        (stat.st_uid, stat.st_gid),
        "root's own run"
    );
}

#[test]
fn what_the_caller_cannot_open_is_not_opened_for_it_and_the_rights_come_back() {
    use std::os::unix::fs::{PermissionsExt, chown};
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = std::env::temp_dir().join(format!("bastle-bounds-{}", std::process::id()));
    let (closed, open) = (place.join("closed"), place.join("open"));
    for directory in [&place, &closed, &open] {
        std::fs::create_dir(directory).unwrap();
    }
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(closed.join("file"), "").unwrap();
    std::os::unix::fs::symlink(&open, place.join("link")).unwrap();
    let own = place.join("own");
    std::fs::create_dir(&own).unwrap();
    chown(&own, Some(1000), Some(1000)).unwrap();
    let (theirs, roots) = (bounds(1000, &["/"]), bounds(0, &["/"]));
    let tried = |bounds: &Bounds, path: &std::path::Path, access| {
        bounds
            .open(&AbsPath::from_path(path).unwrap(), access)
            .map(|_| ())
            .map_err(|error| error.raw_os_error().unwrap_or(0))
    };
    // In a thread of its own: identities are lent to the thread, and other tests have theirs.
    let found = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            vec![
                tried(&theirs, &closed, Access::ReadOnly),
                tried(&theirs, &closed.join("file"), Access::ReadOnly),
                tried(&theirs, &open, Access::ReadWrite),
                tried(&theirs, &place.join("link"), Access::ReadOnly),
                tried(&theirs, &open, Access::ReadOnly),
                tried(&theirs, &own, Access::ReadWrite),
                tried(&roots, &closed.join("file"), Access::ReadWrite),
            ]
        });
        thread.join().unwrap()
    });
    std::fs::remove_dir_all(&place).unwrap();
    let (denied, looped) = (Err(libc::EACCES), Err(libc::ELOOP));
    assert_eq!(found, [denied, denied, denied, looped, Ok(()), Ok(()), Ok(())]);
}
