//! Which host and which page a request may be for: names that lead to the address from elsewhere, and pages of other
//! sites, are kept out before anything is looked at.
use super::Peer;
use crate::errors::Refusal;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use bastle_contract::Code;
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// The names this daemon answers to, and the pages that may ask it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Admission {
    hosts: BTreeSet<String>,
    origins: BTreeSet<String>,
}

impl Admission {
    /// From where it listens, and what was configured besides.
    pub(crate) fn new(listen: &[SocketAddr], secure: Secure, hosts: &[String], origins: &[String]) -> Self {
        let scheme = match secure {
            Secure::Tls => "https",
            Secure::Plain => "http",
        };
        let mut own = Self {
            hosts: BTreeSet::new(),
            origins: origins
                .iter()
                .map(|origin| origin.trim_end_matches('/').to_ascii_lowercase())
                .collect(),
        };
        for address in listen {
            let port = address.port();
            let mut names = vec![address.to_string()];
            if address.ip().is_loopback() {
                names.push(format!("localhost:{port}"));
            }
            for host in hosts {
                names.push(host.to_ascii_lowercase());
                names.push(format!("{}:{port}", host.to_ascii_lowercase()));
            }
            for name in names {
                own.origins.insert(format!("{scheme}://{name}"));
                own.hosts.insert(name);
            }
        }
        own
    }

    /// Whether the request is for this daemon and from no foreign page.
    pub(crate) fn check(&self, peer: Option<&Peer>, request: &Request) -> Result<(), Refusal> {
        let network = match peer {
            Some(Peer::Local(_)) => false,
            Some(Peer::Network(_)) => true,
            None => return Err(refused("the peer is unknown")),
        };
        let headers = request.headers();
        if network {
            let mut named = headers.get_all(header::HOST).iter();
            let host = match (named.next(), named.next()) {
                (Some(host), None) => host.to_str().map_err(|_| refused("the host cannot be read"))?,
                (None, _) | (_, Some(_)) => {
                    return Err(refused("a request names one host").status(StatusCode::BAD_REQUEST));
                }
            };
            let in_uri = request.uri().authority().map(|authority| authority.as_str());
            for name in [Some(host), in_uri].into_iter().flatten() {
                if !self.hosts.contains(&name.to_ascii_lowercase()) {
                    return Err(refused("this daemon has another name"));
                }
            }
        }
        for origin in headers.get_all(header::ORIGIN) {
            let known = origin
                .to_str()
                .is_ok_and(|origin| self.origins.contains(&origin.to_ascii_lowercase()));
            if !known || !network {
                return Err(refused("pages of other sites are not served"));
            }
        }
        // A browser says by itself that a page of another site asks, also where it sends no origin.
        let site = headers.get("sec-fetch-site").and_then(|site| site.to_str().ok());
        match site {
            None | Some("same-origin" | "none") => Ok(()),
            Some(_) if headers.contains_key(header::ORIGIN) => Ok(()),
            Some(_) => Err(refused("pages of other sites are not served")),
        }
    }
}

/// Whether connections are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Secure {
    /// By TLS.
    Tls,
    /// Not.
    Plain,
}

fn refused(why: &str) -> Refusal {
    Refusal::new(
        Code::ApiOrigin,
        "the request is for another host or from another site",
        why,
    )
    .help("use the address that bastle serve printed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn check(peer: &Peer, uri: &str, pairs: &[(&str, &str)]) -> bool {
        let admission = Admission::new(
            &["127.0.0.1:7717".parse().unwrap()],
            Secure::Plain,
            &["box.example".to_owned()],
            &["https://ui.example".to_owned()],
        );
        let mut request = Request::builder().uri(uri);
        for (name, value) in pairs {
            request = request.header(*name, *value);
        }
        admission
            .check(Some(peer), &request.body(Body::empty()).unwrap())
            .is_ok()
    }

    #[test]
    fn a_foreign_name_or_page_is_refused_and_the_daemons_own_is_not() {
        let peer = Peer::Network("127.0.0.1".parse().unwrap());
        for bad in [
            &[][..],
            &[("host", "evil.example")],
            &[("host", "evil.example:7717")],
            &[("host", "localhost.evil.tld:7717")],
            &[("host", "127.0.0.1")],
            &[("host", "127.0.0.1:7717"), ("host", "127.0.0.1:7717")],
            &[("host", "127.0.0.1:7717"), ("origin", "null")],
            &[
                ("host", "127.0.0.1:7717"),
                ("origin", "http://localhost.evil.tld"),
            ],
            &[("host", "127.0.0.1:7717"), ("origin", "http://localhost:7718")],
            &[("host", "127.0.0.1:7717"), ("origin", "https://127.0.0.1:7717")],
            &[("host", "127.0.0.1:7717"), ("sec-fetch-site", "cross-site")],
        ] {
            assert!(!check(&peer, "/", bad), "{bad:?}");
        }
        assert!(!check(
            &peer,
            "http://evil.example/",
            &[("host", "127.0.0.1:7717")]
        ));
        for good in [
            &[("host", "127.0.0.1:7717")][..],
            &[("host", "LOCALHOST:7717")],
            &[("host", "box.example")],
            &[("host", "box.example:7717")],
            &[("host", "127.0.0.1:7717"), ("origin", "http://localhost:7717")],
            &[("host", "127.0.0.1:7717"), ("origin", "https://ui.example")],
        ] {
            assert!(check(&peer, "/", good), "{good:?}");
        }
        let local = Peer::Local(0);
        assert!(check(&local, "/", &[("host", "anything")]));
        assert!(
            !check(&local, "/", &[("origin", "https://ui.example")]),
            "no page has the socket"
        );
    }
}
