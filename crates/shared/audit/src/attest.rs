//! Statements beside the log that are signed with its key: DSSE envelopes.
//!
//! What is signed begins with `DSSEv1`; everything the log signs begins with `bastle-audit-`. Neither can stand for the other.
use crate::AuditError;
use crate::dir::Dir;
use crate::key::{Key, KeyId, PublicKey};
use std::path::Path;

/// A signature over a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attestation {
    /// Short name of the key.
    pub key: KeyId,
    /// The public half, hexadecimal.
    pub public: String,
    /// 64 bytes.
    pub signature: Vec<u8>,
}

/// Signs a statement of a type with the key of the state directory.
pub fn attest(state: &Path, kind: &str, payload: &[u8]) -> Result<Attestation, AuditError> {
    let key = Key::load_or_create(&Dir::create(state)?)?;
    let public = key.public();
    Ok(Attestation {
        key: public.id(),
        public: public.hex(),
        signature: key.sign_bytes(&encoded(kind, payload)),
    })
}

/// The public key of the state directory, hexadecimal; `None` where nothing was ever recorded.
pub fn public_key(state: &Path) -> Result<Option<String>, AuditError> {
    let Some(dir) = Dir::open(state)? else {
        return Ok(None);
    };
    Ok(PublicKey::load(&dir)?.map(|public| public.hex()))
}

/// Whether the statement was signed by the private half of `public`. Strict: one encoding per signature.
#[must_use]
pub fn is_attested(public: &str, kind: &str, payload: &[u8], signature: &[u8]) -> bool {
    PublicKey::from_hex(public).is_some_and(|key| key.verifies_bytes(&encoded(kind, payload), signature))
}

/// DSSE's pre-authentication encoding: lengths before what they measure, so that no two pairs have one form.
fn encoded(kind: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_type_another_byte_another_key_or_a_cut_signature_is_not_attested() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let made = attest(one.path(), "text/plain", b"result").unwrap();
        let foreign = attest(other.path(), "text/plain", b"result").unwrap();
        let good = |public: &str, kind: &str, payload: &[u8], signature: &[u8]| {
            is_attested(public, kind, payload, signature)
        };
        assert!(good(&made.public, "text/plain", b"result", &made.signature));
        assert_eq!(public_key(one.path()).unwrap(), Some(made.public.clone()));
        assert!(!good(&made.public, "text/plain2", b"result", &made.signature));
        assert!(!good(&made.public, "text/plain", b"resulT", &made.signature));
        assert!(!good(&foreign.public, "text/plain", b"result", &made.signature));
        assert!(!good(
            &made.public,
            "text/plain",
            b"result",
            &made.signature[..63]
        ));
        assert!(!good("", "text/plain", b"result", &made.signature));
    }

    #[test]
    fn the_encoding_is_that_of_the_standard() {
        let example = encoded("http://example.com/HelloWorld", b"hello world");
        assert_eq!(example, b"DSSEv1 29 http://example.com/HelloWorld 11 hello world");
    }
}
