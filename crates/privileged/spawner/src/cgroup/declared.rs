//! Whether a unit of a user's own manager is declared with `Delegate=`. That manager marks no group (seen with systemd 252;
//! the system's does), so that its unit files are read: they are the user's own or root's.
use std::path::{Path, PathBuf};

/// Largest unit file that is read.
const MOST: u64 = 64 * 1024;

/// Asked of the files where systemd.unit(5) looks for units of users, transient ones first.
pub(super) fn is_declared(uid: u32, unit: &str) -> bool {
    let runtime = PathBuf::from(format!("/run/user/{uid}/systemd"));
    let home = std::fs::read_to_string("/etc/passwd")
        .ok()
        .and_then(|table| home_of(&table, uid));
    let directories: Vec<PathBuf> = [runtime.join("transient")]
        .into_iter()
        .chain(home.map(|home| home.join(".config/systemd/user")))
        .chain(["/etc/systemd/user".into(), runtime.join("user")])
        .chain([
            "/usr/local/lib/systemd/user".into(),
            "/usr/lib/systemd/user".into(),
        ])
        .collect();
    declares(&directories, unit)
}

fn declares(directories: &[PathBuf], unit: &str) -> bool {
    let main = directories
        .iter()
        .find_map(|directory| read(&directory.join(unit)));
    let mut more: Vec<PathBuf> = directories
        .iter()
        .filter_map(|directory| std::fs::read_dir(directory.join(format!("{unit}.d"))).ok())
        .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|kind| kind == "conf"))
        .collect();
    // Drop-ins count in the order of their names, wherever they are.
    more.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
    let texts = main.into_iter().chain(more.iter().filter_map(|path| read(path)));
    texts
        .filter_map(|text| delegate(&text))
        .next_back()
        .unwrap_or(false)
}

/// The last `Delegate=` of a file: a boolean or a list of controllers.
fn delegate(text: &str) -> Option<bool> {
    let mut values = text.lines().filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "Delegate").then_some(value.trim())
    });
    let no = ["", "no", "n", "false", "f", "off", "0"];
    values.next_back().map(|value| !no.contains(&value))
}

fn read(path: &Path) -> Option<String> {
    let meta = std::fs::metadata(path).ok()?;
    if !meta.is_file() || meta.len() > MOST {
        return None;
    }
    std::fs::read_to_string(path).ok()
}

/// The home directory of a user in the text of passwd(5).
fn home_of(table: &str, uid: u32) -> Option<PathBuf> {
    table.lines().find_map(|line| {
        let mut fields = line.split(':').skip(2);
        let found = fields.next()?.parse() == Ok(uid);
        let home = fields.nth(2)?;
        (found && home.starts_with('/')).then(|| PathBuf::from(home))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_delegated_by_its_file_and_the_last_drop_in_alone() {
        let place = std::env::temp_dir().join(format!("bastle-declared-{}", std::process::id()));
        let (transient, home) = (place.join("transient"), place.join("home"));
        let drop_ins = home.join("a.service.d");
        std::fs::create_dir_all(&transient).unwrap();
        std::fs::create_dir_all(&drop_ins).unwrap();
        let directories = [transient.clone(), home.clone()];
        let says = |unit: &str| declares(&directories, unit);
        // As `systemd-run --user --scope -p Delegate=yes` writes it.
        std::fs::write(
            transient.join("run-1.scope"),
            "[Unit]\nDescription=x\n\n[Scope]\nDelegate=yes\n",
        )
        .unwrap();
        std::fs::write(transient.join("run-2.scope"), "[Unit]\nDescription=Delegate\n").unwrap();
        assert!(says("run-1.scope"));
        assert!(!says("run-2.scope"));
        assert!(!says("run-3.scope"), "there is none");
        std::fs::write(home.join("a.service"), "[Service]\nDelegate=cpu memory\n").unwrap();
        assert!(says("a.service"), "controllers by name");
        std::fs::write(drop_ins.join("20.conf"), "[Service]\nDelegate=no\n").unwrap();
        assert!(!says("a.service"));
        std::fs::write(drop_ins.join("10.conf"), "[Service]\nDelegate=yes\n").unwrap();
        assert!(!says("a.service"), "the later one counts");
        std::fs::write(drop_ins.join("30.conf.bak"), "[Service]\nDelegate=yes\n").unwrap();
        assert!(!says("a.service"), "that is none");
        std::fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn a_home_is_that_of_the_user_and_no_other() {
        let table = "root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\nodd:x:7\n";
        assert_eq!(home_of(table, 1000), Some(PathBuf::from("/home/ada")));
        assert_eq!(home_of(table, 7), None);
        assert_eq!(home_of(table, 100), None);
    }
}
