//! Where a daemon is, and a connection to it.
use bastle_contract::{Code, Fault};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// The address of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A socket of this machine.
    Unix(PathBuf),
    /// `HOST:PORT` in the open.
    Http(String),
    /// `HOST:PORT` by TLS, its certificate checked against this machine's roots.
    Https(String),
}

/// Bytes both ways, whatever carries them.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

impl Target {
    /// Reads `unix:///PATH`, `http://HOST:PORT` or `https://HOST:PORT`.
    ///
    /// # Errors
    /// `UsageArgument` when it is none of these.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let fault = |why: &str| {
            Fault::new(
                Code::UsageArgument,
                "the address of the daemon is not understood",
                why,
            )
            .help("unix:///PATH, http://HOST:PORT or https://HOST:PORT")
        };
        if let Some(path) = text.strip_prefix("unix://") {
            let path = PathBuf::from(path);
            return match path.is_absolute() {
                true => Ok(Self::Unix(path)),
                false => Err(fault("the path of a socket is absolute")),
            };
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(|| fault("it has no scheme"))?;
        let rest = rest.trim_end_matches('/');
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        if rest.is_empty() || rest.len() > 300 || !rest.chars().all(plain) {
            return Err(fault(
                "after the scheme come a host and a port, nothing else, and no token",
            ));
        }
        let with_port = |port: u16| {
            let has = rest
                .rsplit_once(':')
                .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()));
            if has {
                rest.to_owned()
            } else {
                format!("{rest}:{port}")
            }
        };
        match scheme {
            "http" => Ok(Self::Http(with_port(7717))),
            "https" => Ok(Self::Https(with_port(443))),
            _ => Err(fault("the scheme is unix, http or https")),
        }
    }

    /// What the `host` header says.
    pub(crate) fn host(&self) -> &str {
        match self {
            Self::Unix(_) => "localhost",
            Self::Http(host) | Self::Https(host) => host,
        }
    }

    /// Connects.
    pub(crate) async fn connect(&self) -> Result<Box<dyn Duplex>, Fault> {
        match self {
            Self::Unix(path) => match tokio::net::UnixStream::connect(path).await {
                Ok(stream) => Ok(Box::new(stream)),
                Err(error) => Err(unreachable(&path.display().to_string(), &error.to_string())),
            },
            Self::Http(host) => Ok(Box::new(tcp(host).await?)),
            Self::Https(host) => {
                let name = host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name);
                let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
                let name = ServerName::try_from(name)
                    .map_err(|error| unreachable(host, &format!("no name of a server: {error}")))?;
                let config = tls(host)?;
                let stream = tcp(host).await?;
                let connector = tokio_rustls::TlsConnector::from(config);
                match connector.connect(name, stream).await {
                    Ok(stream) => Ok(Box::new(stream)),
                    Err(error) => Err(unreachable(host, &error.to_string())),
                }
            }
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Http(host) => write!(f, "http://{host}"),
            Self::Https(host) => write!(f, "https://{host}"),
        }
    }
}

/// What hyper reads and writes.
pub(crate) fn io(stream: Box<dyn Duplex>) -> TokioIo<Box<dyn Duplex>> {
    TokioIo::new(stream)
}

async fn tcp(host: &str) -> Result<tokio::net::TcpStream, Fault> {
    tokio::net::TcpStream::connect(host)
        .await
        .map_err(|error| unreachable(host, &error.to_string()))
}

fn tls(host: &str) -> Result<Arc<rustls::ClientConfig>, Fault> {
    let mut roots = rustls::RootCertStore::empty();
    // One that cannot be read is missing, and a server that needs it is not trusted.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unreachable(host, &error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

pub(super) fn unreachable(host: &str, why: &str) -> Fault {
    Fault::new(Code::ApiUnreachable, format!("no daemon answers at {host}"), why)
        .help("bastle daemon start")
        .help("another address: BASTLE_HOST=unix:///PATH or https://HOST:PORT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_a_token_a_path_or_another_scheme_is_refused() {
        for bad in [
            "",
            "localhost",
            "ftp://a",
            "http://",
            "http://u:p@host:1",
            "http://host/path",
            "https://host?token=x",
            "unix://relative",
            "unix:/x",
            "http://a b",
            "http://a\r\nx",
        ] {
            assert!(Target::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(
            Target::parse("http://127.0.0.1:7717/").unwrap(),
            Target::Http("127.0.0.1:7717".into())
        );
        assert_eq!(
            Target::parse("https://[::1]").unwrap(),
            Target::Https("[::1]:443".into())
        );
        assert_eq!(
            Target::parse("unix:///run/b.sock").unwrap(),
            Target::Unix("/run/b.sock".into())
        );
    }
}
