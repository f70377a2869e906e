//! Which media types a caller takes: what a task left behind is told in one of them, or not at all.
//!
//! **Trust:** the list is a caller's. It narrows what that caller is told, and nothing else.
use super::asked::Params;
use super::wrong::{Kind, Wrong};
use bastle_control::review::library::base64;
use serde_json::{Value, json};

/// Types of what tasks leave behind, as they are and as they can be told besides.
pub(super) const GIVEN: [&str; 6] = [
    "text/plain",
    "text/x-diff",
    "application/json",
    "application/xml",
    "text/xml",
    SEALED,
];
/// The type of the signed statement.
pub(super) const SEALED: &str = "application/vnd.dsse.envelope.v1+json";
const PLAIN: &str = "text/plain";
/// Types that are named, and the longest name.
const MOST: usize = 64;
const MOST_NAME: usize = 256;

/// What a caller takes; everything, where it does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modes(Vec<String>);

impl Modes {
    /// Reads `acceptedOutputModes` of a configuration. A list of which nothing can be given is refused.
    pub(crate) fn read(configuration: &Params) -> Result<Self, Wrong> {
        let bad = || {
            Wrong::field(
                "configuration.acceptedOutputModes",
                format!("at most {MOST} media types"),
            )
        };
        let named = match configuration.get("acceptedOutputModes") {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(Value::Array(named)) if named.len() <= MOST => named,
            Some(_) => return Err(bad()),
        };
        let mut all = Vec::with_capacity(named.len());
        for one in named {
            let one = one
                .as_str()
                .filter(|one| one.len() <= MOST_NAME)
                .ok_or_else(bad)?;
            let plain = one.split(';').next().unwrap_or_default().trim();
            all.push(plain.to_ascii_lowercase());
        }
        let modes = Self(all);
        match modes.0.is_empty() || GIVEN.iter().any(|given| modes.takes(given)) {
            true => Ok(modes),
            false => Err(Wrong::new(
                Kind::ContentType,
                format!(
                    "acceptedOutputModes: what a task leaves behind is {}",
                    GIVEN.join(", ")
                ),
            )),
        }
    }

    /// As it is kept with a receiver.
    pub(super) fn words(&self) -> &[String] {
        &self.0
    }

    pub(super) fn takes(&self, media: &str) -> bool {
        let whole = |sort: &str| media.split_once('/').is_some_and(|(own, _)| own == sort);
        self.0.is_empty()
            || self
                .0
                .iter()
                .any(|one| one == media || one == "*/*" || one.strip_suffix("/*").is_some_and(whole))
    }

    /// An artifact in a form that is taken; `None` where there is none.
    pub(super) fn fit(&self, mut artifact: Value) -> Option<Value> {
        if self.0.is_empty() {
            return Some(artifact);
        }
        let parts = artifact.get_mut("parts").and_then(Value::as_array_mut)?;
        for part in parts.iter_mut() {
            *part = self.part(part)?;
        }
        Some(artifact)
    }

    fn part(&self, part: &Value) -> Option<Value> {
        let media = part["mediaType"].as_str().unwrap_or(PLAIN);
        if self.takes(media) {
            return Some(part.clone());
        }
        let told = |other: &str| {
            let mut part = part.clone();
            part["mediaType"] = json!(other);
            part
        };
        // The same under a name that says less.
        let wider = match media {
            SEALED => "application/json",
            "application/xml" => "text/xml",
            _ => PLAIN,
        };
        if self.takes(wider) && part.get("data").is_none() {
            let readable = wider != PLAIN || part.get("raw").is_none();
            if readable {
                return Some(told(wider));
            }
        }
        if !self.takes(PLAIN) {
            return None;
        }
        let text = match (&part["text"], &part["data"], &part["raw"]) {
            (Value::String(text), _, _) => text.clone(),
            (_, _, Value::String(raw)) => String::from_utf8(base64::decode(raw)?).ok()?,
            (_, data, _) => data.to_string(),
        };
        let mut plain = json!({ "text": text, "mediaType": PLAIN });
        if let Some(name) = part.get("filename") {
            plain["filename"] = name.clone();
        }
        Some(plain)
    }

    /// A task with the artifacts that are taken.
    pub(super) fn task(&self, mut task: Value) -> Value {
        if let Some(artifacts) = task.get_mut("artifacts").and_then(Value::as_array_mut) {
            *artifacts = artifacts.drain(..).filter_map(|one| self.fit(one)).collect();
        }
        task
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modes(named: Value) -> Result<Modes, Wrong> {
        Modes::read(&Params::from_iter([("acceptedOutputModes".to_owned(), named)]))
    }

    fn artifact(part: Value) -> Value {
        json!({ "artifactId": "a", "parts": [part] })
    }

    #[test]
    fn a_list_of_which_nothing_can_be_given_is_refused_and_none_takes_everything() {
        for bad in [json!(["image/png"]), json!(["text"]), json!(["video/*", ""])] {
            assert_eq!(modes(bad.clone()).unwrap_err().kind, Kind::ContentType, "{bad}");
        }
        for bad in [
            json!("text/plain"),
            json!([1]),
            json!(vec!["text/plain"; 65]),
            json!(["x".repeat(257)]),
        ] {
            assert_eq!(modes(bad.clone()).unwrap_err().kind, Kind::Params, "{bad}");
        }
        for good in [
            json!(null),
            json!([]),
            json!(["*/*"]),
            json!(["IMAGE/png", "Text/Plain; q=1"]),
        ] {
            assert!(modes(good.clone()).is_ok(), "{good}");
        }
        let diff = artifact(json!({ "text": "d", "mediaType": "text/x-diff" }));
        assert_eq!(modes(json!([])).unwrap().fit(diff.clone()), Some(diff));
    }

    #[test]
    fn what_is_left_behind_is_told_in_a_form_that_is_taken_or_not_at_all() {
        let plain = modes(json!(["text/plain"])).unwrap();
        let media = |modes: &Modes, part: Value| modes.fit(artifact(part)).map(|it| it["parts"][0].clone());
        assert_eq!(
            media(
                &plain,
                json!({ "text": "d", "mediaType": "text/x-diff", "filename": "f" })
            ),
            Some(json!({ "text": "d", "mediaType": "text/plain", "filename": "f" }))
        );
        assert_eq!(
            media(
                &plain,
                json!({ "data": { "n": 1 }, "mediaType": "application/json" })
            ),
            Some(json!({ "text": "{\"n\":1}", "mediaType": "text/plain" }))
        );
        assert_eq!(
            media(&plain, json!({ "raw": "PGE+", "mediaType": "application/xml" })),
            Some(json!({ "text": "<a>", "mediaType": "text/plain" }))
        );
        let json_only = modes(json!(["application/json"])).unwrap();
        assert_eq!(
            media(&json_only, json!({ "text": "{}", "mediaType": SEALED })),
            Some(json!({ "text": "{}", "mediaType": "application/json" }))
        );
        assert_eq!(
            media(&json_only, json!({ "text": "d", "mediaType": "text/x-diff" })),
            None
        );
        assert_eq!(
            media(
                &json_only,
                json!({ "raw": "PGE+", "mediaType": "application/xml" })
            ),
            None
        );
    }
}
