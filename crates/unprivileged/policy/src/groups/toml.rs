//! As much TOML as addresses need: tables, dotted keys, strings, inline tables and lists of strings.
//!
//! Whatever else a file has is passed over; what is misread names no host, because only addresses with a scheme count.

/// Addresses in a cargo `config.toml`: indexes of registries, and registries of replaced sources.
pub(super) fn cargo(text: &str) -> Vec<String> {
    let wanted = |path: &[String]| {
        let first = path.first().map(String::as_str);
        let last = path.last().map(String::as_str);
        matches!(
            (first, last),
            (Some("registries" | "registry"), Some("index")) | (Some("source"), Some("registry"))
        )
    };
    strings(text)
        .into_iter()
        .filter(|(path, _)| wanted(path))
        .map(|(_, value)| value)
        .collect()
}

/// Addresses in a `uv.toml`, or in `[tool.uv]`.
pub(super) fn uv(text: &str) -> Vec<String> {
    let wanted = |path: &[String]| {
        let mut path = path
            .iter()
            .map(String::as_str)
            .skip_while(|key| matches!(*key, "tool" | "uv" | "pip"));
        match (path.next(), path.next()) {
            (Some("index-url" | "extra-index-url" | "find-links"), None) => true,
            (Some("index"), Some("url")) => true,
            (Some(_) | None, _) => false,
        }
    };
    strings(text)
        .into_iter()
        .filter(|(path, _)| wanted(path))
        .map(|(_, value)| value)
        .collect()
}

/// Every string with the keys that lead to it.
fn strings(text: &str) -> Vec<(Vec<String>, String)> {
    let mut found = Vec::new();
    let mut table: Vec<String> = Vec::new();
    let mut list: Option<Vec<String>> = None;
    for line in text.lines() {
        let tokens = tokens(line);
        // A list that goes on over several lines.
        if let Some(path) = list.take() {
            values(&path, &tokens, &mut found);
            if !tokens.contains(&Token::Mark(']')) {
                list = Some(path);
            }
            continue;
        }
        if matches!(tokens.first(), Some(Token::Mark('['))) {
            table = words(&tokens);
            continue;
        }
        let Some(equals) = tokens.iter().position(|token| *token == Token::Mark('=')) else {
            continue;
        };
        let mut path = table.clone();
        path.extend(words(&tokens[..equals]));
        let rest = &tokens[equals + 1..];
        values(&path, rest, &mut found);
        if rest.first() == Some(&Token::Mark('[')) && !rest.contains(&Token::Mark(']')) {
            list = Some(path);
        }
    }
    found
}

/// Strings after an equals sign: one, those of a list, or those of an inline table with its keys.
fn values(path: &[String], tokens: &[Token], found: &mut Vec<(Vec<String>, String)>) {
    let mut key: Option<String> = None;
    for (index, token) in tokens.iter().enumerate() {
        match token {
            Token::Text(text) if tokens.get(index + 1) == Some(&Token::Mark('=')) => key = Some(text.clone()),
            Token::Word(word) => key = Some(word.clone()),
            Token::Text(text) => {
                let mut full = path.to_vec();
                full.extend(key.take());
                found.push((full, text.clone()));
            }
            Token::Mark(_) => {}
        }
    }
}

fn words(tokens: &[Token]) -> Vec<String> {
    let text = |token: &Token| match token {
        Token::Word(text) | Token::Text(text) => Some(text.clone()),
        Token::Mark(_) => None,
    };
    tokens.iter().filter_map(text).collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// A bare key or number.
    Word(String),
    /// A string in quotes.
    Text(String),
    /// One of `[ ] { } = , .`
    Mark(char),
}

/// The tokens of a line up to a comment.
fn tokens(line: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        match first {
            '#' => break,
            '"' | '\'' => {
                // An escaped quote ends the string early: then it is no address, and nothing is named.
                let body = &rest[1..];
                let Some(end) = body.find(first) else { break };
                tokens.push(Token::Text(body[..end].to_owned()));
                rest = &body[end + 1..];
            }
            '[' | ']' | '{' | '}' | '=' | ',' | '.' => {
                tokens.push(Token::Mark(first));
                rest = &rest[1..];
            }
            other if other.is_ascii_alphanumeric() || matches!(other, '_' | '-') => {
                let end = rest
                    .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-')))
                    .unwrap_or(rest.len());
                tokens.push(Token::Word(rest[..end].to_owned()));
                rest = &rest[end..];
            }
            other => rest = &rest[other.len_utf8()..],
        }
        rest = rest.trim_start();
    }
    tokens
}
