//! Which agent a command line starts, where that is certain.
//!
//! **Trust:** the command line is the operator's own. Whether the program lies in the project is for control to see.
use super::Agent;

/// An agent found in a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pick {
    /// The word that names its program, or the package where a runner fetches it.
    pub program: String,
    /// Whether that word is a path or name to be found here; a runner finds it by itself.
    pub local: bool,
    /// The place of that word in the command line.
    pub at: usize,
}

/// Finds the agent in a command line: by the program's own name, behind `env NAME=VALUE`, as the package that `npx`,
/// `bunx` or `uvx` runs, or as a script of its package that `node` runs. Options that a wrapper could do anything
/// with make it uncertain, and then nothing is found.
#[must_use]
pub fn pick(agent: &Agent, argv: &[String]) -> Option<Pick> {
    let (first, rest) = argv.split_first()?;
    match base(first) {
        "env" => {
            let at = rest.iter().position(|word| !is_assignment(word))?;
            let mut found = pick(agent, &rest[at..])?;
            found.at += at + 1;
            Some(found)
        }
        "npx" | "bunx" | "uvx" => {
            let at = rest
                .iter()
                .position(|word| !matches!(word.as_str(), "-y" | "--yes" | "--quiet" | "-q"))?;
            let package = unversioned(&rest[at]);
            let known = agent.packages.iter().any(|name| name == package)
                || agent.programs.iter().any(|name| name == package);
            known.then(|| Pick {
                program: package.to_owned(),
                local: false,
                at: at + 1,
            })
        }
        "node" | "bun" => {
            let script = rest.first()?;
            let inside = |package: &String| script.contains(&format!("/node_modules/{package}/"));
            (!script.starts_with('-') && agent.packages.iter().any(inside)).then(|| Pick {
                program: script.clone(),
                local: true,
                at: 1,
            })
        }
        name => agent.programs.iter().any(|own| own == name).then(|| Pick {
            program: first.clone(),
            local: true,
            at: 0,
        }),
    }
}

/// Whether the text of a preset could be that of the agent in a command line: programs and packages stand in it as whole
/// strings of a list, not behind a colon as values do. What fits besides is sorted out by [`pick`], once the preset is read.
pub(crate) fn may_name(text: &str, argv: &[String]) -> bool {
    let stands = |name: &str| {
        let listed = |at: usize| text[..at].trim_end().ends_with(['[', ',']);
        !name.is_empty()
            && text
                .match_indices(&format!("\"{name}\""))
                .any(|(at, _)| listed(at))
    };
    argv.iter().any(|word| {
        let mut installed = word.split("/node_modules/").skip(1);
        stands(base(word))
            || stands(unversioned(word))
            || installed.any(|path| {
                let mut names = path.splitn(3, '/');
                let (first, second) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
                stands(first) || stands(&format!("{first}/{second}"))
            })
    })
}

fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

/// `@scope/name@1.2` without its version.
fn unversioned(word: &str) -> &str {
    match word.char_indices().skip(1).find(|(_, letter)| *letter == '@') {
        Some((at, _)) => &word[..at],
        None => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Option<String> {
        let agent = Agent {
            programs: vec!["claude".to_owned()],
            packages: vec!["@anthropic-ai/claude-code".to_owned()],
            ..Agent::default()
        };
        let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
        pick(&agent, &argv).map(|pick| pick.program)
    }

    #[test]
    fn an_agent_is_found_through_wrappers_that_are_certain() {
        for (line, program) in [
            ("claude -p hi", "claude"),
            ("/opt/x/bin/claude", "/opt/x/bin/claude"),
            ("env A=1 B= claude", "claude"),
            (
                "npx -y @anthropic-ai/claude-code@2.1.0 -p x",
                "@anthropic-ai/claude-code",
            ),
            (
                "node /x/node_modules/@anthropic-ai/claude-code/cli.js",
                "/x/node_modules/@anthropic-ai/claude-code/cli.js",
            ),
        ] {
            assert_eq!(found(line).as_deref(), Some(program), "{line}");
        }
    }

    #[test]
    fn nothing_is_found_where_it_is_not_certain() {
        for line in [
            "bash -c claude",
            "env -i claude",
            "env",
            "npx --package x claude-code",
            "npx other claude",
            "node -e claude",
            "node cli.js",
            "claude-wrapper",
            "echo claude",
        ] {
            assert_eq!(found(line), None, "{line}");
        }
    }
}
