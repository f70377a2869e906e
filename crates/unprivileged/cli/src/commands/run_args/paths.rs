//! Paths and patterns as they are typed, made absolute by their words.
use super::usage;
use bastle_contract::{AbsPath, Fault};
use std::path::{Component, Path, PathBuf};

/// The absolute path a person meant, by its words alone.
pub(super) fn absolute(path: &Path, here: &Path, home: &AbsPath) -> Result<AbsPath, Fault> {
    let whole = match path.strip_prefix("~") {
        Ok(below) => home.as_path().join(below),
        Err(_) => here.join(path),
    };
    let mut clean = PathBuf::from("/");
    for component in whole.components() {
        match component {
            Component::Normal(part) => clean.push(part),
            Component::ParentDir => drop(clean.pop()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    AbsPath::from_path(&clean).map_err(|error| usage("unusable path", error.to_string()))
}

/// `**/x` holds everywhere; anything else is a path or pattern relative to the current directory.
pub(super) fn pattern(text: &str, here: &Path, home: &AbsPath) -> Result<String, Fault> {
    if text.starts_with("**/") {
        return Ok(text.to_owned());
    }
    absolute(Path::new(text), here, home).map(|path| path.to_string())
}
