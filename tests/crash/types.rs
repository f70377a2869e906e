//! What a path can be, and trees in which paths become something else.
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Absent,
    /// A text, told apart by its number.
    File(u8),
    Executable(u8),
    Link(u8),
    EmptyDirectory,
    Directory(u8),
    Submodule,
    NestedRepository,
}

/// One of each.
pub(crate) const SHAPES: [Shape; 8] = [
    Shape::Absent,
    Shape::File(0),
    Shape::Executable(0),
    Shape::Link(0),
    Shape::EmptyDirectory,
    Shape::Directory(0),
    Shape::Submodule,
    Shape::NestedRepository,
];

impl Shape {
    pub(crate) fn has_repository(self) -> bool {
        matches!(self, Self::Submodule | Self::NestedRepository)
    }

    pub(crate) fn is_file_or_link(self) -> bool {
        matches!(self, Self::File(_) | Self::Executable(_) | Self::Link(_))
    }

    /// The same with other contents.
    pub(crate) fn changed(self) -> Self {
        match self {
            Self::File(number) => Self::File(number + 1),
            Self::Executable(number) => Self::Executable(number + 1),
            Self::Link(number) => Self::Link(number + 1),
            Self::Directory(number) => Self::Directory(number + 1),
            Self::Absent | Self::EmptyDirectory | Self::Submodule | Self::NestedRepository => self,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::File(_) => "file",
            Self::Executable(_) => "executable",
            Self::Link(_) => "link",
            Self::EmptyDirectory => "empty",
            Self::Directory(_) => "directory",
            Self::Submodule => "submodule",
            Self::NestedRepository => "nested",
        }
    }

    /// Makes it where nothing is. `repository` is the git directory that a submodule or nested repository gets.
    pub(crate) fn make(self, at: &Path, name: &str, repository: Option<&Path>) {
        let text = |number: u8, more: &str| format!("{name} {number}\n{more}second line\n");
        if self == Self::Absent {
            return;
        }
        fs::create_dir_all(at.parent().expect("below a root")).expect("can be made");
        match self {
            Self::Absent => {}
            Self::File(number) => write(at, &text(number, ""), 0o644),
            Self::Executable(number) => write(at, &text(number, "#!\n"), 0o755),
            Self::Link(0) => symlink("README", at).expect("can be made"),
            Self::Link(number) => symlink(format!("README-{number}"), at).expect("can be made"),
            Self::EmptyDirectory => fs::create_dir(at).expect("can be made"),
            Self::Directory(number) => {
                fs::create_dir_all(at.join("deep")).expect("can be made");
                write(&at.join("plain.c"), &text(number, "a"), 0o644);
                write(
                    &at.join(format!("deep/only-{number}.c")),
                    &text(number, "b"),
                    0o755,
                );
                symlink("plain.c", at.join("link.c")).expect("can be made");
            }
            Self::Submodule | Self::NestedRepository => {
                fs::create_dir(at).expect("can be made");
                write(&at.join("part.c"), "int part;\n", 0o644);
                let repository = repository.expect("given with such shapes");
                let own = at.join(".git");
                match self == Self::Submodule {
                    true => write(&own, &format!("gitdir: {}\n", repository.display()), 0o644),
                    false => copy(repository, &own),
                }
            }
        }
    }
}

fn write(at: &Path, text: &str, mode: u32) {
    fs::write(at, text).expect("can be written");
    fs::set_permissions(at, Permissions::from_mode(mode)).expect("own file");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("can be made");
    for entry in fs::read_dir(from).expect("can be listed") {
        let entry = entry.expect("can be listed");
        let to = to.join(entry.file_name());
        match entry.file_type().expect("can be told").is_dir() {
            true => copy(&entry.path(), &to),
            false => {
                fs::copy(entry.path(), to).expect("can be copied");
            }
        }
    }
}

/// A path before and after.
pub(crate) type Paths = Vec<(String, Shape)>;

/// Every type before with every type after, each at a path of its own; also files of one directory that stays.
pub(crate) fn all_pairs() -> (Paths, Paths) {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for was in SHAPES {
        for becomes in SHAPES {
            // Where a repository would be replaced the apply is refused as a whole: see `pairs`.
            if was.has_repository() && becomes.is_file_or_link() {
                continue;
            }
            let becomes = if was == becomes {
                becomes.changed()
            } else {
                becomes
            };
            let path = format!("{}-{}.c", was.name(), becomes.name());
            before.push((path.clone(), was));
            after.push((path, becomes));
        }
    }
    before.push(("stays/one.c".to_owned(), Shape::File(0)));
    before.push(("stays/two.c".to_owned(), Shape::File(0)));
    after.push(("stays/one.c".to_owned(), Shape::File(1)));
    after.push(("stays/two.c".to_owned(), Shape::Absent));
    after.push(("stays/new/deep.c".to_owned(), Shape::File(1)));
    (before, after)
}
