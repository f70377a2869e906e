//! The daemon's certificate.
use bastle_contract::{Code, Fault};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;
use std::sync::Arc;

/// Reads a chain and its key.
pub(super) fn read(certificate: &Path, key: &Path) -> Result<Arc<rustls::ServerConfig>, Fault> {
    let fault = |path: &Path, why: String| {
        Fault::new(
            Code::ApiListen,
            format!("{} cannot be used for TLS", path.display()),
            why,
        )
        .help("--tls-cert takes a chain and --tls-key its key, both as PEM")
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|error| fault(certificate, error.to_string()))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| fault(key, error.to_string()))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| fault(certificate, error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| fault(certificate, error.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
