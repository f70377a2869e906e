//! Where a secret is kept: `file:`, `json:`, `env:`, `exec:`, `keyring:` or `store:`.
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
    /// A text in a JSON file of the host, by the keys that lead to it.
    Json(PathBuf, Vec<String>),
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
            "file" => absolute(rest, home).map(Self::File),
            "json" => {
                let (path, keys) = rest
                    .rsplit_once('#')
                    .filter(|(_, keys)| !keys.is_empty() && !keys.split('.').any(str::is_empty))
                    .ok_or_else(|| format!("{rest:?} is not PATH#KEY.KEY"))?;
                let keys = keys.split('.').map(str::to_owned).collect();
                absolute(path, home).map(|path| Self::Json(path, keys))
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
            Self::File(path) | Self::Json(path, _) => format!("ls -l {}", path.display()),
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
            Self::Json(path, keys) => json(path, keys),
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

/// A path as a reference writes it.
fn absolute(text: &str, home: &AbsPath) -> Result<PathBuf, String> {
    let path = match text.strip_prefix("~/") {
        Some(below) => home.as_path().join(below),
        None => PathBuf::from(text),
    };
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(format!("{text:?} is not an absolute path"))
    }
}

/// A text in a JSON file. `expiresAt` beside it, in milliseconds, tells how long it is good for.
fn json(path: &Path, keys: &[String]) -> Result<Fetched, String> {
    let shown = path.display();
    // The parser's own words could quote what it read.
    let read = serde_json::from_str(&file(path)?).map_err(|_| format!("{shown} is not JSON"))?;
    let mut root: serde_json::Value = read;
    let (last, above) = keys.split_last().ok_or("no key")?;
    let mut place = &root;
    for key in above {
        place = place
            .get(key)
            .ok_or_else(|| format!("{shown} has no {}", keys.join(".")))?;
    }
    let fetched = match place.get(last) {
        Some(serde_json::Value::String(value)) => Ok(Fetched {
            value: Zeroizing::new(checked(value)?.to_owned()),
            expires: place
                .get("expiresAt")
                .and_then(serde_json::Value::as_u64)
                .map(|ms| ms / 1000),
        }),
        Some(_) | None => Err(format!("{shown} has no text {}", keys.join("."))),
    };
    wipe(&mut root);
    fetched
}

/// Overwrites every text of a document.
fn wipe(value: &mut serde_json::Value) {
    use zeroize::Zeroize;
    match value {
        serde_json::Value::String(text) => text.zeroize(),
        serde_json::Value::Array(items) => items.iter_mut().for_each(wipe),
        serde_json::Value::Object(map) => map.values_mut().for_each(wipe),
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {}
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
    fn a_text_of_a_json_file_is_found_by_its_keys_alone() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("auth.json");
        std::fs::write(
            &at,
            r#"{"login":{"token":"s3cret","expiresAt":1700000000123},"n":1}"#,
        )
        .unwrap();
        let fetch = |keys: &str| {
            parse(&format!("json:{}#{keys}", at.display()))
                .unwrap()
                .fetch(dir.path())
        };
        let fetched = fetch("login.token").unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(
            (fetched.value.as_str(), fetched.expires),
            ("s3cret", Some(1_700_000_000))
        );
        for absent in ["login", "login.other", "n", "other.token"] {
            let why = fetch(absent).err().unwrap();
            assert!(!why.contains("s3cret"), "{why}");
        }
        for bad in ["json:/x", "json:/x#", "json:/x#a..b", "json:x#a"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
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
