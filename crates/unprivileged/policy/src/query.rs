//! Questions: what `can-i`, `why` and in-file tests ask.
use crate::host::Host;
use crate::layers::Surroundings;
use crate::pathrule::{Globs, PathRule};
use crate::toolrule::ToolRule;
use bastle_contract::{AbsPath, Code, Fault};
use std::fmt;

/// One question about the effective policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Reading a path of the host.
    Read(AbsPath),
    /// Writing, creating or removing a path of the host.
    Write(AbsPath),
    /// Running a command line.
    Exec(String),
    /// A request that goes out.
    Net(NetQuery),
    /// Using one of the agent's tools.
    Tool(String),
}

/// A request that goes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetQuery {
    /// Method; `None` asks about every method.
    pub method: Option<String>,
    /// Host.
    pub host: Host,
    /// Port.
    pub port: u16,
    /// Path without query; `None` asks about every path.
    pub path: Option<String>,
}

impl Query {
    /// Reads a question such as `read ~/.ssh/id`, `net GET https://x.com/a`, `exec git push`.
    pub fn parse(text: &str, surroundings: &Surroundings) -> Result<Self, Fault> {
        let fault = |why: String| {
            Fault::new(
                Code::UsageArgument,
                format!("question {text:?} is not understood"),
                why,
            )
            .help("ask read PATH, write PATH, exec COMMAND, net [METHOD] URL or tool NAME")
        };
        let (verb, rest) = text
            .trim()
            .split_once(' ')
            .ok_or_else(|| fault("it has no object".to_owned()))?;
        let rest = rest.trim();
        if rest.is_empty() {
            return Err(fault("it has no object".to_owned()));
        }
        match verb {
            "read" => path(rest, surroundings).map(Self::Read).map_err(fault),
            "write" => path(rest, surroundings).map(Self::Write).map_err(fault),
            "exec" => Ok(Self::Exec(unquoted(rest).to_owned())),
            "net" => net(rest).map(Self::Net).map_err(fault),
            "tool" => ToolRule::new(rest)
                .map(|_| Self::Tool(rest.to_owned()))
                .map_err(fault),
            other => Err(fault(format!("{other:?} is not read, write, exec, net or tool"))),
        }
    }

    /// Whether `text` is a question, wherever it is asked.
    pub(crate) fn check(text: &str) -> Result<(), String> {
        let anywhere = Surroundings {
            home: AbsPath::root(),
            workspace: AbsPath::root(),
        };
        Self::parse(text, &anywhere)
            .map(|_| ())
            .map_err(|fault| format!("{}: {}", fault.what, fault.why))
    }
}

fn path(text: &str, surroundings: &Surroundings) -> Result<AbsPath, String> {
    PathRule::read(unquoted(text), Globs::Refused)?
        .rule
        .resolve(surroundings)
}

/// A whole text in quotes, as people copy it from a shell, without them.
fn unquoted(text: &str) -> &str {
    for quote in ['"', '\''] {
        let inner = text.strip_prefix(quote).and_then(|t| t.strip_suffix(quote));
        if let Some(inner) = inner.filter(|inner| !inner.contains(quote)) {
            return inner;
        }
    }
    text
}

fn net(text: &str) -> Result<NetQuery, String> {
    let (method, target) = match text.split_once(' ') {
        Some((method, target)) if method.bytes().all(|b| b.is_ascii_uppercase()) => {
            (Some(method.to_owned()), target.trim())
        }
        Some((method, _)) => return Err(format!("{method:?} is not a method such as GET")),
        None => (None, text),
    };
    let (scheme, rest) = target
        .split_once("://")
        .map_or((None, target), |(s, r)| (Some(s), r));
    let usual = match scheme {
        None | Some("https" | "wss") => 443,
        Some("http" | "ws") => 80,
        Some(other) => return Err(format!("scheme {other:?} has no way out")),
    };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = match rest.find('/') {
        Some(slash) => (&rest[..slash], Some(rest[slash..].to_owned())),
        None => (rest, scheme.map(|_| "/".to_owned())),
    };
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (
            host,
            port.parse::<u16>()
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| format!("{port:?} is not a port"))?,
        ),
        None => (authority, usual),
    };
    let host = Host::new(host).map_err(|e| e.to_string())?;
    Ok(NetQuery {
        method,
        host,
        port,
        path,
    })
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path) => write!(f, "read {path}"),
            Self::Write(path) => write!(f, "write {path}"),
            Self::Exec(line) => write!(f, "exec {line}"),
            Self::Net(net) => write!(f, "net {net}"),
            Self::Tool(tool) => write!(f, "tool {tool}"),
        }
    }
}

impl fmt::Display for NetQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(method) = &self.method {
            write!(f, "{method} ")?;
        }
        write!(
            f,
            "{}:{}{}",
            self.host,
            self.port,
            self.path.as_deref().unwrap_or_default()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(text: &str) -> Result<Query, Fault> {
        let path = |text: &str| AbsPath::new(text).unwrap();
        Query::parse(
            text,
            &Surroundings {
                home: path("/home/u"),
                workspace: path("/home/u/w"),
            },
        )
    }

    #[test]
    fn questions_are_read_as_people_type_them() {
        assert_eq!(ask("read ~/.ssh/id").unwrap().to_string(), "read /home/u/.ssh/id");
        assert_eq!(ask("write ./a/b").unwrap().to_string(), "write /home/u/w/a/b");
        assert_eq!(ask("exec \"git push\"").unwrap(), Query::Exec("git push".into()));
        assert_eq!(
            ask("net GET https://X.com./a?secret=1").unwrap().to_string(),
            "net GET x.com:443/a"
        );
        assert_eq!(ask("net x.com:8080").unwrap().to_string(), "net x.com:8080");
    }

    #[test]
    fn a_question_about_nothing_or_about_a_disguised_place_is_refused() {
        for bad in [
            "",
            "read",
            "read ",
            "fly x",
            "read ../x",
            "net u@x.com",
            "net ftp://x.com",
            "net get x.com",
            "net x.com:99999",
            "tool (x)",
        ] {
            assert_eq!(ask(bad).map_err(|f| f.code), Err(Code::UsageArgument), "{bad:?}");
        }
    }
}
