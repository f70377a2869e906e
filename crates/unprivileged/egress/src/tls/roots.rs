//! The handshake with a server, and the certificates it is checked against.
//!
//! **Trust:** the host's own trust store (or `SSL_CERT_FILE`), read once before this process loses its file system.
//! Servers' certificates are checked for the name that policy judged; there is no way to switch that off.
use super::{H2, HTTP11, provider};
use bastle_policy::Host;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

static LOADED: OnceLock<Store> = OnceLock::new();

/// Where systems keep their whole store as one file.
const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Largest one that is read as it is: ten times that of a current system.
const MOST_BUNDLE: u64 = 4 * 1024 * 1024;

/// The host's trust store as it was read.
enum Store {
    /// One file, not looked into: most runs speak to no server by themselves.
    Bundle(Vec<u8>),
    /// Everything that could be found.
    Certificates(Vec<CertificateDer<'static>>),
}

impl Store {
    /// What the environment names, else the system's.
    fn read() -> Self {
        let named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].map(std::env::var_os);
        let [file, directories] = named.each_ref().map(Option::as_deref);
        bundle(file, directories)
            .and_then(|path| read_bundle(&path))
            .map_or_else(
                || Self::Certificates(rustls_native_certs::load_native_certs().certs),
                Self::Bundle,
            )
    }

    fn certificates(&self) -> Vec<CertificateDer<'static>> {
        match self {
            // A damaged one is left out, as in a store of single files.
            Self::Bundle(bytes) => CertificateDer::pem_slice_iter(bytes).flatten().collect(),
            Self::Certificates(certificates) => certificates.clone(),
        }
    }
}

/// The one file that is the whole store, if there is one. A system makes its bundle of the directory it lies in, so
/// the two together would be the same certificates twice, in a hundred files.
fn bundle(file: Option<&OsStr>, directories: Option<&OsStr>) -> Option<PathBuf> {
    match (file, directories) {
        (Some(file), None) => Some(PathBuf::from(file)),
        (Some(file), Some(directories)) => {
            let file = PathBuf::from(file);
            let beside =
                std::env::split_paths(directories).all(|directory| file.parent() == Some(&*directory));
            beside.then_some(file)
        }
        (None, Some(_)) => None,
        (None, None) => BUNDLES.iter().map(PathBuf::from).find(|path| path.is_file()),
    }
}

/// `None`: it is not what its name says.
fn read_bundle(path: &Path) -> Option<Vec<u8>> {
    let file = std::fs::File::open(path).ok()?;
    // As long as it is, and a byte to see its end: growing step by step copies it many times.
    let length = file.metadata().map_or(0, |meta| meta.len().min(MOST_BUNDLE)) + 1;
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
    file.take(MOST_BUNDLE + 1).read_to_end(&mut bytes).ok()?;
    let begins = b"-----BEGIN CERTIFICATE-----";
    let is_one = bytes.len() as u64 <= MOST_BUNDLE && bytes.windows(begins.len()).any(|part| part == begins);
    is_one.then_some(bytes)
}

/// What is offered to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocols {
    /// HTTP/2, else HTTP/1.1.
    Any,
    /// HTTP/1.1 only: an upgrade needs it.
    Http1,
}

/// Reads the host's trust store. To be called before the process gives up its file system; it is parsed when the first
/// server is checked.
pub fn preload_roots() {
    LOADED.get_or_init(Store::read);
}

fn config(protocols: Protocols) -> Result<Arc<ClientConfig>, String> {
    static ANY: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    static HTTP1: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let (slot, offered) = match protocols {
        Protocols::Any => (&ANY, vec![H2.to_vec(), HTTP11.to_vec()]),
        Protocols::Http1 => (&HTTP1, vec![HTTP11.to_vec()]),
    };
    if let Some(known) = slot.get() {
        return Ok(Arc::clone(known));
    }
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(LOADED.get_or_init(Store::read).certificates());
    #[cfg(test)]
    store.add_parsable_certificates([testing::authority().certificate.clone()]);
    if store.is_empty() {
        return Err("the host's trust store is empty, so no server can be checked".to_owned());
    }
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(store)
        .with_no_client_auth();
    config.alpn_protocols = offered;
    Ok(Arc::clone(slot.get_or_init(|| Arc::new(config))))
}

/// Speaks TLS with the server `host` and says whether it chose HTTP/2.
pub(crate) async fn connect<S>(
    host: &Host,
    protocols: Protocols,
    stream: S,
) -> Result<(TlsStream<S>, bool), String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let name = ServerName::try_from(host.as_str().to_owned()).map_err(|error| error.to_string())?;
    let connector = TlsConnector::from(config(protocols)?);
    let stream = connector
        .connect(name, stream)
        .await
        .map_err(|error| error.to_string())?;
    let h2 = stream.get_ref().1.alpn_protocol() == Some(H2);
    Ok((stream, h2))
}

/// An authority that servers of the tests have their certificates from.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    use rustls::ServerConfig;
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

    pub(crate) struct TestAuthority {
        pub(crate) certificate: CertificateDer<'static>,
        params: CertificateParams,
        key: KeyPair,
    }

    pub(crate) fn authority() -> &'static TestAuthority {
        static AUTHORITY: OnceLock<TestAuthority> = OnceLock::new();
        AUTHORITY.get_or_init(|| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let certificate = params.self_signed(&key).unwrap().der().clone();
            TestAuthority {
                certificate,
                params,
                key,
            }
        })
    }

    /// A server that is `name` and offers these protocols.
    pub(crate) fn server(name: &str, protocols: &[&[u8]]) -> Arc<ServerConfig> {
        let authority = authority();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let leaf = params
            .signed_by(&key, &Issuer::from_params(&authority.params, &authority.key))
            .unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
        Arc::new(config)
    }

    /// A client that trusts only this certificate, as a toolchain inside does.
    pub(crate) fn client(pem: &str, protocols: &[&[u8]]) -> Arc<ClientConfig> {
        let mut store = RootCertStore::empty();
        store
            .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
            .unwrap();
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(store)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
        Arc::new(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_directory_that_the_bundle_does_not_lie_in_is_not_left_out() {
        let os = |text: &'static str| Some(OsStr::new(text));
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(bundle(os("/a/own.pem"), None), path("/a/own.pem"));
        assert_eq!(bundle(os("/a/own.pem"), os("/a")), path("/a/own.pem"));
        for elsewhere in ["/b", "/a:/b", "/a/b", "/"] {
            assert_eq!(bundle(os("/a/own.pem"), os(elsewhere)), None, "{elsewhere}");
        }
        assert_eq!(bundle(None, os("/a")), None);
    }

    #[test]
    fn a_file_without_a_certificate_is_no_store_and_a_damaged_certificate_is_left_out() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("store.pem");
        for text in [
            String::new(),
            "nothing".to_owned(),
            "-----BEGIN RSA-----".to_owned(),
        ] {
            std::fs::write(&file, &text).unwrap();
            assert_eq!(read_bundle(&file), None, "{text}");
        }
        let whole = "-----BEGIN CERTIFICATE-----\nTWFu\n-----END CERTIFICATE-----\n";
        let damaged = "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n";
        std::fs::write(&file, format!("x\n{whole}{damaged}{whole}")).unwrap();
        let store = Store::Bundle(read_bundle(&file).expect("is one"));
        let found: Vec<Vec<u8>> = store.certificates().iter().map(|one| one.to_vec()).collect();
        assert!(
            !found.is_empty() && found.iter().all(|one| one == b"Man"),
            "{found:?}"
        );
        std::fs::write(&file, vec![b'x'; usize::try_from(MOST_BUNDLE).unwrap() + 1]).unwrap();
        assert_eq!(read_bundle(&file), None);
        assert_eq!(read_bundle(&place.path().join("none")), None);
    }
}
