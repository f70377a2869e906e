//! What a plan gets when an egress process decides about its requests: faces, resolver, variables, roots of trust.
//!
//! **Trust:** certificates and placeholders come from control. A placeholder is worth nothing outside the run; the
//! secrets themselves never come near a plan.
use super::{PlanLine, Planned, built_in};
use crate::net::NetPolicy;
use bastle_contract::egress::{Faces, MAX_TRANSPARENT, PROXY_PORT, SOCKS_PORT};
use bastle_contract::{
    AbsPath, Access, Code, Digest, EnvName, Fault, Guarantee, LandlockRule, Mechanism, Mount, MountKind,
    Network,
};

/// Where files made for egress are inside: a directory of the constructed root, whatever of /etc is granted.
const DIRECTORY: &str = "/run/bastle";
const BUNDLE: &str = "/run/bastle/ca-bundle.pem";
const TRUST_STORE: &str = "/run/bastle/trust.jks";
/// The password that every Java installation has for its trust store; it protects nothing.
const STORE_PASSWORD: &str = "changeit";

/// Where the decoy credential lies.
const DECOY: &str = "/home/agent/.aws/credentials";

/// Variables that name a file of trusted certificates, one for each toolchain that does not ask the system.
const BUNDLE_VARIABLES: &[&str] = &[
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "NPM_CONFIG_CAFILE",
    "DENO_CERT",
    "AWS_CA_BUNDLE",
    "NIX_SSL_CERT_FILE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
];

/// What control found and made for a run with egress.
#[derive(Clone, Debug, Default)]
pub struct EgressMaterial {
    /// Trusted certificates (PEM): the host's and the run's own; `None` where the host's own files do.
    pub bundle: Option<Vec<u8>>,
    /// The same for Java.
    pub trust_store: Option<Vec<u8>>,
    /// Variables that hold a placeholder for a secret.
    pub placeholders: Vec<(EnvName, String)>,
    /// A file with a decoy credential.
    pub decoy: Option<String>,
}

impl Planned {
    /// Puts the faces of egress into the plan; gives back the attachments that travel beside it, empty for none.
    pub fn with_egress(&mut self, net: &NetPolicy, material: EgressMaterial) -> Result<Vec<u8>, Fault> {
        let mut transparent = net.transparent_ports();
        transparent.truncate(MAX_TRANSPARENT);
        self.plan.network = Network::Egress(Faces { transparent });
        for mount in &mut self.plan.mounts {
            if let (Some(contents), MountKind::File { .. }) = (made(mount.at.as_str()), &mount.kind) {
                mount.kind = MountKind::File {
                    contents: contents.to_owned(),
                };
            }
        }
        let EgressMaterial {
            bundle,
            trust_store,
            placeholders,
            decoy,
        } = material;
        self.proxies();
        let attachments = self.certificates(bundle.as_deref(), trust_store.as_deref())?;
        for (name, placeholder) in placeholders {
            // Whatever the environment had under this name: a real value must not get inside.
            self.plan.env.retain(|(known, _)| *known != name);
            self.listing.push(PlanLine {
                section: "secrets".to_owned(),
                rule: name.as_str().to_owned(),
                origin: built_in(),
                mechanism: Mechanism::Proxy,
                probe: None,
                note: "the agent sees a placeholder".to_owned(),
            });
            self.plan.env.push((name, placeholder));
        }
        if let Some(decoy) = decoy {
            self.decoy(decoy)?;
        }
        self.plan.env.sort();
        self.plan.check().map_err(|error| {
            Fault::new(
                Code::FenceStep,
                "the network rules compile to a plan that nobody can execute",
                error.to_string(),
            )
        })?;
        Ok(attachments)
    }

    /// Puts the decoy where thieves look. A person who shows something of her own there keeps it.
    fn decoy(&mut self, contents: String) -> Result<(), Fault> {
        let at = AbsPath::new(DECOY).map_err(|error| {
            Fault::new(Code::FenceStep, "a built-in path is malformed", error.to_string())
        })?;
        let scratch = |mount: &Mount| matches!(mount.kind, MountKind::Scratch { .. });
        let taken = |mount: &Mount| mount.at.is_within(&at) || (at.is_within(&mount.at) && !scratch(mount));
        let directory = at.parent();
        let shown = |mount: &Mount| directory.as_ref().is_some_and(|own| mount.at.is_within(own));
        let home = self
            .plan
            .mounts
            .iter()
            .any(|mount| scratch(mount) && at.is_within(&mount.at));
        if !home || self.plan.mounts.iter().any(|mount| taken(mount) || shown(mount)) {
            return Ok(());
        }
        self.plan.mounts.push(Mount {
            at,
            kind: MountKind::File { contents },
        });
        self.listing.push(PlanLine {
            section: "audit.canary".to_owned(),
            rule: DECOY.to_owned(),
            origin: built_in(),
            mechanism: Mechanism::Proxy,
            probe: None,
            note: "a decoy credential; a request that carries it is refused and told".to_owned(),
        });
        Ok(())
    }

    /// Sets a variable that the policy and the command line left alone.
    fn offer(&mut self, name: &str, value: &str) {
        let Ok(name) = EnvName::try_from(name.to_owned()) else {
            return;
        };
        if !self.plan.env.iter().any(|(known, _)| *known == name) {
            self.plan.env.push((name, value.to_owned()));
        }
    }

    fn proxies(&mut self) {
        let http = format!("http://127.0.0.1:{PROXY_PORT}");
        // The names travel to the proxy: nothing is resolved inside.
        let socks = format!("socks5h://127.0.0.1:{SOCKS_PORT}");
        let own = "localhost,127.0.0.1,::1";
        for (name, value) in [
            ("HTTP_PROXY", http.as_str()),
            ("HTTPS_PROXY", &http),
            ("ALL_PROXY", &socks),
            ("NO_PROXY", own),
        ] {
            self.offer(name, value);
            self.offer(&name.to_ascii_lowercase(), value);
        }
        self.offer("NODE_USE_ENV_PROXY", "1");
    }

    fn certificates(&mut self, bundle: Option<&[u8]>, store: Option<&[u8]>) -> Result<Vec<u8>, Fault> {
        let length = [bundle, store].into_iter().flatten().map(<[u8]>::len).sum();
        let mut attachments = Vec::with_capacity(length);
        for (place, bytes) in [(BUNDLE, bundle), (TRUST_STORE, store)] {
            let Some(bytes) = bytes else { continue };
            self.plan.mounts.push(Mount {
                at: constant(place)?,
                kind: MountKind::Attached {
                    offset: attachments.len() as u64,
                    length: bytes.len() as u64,
                },
            });
            attachments.extend_from_slice(bytes);
        }
        if attachments.is_empty() {
            return Ok(attachments);
        }
        let digest = blake3::hash(&attachments).to_hex().to_string();
        self.plan.attachments = Some(Digest::try_from(digest).map_err(|error| {
            Fault::new(
                Code::FenceStep,
                "cannot digest the attachments",
                error.to_string(),
            )
        })?);
        self.plan.landlock.push(LandlockRule {
            path: constant(DIRECTORY)?,
            access: Access::ReadOnly,
        });
        self.plan.landlock.sort_by(|a, b| a.path.cmp(&b.path));
        if bundle.is_some() {
            for name in BUNDLE_VARIABLES {
                self.offer(name, BUNDLE);
            }
        }
        if store.is_some() {
            self.offer("JAVA_TOOL_OPTIONS", &java_options());
        }
        self.listing.push(PlanLine {
            section: "net".to_owned(),
            rule: DIRECTORY.to_owned(),
            origin: built_in(),
            mechanism: Mechanism::Mount,
            probe: Some(Guarantee::ReadsConfined),
            note: "certificates that clients inside trust, the run's own among them".to_owned(),
        });
        Ok(attachments)
    }
}

/// Files of the constructed root that say otherwise when there is a resolver.
fn made(place: &str) -> Option<&'static str> {
    match place {
        "/etc/resolv.conf" => Some("nameserver 127.0.0.1\noptions timeout:5 attempts:2\n"),
        "/etc/nsswitch.conf" => Some(
            "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\nprotocols: files\nnetworks: files\n",
        ),
        _ => None,
    }
}

/// The JVM asks neither the system nor the usual variables.
fn java_options() -> String {
    format!(
        "-Djavax.net.ssl.trustStore={TRUST_STORE} -Djavax.net.ssl.trustStoreType=JKS \
         -Djavax.net.ssl.trustStorePassword={STORE_PASSWORD} \
         -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort={PROXY_PORT} \
         -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={PROXY_PORT} \
         -Dhttp.nonProxyHosts=localhost|127.0.0.1"
    )
}

fn constant(path: &str) -> Result<AbsPath, Fault> {
    AbsPath::new(path)
        .map_err(|error| Fault::new(Code::FenceStep, "a built-in path is malformed", error.to_string()))
}
