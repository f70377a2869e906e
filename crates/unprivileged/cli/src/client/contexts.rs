//! Named daemons: `$XDG_CONFIG_HOME/bastle/contexts.json`, its owner's alone.
//!
//! **Trust:** the user's own file. It names files with tokens and never holds a token.
use super::place::{Host, config_dir};
use crate::render::clean;
use bastle_contract::{Code, Fault};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The context that is there without being written: the daemon of this user on this machine.
pub(crate) const LOCAL: &str = "local";
/// Largest file.
const MOST: u64 = 256 * 1024;
/// Most contexts.
const MOST_CONTEXTS: usize = 256;

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    /// The one that is used where nothing else is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    current: Option<String>,
    #[serde(default)]
    contexts: BTreeMap<String, Named>,
}

/// One daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Named {
    /// Its address.
    pub(crate) host: Host,
    /// A file whose first line is the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,
}

impl Contexts {
    /// Where the file is.
    pub(crate) fn path() -> Result<PathBuf, Fault> {
        Ok(config_dir()?.join("contexts.json"))
    }

    /// Reads it. A file that is not there has no contexts; one that others can write is refused.
    pub(crate) fn load() -> Result<Self, Fault> {
        Self::read(&Self::path()?)
    }

    fn read(path: &Path) -> Result<Self, Fault> {
        let fault = |why: String| {
            Fault::new(
                Code::UsageArgument,
                format!("{} cannot be used", path.display()),
                why,
            )
            .help(format!("chmod 600 {}, or remove it", path.display()))
        };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(fault(error.to_string())),
        };
        let about = file.metadata().map_err(|error| fault(error.to_string()))?;
        let uid = rustix::process::geteuid().as_raw();
        if about.mode() & 0o022 != 0 || (about.uid() != uid && about.uid() != 0) {
            return Err(fault(
                "others can change it, and with it who gets your token".to_owned(),
            ));
        }
        let mut text = String::new();
        file.take(MOST + 1)
            .read_to_string(&mut text)
            .map_err(|error| fault(error.to_string()))?;
        if text.len() as u64 > MOST {
            return Err(fault(format!("it has more than {MOST} bytes")));
        }
        let read: Self = serde_json::from_str(&text).map_err(|error| fault(error.to_string()))?;
        if let Some(bad) = read.contexts.keys().find(|name| !is_name(name)) {
            return Err(fault(format!("{bad:?} is no name of a context")));
        }
        Ok(read)
    }

    /// Writes it whole, 0600.
    pub(crate) fn save(&self) -> Result<(), Fault> {
        let path = Self::path()?;
        self.write(&path).map_err(|error| {
            Fault::new(
                Code::StateDir,
                format!("cannot write {}", path.display()),
                error.to_string(),
            )
        })
    }

    fn write(&self, path: &Path) -> std::io::Result<()> {
        let directory = path.parent().unwrap_or(Path::new("/"));
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        let beside = directory.join(format!(".contexts.{}.new", std::process::id()));
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        let written = serde_json::to_vec_pretty(self)
            .map_err(std::io::Error::other)
            .and_then(|bytes| file.write_all(&bytes))
            .and_then(|()| file.sync_data())
            .and_then(|()| std::fs::rename(&beside, path));
        if written.is_err() {
            drop(std::fs::remove_file(&beside));
        }
        written
    }

    /// The name in use, `local` unless another was chosen.
    pub(crate) fn current(&self) -> &str {
        self.current.as_deref().unwrap_or(LOCAL)
    }

    /// Every context that is written, by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &Named)> {
        self.contexts.iter().map(|(name, named)| (name.as_str(), named))
    }

    /// One by name; `local` is `None`.
    pub(crate) fn find(&self, name: &str) -> Result<Option<&Named>, Fault> {
        if name == LOCAL {
            return Ok(None);
        }
        self.contexts
            .get(name)
            .map(Some)
            .ok_or_else(|| self.unknown(name))
    }

    /// Uses another from now on.
    pub(crate) fn choose(&mut self, name: &str) -> Result<(), Fault> {
        self.find(name)?;
        self.current = (name != LOCAL).then(|| name.to_owned());
        Ok(())
    }

    /// Adds one. A name that is taken is refused.
    pub(crate) fn add(&mut self, name: &str, named: Named) -> Result<(), Fault> {
        let refuse = |why: &str| {
            Err(Fault::new(
                Code::UsageArgument,
                format!("a context cannot be called {}", clean(name)),
                why,
            )
            .help("bastle context ls"))
        };
        if !is_name(name) || name == LOCAL {
            return refuse("a name is [a-z0-9][a-z0-9._-]{0,31}, and local is this machine");
        }
        if self.contexts.contains_key(name) {
            return refuse("it is taken: bastle context rm it first");
        }
        if self.contexts.len() >= MOST_CONTEXTS {
            return refuse("there are 256 already");
        }
        self.contexts.insert(name.to_owned(), named);
        Ok(())
    }

    /// Removes one; if it was in use, `local` is again.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), Fault> {
        if self.contexts.remove(name).is_none() {
            return Err(self.unknown(name));
        }
        if self.current.as_deref() == Some(name) {
            self.current = None;
        }
        Ok(())
    }

    fn unknown(&self, name: &str) -> Fault {
        let mut fault = Fault::new(
            Code::ContextMissing,
            format!("no context is called {}", super::short(name)),
            "",
        );
        let names = self.contexts.keys().map(String::as_str).chain([LOCAL]);
        if let Some(near) = bastle_policy::nearest(name, names) {
            fault = fault.help(format!("did you mean {near}?"));
        }
        fault.help("bastle context ls")
    }
}

fn is_name(name: &str) -> bool {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= 32 && name.starts_with(good) && name.chars().all(|c| good(c) || "._-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn named(host: &str) -> Named {
        Named {
            host: Host::parse(host).unwrap(),
            token_file: None,
        }
    }

    #[test]
    fn a_context_is_added_once_and_removing_the_one_in_use_goes_back_to_local() {
        let mut contexts = Contexts::default();
        contexts.add("lab", named("https://lab.example:7717")).unwrap();
        assert!(contexts.add("lab", named("http://127.0.0.1:1")).is_err());
        for bad in ["", "local", "Lab", "a b", "../x", &"a".repeat(33)] {
            assert!(contexts.add(bad, named("http://127.0.0.1:1")).is_err(), "{bad}");
        }
        contexts.choose("lab").unwrap();
        assert_eq!(contexts.current(), "lab");
        contexts.remove("lab").unwrap();
        assert_eq!(contexts.current(), LOCAL);
        let fault = contexts.choose("lcal").unwrap_err();
        assert!(fault.help[0].contains("did you mean local"), "{fault:?}");
    }

    #[test]
    fn the_file_is_its_owners_alone_and_one_that_others_can_write_is_refused() {
        let directory = std::env::temp_dir().join(format!("bastle-contexts-{}", std::process::id()));
        let path = directory.join("contexts.json");
        let mut contexts = Contexts::default();
        contexts.add("lab", named("https://lab.example:7717")).unwrap();
        contexts.write(&path).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(Contexts::read(&path).unwrap(), contexts);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        let open = Contexts::read(&path);
        for bad in [
            "{",
            r#"{"contexts":{},"more":1}"#,
            r#"{"contexts":{"A":{"host":"http://127.0.0.1:1"}}}"#,
            r#"{"contexts":{"a":{"host":"ftp://x"}}}"#,
        ] {
            std::fs::write(&path, bad).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            assert!(Contexts::read(&path).is_err(), "{bad}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(open.is_err());
    }
}
