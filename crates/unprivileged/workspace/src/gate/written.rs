//! How a JSON document is written: members that an object has twice, and the order of its members.
//!
//! **Trust:** any bytes that parsed as JSON. A value keeps the last of two members with one name; other readers keep the
//! first, both, or refuse. Readers that give the order of members a meaning (`exports` of package.json takes the first
//! condition that fits) see no difference in a value either. So both are read from the text.
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Most members with an equal name that are kept for a reason.
const MOST_TWICE: usize = 6;

/// The names that one document gives its members, object by object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    /// Paths of members whose object has another member of the same name.
    pub(super) twice: Vec<Vec<String>>,
    /// The names of the members of every object, by its path, as they stand in the text.
    orders: BTreeMap<Vec<String>, Vec<String>>,
}

impl Written {
    /// Reads a document without comments; `None` when it is not JSON.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut written = Self::default();
        let mut at = Vec::new();
        let mut reader = serde_json::Deserializer::from_str(text);
        let part = Part {
            at: &mut at,
            written: &mut written,
        };
        part.deserialize(&mut reader).ok()?;
        reader.end().ok()?;
        Some(written)
    }

    /// The objects in which members that both versions have stand in another order; `counts` leaves out members.
    pub(super) fn reordered(&self, new: &Self, counts: impl Fn(&[String]) -> bool) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        for (path, before) in &self.orders {
            let Some(after) = new.orders.get(path) else {
                continue;
            };
            let shared: BTreeSet<&String> = {
                let there: BTreeSet<&String> = after.iter().collect();
                before.iter().filter(|name| there.contains(name)).collect()
            };
            let kept = |names: &[String]| -> Vec<String> {
                let both = names.iter().filter(|name| shared.contains(name));
                both.filter(|name| counts(&[path.as_slice(), std::slice::from_ref(*name)].concat()))
                    .cloned()
                    .collect()
            };
            if before != after && kept(before) != kept(after) {
                found.push(path.clone());
            }
        }
        found
    }
}

/// JSON without the white space between its tokens: what is equal in this form differs in layout alone.
pub(super) fn without_layout(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in text.chars() {
        if in_string {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if matches!(c, ' ' | '\t' | '\n' | '\r') {
            continue;
        } else {
            in_string = c == '"';
        }
        out.push(c);
    }
    out
}

/// One value of the document on the way down.
struct Part<'a> {
    at: &'a mut Vec<String>,
    written: &'a mut Written,
}

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let (mut order, mut seen) = (Vec::new(), BTreeSet::new());
        while let Some(name) = members.next_key::<String>()? {
            self.at.push(name.clone());
            if !seen.insert(name.clone()) && self.written.twice.len() < MOST_TWICE {
                self.written.twice.push(self.at.clone());
            }
            members.next_value_seed(Part {
                at: &mut *self.at,
                written: &mut *self.written,
            })?;
            self.at.pop();
            order.push(name);
        }
        if order.len() > 1 {
            self.written.orders.insert(self.at.clone(), order);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        for number in 0_usize.. {
            self.at.push(number.to_string());
            let item = items.next_element_seed(Part {
                at: &mut *self.at,
                written: &mut *self.written,
            })?;
            self.at.pop();
            if item.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Tier;
    use super::super::structure_tests::{lab, why};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_member_that_an_object_has_twice_is_held_with_that_reason() {
        let lab = lab();
        let pinned = |place: &str| format!(r#"{{"resolved":"https://{place}.example/a","version":"1"}}"#);
        let npm = |members: &str| format!(r#"{{"packages":{{"a":{members}}}}}"#);
        let first = pinned("own");
        let both = format!("{},{}", &pinned("evil")[..pinned("evil").len() - 1], &first[1..]);
        for (name, before, after, told) in [
            (
                "package-lock.json",
                npm(&first),
                npm(&both),
                "packages a resolved",
            ),
            (
                "composer.lock",
                r#"{"packages":[{"name":"a"}]}"#.to_owned(),
                r#"{"packages":[{"n\u0061me":"b","name":"a"}]}"#.to_owned(),
                "packages 0 name",
            ),
            (
                "Pipfile.lock",
                r#"{"default":{}}"#.to_owned(),
                r#"{"default":{"evil":{}},"default":{}}"#.to_owned(),
                "default",
            ),
            (
                "bun.lock",
                "{\"a\":1,}".to_owned(),
                "{/* note */\"a\":2,\"a\":1,}".to_owned(),
                "a",
            ),
            (
                "package.json",
                r#"{"name":"x"}"#.to_owned(),
                r#"{"scripts":{"postinstall":"sh x"},"name":"x","name":"x"}"#.to_owned(),
                "name",
            ),
            (
                "package.json",
                r#"{"scripts":{"test":"t"},"version":"1"}"#.to_owned(),
                r#"{"scripts":{"test":"evil","test":"t"},"version":"2"}"#.to_owned(),
                "scripts.test",
            ),
            (
                "tsconfig.json",
                r#"{"extends":"./a"}"#.to_owned(),
                r#"{"extends":"./evil","extends":"./a"}"#.to_owned(),
                "extends",
            ),
            (
                "composer.json",
                r#"{"require":{"b":"2","b":"1"},"description":"x"}"#.to_owned(),
                r#"{"require":{"b":"1"},"description":"y"}"#.to_owned(),
                "require.b",
            ),
        ] {
            let one = lab.change(name, &before, &after);
            assert_eq!(one.tier(), Tier::Approve, "{name} {after}: {:?}", one.findings);
            let why = why(&one);
            assert!(
                why.contains("twice") && why.contains(told),
                "{name} {after}: {why}"
            );
        }
        // The parsers of the other forms refuse such a document or compare it line by line.
        for (name, before, after) in [
            ("Cargo.lock", "version = 4\n", "version = 3\nversion = 4\n"),
            ("Pipfile", "[packages]\n", "[packages]\n[packages]\n"),
            ("pnpm-lock.yaml", "a: 1\n", "a: 2\na: 1\n"),
            ("pubspec.yaml", "a: 1\n", "a: 2\na: 1\n"),
        ] {
            let one = lab.change(name, before, after);
            assert_eq!(one.tier(), Tier::Approve, "{name} {after}: {:?}", one.findings);
        }
    }

    #[test]
    fn another_order_of_members_is_a_change_where_a_reader_may_go_by_it() {
        let lab = lab();
        for (name, before, after, told) in [
            (
                "package.json",
                r#"{"exports":{".":{"node":"./safe.js","default":"./other.js"}}}"#,
                r#"{"exports":{".":{"default":"./other.js","node":"./safe.js"}}}"#,
                "exports...(order)",
            ),
            (
                "package.json",
                r#"{"workspaces":[{"if":{"a":1,"b":2}}]}"#,
                r#"{"workspaces":[{"if":{"b":2,"a":1}}]}"#,
                "workspaces.0.if.(order)",
            ),
            (
                "deno.json",
                r#"{"imports":{"a/":"./x/","a/b":"./y"}}"#,
                r#"{"imports":{"a/b":"./y","a/":"./x/"}}"#,
                "imports.(order)",
            ),
            (
                "tsconfig.json",
                r#"{"compilerOptions":{"paths":{"*":["a"],"@/*":["b"]}}}"#,
                r#"{"compilerOptions":{"paths":{"@/*":["b"],"*":["a"]}}}"#,
                "compilerOptions.paths.(order)",
            ),
            (
                "composer.lock",
                r#"{"autoload":{"a":"1","b":"2"}}"#,
                r#"{"autoload":{"b":"2","a":"1"}}"#,
                "the order of its members",
            ),
            (
                "package-lock.json",
                r#"{"version":"1.0","n":10000000000000000000001}"#,
                r#"{"version":"1.0","n":10000000000000000000002}"#,
                "the way they are written",
            ),
        ] {
            let one = lab.change(name, before, after);
            assert_eq!(one.tier(), Tier::Approve, "{name} {after}: {:?}", one.findings);
            assert!(why(&one).contains(told), "{name} {after}: {}", why(&one));
        }
        // The control: members that no tool goes by, in any order and beside new ones of their kind.
        for (name, before, after) in [
            (
                "package.json",
                r#"{"name":"x","version":"1","main":"a.js"}"#,
                r#"{"version":"2","main":"a.js","description":"new","name":"x"}"#,
            ),
            (
                "tsconfig.json",
                r#"{"compilerOptions":{"strict":true,"noEmit":true}}"#,
                r#"{"compilerOptions":{"noEmit":true,"strict":true}}"#,
            ),
        ] {
            let one = lab.change(name, before, after);
            assert_eq!(one.tier(), Tier::Note, "{name} {after}: {:?}", one.findings);
        }
    }

    /// Members `a` to `d` in this order; the last bit of each says whether its value is 0 or 1.
    fn object(members: &[u8], blanks: &str) -> String {
        let written = members.iter().map(|member| {
            let name = char::from(b'a' + (member >> 1) % 4);
            format!("\"{name}\":{blanks}{}", member & 1)
        });
        format!("{{{}}}", written.collect::<Vec<_>>().join(","))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn only_the_same_members_in_the_same_order_pass(
            old in proptest::collection::vec(0..8_u8, 0..5),
            new in proptest::collection::vec(0..8_u8, 0..5),
            blanks in "[ \n\t]{0,3}",
            same in any::<bool>(),
        ) {
            let lab = lab();
            let new = if same { old.clone() } else { new };
            let (before, after) = (object(&old, ""), object(&new, &blanks));
            let twice = |members: &[u8]| {
                let names: BTreeSet<u8> = members.iter().map(|member| member >> 1).collect();
                names.len() < members.len()
            };
            for (name, around) in [("package-lock.json", "packages"), ("package.json", "exports")] {
                let around = |object: &str| format!("{{\"{around}\":{object}}}");
                let (before, after) = (around(&before), around(&after));
                if before == after {
                    continue;
                }
                let passes = old == new && !twice(&new);
                let one = lab.change(name, &before, &after);
                prop_assert_eq!(one.tier() < Tier::Approve, passes, "{}: {:?}", name, one.findings);
            }
        }

        #[test]
        fn a_text_without_its_layout_is_the_same_document(text in "[ab\"\\\\ \n{}:,]{0,12}") {
            let value = serde_json::Value::String(text);
            let spread = format!(" {{ \"k\" :\t{value}\n}} ");
            prop_assert_eq!(without_layout(&spread), format!("{{\"k\":{value}}}"));
        }
    }
}
