//! Credentials that the agent never sees: inside there is a phantom, outside the real value takes its place.
//!
//! **Trust:** values come from control in sealed memory and are overwritten when dropped. Nothing here is `Debug`
//! with a value, and no error carries one. A phantom is no secret; where it turns up towards a host that the secret
//! is not for, somebody tries to take the secret elsewhere, so the request is refused and seen.
use crate::header_name;
use crate::scrub::{Needles, base64_padded, unbase64};
use bastle_contract::egress::SecretValue;
use bastle_policy::{CREDENTIAL_HEADERS, SecretHeader, SecretUse};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use zeroize::Zeroizing;

/// How long a request waits for a value that is missing or has expired: helpers that fetch one take seconds.
pub(crate) const RENEWAL: Duration = Duration::from_secs(10);
/// A value that ends within this many seconds counts as expired; the request must still reach the server.
const MARGIN: u64 = 5;
/// The values of a run.
pub(crate) struct Secrets {
    table: RwLock<Arc<Table>>,
    changed: watch::Sender<u64>,
}

/// The values at one moment.
#[derive(Default)]
pub(crate) struct Table {
    list: Vec<Secret>,
    phantoms: Arc<Needles>,
}

/// One value.
pub(crate) struct Secret {
    name: String,
    phantom: String,
    value: Zeroizing<String>,
    expires: Option<u64>,
}

/// What happened to a request's credentials.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Dressed {
    /// Nothing was put in.
    Plain,
    /// This one was put in.
    With(String),
    /// This one is needed and there is no value that holds.
    Missing(String),
}

impl Secrets {
    /// The values that control handed over.
    pub(crate) fn new(values: Vec<SecretValue>) -> Self {
        Self {
            table: RwLock::new(Arc::new(Table::new(values))),
            changed: watch::Sender::new(0),
        }
    }

    /// New values for some secrets; the others stay.
    pub(crate) fn update(&self, values: Vec<SecretValue>) {
        {
            let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
            *table = Arc::new(table.with(values));
        }
        self.changed.send_modify(|count| *count += 1);
    }

    /// The values now.
    pub(crate) fn now(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for the next update.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

impl Table {
    fn new(values: Vec<SecretValue>) -> Self {
        Self::of(values.into_iter().map(Secret::from).collect())
    }

    fn of(list: Vec<Secret>) -> Self {
        let phantoms = list
            .iter()
            .map(|secret| (secret.phantom.as_str(), secret.name.as_str()));
        Self {
            phantoms: Arc::new(Needles::new(phantoms)),
            list,
        }
    }

    fn with(&self, values: Vec<SecretValue>) -> Self {
        let mut list: Vec<Secret> = values.into_iter().map(Secret::from).collect();
        for old in &self.list {
            if !list.iter().any(|new| new.name == old.name) {
                list.push(old.copy());
            }
        }
        Self::of(list)
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Phantoms that must not be in a body to a host that only the secrets `own` are for, in every usual spelling.
    pub(crate) fn strange(&self, own: &[&SecretUse]) -> Arc<Needles> {
        if own.is_empty() {
            return Arc::clone(&self.phantoms);
        }
        let strange = self
            .list
            .iter()
            .filter(|secret| !own.iter().any(|one| one.name.as_str() == secret.name));
        Arc::new(Needles::new(strange.map(|secret| (secret.phantom.as_str(), ""))))
    }

    /// Names of the secrets whose phantom stands in `text`, as it is or in a usual encoding.
    pub(crate) fn named_in(&self, text: &[u8]) -> Vec<&str> {
        // Almost always nothing is found, and one pass over the text says so.
        if !self.phantoms.found_in(text) {
            return Vec::new();
        }
        let stands = |secret: &&Secret| {
            let one = [(secret.phantom.as_str(), "")];
            Needles::new(one.into_iter()).found_in(text)
        };
        self.list
            .iter()
            .filter(stands)
            .map(|secret| secret.name.as_str())
            .collect()
    }

    /// What must not come back from a host with these secrets.
    pub(crate) fn needles<'u>(&self, uses: impl Iterator<Item = &'u SecretUse>) -> Needles {
        let held: Vec<&Secret> = uses.filter_map(|one| self.get(one.name.as_str())).collect();
        Needles::new(
            held.iter()
                .map(|secret| (secret.value.as_str(), secret.phantom.as_str())),
        )
    }

    /// Whether a secret was revoked while the run lives.
    pub(crate) fn is_revoked(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|secret| secret.expires == Some(bastle_contract::egress::REVOKED))
    }

    fn get(&self, name: &str) -> Option<&Secret> {
        self.list.iter().find(|secret| secret.name == name)
    }

    /// Takes the agent's own credentials out of a request to a host with secrets, and puts the real one in.
    ///
    /// `uses` are the secrets for this host and port; of those that cover the method and path, the one whose phantom
    /// the agent sent is taken, else the first. To be called only after the request was allowed, and only for TLS.
    pub(crate) fn dress(
        &self,
        headers: &mut HeaderMap,
        uses: &[&SecretUse],
        method: &str,
        path: &str,
    ) -> Dressed {
        if uses.is_empty() {
            return Dressed::Plain;
        }
        let basic = headers.get(AUTHORIZATION).and_then(basic_of);
        let sent = |one: &SecretUse| {
            let phantom = self
                .get(one.name.as_str())
                .map(|secret| secret.phantom.as_bytes());
            let stands = |text: &[u8]| phantom.is_some_and(|p| !p.is_empty() && contains(text, p));
            headers.values().any(|value| stands(value.as_bytes())) || basic.as_deref().is_some_and(stands)
        };
        let fits: Vec<&&SecretUse> = uses.iter().filter(|one| one.covers(method, path)).collect();
        let chosen = fits
            .iter()
            .find(|one| sent(one))
            .or_else(|| fits.first())
            .copied();
        for name in CREDENTIAL_HEADERS {
            header_name::remove(headers, name);
        }
        for one in uses {
            header_name::remove(headers, one.header.name());
        }
        let Some(one) = chosen else {
            return Dressed::Plain;
        };
        let missing = || Dressed::Missing(one.name.as_str().to_owned());
        let Some(secret) = self.get(one.name.as_str()).filter(|secret| secret.holds()) else {
            return missing();
        };
        match secret.header(&one.header, basic.as_deref()) {
            Some((name, value)) => {
                headers.insert(name, value);
                Dressed::With(secret.name.clone())
            }
            None => missing(),
        }
    }
}

impl Secret {
    fn copy(&self) -> Self {
        Self {
            name: self.name.clone(),
            phantom: self.phantom.clone(),
            value: self.value.clone(),
            expires: self.expires,
        }
    }

    fn holds(&self) -> bool {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        !self.value.is_empty() && self.expires.is_none_or(|end| now.saturating_add(MARGIN) < end)
    }

    /// The header that carries it. A client such as git that sent its phantom as a password gets it as a password.
    fn header(&self, form: &SecretHeader, basic: Option<&[u8]>) -> Option<(HeaderName, HeaderValue)> {
        let sent = basic.and_then(|text| std::str::from_utf8(text).ok());
        let sent = sent.filter(|text| !self.phantom.is_empty() && text.contains(&self.phantom));
        let (name, text) = match (form, sent) {
            (SecretHeader::Field { name, .. }, Some(sent)) if name.eq_ignore_ascii_case("authorization") => {
                let real = Zeroizing::new(sent.replace(&self.phantom, &self.value));
                ("authorization", basic_text(&real))
            }
            (SecretHeader::Basic { user }, _) => {
                let pair = Zeroizing::new(format!("{user}:{}", self.value.as_str()));
                ("authorization", basic_text(&pair))
            }
            (SecretHeader::Field { name, before, after }, _) => {
                let line = Zeroizing::new(format!("{before}{}{after}", self.value.as_str()));
                (name.as_str(), line)
            }
        };
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        let mut value = HeaderValue::from_str(&text).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    }
}

impl From<SecretValue> for Secret {
    fn from(value: SecretValue) -> Self {
        let SecretValue {
            name,
            phantom,
            value,
            expires,
        } = value;
        Self {
            name,
            phantom,
            value: Zeroizing::new(value),
            expires,
        }
    }
}

fn basic_text(pair: &str) -> Zeroizing<String> {
    let encoded = Zeroizing::new(base64_padded(pair.as_bytes()));
    Zeroizing::new(format!("Basic {}", encoded.as_str()))
}

/// What stands inside `Authorization: Basic`.
pub(crate) fn basic_of(value: &HeaderValue) -> Option<Vec<u8>> {
    let (scheme, encoded) = value.to_str().ok()?.trim().split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    unbase64(encoded.trim())
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
