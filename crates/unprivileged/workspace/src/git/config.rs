//! A reader of git's configuration syntax that follows no include and runs nothing.
//!
//! **Trust:** the file is the user's, but may have come with a download. It is bounded, and only a handful of
//! keys are ever asked for; none of them names a program.
use std::collections::BTreeSet;
use std::path::Path;

/// A configuration larger than this is not one a person wrote; git's own largest tests stay below 100 KiB.
const MAX_CONFIG: u64 = 1 << 20;
/// What git skips between words; other blanks of Unicode are text to it.
const BLANKS: [char; 3] = [' ', '\t', '\r'];
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
        // Git ends a value at a NUL, which this reader does not.
        if text.contains('\0') {
            return None;
        }
        let mut config = Self::default();
        let mut section = String::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let mut rest = line.trim_start_matches(['\u{feff}', ' ', '\t', '\r']);
            // One line may hold several.
            while let Some(header) = rest.strip_prefix('[') {
                let (name, after) = parse_header(header)?;
                section = name;
                rest = after.trim_start_matches(BLANKS);
            }
            if rest.trim_end_matches(BLANKS).is_empty() || rest.starts_with(['#', ';']) {
                continue;
            }
            let (key, value) = rest.split_once('=').unwrap_or((rest, "true"));
            let key = key
                .split(['#', ';'])
                .next()
                .unwrap_or_default()
                .trim_matches(BLANKS)
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

    /// Every key with its value, in file order.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.keys
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
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
    let rest = text[end..].trim_start_matches(BLANKS);
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
    let mut line = first;
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
                // Also at the beginning of a continued line.
                blank if !quoted && value.is_empty() && BLANKS.contains(&blank) => {}
                plain => value.push(plain),
            }
            // Trailing blanks count only inside quotes.
            if quoted || !BLANKS.contains(&character) {
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
        for (key, value) in config.entries() {
            let name = key
                .rsplit_once('.')
                .map(|(section, name)| (section.is_empty(), name));
            let named =
                |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
            assert!(name.is_some_and(|(empty, name)| !empty && named(name)), "{key:?}");
            assert!(!key.contains('\0') && !value.contains('\0'));
        }
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
            "[a]\nb = c\0d",
        ] {
            assert_eq!(Config::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn an_identity_cannot_smuggle_a_second_line_or_another_address() {
        assert_eq!(clean("Eve <root@x>\nauthor"), "Eve root@xauthor");
    }

    /// What git itself reads; `None` where it refuses the file.
    fn by_git(directory: &Path, text: &str) -> Option<Vec<(String, String)>> {
        let file = directory.join("config");
        std::fs::write(&file, text).unwrap();
        let output = std::process::Command::new("git")
            .args(["config", "--list", "-z", "--file"])
            .arg(&file)
            .output()
            .unwrap();
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        let pair = |entry: &str| {
            let (key, value) = entry.split_once('\n').unwrap_or((entry, "true"));
            (key.to_owned(), value.to_owned())
        };
        output
            .status
            .success()
            .then(|| listed.split_terminator('\0').map(pair).collect())
    }

    fn ours(text: &str) -> Option<Vec<(String, String)>> {
        let own = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        Config::parse(text).map(|config| config.entries().map(own).collect())
    }

    #[test]
    fn git_reads_the_same_out_of_every_form_of_a_value() {
        let directory = tempfile::tempdir().unwrap();
        for text in [
            "[remote \"a\"]\nurl = \"https://\"host/x\n",
            "[remote \"a\"]\nurl = ht\\\ntps://host/x\n",
            "[remote \"a\"]\nurl = \\\n  https://host/x\n",
            "[remote \"a\"]\r\nurl = ht\\\r\ntps://host/x\r\n",
            "[remote \"a\"]url=https://host/x;c\n",
            "[a][remote \"b\\\"\\\\\"] url = \"a#b\" # c \\\n[c]\nd\n",
            "\u{feff}[REMOTE.Origin]\n\tURL = x\\ty\\\"z\\\\ \t\n",
        ] {
            let git = by_git(directory.path(), text);
            assert!(git.is_some(), "{text:?}");
            assert_eq!(ours(text), git, "{text:?}");
        }
    }

    fn fragment() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec![
            "[a]",
            "[remote \"x\"]",
            "[A.B]",
            "[",
            "]",
            "\n",
            "\n",
            "\r\n",
            " ",
            "\t",
            "\\",
            "\\\n",
            "\"",
            "\\\"",
            "\\n",
            "=",
            " = ",
            "url",
            "path",
            "#",
            ";",
            "https://h/x",
            "\u{a0}",
            "-",
            "9",
            ".",
        ])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn what_both_git_and_this_reader_accept_they_read_alike(parts in prop::collection::vec(fragment(), 0..14)) {
            let text = format!("[s]\nk = {}", parts.concat());
            let directory = tempfile::tempdir().unwrap();
            if let (Some(ours), Some(git)) = (ours(&text), by_git(directory.path(), &text)) {
                // git before 2.45 makes a space of each white space within a value; later ones keep it, as this reader.
                let spaces = |read: Vec<(String, String)>| -> Vec<(String, String)> {
                    read.into_iter().map(|(key, value)| (key, value.replace(['\t', '\r'], " "))).collect()
                };
                prop_assert_eq!(spaces(ours), spaces(git), "{:?}", text);
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes: Vec<u8>) { fuzz_config(&bytes); }
        #[test]
        fn no_config_like_text_makes_the_parser_panic(text in "[\\[\\]a-c \"\\\\=#;\n.]{0,60}") { fuzz_config(text.as_bytes()); }
    }
}
