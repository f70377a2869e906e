//! The certificate authority of one run: made when the run starts, gone with it.
//!
//! **Trust:** its key never leaves this process but in memory that control keeps for the process's successor, and is
//! overwritten when the run ends. Its certificate is trusted inside that run's sandbox only, may sign hosts but no further authority, and holds for thirty days.
use super::{H2, HTTP11, provider};
use crate::link::read_document;
use bastle_contract::{Code, Fault, RunId};
use bastle_policy::Host;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use zeroize::{Zeroize, Zeroizing};

/// Hosts whose certificates are kept. A run speaks to a few dozen; a flood of names starts the list anew.
const MAX_LEAVES: usize = 1_024;
/// How long before now a certificate already holds, for clocks inside that are behind.
const BEFORE: Duration = Duration::from_secs(3_600);
/// How long it holds. Runs are over by then.
const AFTER: Duration = Duration::from_secs(30 * 24 * 3_600);

/// The authority of one run.
pub(crate) struct Authority {
    params: CertificateParams,
    name: String,
    key: KeyPair,
    /// One key for all hosts: it is as secret as the authority's own, and making one for each would only cost time.
    leaf_key: KeyPair,
    certificate: CertificateDer<'static>,
    pem: String,
    leaves: Mutex<HashMap<Host, Arc<ServerConfig>>>,
}

impl Authority {
    /// A new one, named after the run.
    pub(crate) fn new(run: &RunId) -> Result<Self, Fault> {
        Self::make(run).map_err(fault)
    }

    /// The same one in another process: in memory that nobody can change, to be kept by control.
    pub(crate) fn sealed(&self) -> io::Result<OwnedFd> {
        let kept = Kept {
            name: self.name.clone(),
            certificate: self.pem.clone(),
            key: self.key.serialize_pem(),
        };
        let bytes = Zeroizing::new(serde_json::to_vec(&kept).map_err(io::Error::other)?);
        bastle_contract::seal("bastle-authority", &bytes)
    }

    /// The one that a process before this one had.
    pub(crate) fn restored(document: &OwnedFd) -> io::Result<Self> {
        let kept: Kept = read_document(document)?;
        // What is wrong with it is not told: the text might quote the key.
        let unusable = |_| io::Error::other("the kept authority is unusable");
        let key = KeyPair::from_pem(&kept.key).map_err(unusable)?;
        let certificate = CertificateDer::from_pem_slice(kept.certificate.as_bytes())
            .map_err(|_| io::Error::other("the kept authority has no certificate"))?;
        let leaf_key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(unusable)?;
        Ok(Self {
            params: params(&kept.name),
            name: kept.name.clone(),
            pem: kept.certificate.clone(),
            certificate,
            key,
            leaf_key,
            leaves: Mutex::default(),
        })
    }

    fn make(run: &RunId) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let leaf_key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let name = format!("bastle run {}", run.as_str());
        let params = params(&name);
        let certificate = params.self_signed(&key)?;
        Ok(Self {
            pem: certificate.pem(),
            certificate: certificate.der().clone(),
            params,
            name,
            key,
            leaf_key,
            leaves: Mutex::default(),
        })
    }

    /// Its certificate, for the sandbox's trust stores.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// How to answer as `host`.
    pub(crate) fn server(&self, host: &Host) -> Result<Arc<ServerConfig>, Fault> {
        let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = leaves.get(host) {
            return Ok(Arc::clone(known));
        }
        if leaves.len() >= MAX_LEAVES {
            leaves.clear();
        }
        let config = Arc::new(self.leaf(host)?);
        leaves.insert(host.clone(), Arc::clone(&config));
        Ok(config)
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.leaves.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn leaf(&self, host: &Host) -> Result<ServerConfig, Fault> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        // The name proper stands in the alternative names; this one is for people and has a limit of 64.
        if host.as_str().len() <= 64 {
            params.distinguished_name.push(DnType::CommonName, host.as_str());
        }
        params.subject_alt_names = vec![match host.as_str().parse() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(host.as_str().try_into().map_err(fault)?),
        }];
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        set_lifetime(&mut params);
        let issuer = Issuer::from_params(&self.params, &self.key);
        let leaf = params.signed_by(&self.leaf_key, &issuer).map_err(fault)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.leaf_key.serialize_der()));
        let chain = vec![leaf.der().clone(), self.certificate.clone()];
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(fault)?;
        config.alpn_protocols = vec![H2.to_vec(), HTTP11.to_vec()];
        Ok(config)
    }
}

/// What is written down of an authority.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    name: String,
    certificate: String,
    key: String,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

/// What an authority of this name may do.
fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_lifetime(&mut params);
    params
}

fn set_lifetime(params: &mut CertificateParams) {
    let now = SystemTime::now();
    params.not_before = now.checked_sub(BEFORE).unwrap_or(now).into();
    params.not_after = now.checked_add(AFTER).unwrap_or(now).into();
}

fn fault(why: impl fmt::Display) -> Fault {
    Fault::new(
        Code::NetProtocol,
        "the run's certificate authority cannot sign",
        why.to_string(),
    )
}

impl Drop for Authority {
    fn drop(&mut self) {
        self.key.zeroize();
        self.leaf_key.zeroize();
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}
