//! Where a secret is kept: `file:`, `env:`, `exec:`, `keyring:` or `store:`.
use super::{Fetched, checked, helper, store::Store};
use bastle_contract::AbsPath;
use std::io::Read;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// A reference to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reference {
    /// A file of the host.
    File(PathBuf),
    /// A variable of bastle's own environment.
    Env(String),
    /// A program that prints it.
    Exec(Vec<String>),
    /// The desktop's Secret Service.
    Keyring(String),
    /// bastle's own encrypted store.
    Store(String),
}

impl Reference {
    pub(super) fn parse(text: &str, home: &AbsPath) -> Result<Self, String> {
        let (kind, rest) = text
            .split_once(':')
            .ok_or_else(|| format!("{text:?} names no place"))?;
        if rest.is_empty() {
            return Err(format!("{text:?} names nothing behind the colon"));
        }
        match kind {
            "file" => {
                let path = match rest.strip_prefix("~/") {
                    Some(below) => home.as_path().join(below),
                    None => PathBuf::from(rest),
                };
                if path.is_absolute() {
                    Ok(Self::File(path))
                } else {
                    Err(format!("{rest:?} is not an absolute path"))
                }
            }
            "env" => Ok(Self::Env(rest.to_owned())),
            "exec" => helper::words(rest).map(Self::Exec),
            "keyring" => Ok(Self::Keyring(rest.to_owned())),
            "store" => Ok(Self::Store(rest.to_owned())),
            _ => Err(format!("there is no place called {kind:?}")),
        }
    }

    /// How a value comes to be there.
    pub(super) fn remedy(&self) -> String {
        match self {
            Self::File(path) => format!("ls -l {}", path.display()),
            Self::Env(name) => format!("export {name}=VALUE, then run it again"),
            // Its arguments may be secrets themselves.
            Self::Exec(argv) => format!("run it yourself: {} …", argv.first().map_or("", String::as_str)),
            Self::Keyring(name) => {
                format!("unlock the keyring, or: secret-tool store --label=bastle service bastle name {name}")
            }
            Self::Store(name) => format!("bastle secret set {name}, see bastle secret ls"),
        }
    }

    /// The value now.
    pub(super) fn fetch(&self, state: &Path) -> Result<Fetched, String> {
        let plain = |value: &str| -> Result<Fetched, String> {
            Ok(Fetched {
                value: Zeroizing::new(checked(value)?.to_owned()),
                expires: None,
            })
        };
        match self {
            Self::File(path) => plain(&file(path)?),
            Self::Env(name) => {
                let value = std::env::var(name).map_err(|_| format!("the variable {name} is not set"))?;
                plain(&Zeroizing::new(value))
            }
            Self::Exec(argv) => helper::run(argv),
            Self::Keyring(name) => {
                let argv = ["secret-tool", "lookup", "service", "bastle", "name", name].map(str::to_owned);
                // What is kept there is the value itself: one that looks like a helper's answer is no exception.
                let value = helper::printed_within(&argv, helper::KEYRING_PATIENCE).map_err(|why| {
                    format!("the keyring is locked, absent, or holds nothing by that name ({why})")
                })?;
                plain(&value)
            }
            Self::Store(name) => plain(&Store::open(state).and_then(|store| store.get(name)).map_err(
                |fault| match fault.why.as_str() {
                    "" => fault.what,
                    why => format!("{}: {why}", fault.what),
                },
            )?),
        }
    }
}

fn file(path: &Path) -> Result<Zeroizing<String>, String> {
    let shown = path.display();
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, rustix::fs::Mode::empty())
        .map_err(|error| format!("cannot open {shown}: {error}"))?;
    let file = std::fs::File::from(file);
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return Err(format!("{shown} is not a regular file"));
    }
    // With room for all of it: growing would leave copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(super::MOST_VALUE + 2));
    file.take(super::MOST_VALUE as u64 + 2)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot read {shown}: {error}"))?;
    let text = std::str::from_utf8(&bytes).map_err(|_| format!("{shown} is not UTF-8"))?;
    Ok(Zeroizing::new(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Reference, String> {
        Reference::parse(text, &AbsPath::new("/home/me").unwrap())
    }

    #[test]
    fn a_reference_that_names_no_known_place_is_refused() {
        for bad in [
            "",
            "token",
            "file:",
            "file:relative",
            "http:x",
            "exec:",
            "exec:'a",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!(parse("file:~/t").unwrap(), Reference::File("/home/me/t".into()));
        let exec = Reference::Exec(vec!["gh".into(), "auth token".into()]);
        assert_eq!(parse("exec:gh 'auth token'").unwrap(), exec);
    }

    #[test]
    fn a_directory_a_fifo_or_a_long_file_is_no_secret() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("long");
        std::fs::write(&long, "x".repeat(100_000)).unwrap();
        for path in [
            dir.path().to_path_buf(),
            long,
            dir.path().join("absent"),
            "/dev/zero".into(),
        ] {
            assert!(
                Reference::File(path.clone()).fetch(dir.path()).is_err(),
                "{path:?}"
            );
        }
        let good = dir.path().join("good");
        std::fs::write(&good, "s3cret\n").unwrap();
        let fetched = Reference::File(good)
            .fetch(dir.path())
            .unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(*fetched.value, "s3cret");
    }
}
