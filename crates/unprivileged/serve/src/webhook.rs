//! Somebody elsewhere who is told about questions and states: signed, to addresses the operator wrote down, and only so
//! often tried.
//!
//! **Trust:** what is sent holds text of agents; the receiver is the operator's. Its answer is not read beyond the
//! status, and a redirect is not followed.
use crate::client::Target;
use crate::dto::EventForm;
use crate::options::Webhook;
use aws_lc_rs::hmac;
use bastle_contract::{Code, Fault};
use bastle_control::fleet::StoredEvent;
use bytes::Bytes;
use http::{Request, header};
use http_body_util::Full;
use std::io::Read;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long one attempt may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Pauses between attempts; after the last the event is given up.
pub(crate) const PAUSES: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
];

/// Where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    target: Target,
    path: String,
}

impl Address {
    /// Reads `https://HOST[:PORT]/PATH`, or `http://` of this machine.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("it has no scheme")?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let plain = |c: char| c.is_ascii_graphic() && !"\"<>\\^`{|}#".contains(c);
        if path.len() > 2000 || !path.chars().all(plain) {
            return Err("the path has characters that none has".to_owned());
        }
        let port = if scheme == "http" && !host.contains(':') {
            ":80"
        } else {
            ""
        };
        let target = Target::parse(&format!("{scheme}://{host}{port}")).map_err(|fault| fault.why)?;
        match &target {
            Target::Https(_) => {}
            Target::Http(host) if is_here(host) => {}
            Target::Http(_) => return Err("in the open only within this machine".to_owned()),
            Target::Unix(_) => return Err("https, or http within this machine".to_owned()),
        }
        Ok(Self {
            target,
            path: format!("/{path}"),
        })
    }
}

fn is_here(authority: &str) -> bool {
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// One receiver, ready.
pub(crate) struct Hook {
    address: Address,
    key: hmac::Key,
    kinds: Vec<String>,
    /// Whether findings that are only notes are wanted too.
    notes: bool,
}

impl Hook {
    /// Reads its secret.
    pub(crate) fn open(hook: &Webhook) -> Result<Self, Fault> {
        let fault = |why: String| {
            Fault::new(
                Code::ApiConfig,
                format!(
                    "the secret of a webhook, {}, cannot be used",
                    hook.secret_file.display()
                ),
                why,
            )
        };
        let address = Address::parse(&hook.url).map_err(fault)?;
        let mut text = String::new();
        std::fs::File::open(&hook.secret_file)
            .and_then(|file| file.take(4096).read_to_string(&mut text))
            .map_err(|error| fault(error.to_string()))?;
        let secret = text.lines().next().unwrap_or_default().trim();
        if secret.len() < 16 {
            return Err(fault("it has fewer than 16 characters".to_owned()));
        }
        let kinds = if hook.kinds.is_empty() {
            ["question", "answered", "state", "anomaly"]
                .map(str::to_owned)
                .to_vec()
        } else {
            hook.kinds.clone()
        };
        Ok(Self {
            address,
            key: hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()),
            notes: hook.kinds.iter().any(|kind| kind == "anomaly"),
            kinds,
        })
    }

    /// Whether it is told this event. A finding that is only a note is told to those who name the kind.
    pub(crate) fn wants(&self, event: &StoredEvent) -> bool {
        self.notes || event.kind != "anomaly" || is_alert(event)
    }

    /// Kinds of events it wants.
    pub(crate) fn kinds(&self) -> Vec<String> {
        self.kinds.clone()
    }

    /// Tells it one event; whether it took it.
    pub(crate) async fn tell(&self, event: StoredEvent) -> bool {
        let body = serde_json::to_vec(&EventForm::from(event)).unwrap_or_default();
        for pause in PAUSES.into_iter().map(Some).chain([None]) {
            let sent = tokio::time::timeout(PATIENCE, self.post(Bytes::from(body.clone()))).await;
            if sent.unwrap_or(false) {
                return true;
            }
            match pause {
                Some(pause) => tokio::time::sleep(pause).await,
                None => break,
            }
        }
        false
    }

    async fn post(&self, body: Bytes) -> bool {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let signature = sign(&self.key, now, &body);
        let headers = [
            (header::CONTENT_TYPE.as_str(), "application/cloudevents+json"),
            ("bastle-signature", signature.as_str()),
        ];
        self.address.post(&headers, body).await
    }
}

impl Address {
    /// The same place with this behind its path.
    pub(crate) fn below(&self, more: &str) -> Self {
        Self {
            target: self.target.clone(),
            path: format!("{}{more}", self.path.trim_end_matches('/')),
        }
    }

    /// Sends a body there once; whether it was taken. A redirect is not followed.
    pub(crate) async fn post(&self, headers: &[(&str, &str)], body: Bytes) -> bool {
        let mut request = Request::builder()
            .method("POST")
            .uri(&self.path)
            .header(header::HOST, self.target.host())
            .header(header::USER_AGENT, "bastle");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body));
        let (Ok(request), Ok(stream)) = (request, self.target.connect().await) else {
            return false;
        };
        let Ok((mut sender, connection)) =
            hyper::client::conn::http1::handshake(crate::client::io(stream)).await
        else {
            return false;
        };
        drop(tokio::spawn(connection));
        match sender.send_request(request).await {
            Ok(response) => response.status().is_success(),
            Err(_) => false,
        }
    }
}

/// `t=SECONDS,v1=HEX` over `SECONDS.BODY`: a receiver compares, and refuses what is old.
fn sign(key: &hmac::Key, seconds: u64, body: &[u8]) -> String {
    let mut context = hmac::Context::with_key(key);
    context.update(seconds.to_string().as_bytes());
    context.update(b".");
    context.update(body);
    let hex: String = context
        .sign()
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("t={seconds},v1={hex}")
}

/// Whether a finding is more than a note.
pub(crate) fn is_alert(event: &StoredEvent) -> bool {
    matches!(
        event.data.get("action").and_then(serde_json::Value::as_str),
        Some("alert" | "pause")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sealed_addresses_or_this_machine_are_told() {
        for bad in [
            "",
            "example.com",
            "http://example.com/x",
            "http://127.0.0.1.evil.example/x",
            "http://localhost.evil.example/",
            "http://169.254.169.254/latest",
            "ftp://127.0.0.1/",
            "https://user:pass@host/",
            "https://host/a b",
            "https://host/\r\nx: y",
            "unix:///run/x",
        ] {
            assert!(Address::parse(bad).is_err(), "{bad:?}");
        }
        for good in [
            "https://hooks.example/a?b=c",
            "http://127.0.0.1:9/x",
            "http://localhost:9",
            "http://[::1]:9/",
        ] {
            assert!(Address::parse(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn the_signature_is_the_published_one_and_covers_the_time() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"0123456789abcdef");
        let one = sign(&key, 1, b"{}");
        // printf '1.{}' | openssl dgst -sha256 -hmac 0123456789abcdef
        assert_eq!(
            one,
            "t=1,v1=2af693cb56b22c16912222aeefdc75a01de562bf70ee2015f41ecea48382997f"
        );
        assert_ne!(one[4..], sign(&key, 2, b"{}")[4..]);
        assert_ne!(one, sign(&key, 1, b"[]"));
    }
}
