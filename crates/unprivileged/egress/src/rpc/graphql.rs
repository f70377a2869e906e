//! GraphQL: which root fields a document makes the server resolve.
//!
//! The name of an operation is a label that the client chooses: `mutation Harmless { deleteRepository }` must not pass
//! for harmless, nor escape a deny rule. What counts is the type and each root field, which is what the server
//! executes, written `mutation:deleteRepository`. Fragments at the root are looked through.
use super::key::{folded, is_word, poses_as};
use super::lexer::{Token, tokens};
use super::{Asks, MAX_BODY, MAX_OPERATIONS, is_plain};
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;

/// Deepest nesting of fragments at the root and of brackets within a selection.
const MAX_DEPTH: u32 = 16;
/// Most selections looked at while fragments are unfolded; fragments that name one another would double for ever.
const MAX_STEPS: u32 = 4096;

/// Members and parameters by which servers know a stored query: what it does is not in the request.
const STORED: [&str; 9] = [
    "id",
    "doc_id",
    "docid",
    "documentid",
    "queryid",
    "query_id",
    "query_hash",
    "hash",
    "persistedquery",
];

/// Whether a parameter of this name, in lower case, is part of a GraphQL request.
pub(crate) fn is_graphql_parameter(name: &str) -> bool {
    STORED.contains(&name)
        || matches!(
            name,
            "query" | "operationname" | "extensions" | "variables" | "operations"
        )
}

/// Reads a JSON body: `query` and `operationName`, or a list of such.
pub(crate) fn read(body: &[u8]) -> Asks {
    if body.len() > MAX_BODY {
        return Asks::Unreadable;
    }
    let Ok(Posted(posts)) = serde_json::from_slice::<Posted>(body) else {
        return Asks::Unreadable;
    };
    gather(
        posts
            .iter()
            .map(|post| (post.query.as_deref(), post.operation.as_deref())),
    )
}

/// Reads the query string of a GET.
pub(crate) fn from_query_string(query: &str) -> Asks {
    let (mut text, mut operation) = (None, None);
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(key), Some(value)) = (unescape(key), unescape(value)) else {
            return Asks::Unreadable;
        };
        let slot = match key.as_str() {
            "query" => &mut text,
            "operationName" => &mut operation,
            "variables" => continue,
            // Another case, a stored query, or an extension that names one.
            other if !is_word(other) || is_graphql_parameter(&folded(other)) => return Asks::Unreadable,
            _ => continue,
        };
        // Twice is ambiguous.
        if slot.replace(value).is_some() {
            return Asks::Unreadable;
        }
    }
    gather(std::iter::once((text.as_deref(), operation.as_deref())))
}

fn gather<'a>(posts: impl Iterator<Item = (Option<&'a str>, Option<&'a str>)>) -> Asks {
    let mut asked = Vec::new();
    for (query, operation) in posts {
        // A persisted query has a hash only: nobody here knows what it does.
        match query.and_then(|text| document(text, operation.filter(|name| !name.is_empty()))) {
            Some(names) => asked.extend(names),
            None => return Asks::Unreadable,
        }
        if asked.len() > MAX_OPERATIONS {
            return Asks::Unreadable;
        }
    }
    asked.sort();
    asked.dedup();
    if asked.is_empty() {
        Asks::Unreadable
    } else {
        Asks::For(asked)
    }
}

/// One operation of a document.
struct Operation<'a> {
    kind: &'a str,
    name: Option<&'a str>,
    root: Vec<Selected<'a>>,
}

/// What stands in a selection set at the root.
enum Selected<'a> {
    Field(&'a str),
    Fragment(&'a str),
    Inline(Vec<Selected<'a>>),
}

fn document(text: &str, chosen: Option<&str>) -> Option<Vec<String>> {
    let tokens = tokens(text)?;
    let mut parser = Parser {
        tokens: &tokens,
        at: 0,
    };
    let mut operations = Vec::new();
    let mut fragments = BTreeMap::new();
    while parser.peek().is_some() {
        parser.definition(&mut operations, &mut fragments)?;
    }
    // Which one runs is the server's choice unless one is named; servers that ignore the name run any of them.
    if let Some(name) = chosen {
        operations.iter().find(|operation| operation.name == Some(name))?;
    }
    let mut names = Vec::new();
    let mut steps = 0;
    for operation in &operations {
        let mut fields = Vec::new();
        unfold(&operation.root, &fragments, &mut fields, &mut steps, 0)?;
        for field in fields {
            let label = format!("{}:{field}", operation.kind);
            names.push(is_plain(&label).then_some(label)?);
        }
    }
    (!names.is_empty()).then_some(names)
}

fn unfold<'a>(
    root: &[Selected<'a>],
    fragments: &BTreeMap<&'a str, Vec<Selected<'a>>>,
    fields: &mut Vec<&'a str>,
    steps: &mut u32,
    depth: u32,
) -> Option<()> {
    if depth > MAX_DEPTH {
        return None;
    }
    for selected in root {
        *steps += 1;
        if *steps > MAX_STEPS {
            return None;
        }
        match selected {
            Selected::Field(name) => fields.push(name),
            Selected::Inline(inner) => unfold(inner, fragments, fields, steps, depth + 1)?,
            Selected::Fragment(name) => unfold(fragments.get(name)?, fragments, fields, steps, depth + 1)?,
        }
    }
    Some(())
}

struct Parser<'t, 'a> {
    tokens: &'t [Token<'a>],
    at: usize,
}

impl<'a> Parser<'_, 'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).copied()
    }

    fn next(&mut self) -> Option<Token<'a>> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn take(&mut self, mark: u8) -> bool {
        let there = self.peek() == Some(Token::Mark(mark));
        if there {
            self.at += 1;
        }
        there
    }

    fn name(&mut self) -> Option<&'a str> {
        match self.next()? {
            Token::Name(name) => Some(name),
            Token::Spread | Token::Mark(_) | Token::Value => None,
        }
    }

    fn definition(
        &mut self,
        operations: &mut Vec<Operation<'a>>,
        fragments: &mut BTreeMap<&'a str, Vec<Selected<'a>>>,
    ) -> Option<()> {
        if self.peek() == Some(Token::Mark(b'{')) {
            operations.push(Operation {
                kind: "query",
                name: None,
                root: self.selections(0)?,
            });
            return Some(());
        }
        match self.name()? {
            kind @ ("query" | "mutation" | "subscription") => {
                let name = match self.peek()? {
                    Token::Name(name) => {
                        self.at += 1;
                        Some(name)
                    }
                    Token::Spread | Token::Mark(_) | Token::Value => None,
                };
                if self.peek() == Some(Token::Mark(b'(')) {
                    self.brackets()?;
                }
                self.directives()?;
                let root = self.selections(0)?;
                operations.push(Operation { kind, name, root });
            }
            "fragment" => {
                let name = self.name()?;
                if self.name()? != "on" {
                    return None;
                }
                self.name()?;
                self.directives()?;
                let root = self.selections(0)?;
                if fragments.insert(name, root).is_some() {
                    return None;
                }
            }
            // Type definitions have no place in a request.
            _ => return None,
        }
        Some(())
    }

    /// `{ … }` at the root of an operation or fragment; below a field nothing matters but where it ends.
    fn selections(&mut self, depth: u32) -> Option<Vec<Selected<'a>>> {
        if depth > MAX_DEPTH || !self.take(b'{') {
            return None;
        }
        let mut found = Vec::new();
        while !self.take(b'}') {
            match self.next()? {
                Token::Spread => found.push(self.spread(depth)?),
                Token::Name(first) => {
                    // An alias stands before the colon; the field is what comes after.
                    let field = if self.take(b':') { self.name()? } else { first };
                    if self.peek() == Some(Token::Mark(b'(')) {
                        self.brackets()?;
                    }
                    self.directives()?;
                    if self.peek() == Some(Token::Mark(b'{')) {
                        self.brackets()?;
                    }
                    found.push(Selected::Field(field));
                }
                Token::Mark(_) | Token::Value => return None,
            }
        }
        (!found.is_empty()).then_some(found)
    }

    fn spread(&mut self, depth: u32) -> Option<Selected<'a>> {
        match self.peek()? {
            Token::Name("on") => {
                self.at += 1;
                self.name()?;
                self.directives()?;
                Some(Selected::Inline(self.selections(depth + 1)?))
            }
            Token::Name(name) => {
                self.at += 1;
                self.directives()?;
                Some(Selected::Fragment(name))
            }
            Token::Mark(_) => {
                self.directives()?;
                Some(Selected::Inline(self.selections(depth + 1)?))
            }
            Token::Spread | Token::Value => None,
        }
    }

    fn directives(&mut self) -> Option<()> {
        while self.take(b'@') {
            self.name()?;
            if self.peek() == Some(Token::Mark(b'(')) {
                self.brackets()?;
            }
        }
        Some(())
    }

    /// Skips from an opening bracket to the one that closes it. Brackets must pair by kind.
    fn brackets(&mut self) -> Option<()> {
        let mut open = Vec::new();
        loop {
            match self.next()? {
                Token::Mark(b'(') => open.push(b')'),
                Token::Mark(b'[') => open.push(b']'),
                Token::Mark(b'{') => open.push(b'}'),
                Token::Mark(mark @ (b')' | b']' | b'}')) => {
                    if open.pop() != Some(mark) {
                        return None;
                    }
                }
                Token::Mark(_) | Token::Name(_) | Token::Spread | Token::Value => {}
            }
            if open.is_empty() {
                return Some(());
            }
        }
    }
}

/// Percent-decoding of a form value.
fn unescape(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let high = char::from(bytes.next()?).to_digit(16)?;
                let low = char::from(bytes.next()?).to_digit(16)?;
                out.push(u8::try_from(high * 16 + low).ok()?);
            }
            _ => out.push(byte),
        }
    }
    String::from_utf8(out).ok()
}

/// Whether extensions name a stored query (`persistedQuery` and its kin).
fn names_stored(extensions: &serde_json::Value) -> bool {
    extensions.as_object().is_some_and(|members| {
        members
            .keys()
            .any(|key| !is_word(key) || STORED.contains(&folded(key).as_str()))
    })
}

struct Posted(Vec<Post>);

#[derive(Default)]
struct Post {
    query: Option<String>,
    operation: Option<String>,
}

impl<'de> Deserialize<'de> for Post {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_map(PostVisitor)
    }
}

struct PostVisitor;

impl<'de> Visitor<'de> for PostVisitor {
    type Value = Post;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a GraphQL request")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Post, A::Error> {
        let mut post = Post::default();
        while let Some(key) = map.next_key::<String>()? {
            let slot = match key.as_str() {
                "query" => &mut post.query,
                "operationName" => &mut post.operation,
                // Readers that ignore case would take these for the real ones.
                other if !is_word(other) || poses_as(other, "query") || poses_as(other, "operationName") => {
                    return Err(A::Error::custom("ambiguous key"));
                }
                other if STORED.contains(&folded(other).as_str()) => {
                    return Err(A::Error::custom("a stored query"));
                }
                other if folded(other) == "extensions" => {
                    let value: serde_json::Value = map.next_value()?;
                    if names_stored(&value) {
                        return Err(A::Error::custom("a stored query"));
                    }
                    continue;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            let value = map.next_value::<Option<String>>()?.unwrap_or_default();
            if slot.replace(value).is_some() {
                return Err(A::Error::custom("a key stands twice"));
            }
        }
        Ok(post)
    }
}

impl<'de> Deserialize<'de> for Posted {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Posted;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a GraphQL request or a list of them")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Posted, A::Error> {
                PostVisitor.visit_map(map).map(|post| Posted(vec![post]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Posted, A::Error> {
                let mut posts = Vec::new();
                while let Some(post) = list.next_element::<Post>()? {
                    if posts.len() >= MAX_OPERATIONS {
                        return Err(A::Error::custom("too many requests"));
                    }
                    posts.push(post);
                }
                Ok(Posted(posts))
            }
        }
        source.deserialize_any(Read)
    }
}
