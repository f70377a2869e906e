//! Header fields that belong to one hop, and who a request says it is for.
//!
//! **Trust:** reads fields of both sides.
use super::Site;
use crate::header_name;
use bastle_policy::Host;
use http::header::{CONNECTION, HOST, HeaderMap, HeaderName, UPGRADE};
use http::{HeaderValue, Method};

/// Fields of one hop. They end here, whatever `Connection` says.
const HOP: [&str; 11] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "expect",
];

/// Fields that `Connection` cannot take out: a request without them would mean something else.
const END_TO_END: [&str; 6] = [
    "host",
    "authorization",
    "content-type",
    "content-length",
    "content-encoding",
    "cookie",
];

/// Takes out what belongs to one hop, named or not.
pub(super) fn strip_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .filter(|name| {
            !END_TO_END
                .iter()
                .any(|known| header_name::same(name.as_str(), known))
        })
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP {
        header_name::remove(headers, name);
    }
}

/// Whether a method changes nothing on a server (RFC 9110, 9.2.1).
pub(super) fn is_read(method: &Method) -> bool {
    matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS")
}

/// What a request wants to turn its connection into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Upgrade {
    None,
    WebSocket,
    Other,
}

/// Reads `Upgrade`. Only one exact value means a WebSocket.
pub(super) fn upgrade(headers: &HeaderMap) -> Upgrade {
    let mut values = headers.get_all(UPGRADE).iter();
    match (values.next(), values.next()) {
        (None, _) => Upgrade::None,
        (Some(value), None) if value.as_bytes().eq_ignore_ascii_case(b"websocket") => Upgrade::WebSocket,
        (Some(_), _) => Upgrade::Other,
    }
}

/// Whether every name that a request carries is the one of its connection. An absent one is no contradiction.
pub(super) fn names_fit(site: &Site, authority: Option<&str>, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return false;
    }
    let fields = authority
        .into_iter()
        .map(Some)
        .chain(host.map(|value| value.to_str().ok()));
    let mut any = false;
    for field in fields {
        any = true;
        if !field.is_some_and(|text| is_site(site, text)) {
            return false;
        }
    }
    any
}

/// Whether this host, with its port where it is not the usual one, is that of the connection.
pub(super) fn is_site(site: &Site, text: &str) -> bool {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) => (name, port.parse::<u16>().ok()),
        None => (text, Some(site.usual_port())),
    };
    port == Some(site.via.port) && Host::new(name).is_ok_and(|host| host == site.via.host)
}

/// The one value of a field as text; `None` where there is none or several.
pub(super) fn single<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

/// The two fields of the hop without which an upgrade is none.
pub(super) fn put_upgrade(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
}
