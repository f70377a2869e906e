//! The program of an agent: where it is on this host, and what it needs to be executed inside.
//!
//! **Trust:** `PATH` and the program are the operator's. Only whole packages, single files and Python environments are
//! granted, for reading, and nothing because of a name in the project.
use super::AgentUse;
use crate::place::Place;
use bastle_contract::AbsPath;
use bastle_policy::agent::{Agent, Pick, Way, is_assignment, pick};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// What every run may read anyway.
const SYSTEM: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Most links that are followed to a program, and most interpreters; the kernel has 40 and 5.
const MOST_LINKS: usize = 40;
const MOST_INTERPRETERS: usize = 5;
/// Most bytes read of a script's first line and of small files of a package.
const MOST_BYTES: u64 = 256 * 1024;

/// A program that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The file itself, links followed.
    pub file: PathBuf,
    /// Its version, where its package tells.
    pub version: Option<String>,
    /// What is granted for reading so that it can be executed.
    pub grants: Vec<AbsPath>,
}

/// Why the preset of an agent, and its credential, are not for this command line; `None` where it runs the agent's own
/// program. The project is untrusted: nothing goes to a file of it, nor where its files decide what is executed.
pub(super) fn refused(place: &Place, pick: &Pick, argv: &[String]) -> Option<String> {
    if let Way::Uncertain(why) = &pick.way {
        return Some(why.clone());
    }
    // What stands before the program is executed first: a file of the project called `env` or `node` too. The first word is
    // always a program, whatever is in its name.
    let before = argv.iter().take(pick.at).enumerate();
    before
        .filter(|(at, word)| *at == 0 || !is_assignment(word))
        .map(|(_, word)| word)
        .chain([&pick.program])
        .find_map(|word| of_project(place, word))
}

/// How a word of the command line leads to a file of the project: by its own path, by any link on the way, or by the
/// interpreter that executes it.
fn of_project(place: &Place, word: &str) -> Option<String> {
    let project = place.workspace.as_path();
    let mut file = if word.contains('/') {
        // Whether it is there or not: a run that begins with the tree of another has files that the project has not.
        from_here(place.cwd.as_path(), word)
    } else {
        // Not here: nothing is granted for it, but it is not the project's either.
        find(place, word)?
    };
    for _ in 0..MOST_INTERPRETERS {
        if !outside(&file, project) {
            return Some(if word == file.to_string_lossy() {
                format!("{word} is a file of the project")
            } else {
                format!("{word} leads to {} in the project", file.display())
            });
        }
        file = interpreter_of(place, &file)?;
    }
    Some(format!("{word} is a script of a script of a script"))
}

/// Where a path that was typed leads from the working directory, which has no link in it: `../tools` leaves the project
/// without entering it.
fn from_here(cwd: &Path, word: &str) -> PathBuf {
    let mut base = cwd;
    let mut rest = Path::new(word).components();
    loop {
        let before = rest.clone();
        match rest.next() {
            Some(Component::CurDir) => {}
            Some(Component::ParentDir) => base = base.parent().unwrap_or(base),
            Some(_) | None => return base.join(before.as_path()),
        }
    }
}

/// Whether a path leads to its file without ever entering the project. Walks component by component as the kernel does, so
/// that a link in the project which leads out again counts as the project's choice.
fn outside(path: &Path, project: &Path) -> bool {
    let parts = |path: &Path| -> Vec<std::ffi::OsString> {
        path.components()
            .rev()
            .map(|part| part.as_os_str().to_owned())
            .collect()
    };
    let mut rest = parts(path);
    let mut at = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = rest.pop() {
        match part.to_str() {
            Some("/") => at = PathBuf::from("/"),
            Some(".") => {}
            Some("..") => {
                at.pop();
            }
            Some(_) | None => {
                at.push(&part);
                if at.starts_with(project) {
                    return false;
                }
                if let Ok(target) = std::fs::read_link(&at) {
                    links += 1;
                    if links > MOST_LINKS {
                        return false;
                    }
                    at.pop();
                    rest.extend(parts(&target));
                }
            }
        }
    }
    true
}

/// The program that a script's first line names, as the kernel and `env` find it.
fn interpreter_of(place: &Place, file: &Path) -> Option<PathBuf> {
    let line = first_line(file)?;
    let mut words = line.strip_prefix("#!")?.split_ascii_whitespace();
    let first = words.next()?;
    if Path::new(first).file_name().is_some_and(|name| name == "env") {
        let name = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
        return find(place, name);
    }
    Some(place.cwd.as_path().join(first))
}

/// The beginning of a file, where it is text.
fn first_line(file: &Path) -> Option<String> {
    let mut start = [0; 256];
    let read = std::fs::File::open(file).ok()?.read(&mut start).ok()?;
    let line = start[..read].split(|byte| *byte == b'\n').next()?;
    std::str::from_utf8(line).ok().map(str::to_owned)
}

/// Finds the program of a command line and what it needs.
pub(super) fn look(place: &Place, agent: &Agent, argv: &[String], found: &mut AgentUse) {
    let Some(pick) = pick(agent, argv) else { return };
    if refused(place, &pick, argv).is_some() {
        return;
    }
    let Some(at) = find(place, &pick.program) else {
        return;
    };
    let Ok(file) = std::fs::canonicalize(&at) else {
        return;
    };
    let mut needs = Needs {
        home: place.home.as_path(),
        grants: Vec::new(),
    };
    let version = needs.package(&file);
    if pick.program.contains('/') {
        // It is executed by the name that was typed, so that name must lead there inside too.
        needs.grant(&at);
    } else if let (Some(name), Ok(target)) = (name_of(&at), AbsPath::from_path(&file))
        && !is_system(&at)
    {
        found.links.push((name, target));
    }
    if let Some((name, interpreter)) = needs.interpreter(&file) {
        found.links.push((name, interpreter));
    }
    if let Some(version) = &version {
        found.warnings.extend(agent.judge_version(version));
    }
    found.told.push(match (&version, needs.grants.is_empty()) {
        (Some(version), true) => format!("program: {} {version} at {}", agent.title, file.display()),
        (None, true) => format!("program: {}", file.display()),
        (version, false) => {
            let shown: Vec<String> = needs.grants.iter().map(ToString::to_string).collect();
            let version = version.as_deref().unwrap_or("of unknown version");
            format!(
                "program: {} {version}, readable: {}",
                agent.title,
                shown.join(", ")
            )
        }
    });
    found.program = Some(Program {
        file,
        version,
        grants: needs.grants,
    });
}

fn name_of(path: &Path) -> Option<String> {
    path.file_name()?.to_str().map(str::to_owned)
}

/// The file that a word of a command line means, as a shell finds it.
fn find(place: &Place, word: &str) -> Option<PathBuf> {
    if word.contains('/') {
        let path = place.cwd.as_path().join(word);
        return path.is_file().then_some(path);
    }
    let path = std::env::var_os("PATH")?;
    let executable = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(word))
        .find(executable)
}

fn is_system(path: &Path) -> bool {
    SYSTEM.iter().any(|system| path.starts_with(system))
}

/// Collects what must be readable.
struct Needs<'a> {
    home: &'a Path,
    grants: Vec<AbsPath>,
}

impl Needs<'_> {
    fn grant(&mut self, path: &Path) {
        // The home as a whole, or what holds it, is nobody's package.
        if is_system(path) || self.home.starts_with(path) {
            return;
        }
        if let Ok(path) = AbsPath::from_path(path)
            && !self.grants.iter().any(|known| path.is_within(known))
        {
            self.grants.push(path);
        }
    }

    /// Grants the package of a file: an npm package with the packages it needs, a Python environment, or the file alone.
    /// Gives back its version.
    fn package(&mut self, file: &Path) -> Option<String> {
        if let Some((modules, package)) = npm_package(file) {
            let manifest = json(&package.join("package.json")).unwrap_or_default();
            let outside = ["dependencies", "optionalDependencies"]
                .iter()
                .filter_map(|key| manifest.get(*key)?.as_object())
                .flat_map(|names| names.keys())
                .any(|name| !package.join("node_modules").join(name).exists() && modules.join(name).exists());
            // What it needs lies beside it: then its whole installation is shown, which is public code.
            self.grant(if outside { &modules } else { &package });
            return manifest.get("version")?.as_str().map(str::to_owned);
        }
        if let Some(root) = python_environment(file) {
            self.grant(&root);
            let base = text(&root.join("pyvenv.cfg")).and_then(|text| {
                let home = text.lines().find_map(|line| {
                    let (key, value) = line.split_once('=')?;
                    (key.trim() == "home").then(|| PathBuf::from(value.trim()))
                })?;
                std::fs::canonicalize(home.parent()?).ok()
            });
            if let Some(base) = base {
                self.grant(&base);
            }
            return None;
        }
        self.grant(file);
        let name = file.file_name()?.to_str()?;
        let is_version =
            name.split('.').count() == 3 && name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        is_version.then(|| name.to_owned())
    }

    /// What a script's first line names, if it is not where every run can find it: its name and its file.
    fn interpreter(&mut self, file: &Path) -> Option<(String, AbsPath)> {
        let line = first_line(file)?;
        let mut words = line.strip_prefix("#!")?.split_ascii_whitespace();
        let first = Path::new(words.next()?);
        if first.file_name().is_some_and(|name| name != "env") {
            let real = std::fs::canonicalize(first).ok()?;
            if python_environment(file).is_none() {
                self.grant(first);
                self.grant(&real);
            }
            return None;
        }
        let name = words.find(|word| !word.starts_with('-'))?;
        let path = std::env::var_os("PATH")?;
        let at = std::env::split_paths(&path)
            .filter(|directory| directory.is_absolute())
            .map(|directory| directory.join(name))
            .find(|path| path.is_file())?;
        let real = std::fs::canonicalize(&at).ok()?;
        self.grant(&real);
        // Found under its name inside too.
        let target = AbsPath::from_path(&real).ok()?;
        (!is_system(&at)).then(|| (name.to_owned(), target))
    }
}

/// The `node_modules` that holds a file, and the package in it.
fn npm_package(file: &Path) -> Option<(PathBuf, PathBuf)> {
    let modules = file
        .ancestors()
        .skip(1)
        .filter(|above| above.file_name().is_some_and(|name| name == "node_modules"))
        .last()?;
    let mut below = file.strip_prefix(modules).ok()?.components();
    let first = below.next()?;
    let mut package = modules.join(first);
    if first.as_os_str().to_str()?.starts_with('@') {
        package.push(below.next()?);
    }
    Some((modules.to_path_buf(), package))
}

/// The Python environment whose `bin` holds a file.
fn python_environment(file: &Path) -> Option<PathBuf> {
    let bin = file.parent()?;
    let root = bin.parent()?;
    let is = bin.file_name()? == "bin" && root.join("pyvenv.cfg").is_file();
    is.then(|| root.to_path_buf())
}

fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

fn json(path: &Path) -> Option<serde_json::Map<String, serde_json::Value>> {
    serde_json::from_str(&text(path)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_package_of_a_program_is_meant_never_what_holds_it() {
        let found = |path: &str| {
            npm_package(Path::new(path))
                .map(|(modules, package)| (modules.display().to_string(), package.display().to_string()))
        };
        let own = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        assert_eq!(
            found("/h/lib/node_modules/@a/b/cli.js"),
            own("/h/lib/node_modules", "/h/lib/node_modules/@a/b")
        );
        assert_eq!(
            found("/h/node_modules/x/node_modules/y/bin/y"),
            own("/h/node_modules", "/h/node_modules/x")
        );
        assert_eq!(found("/h/bin/claude"), None);
        assert_eq!(found("/h/node_modules"), None);
    }

    #[test]
    fn a_way_that_enters_the_project_is_the_projects_even_where_it_leads_out_again() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        let project = root.join("project");
        for name in ["project/bin", "tools", "project-other"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        for name in ["project/bin/claude", "tools/real", "project-other/claude"] {
            std::fs::write(root.join(name), "").unwrap();
        }
        symlink(root.join("project/bin/claude"), root.join("tools/in")).unwrap();
        symlink("../tools/real", root.join("project/out")).unwrap();
        symlink("../project/out", root.join("tools/through")).unwrap();
        symlink("project/bin", root.join("dir")).unwrap();
        symlink("real", root.join("tools/own")).unwrap();
        symlink("loop", root.join("tools/loop")).unwrap();
        for inside in [
            "project/bin/claude",
            "tools/in",
            "tools/through",
            "dir/claude",
            "tools/loop",
            "tools/../project/out",
        ] {
            assert!(!outside(&root.join(inside), &project), "{inside}");
        }
        for own in [
            "tools/real",
            "tools/own",
            "project-other/claude",
            "tools/../tools/real",
        ] {
            assert!(outside(&root.join(own), &project), "{own}");
        }
    }

    #[test]
    fn a_path_into_the_project_is_the_projects_whether_there_is_a_file_and_whatever_it_is_called() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        for name in ["project/x=y", "tools"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        for name in ["project/x=y/env", "project/x=y/node", "tools/claude"] {
            std::fs::write(root.join(name), "").unwrap();
        }
        let project = AbsPath::from_path(&root.join("project")).unwrap();
        let place = Place {
            home: AbsPath::from_path(&root).unwrap(),
            workspace: project.clone(),
            cwd: project,
            state: root.join("state"),
            config: root.join("config"),
        };
        let agent = Agent {
            programs: vec!["claude".to_owned()],
            packages: vec!["claude-code".to_owned()],
            ..Agent::default()
        };
        let tools = root.join("tools/claude").display().to_string();
        let script = root.join("node_modules/claude-code/cli.js").display().to_string();
        let judged = |words: &[&str]| {
            let argv: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            refused(&place, &pick(&agent, &argv).unwrap(), &argv)
        };
        for own in [
            &["./bin/claude"][..],
            &["bin/claude"],
            &["../project/bin/claude"],
            &["./x=y/env", "A=1", &tools],
            &["./x=y/node", &script],
            &["./missing/env", &tools],
        ] {
            let why = judged(own);
            assert!(why.is_some_and(|why| why.contains("project")), "{own:?}");
        }
        for other in [&[tools.as_str()][..], &["env", "A=1", &tools]] {
            assert_eq!(judged(other), None, "{other:?}");
        }
    }

    #[test]
    fn the_home_is_never_granted_as_a_package() {
        let mut needs = Needs {
            home: Path::new("/home/me"),
            grants: Vec::new(),
        };
        for path in ["/home/me", "/home", "/", "/usr/bin/node"] {
            needs.grant(Path::new(path));
        }
        assert!(needs.grants.is_empty(), "{:?}", needs.grants);
        needs.grant(Path::new("/home/me/lib/x"));
        needs.grant(Path::new("/home/me/lib/x/y"));
        assert_eq!(needs.grants, [AbsPath::new("/home/me/lib/x").unwrap()]);
    }
}
