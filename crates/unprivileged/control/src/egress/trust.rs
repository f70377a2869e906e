//! The certificates that clients inside trust: the host's own and the run's authority, for OpenSSL-like tools as one
//! PEM file, for Java as a key store.
use aws_lc_rs::digest;
use bastle_contract::EnvName;
use bastle_policy::EgressMaterial;
use std::path::Path;

/// Where systems keep their bundle of trusted certificates.
const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Largest bundle that is read: ten times that of a current system.
const MOST_BUNDLE: u64 = 4 * 1024 * 1024;
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";
/// What Java mixes into the digest of a store beside the password.
const WHITENER: &[u8] = b"Mighty Aphrodite";
const STORE_PASSWORD: &str = "changeit";

/// The host's part of what clients inside trust.
#[derive(Default)]
pub(crate) struct Trusted {
    /// Read already: bastle itself was told where the host's certificates are, so clients inside need to be told too.
    told: Option<Host>,
}

/// The host's own certificates.
#[derive(Default)]
struct Host {
    bundle: String,
    certificates: Vec<Vec<u8>>,
}

impl Trusted {
    /// Reads what is needed whatever egress answers, so that it is there when the answer comes.
    pub(crate) fn look() -> Self {
        Self {
            told: std::env::var_os("SSL_CERT_FILE").map(|named| Host::read(Some(Path::new(&named)))),
        }
    }

    /// What the sandbox gets. Without an authority of the run nothing is needed, unless bastle itself was told.
    pub(crate) fn with(
        self,
        authority: Option<&str>,
        placeholders: Vec<(EnvName, String)>,
        decoy: Option<String>,
    ) -> EgressMaterial {
        let host = match (self.told, authority) {
            (Some(host), _) => host,
            (None, Some(_)) => Host::read(None),
            (None, None) => {
                return EgressMaterial {
                    bundle: None,
                    trust_store: None,
                    placeholders,
                    decoy,
                };
            }
        };
        let Host {
            mut bundle,
            mut certificates,
        } = host;
        if let Some(authority) = authority {
            bundle.push_str(authority);
            certificates.extend(taken_apart(authority));
        }
        EgressMaterial {
            trust_store: Some(key_store(&certificates)),
            bundle: Some(bundle.into_bytes()),
            placeholders,
            decoy,
        }
    }
}

impl Host {
    /// From the file that was named, else from where systems have it.
    fn read(named: Option<&Path>) -> Self {
        let places = named.into_iter().chain(BUNDLES.iter().map(Path::new));
        let mut bundle = places.filter_map(read).next().unwrap_or_default();
        if !bundle.is_empty() && !bundle.ends_with('\n') {
            bundle.push('\n');
        }
        let certificates = taken_apart(&bundle);
        Self { bundle, certificates }
    }
}

fn read(path: &Path) -> Option<String> {
    use std::io::Read;
    let file = std::fs::File::open(path).ok()?;
    // As long as it is, and a byte to see its end: growing step by step copies it many times.
    let length = file.metadata().map_or(0, |meta| meta.len().min(MOST_BUNDLE)) + 1;
    let mut text = String::with_capacity(usize::try_from(length).unwrap_or_default());
    file.take(MOST_BUNDLE).read_to_string(&mut text).ok()?;
    text.contains(BEGIN).then_some(text)
}

/// The certificates of a bundle, as DER; a damaged one is left out.
fn taken_apart(bundle: &str) -> Vec<Vec<u8>> {
    bundle
        .split(BEGIN)
        .skip(1)
        .filter_map(|part| part.split(END).next())
        .filter_map(base64)
        .collect()
}

/// What each letter of base64 stands for; 64 is skipped, 65 is no letter of it.
const VALUES: [u8; 256] = {
    let mut values = [65; 256];
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut value = 0;
    while value < letters.len() {
        values[letters[value] as usize] = value as u8;
        value += 1;
    }
    let skipped = b" \t\n\x0c\r=";
    let mut index = 0;
    while index < skipped.len() {
        values[skipped[index] as usize] = 64;
        index += 1;
    }
    values
};

fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut held) = (0u32, 0u32);
    for letter in text.bytes() {
        match VALUES[usize::from(letter)] {
            64 => continue,
            65.. => return None,
            value => bits = bits << 6 | u32::from(value),
        }
        held += 6;
        if held >= 8 {
            held -= 8;
            // Only the eight bits that are complete; the rest waits for the next letter.
            bytes.push((bits >> held & 0xff) as u8);
        }
    }
    (!bytes.is_empty()).then_some(bytes)
}

/// A Java key store (JKS, version 2) of trusted certificates: big-endian, ended by a digest over password and content.
fn key_store(certificates: &[Vec<u8>]) -> Vec<u8> {
    let mut store = Vec::new();
    store.extend(0xfeed_feed_u32.to_be_bytes());
    store.extend(2u32.to_be_bytes());
    let count = u32::try_from(certificates.len()).unwrap_or(0);
    store.extend(count.to_be_bytes());
    for (index, certificate) in certificates.iter().enumerate().take(count as usize) {
        // 2: a trusted certificate. The alias and the kind are counted strings, the time is of no meaning.
        store.extend(2u32.to_be_bytes());
        counted(&mut store, &format!("bastle-{index}"));
        store.extend(0u64.to_be_bytes());
        counted(&mut store, "X.509");
        store.extend(u32::try_from(certificate.len()).unwrap_or(0).to_be_bytes());
        store.extend(certificate);
    }
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    for letter in STORE_PASSWORD.encode_utf16() {
        context.update(&letter.to_be_bytes());
    }
    context.update(WHITENER);
    context.update(&store);
    store.extend(context.finish().as_ref());
    store
}

fn counted(store: &mut Vec<u8>, text: &str) {
    store.extend(u16::try_from(text.len()).unwrap_or(0).to_be_bytes());
    store.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_taken_apart_and_a_damaged_certificate_is_left_out() {
        let bundle = format!("x\n{BEGIN}\nTWFu\nTWE=\n{END}\n{BEGIN}\n!!\n{END}\n{BEGIN}\n{END}\n");
        assert_eq!(taken_apart(&bundle), vec![b"ManMa".to_vec()]);
    }

    #[test]
    fn the_authority_of_a_run_is_added_to_what_was_read_before_it_was_there() {
        let host = Host {
            bundle: format!("{BEGIN}\nTWFu\n{END}\n"),
            certificates: vec![b"Man".to_vec()],
        };
        let authority = format!("{BEGIN}\nTWFh\n{END}\n");
        let told = Trusted { told: Some(host) };
        let made = told.with(Some(&authority), Vec::new(), None);
        let bundle = String::from_utf8(made.bundle.unwrap()).unwrap();
        assert_eq!(bundle, format!("{BEGIN}\nTWFu\n{END}\n{authority}"));
        assert_eq!(taken_apart(&bundle), [b"Man".to_vec(), b"Maa".to_vec()]);
        assert_eq!(made.trust_store, Some(key_store(&taken_apart(&bundle))));
        // Nobody told, nothing to look into: nothing is shown inside.
        let made = Trusted::default().with(None, Vec::new(), None);
        assert!(made.bundle.is_none() && made.trust_store.is_none());
    }

    #[test]
    fn a_key_store_has_the_layout_java_reads() {
        let store = key_store(&[vec![1, 2, 3]]);
        assert_eq!(store[..12], [0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 1]);
        assert_eq!(store.len(), 12 + 4 + 2 + 8 + 8 + 2 + 5 + 4 + 3 + 20);
        // The digest guards the content: another certificate, another digest.
        let other = key_store(&[vec![1, 2, 4]]);
        assert_ne!(store[store.len() - 20..], other[other.len() - 20..]);
    }
}
