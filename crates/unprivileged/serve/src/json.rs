//! Strict JSON of a request: no doubled key, no endless nesting, nothing behind the end, and an error that names the
//! field.
//!
//! **Trust:** the bytes are anybody's. What this returns has been walked through once, within bounds.
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};
use std::fmt;

/// Deepest nesting.
const MOST_DEPTH: usize = 32;

/// What is wrong, and where: `/runs/3/argv`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// The place, innermost first.
    path: Vec<String>,
    what: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return f.write_str(&self.what);
        }
        f.write_str("field ")?;
        for (at, part) in self.path.iter().rev().enumerate() {
            let dot = if at == 0 { "" } else { "." };
            write!(f, "{dot}{}", shown(part))?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for Wrong {}

impl de::Error for Wrong {
    fn custom<T: fmt::Display>(what: T) -> Self {
        Self {
            path: Vec::new(),
            what: shown(&what.to_string()),
        }
    }
}

impl Wrong {
    fn within(mut self, part: impl Into<String>) -> Self {
        self.path.push(part.into());
        self
    }
}

/// Text of the request in an error: short, on one line, without anything that acts on a terminal.
fn shown(text: &str) -> String {
    let plain = |c: char| {
        if c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        {
            '\u{fffd}'
        } else {
            c
        }
    };
    text.chars().take(300).map(plain).collect()
}

/// Reads bytes as `T`.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Wrong> {
    read(value(bytes)?)
}

/// Reads bytes as any JSON.
pub(crate) fn value(bytes: &[u8]) -> Result<Value, Wrong> {
    let malformed = |error: serde_json::Error| de::Error::custom(error);
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Strict { depth: 0 }.deserialize(&mut reader).map_err(malformed)?;
    reader.end().map_err(malformed)?;
    Ok(value)
}

/// Reads a value as `T`.
pub(crate) fn read<T: DeserializeOwned>(value: Value) -> Result<T, Wrong> {
    T::deserialize(Walk(value))
}

/// Builds a value, refusing what a lenient parser lets pass.
struct Strict {
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        serde_json::Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("a number that is none"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut all = Vec::new();
        while let Some(one) = seq.next_element_seed(Self { depth: inner })? {
            all.push(one);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut all = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if all.contains_key(&key) {
                return Err(de::Error::custom(format!("field {} is there twice", shown(&key))));
            }
            all.insert(key, map.next_value_seed(Self { depth: inner })?);
        }
        Ok(Value::Object(all))
    }
}

impl Strict {
    fn deeper<E: de::Error>(&self) -> Result<usize, E> {
        if self.depth < MOST_DEPTH {
            Ok(self.depth + 1)
        } else {
            Err(E::custom(format!("nested deeper than {MOST_DEPTH}")))
        }
    }
}

/// Reads a value and knows where it is when something is wrong.
struct Walk(Value);

impl<'de> Deserializer<'de> for Walk {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(value), ..) => visitor.visit_u64(value),
                (None, Some(value), _) => visitor.visit_i64(value),
                (None, None, Some(value)) => visitor.visit_f64(value),
                (None, None, None) => Err(de::Error::custom("a number that is none")),
            },
            Value::String(value) => visitor.visit_string(value),
            Value::Array(all) => {
                let mut seq = Elements {
                    rest: all.into_iter(),
                    at: 0,
                };
                let made = visitor.visit_seq(&mut seq)?;
                match seq.rest.len() {
                    0 => Ok(made),
                    more => Err(de::Error::custom(format!("{more} elements too many"))),
                }
            }
            Value::Object(all) => visitor.visit_map(Members {
                rest: all.into_iter(),
                held: None,
            }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        visitor.visit_newtype_struct(self)
    }

    /// Fields have names: a list of values in some order is no object.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        match self.0 {
            Value::Object(_) => self.deserialize_any(visitor),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(de::Error::custom("an object is expected"))
            }
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        match self.0 {
            Value::String(word) => visitor.visit_enum(word.into_deserializer()),
            other => other
                .deserialize_enum(name, variants, visitor)
                .map_err(de::Error::custom),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map identifier ignored_any
    }
}

struct Elements {
    rest: std::vec::IntoIter<Value>,
    at: usize,
}

impl<'de> SeqAccess<'de> for &mut Elements {
    type Error = Wrong;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Wrong> {
        let Some(value) = self.rest.next() else {
            return Ok(None);
        };
        let at = self.at;
        self.at += 1;
        seed.deserialize(Walk(value))
            .map(Some)
            .map_err(|wrong| wrong.within(at.to_string()))
    }
}

struct Members {
    rest: serde_json::map::IntoIter,
    held: Option<(String, Value)>,
}

impl<'de> MapAccess<'de> for Members {
    type Error = Wrong;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Wrong> {
        let Some((key, value)) = self.rest.next() else {
            return Ok(None);
        };
        self.held = Some((key.clone(), value));
        seed.deserialize(key.into_deserializer()).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Wrong> {
        let Some((key, value)) = self.held.take() else {
            return Err(de::Error::custom("a value without a name"));
        };
        seed.deserialize(Walk(value)).map_err(|wrong| wrong.within(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[serde(default)]
        runs: Vec<Inner>,
        #[serde(default)]
        name: Option<String>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[expect(dead_code)]
        argv: Vec<String>,
    }

    fn wrong(text: &[u8]) -> String {
        parse::<Outer>(text).unwrap_err().to_string()
    }

    #[test]
    fn what_a_lenient_parser_lets_pass_is_refused() {
        let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
        for bad in [
            &b""[..],
            b"{\"name\":\"a\",\"name\":\"b\"}",
            b"{\"runs\":[{\"argv\":[],\"argv\":[]}]}",
            deep.as_bytes(),
            b"{\"name\":NaN}",
            b"{\"name\":1e400}",
            b"{\"name\":\"\\ud800\"}",
            b"\xef\xbb\xbf{}",
            b"{} x",
            b"{}{}",
            b"{\"name\":\"\xff\"}",
            b"{\"name\":\"a\nb\"}",
            b"[]",
            b"null",
        ] {
            assert!(parse::<Outer>(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
        let good = parse::<Outer>(b" {\"runs\":[{\"argv\":[\"a\"]}],\"name\":null} ").unwrap();
        assert_eq!((good.runs.len(), good.name), (1, None));
    }

    #[test]
    fn an_error_names_the_field_however_deep() {
        assert!(
            wrong(b"{\"name\":1}").contains("field name"),
            "{}",
            wrong(b"{\"name\":1}")
        );
        let nested = wrong(b"{\"runs\":[{\"argv\":[]},{\"argv\":[\"a\",2]}]}");
        assert!(nested.contains("field runs.1.argv.1"), "{nested}");
        assert!(wrong(b"{\"runs\":[{}]}").contains("argv"));
        assert!(wrong(b"{\"surprise\":1}").contains("surprise"));
        let hostile = wrong("{\"\\u001b[2J\\u202e\":1}".as_bytes());
        assert!(!hostile.contains(['\u{1b}', '\u{202e}']), "{hostile:?}");
    }

    #[test]
    fn no_bytes_make_it_fail_otherwise() {
        // Cuts and flips of a whole document: a result or an error, never anything else.
        let text = br#"{"runs":[{"argv":["a","\u00e9"]}],"name":"x","n":[1.5,-3,true,null]}"#;
        for at in 0..text.len() {
            drop(value(&text[..at]));
            for flip in [1u8, 0x20, 0x80, 0xff] {
                let mut bent = text.to_vec();
                bent[at] ^= flip;
                drop(parse::<Outer>(&bent));
            }
        }
    }
}
