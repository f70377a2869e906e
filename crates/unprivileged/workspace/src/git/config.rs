//! A reader of git's configuration syntax that follows no include and runs nothing.
//!
//! **Trust:** the file is the user's, but may have come with a download. It is bounded, and only a handful of
//! keys are ever asked for; none of them names a program.
use std::collections::BTreeSet;
use std::path::Path;

/// A configuration larger than this is not one a person wrote; git's own largest tests stay below 100 KiB.
const MAX_CONFIG: u64 = 1 << 20;
/// Keys kept: far above any real file, and small beside [`MAX_CONFIG`].
const MAX_KEYS: usize = 20_000;

/// Parsed keys, lower-cased `section.key` or `section.sub.key`, in file order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    keys: Vec<(String, String)>,
}

/// Who commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `user.name`.
    pub name: String,
    /// `user.email`.
    pub email: String,
}

impl Config {
    /// Parses text; a line that is not understood ends the parse with `None`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut config = Self::default();
        let mut section = String::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let mut rest = line.trim_start_matches(['\u{feff}', ' ', '\t', '\r']);
            if let Some(header) = rest.strip_prefix('[') {
                let (name, after) = parse_header(header)?;
                section = name;
                rest = after.trim_start();
            }
            if rest.trim_end().is_empty() || rest.starts_with(['#', ';']) {
                continue;
            }
            let (key, value) = rest.split_once('=').unwrap_or((rest, "true"));
            let key = key
                .split(['#', ';'])
                .next()
                .unwrap_or_default()
                .trim()
                .to_ascii_lowercase();
            let well_formed = key.starts_with(|c: char| c.is_ascii_alphabetic())
                && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
            if section.is_empty() || !well_formed || config.keys.len() == MAX_KEYS {
                return None;
            }
            let value = parse_value(value, &mut lines)?;
            config.keys.push((format!("{section}.{key}"), value));
        }
        Some(config)
    }

    /// Reads a file; absent or unreadable or malformed is an empty configuration with `false`.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        let bytes = crate::rooted::read_small(path, MAX_CONFIG).ok()?;
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

    /// The last value of a key, as git takes it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.keys
            .iter()
            .rev()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }

    /// Names and addresses of the remotes; where one has several addresses, the first, which git fetches from.
    pub fn remotes(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut seen = BTreeSet::new();
        self.keys.iter().filter_map(move |(key, value)| {
            let name = key.strip_prefix("remote.")?.strip_suffix(".url")?;
            seen.insert(name).then_some((name, value.as_str()))
        })
    }

    /// Whether a boolean key is on.
    #[must_use]
    pub fn is_true(&self, key: &str) -> bool {
        self.get(key)
            .is_some_and(|value| matches!(value.to_ascii_lowercase().as_str(), "true" | "yes" | "on" | "1"))
    }
}

impl Identity {
    /// The first identity that one of `files` gives, else one that says who made the commit.
    #[must_use]
    pub fn from_files(files: &[&Path]) -> Self {
        let configs: Vec<Config> = files.iter().filter_map(|file| Config::read(file)).collect();
        let pick = |key: &str| {
            configs
                .iter()
                .find_map(|config| config.get(key))
                .map(clean)
                .filter(|text| !text.is_empty())
        };
        Self {
            name: pick("user.name").unwrap_or_else(|| "bastle".to_owned()),
            email: pick("user.email").unwrap_or_else(|| "bastle@localhost".to_owned()),
        }
    }
}

/// An identity on one line, without the marks that delimit it in a commit.
fn clean(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control() && !matches!(c, '<' | '>' | '"' | '\\'))
        .take(200)
        .collect::<String>()
        .trim()
        .to_owned()
}

/// `name]`, `name "sub"]` or `name.sub]`, and what follows on the line.
fn parse_header(text: &str) -> Option<(String, &str)> {
    let end = text.find([' ', '\t', ']'])?;
    let name = &text[..end];
    if name.is_empty()
        || !name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'))
    {
        return None;
    }
    let name = name.to_ascii_lowercase();
    let rest = text[end..].trim_start();
    if let Some(after) = rest.strip_prefix(']') {
        return Some((name, after));
    }
    let mut sub = String::new();
    let mut characters = rest.strip_prefix('"')?.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => sub.push(characters.next()?.1),
            '"' => return Some((format!("{name}.{sub}"), rest[at + 2..].strip_prefix(']')?)),
            plain => sub.push(plain),
        }
    }
    None
}

/// A value with quotes, escapes, comments and continued lines taken out.
fn parse_value<'a>(first: &'a str, lines: &mut impl Iterator<Item = &'a str>) -> Option<String> {
    let mut value = String::new();
    let mut kept = 0;
    let mut quoted = false;
    let mut line = first.trim_start();
    loop {
        let mut continued = false;
        let mut characters = line.trim_end_matches('\r').chars();
        while let Some(character) = characters.next() {
            match character {
                '"' => quoted = !quoted,
                '#' | ';' if !quoted => break,
                '\\' => match characters.next() {
                    None => continued = true,
                    Some('n') => value.push('\n'),
                    Some('t') => value.push('\t'),
                    Some('b') => value.push('\u{8}'),
                    Some(same @ ('"' | '\\')) => value.push(same),
                    Some(_) => return None,
                },
                plain => value.push(plain),
            }
            // Trailing blanks count only inside quotes.
            if quoted || !matches!(character, ' ' | '\t') {
                kept = value.len();
            }
        }
        if !continued {
            break;
        }
        line = lines.next()?;
    }
    value.truncate(kept);
    if quoted { None } else { Some(value) }
}

/// Feeds any bytes to the parser.
pub(crate) fn fuzz_config(bytes: &[u8]) {
    if let Some(config) = Config::parse(&String::from_utf8_lossy(bytes)) {
        assert!(config.keys.len() <= MAX_KEYS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sections_quotes_comments_and_continuations_read_as_git_reads_them() {
        let text = "[core]\n\tbare = false # no\n[User]\n name = \"A \\\"B\\\" \" ; c\n\temail=x@y\\\nz\n[remote \"o.X\"] url = u\n[a]\nflag\n";
        let config = Config::parse(text).unwrap();
        assert_eq!(config.get("core.bare"), Some("false"));
        assert_eq!(config.get("user.name"), Some("A \"B\" "));
        assert_eq!(config.get("user.email"), Some("x@yz"));
        assert_eq!(config.get("remote.o.X.url"), Some("u"));
        assert!(config.is_true("a.flag"));
        for bad in [
            "[",
            "[a",
            "[a \"b]",
            "x = 1",
            "[a]\nb = \"c",
            "[a]\nb = \\q",
            "[a]\n1 = 2",
        ] {
            assert_eq!(Config::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn an_identity_cannot_smuggle_a_second_line_or_another_address() {
        assert_eq!(clean("Eve <root@x>\nauthor"), "Eve root@xauthor");
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes: Vec<u8>) { fuzz_config(&bytes); }
        #[test]
        fn no_config_like_text_makes_the_parser_panic(text in "[\\[\\]a-c \"\\\\=#;\n.]{0,60}") { fuzz_config(text.as_bytes()); }
    }
}
