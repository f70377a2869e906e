//! The encrypted store: one file, each value sealed by itself (AES-256-GCM) under its own name.
//!
//! The key comes from `BASTLE_SECRET_PASSPHRASE` (PBKDF2), or from a key file beside the store that only its owner
//! can read; the second protects a backup of the store alone, not one of the whole directory. Both files lie in the
//! state directory, which no agent sees.
use super::checked;
use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use aws_lc_rs::pbkdf2;
use bastle_contract::{Code, Fault};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

const FILE: &str = "secrets.json";
const KEY: &str = "secrets.key";
const PASSPHRASE: &str = "BASTLE_SECRET_PASSPHRASE";
/// What is advised for PBKDF2 with SHA-256; about a third of a second.
const ROUNDS: u32 = 600_000;
/// Largest store: a thousand long tokens.
const MOST_STORE: u64 = 32 * 1024 * 1024;
/// Most secrets in it.
const MOST_SECRETS: usize = 1024;
const KEY_LENGTH: usize = 32;
const NONCE_LENGTH: usize = 12;

/// What is known of a stored secret without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stored {
    /// The name under which policy refers to the secret.
    pub name: String,
    /// When it was set, in milliseconds since 1970.
    pub set_ms: u64,
}

/// An open store.
#[derive(Debug)]
pub struct Store {
    state: PathBuf,
    document: Document,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    key: KeyKind,
    /// Hexadecimal; mixed with the passphrase.
    salt: String,
    secrets: BTreeMap<String, Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum KeyKind {
    /// The key file.
    File,
    /// The passphrase.
    Passphrase,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    nonce: String,
    sealed: String,
    set_ms: u64,
}

impl Store {
    /// Opens the store of this state directory; a new one where there is none.
    pub fn open(state: &Path) -> Result<Self, Fault> {
        let path = state.join(FILE);
        let document = match read(&path, MOST_STORE)? {
            Some(bytes) => serde_json::from_slice::<Document>(&bytes)
                .ok()
                .filter(|document| document.version == 1)
                .ok_or_else(|| broken(&path, "it is damaged or of another version"))?,
            None => Document {
                version: 1,
                key: if std::env::var_os(PASSPHRASE).is_some() {
                    KeyKind::Passphrase
                } else {
                    KeyKind::File
                },
                salt: hex(&random::<16>()?),
                secrets: BTreeMap::new(),
            },
        };
        Ok(Self {
            state: state.to_path_buf(),
            document,
        })
    }

    /// What is in it.
    #[must_use]
    pub fn list(&self) -> Vec<Stored> {
        let entries = self.document.secrets.iter();
        entries
            .map(|(name, entry)| Stored {
                name: name.clone(),
                set_ms: entry.set_ms,
            })
            .collect()
    }

    /// Seals a value under a name and writes the store.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Fault> {
        check_name(name)?;
        let value =
            checked(value).map_err(|why| Fault::new(Code::SecretStore, "the value cannot be kept", why))?;
        if self.document.secrets.len() >= MOST_SECRETS && !self.document.secrets.contains_key(name) {
            return Err(Fault::new(
                Code::SecretStore,
                format!("the store holds {MOST_SECRETS} secrets already"),
                "",
            )
            .help("bastle secret rm NAME"));
        }
        let mut sealed = Zeroizing::new(value.as_bytes().to_vec());
        let nonce = self
            .key()?
            .seal_in_place_append_tag(Aad::from(name.as_bytes()), &mut *sealed)
            .map_err(|_| Fault::new(Code::SecretStore, "cannot seal the value", ""))?;
        let set_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        let entry = Entry {
            nonce: hex(nonce.as_ref()),
            sealed: hex(&sealed),
            set_ms,
        };
        self.document.secrets.insert(name.to_owned(), entry);
        self.write()
    }

    /// Removes a secret; `false` when there was none.
    pub fn remove(&mut self, name: &str) -> Result<bool, Fault> {
        if self.document.secrets.remove(name).is_none() {
            return Ok(false);
        }
        self.write().map(|()| true)
    }

    /// What tells one setting of a secret from every other: its nonce, which is made at random each time.
    pub(super) fn mark(&self, name: &str) -> Option<&str> {
        self.document.secrets.get(name).map(|entry| entry.nonce.as_str())
    }

    /// The value under a name.
    pub(crate) fn get(&self, name: &str) -> Result<Zeroizing<String>, Fault> {
        let missing = || {
            Fault::new(Code::SecretStore, format!("the store has no secret {name}"), "")
                .help(format!("bastle secret set {name}"))
        };
        let entry = self.document.secrets.get(name).ok_or_else(missing)?;
        let cannot = || {
            let why = match self.document.key {
                KeyKind::File => "the key file is another one, or the store was changed",
                KeyKind::Passphrase => "the passphrase is another one, or the store was changed",
            };
            Fault::new(
                Code::SecretStore,
                format!("the secret {name} cannot be opened"),
                why,
            )
        };
        let nonce: [u8; NONCE_LENGTH] = unhex(&entry.nonce)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(cannot)?;
        let mut sealed = Zeroizing::new(unhex(&entry.sealed).ok_or_else(cannot)?);
        let opened = self
            .key()?
            .open_in_place(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(name.as_bytes()),
                &mut sealed,
            )
            .map_err(|_| cannot())?;
        let text = std::str::from_utf8(opened).map_err(|_| cannot())?;
        Ok(Zeroizing::new(text.to_owned()))
    }

    fn key(&self) -> Result<RandomizedNonceKey, Fault> {
        let bytes = match self.document.key {
            KeyKind::File => self.key_file()?,
            KeyKind::Passphrase => self.stretched()?,
        };
        RandomizedNonceKey::new(&AES_256_GCM, &*bytes)
            .map_err(|_| Fault::new(Code::SecretStore, "the key of the store cannot be used", ""))
    }

    fn stretched(&self) -> Result<Zeroizing<[u8; KEY_LENGTH]>, Fault> {
        let passphrase = std::env::var(PASSPHRASE).map(Zeroizing::new).map_err(|_| {
            Fault::new(
                Code::SecretStore,
                "the store needs its passphrase",
                format!("{PASSPHRASE} is not set"),
            )
        })?;
        let salt = unhex(&self.document.salt)
            .ok_or_else(|| broken(&self.state.join(FILE), "its salt is damaged"))?;
        let mut key = Zeroizing::new([0; KEY_LENGTH]);
        let rounds = NonZeroU32::new(ROUNDS).unwrap_or(NonZeroU32::MIN);
        pbkdf2::derive(
            pbkdf2::PBKDF2_HMAC_SHA256,
            rounds,
            &salt,
            passphrase.as_bytes(),
            &mut *key,
        );
        Ok(key)
    }

    fn key_file(&self) -> Result<Zeroizing<[u8; KEY_LENGTH]>, Fault> {
        let path = self.state.join(KEY);
        if let Some(bytes) = read(&path, KEY_LENGTH as u64 + 1)? {
            let bytes: [u8; KEY_LENGTH] = bytes
                .as_slice()
                .try_into()
                .map_err(|_| broken(&path, "it has another length than a key"))?;
            return Ok(Zeroizing::new(bytes));
        }
        if !self.document.secrets.is_empty() {
            return Err(broken(
                &path,
                "it is gone, and without it the stored secrets cannot be opened",
            ));
        }
        let key = Zeroizing::new(random::<KEY_LENGTH>()?);
        replace(&self.state, KEY, &*key)?;
        Ok(key)
    }

    fn write(&self) -> Result<(), Fault> {
        let bytes = serde_json::to_vec_pretty(&self.document)
            .map_err(|error| broken(&self.state.join(FILE), &error.to_string()))?;
        replace(&self.state, FILE, &bytes)
    }
}

/// A name that can stand behind `store:`.
fn check_name(name: &str) -> Result<(), Fault> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if (1..=64).contains(&name.len()) && name.chars().all(fits) {
        Ok(())
    } else {
        Err(Fault::new(
            Code::UsageArgument,
            format!("{name:?} cannot name a secret"),
            "a name has 1 to 64 letters, digits, '_', '-' and '.'",
        ))
    }
}

/// The bytes of a file that only its owner can read; `None` where it does not exist.
fn read(path: &Path, most: u64) -> Result<Option<Zeroizing<Vec<u8>>>, Fault> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => std::fs::File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(broken(path, &error.to_string())),
    };
    let meta = file
        .metadata()
        .map_err(|error| broken(path, &error.to_string()))?;
    let open_to_others = std::os::unix::fs::MetadataExt::mode(&meta) & 0o077 != 0;
    if !meta.is_file() || open_to_others {
        return Err(broken(
            path,
            "it is no regular file, or others than its owner may read it",
        )
        .help(format!("chmod 600 {}", path.display())));
    }
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(most)
        .read_to_end(&mut bytes)
        .map_err(|error| broken(path, &error.to_string()))?;
    Ok(Some(bytes))
}

/// Replaces a file as a whole: whoever reads it sees the old one or the new one.
fn replace(state: &Path, name: &str, bytes: &[u8]) -> Result<(), Fault> {
    let path = state.join(name);
    let fresh = state.join(format!(".{name}.{}", hex(&random::<8>()?)));
    let attempt = || -> std::io::Result<()> {
        std::fs::create_dir_all(state)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let mut file = std::fs::File::from(rustix::fs::open(&fresh, flags, Mode::from_raw_mode(0o600))?);
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&fresh, &path)?;
        std::fs::File::open(state)?.sync_all()
    };
    attempt().map_err(|error| {
        // What was not finished must not stay.
        drop(std::fs::remove_file(&fresh));
        broken(&path, &error.to_string())
    })
}

fn broken(path: &Path, why: &str) -> Fault {
    Fault::new(Code::SecretStore, format!("cannot use {}", path.display()), why)
}

fn random<const N: usize>() -> Result<[u8; N], Fault> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Fault::new(Code::SecretStore, "no random numbers", error.to_string()))?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_shows_no_value_and_a_changed_or_moved_entry_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        store.set("gh", "s3cret-value").unwrap();
        store.set("other", "another").unwrap();
        let path = dir.path().join(FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("s3cret") && !text.contains(&hex(b"s3cret")));
        assert_eq!(
            *Store::open(dir.path()).unwrap().get("gh").unwrap(),
            "s3cret-value"
        );
        // An entry under another name is refused: its name is sealed with it.
        let mut moved: Document = serde_json::from_str(&text).unwrap();
        let entry = moved.secrets.remove("gh").unwrap();
        moved.secrets.insert("other".into(), entry);
        std::fs::write(&path, serde_json::to_vec(&moved).unwrap()).unwrap();
        assert!(Store::open(dir.path()).unwrap().get("other").is_err());
    }

    #[test]
    fn a_store_that_others_can_read_or_whose_key_is_gone_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        Store::open(dir.path()).unwrap().set("a", "b").unwrap();
        let path = dir.path().join(FILE);
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Store::open(dir.path()).is_err());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::remove_file(dir.path().join(KEY)).unwrap();
        assert!(Store::open(dir.path()).unwrap().get("a").is_err());
    }

    #[test]
    fn a_removed_secret_is_gone_and_names_are_checked() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        for bad in ["", "a b", "../x", &"n".repeat(65)] {
            assert!(store.set(bad, "v").is_err(), "{bad}");
        }
        store.set("a", "v").unwrap();
        assert_eq!(store.list().len(), 1);
        assert!(store.remove("a").unwrap() && !store.remove("a").unwrap());
        assert!(Store::open(dir.path()).unwrap().list().is_empty());
    }
}
