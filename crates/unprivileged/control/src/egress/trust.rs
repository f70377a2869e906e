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

/// What the sandbox gets. Without an authority of the run nothing is needed, unless bastle itself was told where the
/// host's certificates are: clients inside then need to be told too.
pub(crate) fn material(
    authority: Option<&str>,
    placeholders: Vec<(EnvName, String)>,
    decoy: Option<String>,
) -> EgressMaterial {
    let named = std::env::var_os("SSL_CERT_FILE");
    if authority.is_none() && named.is_none() {
        return EgressMaterial {
            bundle: None,
            trust_store: None,
            placeholders,
            decoy,
        };
    }
    let host = named
        .as_deref()
        .map(Path::new)
        .into_iter()
        .chain(BUNDLES.iter().map(Path::new))
        .find_map(read);
    let mut bundle = host.unwrap_or_default();
    if !bundle.is_empty() && !bundle.ends_with('\n') {
        bundle.push('\n');
    }
    bundle.push_str(authority.unwrap_or_default());
    let store = key_store(&certificates(&bundle));
    EgressMaterial {
        bundle: Some(bundle.into_bytes()),
        trust_store: Some(store),
        placeholders,
        decoy,
    }
}

fn read(path: &Path) -> Option<String> {
    use std::io::Read;
    let file = std::fs::File::open(path).ok()?;
    let mut text = String::new();
    file.take(MOST_BUNDLE).read_to_string(&mut text).ok()?;
    text.contains(BEGIN).then_some(text)
}

/// The certificates of a bundle, as DER; a damaged one is left out.
fn certificates(bundle: &str) -> Vec<Vec<u8>> {
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
        assert_eq!(certificates(&bundle), vec![b"ManMa".to_vec()]);
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
