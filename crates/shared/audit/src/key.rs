//! The signing key of a state directory: made once, readable by its owner only.
use crate::AuditError;
use crate::canonical::{hex, unhex};
use crate::dir::{Dir, Open};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use rustix::io::Errno;
use std::fmt;
use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

const PRIVATE: &str = "key.ed25519";
const PUBLIC: &str = "key.pub";

/// Short name of a public key: the first 16 bytes of its BLAKE3 hash, hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyId(String);

/// The private half.
pub(crate) struct Key {
    signing: SigningKey,
}

/// The public half.
#[derive(Clone, Debug)]
pub(crate) struct PublicKey {
    verifying: VerifyingKey,
}

/// What a signature is made over; each use has its own first line, so that one cannot stand for another.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signed<'a> {
    /// The chain of `run` up to record `sequence` with fingerprint `head`.
    Checkpoint {
        run: &'a str,
        sequence: u64,
        head: &'a str,
    },
    /// The same, and that the log ends with `count` records.
    Seal {
        run: &'a str,
        sequence: u64,
        head: &'a str,
        count: u64,
    },
    /// A line of the index.
    Index { fingerprint: &'a str },
}

impl Key {
    /// The key of the directory; the first caller makes it.
    pub(crate) fn load_or_create(dir: &Dir) -> Result<Self, AuditError> {
        if let Some(key) = Self::load(dir)? {
            return Ok(key);
        }
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(AuditError::Random)?;
        let temporary = write_temporary(dir, PRIVATE, &hex(&seed), 0o600)?;
        // A link, not a rename: of two processes that start at once, the first key wins and stays.
        let linked = dir.link(&temporary, PRIVATE);
        dir.unlink(&temporary)?;
        linked?;
        let key =
            Self::load(dir)?.ok_or_else(|| AuditError::io("open", &dir.path_of(PRIVATE), Errno::NOENT))?;
        dir.sync()?;
        Ok(key)
    }

    fn load(dir: &Dir) -> Result<Option<Self>, AuditError> {
        let Some(file) = dir.file(PRIVATE, Open::Read)? else {
            return Ok(None);
        };
        let path = dir.path_of(PRIVATE);
        let meta = file.metadata().map_err(|e| AuditError::io("stat", &path, e))?;
        let untrusted = |why| AuditError::Untrusted {
            path: path.clone(),
            why,
        };
        if meta.uid() != rustix::process::geteuid().as_raw() {
            return Err(untrusted("it belongs to another user"));
        }
        if meta.permissions().mode() & 0o077 != 0 {
            return Err(untrusted("others than its owner may read or write it"));
        }
        let text = read_short(file).map_err(|e| AuditError::io("read", &path, e))?;
        let seed = unhex::<32>(text.trim_end()).ok_or_else(|| untrusted("it does not hold a key"))?;
        let key = Self {
            signing: SigningKey::from_bytes(&seed),
        };
        key.publish(dir)?;
        Ok(Some(key))
    }

    /// Writes the public half if a crash left it out; refuses another one in its place.
    fn publish(&self, dir: &Dir) -> Result<(), AuditError> {
        match PublicKey::load(dir)? {
            Some(public) if public.verifying == self.signing.verifying_key() => Ok(()),
            Some(_) => Err(AuditError::Untrusted {
                path: dir.path_of(PUBLIC),
                why: "it is not the public half of the signing key",
            }),
            None => {
                let temporary = write_temporary(dir, PUBLIC, &self.public().hex(), 0o644)?;
                dir.rename(&temporary, PUBLIC)
            }
        }
    }

    /// The public half.
    pub(crate) fn public(&self) -> PublicKey {
        PublicKey {
            verifying: self.signing.verifying_key(),
        }
    }

    /// A signature, hexadecimal.
    pub(crate) fn sign(&self, what: Signed<'_>) -> String {
        hex(&self.signing.sign(what.message().as_bytes()).to_bytes())
    }

    /// A signature over bytes whose form nothing of the log has.
    pub(crate) fn sign_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        self.signing.sign(bytes).to_bytes().to_vec()
    }
}

impl PublicKey {
    /// The public key of the directory; `None` if there is none.
    pub(crate) fn load(dir: &Dir) -> Result<Option<Self>, AuditError> {
        let Some(file) = dir.file(PUBLIC, Open::Read)? else {
            return Ok(None);
        };
        let path = dir.path_of(PUBLIC);
        let text = read_short(file).map_err(|e| AuditError::io("read", &path, e))?;
        let key = unhex::<32>(text.trim_end()).and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok());
        let why = "it does not hold a public key";
        key.map(|verifying| Some(Self { verifying }))
            .ok_or(AuditError::Untrusted { path, why })
    }

    /// A fixed key nobody holds the private half of on purpose: for reading without judging signatures.
    pub(crate) fn nobody() -> Self {
        Self {
            verifying: SigningKey::from_bytes(&[7; 32]).verifying_key(),
        }
    }

    /// From hexadecimal.
    pub(crate) fn from_hex(text: &str) -> Option<Self> {
        let verifying = VerifyingKey::from_bytes(&unhex::<32>(text)?).ok()?;
        Some(Self { verifying })
    }

    /// Whether `signature` was made over these bytes by the private half.
    pub(crate) fn verifies_bytes(&self, bytes: &[u8], signature: &[u8]) -> bool {
        <[u8; 64]>::try_from(signature).is_ok_and(|signature| {
            let signature = Signature::from_bytes(&signature);
            self.verifying.verify_strict(bytes, &signature).is_ok()
        })
    }

    /// Hexadecimal.
    pub(crate) fn hex(&self) -> String {
        hex(self.verifying.as_bytes())
    }

    /// Its short name.
    pub(crate) fn id(&self) -> KeyId {
        KeyId(hex(&blake3::hash(self.verifying.as_bytes()).as_bytes()[..16]))
    }

    /// Whether `signature` was made over `what` by the private half. Strict: one encoding per signature.
    pub(crate) fn verifies(&self, what: Signed<'_>, signature: &str) -> bool {
        unhex::<64>(signature).is_some_and(|bytes| {
            let signature = Signature::from_bytes(&bytes);
            self.verifying
                .verify_strict(what.message().as_bytes(), &signature)
                .is_ok()
        })
    }
}

impl Signed<'_> {
    fn message(self) -> String {
        match self {
            Self::Checkpoint { run, sequence, head } => {
                format!("bastle-audit-checkpoint-v1\n{run}\n{sequence}\n{head}\n")
            }
            Self::Seal {
                run,
                sequence,
                head,
                count,
            } => {
                format!("bastle-audit-seal-v1\n{run}\n{sequence}\n{head}\n{count}\n")
            }
            Self::Index { fingerprint } => format!("bastle-audit-index-v1\n{fingerprint}\n"),
        }
    }
}

impl KeyId {
    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.public().id())
    }
}

fn read_short(file: impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    file.take(256).read_to_string(&mut text)?;
    Ok(text)
}

/// A complete, synced file under a name of its own, to be put in place in one step.
fn write_temporary(dir: &Dir, name: &str, text: &str, mode: u32) -> Result<String, AuditError> {
    let mut tag = [0; 8];
    getrandom::fill(&mut tag).map_err(AuditError::Random)?;
    let temporary = format!("{name}.{}.tmp", hex(&tag));
    let path = dir.path_of(&temporary);
    let mut file = dir.must(&temporary, Open::CreateNew)?;
    file.set_permissions(Permissions::from_mode(mode))
        .and_then(|()| writeln!(file, "{text}"))
        .and_then(|()| file.sync_all())
        .map_err(|e| AuditError::io("write", &path, e))?;
    Ok(temporary)
}
