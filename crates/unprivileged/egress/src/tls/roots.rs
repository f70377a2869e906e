//! The handshake with a server, and the certificates it is checked against.
//!
//! **Trust:** the host's own trust store (or `SSL_CERT_FILE`), read once before this process loses its file system.
//! Servers' certificates are checked for the name that policy judged; there is no way to switch that off.
use super::{H2, HTTP11, provider};
use bastle_policy::Host;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::sync::{Arc, OnceLock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

static LOADED: OnceLock<Vec<CertificateDer<'static>>> = OnceLock::new();

/// What is offered to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocols {
    /// HTTP/2, else HTTP/1.1.
    Any,
    /// HTTP/1.1 only: an upgrade needs it.
    Http1,
}

/// Reads the host's trust store and says how many certificates it holds. To be called before the process gives up
/// its file system; they are parsed when the first server is checked.
pub fn preload_roots() -> usize {
    LOADED
        .get_or_init(|| rustls_native_certs::load_native_certs().certs)
        .len()
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
    preload_roots();
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(LOADED.get().into_iter().flatten().cloned());
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
        use rustls::pki_types::pem::PemObject;
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
