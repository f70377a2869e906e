//! A profile as JSON: what is printed reads back as the same profile.
use super::{Profile, PromptBy};
use crate::document::{At, Document};
use crate::units::show_duration;
use serde_json::{Map, Value, json};

impl Profile {
    /// The whole profile, its defaults spelled out.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
        put("version", json!(1));
        put("name", json!(self.name));
        put("agent", json!(self.agent));
        put("command", json!(self.command));
        put("prompt", json!(self.prompt.word()));
        if let Some(driver) = &self.driver {
            put("driver", json!(driver));
        }
        if !self.driven.is_empty() {
            put("driven", json!(self.driven));
        }
        put("skipPermissions", json!(false));
        put("timeout", json!(show_duration(self.timeout_ms)));
        put("maxTurns", json!(self.max_turns));
        put("concurrency", json!(self.concurrency));
        if let Some(description) = &self.description {
            put("description", json!(description));
        }
        let texts = |list: &[At<String>]| json!(list.iter().map(|at| &at.value).collect::<Vec<_>>());
        let mut tools = Map::new();
        if let Some(allow) = &self.tools.allow {
            tools.insert("allow".to_owned(), texts(allow));
        }
        if !self.tools.deny.is_empty() {
            tools.insert("deny".to_owned(), texts(&self.tools.deny));
        }
        if !tools.is_empty() {
            put("tools", Value::Object(tools));
        }
        if let Some(model) = &self.model {
            put("model", json!(model));
        }
        if !self.models.is_empty() {
            put("models", json!(self.models));
        }
        if let Some(preset) = &self.preset {
            put("preset", json!(preset));
        }
        if self.policy != Document::default() {
            // A document prints as JSON always; were it not to, null is refused when it is read again.
            put(
                "policy",
                serde_json::from_str(&self.policy.to_json()).unwrap_or(Value::Null),
            );
        }
        if !self.env.is_empty() {
            let set = self
                .env
                .iter()
                .map(|(name, value)| (name.as_str().to_owned(), json!(value)));
            put("env", Value::Object(set.collect()));
        }
        if !self.ceiling.is_empty() {
            // A form of texts and numbers prints as JSON always; were it not to, null is refused when it is read again.
            put(
                "ceiling",
                serde_json::to_value(&self.ceiling).unwrap_or(Value::Null),
            );
        }
        Value::Object(object)
    }
}

impl std::fmt::Display for PromptBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}
