//! Signatures of cards: a key that this daemon made for nothing else, and what others verify with.
//!
//! A card is signed as it is served, in its canonical form (RFC 8785) and without its signatures. It is made so that nothing
//! in it stands at a default that a reader would leave out: every reader comes to the same bytes.
//!
//! **Trust:** the private half is a file of the service user's, for nobody else; one that others can read is not used.
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use bastle_contract::{Code, Fault};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Where the keys are told.
pub(super) const KEYS: &str = "/.well-known/jwks.json";
/// The file below the state directory.
const FILE: &str = "daemon/a2a-card.key";
/// Longest key that is read.
const MOST: u64 = 4096;
/// Signatures that are kept: the same card has the same one, so that its tag stays.
const KEPT: usize = 1024;

/// Signs cards.
pub(super) struct Signer {
    key: EcdsaKeyPair,
    id: String,
    public: Value,
    random: SystemRandom,
    made: Mutex<HashMap<Vec<u8>, String>>,
}

impl Signer {
    /// The key of this state directory; made at the first start.
    pub(super) fn load(state: &Path) -> Result<Self, Fault> {
        let path = state.join(FILE);
        let help = format!("mv {0} {0}.old", path.display());
        let fail = |why: String| {
            let what = format!("the key for cards in {} cannot be used", path.display());
            Fault::new(Code::ApiConfig, what, why).help(help.as_str())
        };
        let bytes = match read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                make(&path).map_err(|error| fail(error.to_string()))?
            }
            other => other.map_err(|error| fail(error.to_string()))?,
        };
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &bytes)
            .map_err(|error| fail(error.to_string()))?;
        let point = key.public_key().as_ref();
        let (Some([4]), Some(x), Some(y)) = (point.get(..1), point.get(1..33), point.get(33..65)) else {
            return Err(fail("it is of another kind".to_owned()));
        };
        let (x, y) = (word(x), word(y));
        // RFC 7638: the name of a key is the digest of what makes it.
        let print = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
        let id = word(digest(&SHA256, print.as_bytes()).as_ref());
        let public = json!({
            "kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": id, "use": "sig", "alg": "ES256", "key_ops": ["verify"],
        });
        Ok(Self {
            key,
            id,
            public,
            random: SystemRandom::new(),
            made: Mutex::new(HashMap::new()),
        })
    }

    /// What others verify with.
    pub(super) fn keys(&self) -> Value {
        json!({ "keys": [self.public] })
    }

    /// The card with its signature; without one where it cannot be made, as the protocol allows.
    pub(super) fn signed(&self, mut card: Value, base: &str) -> Value {
        if let Some(signature) = self.signature(&card, base) {
            card["signatures"] = json!([signature]);
        }
        card
    }

    fn signature(&self, card: &Value, base: &str) -> Option<Value> {
        let payload = bastle_audit::canonical(card)?;
        let head = json!({ "alg": "ES256", "jku": format!("{base}{KEYS}"), "kid": self.id, "typ": "JOSE" });
        let head = word(head.to_string().as_bytes());
        let input = format!("{head}.{}", word(&payload));
        let name = digest(&SHA256, input.as_bytes()).as_ref().to_vec();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = made.get(&name) {
            return Some(json!({ "protected": head, "signature": known }));
        }
        let signature = word(self.key.sign(&self.random, input.as_bytes()).ok()?.as_ref());
        if made.len() >= KEPT {
            made.clear();
        }
        made.insert(name, signature.clone());
        Some(json!({ "protected": head, "signature": signature }))
    }
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let flags = rustix::fs::OFlags::NOFOLLOW.bits();
    let file = File::options()
        .read(true)
        .custom_flags(i32::try_from(flags).unwrap_or(0))
        .open(path)?;
    let about = file.metadata()?;
    if !about.is_file() || about.mode() & 0o077 != 0 {
        return Err(std::io::Error::other("others can read it, or it is no file"));
    }
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Makes a key; it is there whole, or not at all.
fn make(path: &Path) -> std::io::Result<Vec<u8>> {
    let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
        .map_err(|error| std::io::Error::other(error.to_string()))?;
    let bytes = made.as_ref().to_vec();
    let new = path.with_extension("new");
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    Ok(bytes)
}

/// Base64 as web signatures have it: for addresses, without padding.
fn word(bytes: &[u8]) -> String {
    let text = bastle_mcp::to_base64(bytes);
    text.trim_end_matches('=').replace('+', "-").replace('/', "_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_that_others_can_read_or_that_is_none_stops_the_start_and_a_good_one_stays() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("daemon")).unwrap();
        let path = dir.path().join(FILE);
        let first = Signer::load(dir.path()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(Signer::load(dir.path()).unwrap().keys(), first.keys());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(Signer::load(dir.path()).is_err());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "no key").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(Signer::load(dir.path()).is_err());
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        assert!(Signer::load(dir.path()).is_err());
    }

    #[test]
    fn the_same_card_has_the_same_signature_and_another_has_another() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("daemon")).unwrap();
        let signer = Signer::load(dir.path()).unwrap();
        let card = json!({ "name": "a", "b": [1, { "d": 1, "c": 2 }] });
        let one = signer.signed(card.clone(), "http://x");
        assert_eq!(one, signer.signed(card.clone(), "http://x"));
        assert_ne!(one, signer.signed(card, "http://y"));
        let seal = &one["signatures"][0];
        let text = |name: &str| seal[name].as_str().unwrap();
        let plain = |word: &str| {
            let padded = word.replace('-', "+").replace('_', "/") + &"===="[..(4 - word.len() % 4) % 4];
            bastle_mcp::from_base64(&padded).unwrap()
        };
        let payload = br#"{"b":[1,{"c":2,"d":1}],"name":"a"}"#;
        let input = format!("{}.{}", text("protected"), word(payload));
        let key = UnparsedPublicKey::new(
            &ECDSA_P256_SHA256_FIXED,
            signer.key.public_key().as_ref().to_vec(),
        );
        let signature = plain(text("signature"));
        assert!(key.verify(input.as_bytes(), &signature).is_ok());
        assert!(
            key.verify(input.replace('.', "x").as_bytes(), &signature)
                .is_err()
        );
        let head: Value = serde_json::from_slice(&plain(text("protected"))).unwrap();
        assert_eq!(
            (&head["alg"], &head["jku"], &head["kid"]),
            (
                &json!("ES256"),
                &json!("http://x/.well-known/jwks.json"),
                &signer.keys()["keys"][0]["kid"]
            )
        );
    }
}
