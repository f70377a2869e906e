//! The database under everything that can go wrong with it: damage, a full disk, refusals, copies.
use super::*;
use rusqlite::params;

fn note(store: &Store, text: &str) -> Result<(), Fault> {
    store.write(|tx| {
        tx.prepare_cached("INSERT INTO events(time_ms, kind, data) VALUES (1, 'note', ?1)")?
            .execute(params![text])?;
        Ok(())
    })
}

fn count(store: &Store) -> Result<i64, Fault> {
    store.read(|db| Ok(db.query_row("SELECT count(*) FROM events", [], |row| row.get(0))?))
}

#[test]
fn a_newer_torn_or_foreign_database_is_refused_and_left_as_it_is() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("daemon.db");
    drop(Store::open(home.path()).unwrap());
    let good = std::fs::read(&file).unwrap();
    Connection::open(&file)
        .unwrap()
        .pragma_update(None, "user_version", 99)
        .unwrap();
    let newer = std::fs::read(&file).unwrap();
    let mut torn = good.clone();
    torn.truncate(good.len() / 2);
    let mut flipped = good.clone();
    flipped[4096..6000].fill(0x5a);
    let foreign = b"this is no database, however long it is ".repeat(500);
    let mut huge = good.clone();
    huge.extend(vec![0xff; 1 << 20]);
    for (what, bytes) in [
        ("newer", newer),
        ("torn", torn),
        ("flipped", flipped),
        ("foreign", foreign),
    ] {
        for beside in ["daemon.db-wal", "daemon.db-shm"] {
            drop(std::fs::remove_file(home.path().join(beside)));
        }
        std::fs::write(&file, &bytes).unwrap();
        let fault = Store::open(home.path())
            .err()
            .unwrap_or_else(|| panic!("{what} was opened"));
        assert_eq!(fault.code, Code::StateDamaged, "{what}");
        assert_eq!(std::fs::read(&file).unwrap(), bytes, "{what} was changed");
    }
    for beside in ["daemon.db-wal", "daemon.db-shm"] {
        drop(std::fs::remove_file(home.path().join(beside)));
    }
    // Bytes behind the last page belong to nobody: the database is whole.
    std::fs::write(&file, &huge).unwrap();
    Store::open(home.path()).unwrap();
}

#[test]
fn nobody_else_can_read_the_records() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("daemon");
    let store = Store::open(&directory).unwrap();
    note(&store, "x").unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    for entry in std::fs::read_dir(&directory).unwrap().flatten() {
        assert_eq!(mode(&entry.path()), 0o600, "{}", entry.path().display());
    }
}

#[test]
fn what_is_refused_inside_a_transaction_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    let refused: Result<(), Fault> = store.write(|tx| {
        tx.execute(
            "INSERT INTO events(time_ms, kind, data) VALUES (1, 'note', '')",
            [],
        )?;
        Err(Fault::new(Code::UsageArgument, "no", "").into())
    });
    assert_eq!(refused.unwrap_err().code, Code::UsageArgument);
    assert_eq!(count(&store).unwrap(), 0);
    // A mistake in a statement is no reason to stop either.
    let mistake: Result<(), Fault> =
        store.write(|tx| Ok(tx.execute("INSERT INTO nowhere VALUES (1)", []).map(|_| ())?));
    assert!(mistake.is_err());
    note(&store, "goes on").unwrap();
    assert_eq!(count(&store).unwrap(), 1);
}

#[test]
fn a_copy_made_while_others_write_is_whole_and_replaces_nothing() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    for n in 0..50 {
        note(&store, &n.to_string()).unwrap();
    }
    let to = home.path().join("copy.db");
    store.backup(&to).unwrap();
    assert!(store.backup(&to).is_err(), "a file was replaced");
    let copy = home.path().join("elsewhere");
    std::fs::create_dir(&copy).unwrap();
    std::fs::rename(&to, copy.join("daemon.db")).unwrap();
    assert_eq!(count(&Store::open(&copy).unwrap()).unwrap(), 50);
}

#[test]
fn after_an_error_of_the_disk_nothing_is_confirmed_until_it_is_opened_again() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    note(&store, "first").unwrap();
    // As many pages as there are: the next transaction that needs one more finds the disk full.
    held(&store.writer)
        .pragma_update(None, "max_page_count", 1)
        .unwrap();
    let big = "x".repeat(200_000);
    assert_eq!(note(&store, &big).unwrap_err().code, Code::StateFailed);
    held(&store.writer)
        .pragma_update(None, "max_page_count", 1_000_000)
        .unwrap();
    assert_eq!(note(&store, "after").unwrap_err().code, Code::StateFailed);
    assert!(count(&store).is_err());
    assert!(store.problem().is_some());
    drop(store);
    let again = Store::open(home.path()).unwrap();
    assert_eq!(count(&again).unwrap(), 1);
    note(&again, "after").unwrap();
}

/// A small file system of its own; gone with the value.
struct Small(tempfile::TempDir);

impl Small {
    /// Only root can mount one.
    fn new(size: &str) -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"])
            .arg(place.path())
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then_some(Self(place))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let gone = std::process::Command::new("umount")
            .arg("-l")
            .arg(self.0.path())
            .status();
        assert!(gone.is_ok_and(|gone| gone.success()) || std::thread::panicking());
    }
}

#[test]
fn on_a_full_disk_nothing_is_confirmed_that_is_not_there_afterwards() {
    let Some(small) = Small::new("2m") else {
        eprintln!("skipped: only root can mount a small file system");
        return;
    };
    let home = small.0.path().join("daemon");
    let store = Store::open(&home).unwrap();
    let text = "x".repeat(3000);
    let mut confirmed = 0;
    while note(&store, &text).is_ok() {
        confirmed += 1;
        assert!(confirmed < 10_000, "the disk is never full");
    }
    assert!(confirmed > 0);
    assert!(store.problem().is_some());
    assert!(note(&store, "small").is_err(), "confirmed after a failure");
    drop(store);
    let grown = std::process::Command::new("mount")
        .args(["-o", "remount,size=16m"])
        .arg(small.0.path())
        .status();
    assert!(grown.unwrap().success());
    let again = Store::open(&home).unwrap();
    assert_eq!(count(&again).unwrap(), confirmed);
    note(&again, "goes on").unwrap();
}
