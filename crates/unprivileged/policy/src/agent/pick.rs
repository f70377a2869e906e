//! Which agent a command line starts, where that is certain.
//!
//! **Trust:** the command line is the operator's own. Whether the program lies in the project is for control to see.
use super::Agent;

/// Package runners, and the verbs by which the ones with several run a package. All of them look into the project: npx and
/// its kin prefer `node_modules/.bin` and read `.npmrc`, uv reads `pyproject.toml`.
const RUNNERS: &[(&str, &[&str])] = &[
    ("npx", &[]),
    ("pnpx", &[]),
    ("bunx", &[]),
    ("uvx", &[]),
    ("npm", &["exec", "x", "run", "start"]),
    ("pnpm", &["dlx", "exec", "run"]),
    ("yarn", &["dlx", "exec", "run"]),
    ("bun", &["x", "run"]),
    ("uv", &["run", "tool"]),
    ("pipx", &["run"]),
    ("deno", &["run"]),
];
/// Programs that execute what their own words, the shell or their surroundings say.
const WRAPPERS: &[&str] = &[
    "env",
    "nice",
    "ionice",
    "chrt",
    "taskset",
    "nohup",
    "setsid",
    "timeout",
    "time",
    "stdbuf",
    "unbuffer",
    "script",
    "sudo",
    "doas",
    "su",
    "runuser",
    "setpriv",
    "chroot",
    "unshare",
    "nsenter",
    "flock",
    "watch",
    "xargs",
    "parallel",
    "find",
    "strace",
    "ltrace",
    "gdb",
    "sh",
    "bash",
    "dash",
    "zsh",
    "ksh",
    "fish",
    "busybox",
    "direnv",
    "mise",
    "asdf",
    "nix",
    "nix-shell",
    "make",
    "just",
    "task",
    "tmux",
    "screen",
    "python",
    "python3",
    "node",
    "bun",
    "perl",
    "ruby",
];
/// Beginnings of variables by which a loader, a shell or an interpreter finds or loads code.
const LOADERS: &[&str] = &[
    "PATH",
    "LD_",
    "DYLD_",
    "GCONV_",
    "NODE",
    "NPM",
    "BUN",
    "DENO",
    "YARN",
    "PNPM",
    "UV_",
    "PIP",
    "PY",
    "VIRTUAL_ENV",
    "CONDA",
    "PERL",
    "RUBY",
    "GEM",
    "BUNDLE",
    "JAVA",
    "_JAVA",
    "JDK",
    "BASH",
    "ENV",
    "ZDOTDIR",
    "SHELL",
    "IFS",
    "HOME",
    "XDG_",
    "GIT_",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "BROWSER",
];

/// An agent found in a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pick {
    /// The word that names its program, or its package.
    pub program: String,
    /// Whether that is what will be executed.
    pub way: Way,
    /// The place of that word in the command line.
    pub at: usize,
}

/// Who decides which file is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// The command line alone: the word is a path, or a name to be found by the operator's `PATH`.
    Own,
    /// Something between, which may take a file of the project. Why, for people.
    Uncertain(String),
}

/// Finds the agent in a command line: by the program's own name, behind `env NAME=WORD`, or as a script of its package that
/// `node` runs. Behind a package runner, a shell or another wrapper it is [`Way::Uncertain`].
#[must_use]
pub fn pick(agent: &Agent, argv: &[String]) -> Option<Pick> {
    let (first, rest) = argv.split_first()?;
    match base(first) {
        "env" => match rest.iter().position(|word| !is_assignment(word)) {
            Some(at) if !rest[at].starts_with('-') => {
                let mut found = pick(agent, &rest[at..])?;
                found.at += at + 1;
                if let (Way::Own, Some(name)) = (&found.way, rest[..at].iter().find_map(|word| chooses(word)))
                {
                    found.way = Way::Uncertain(format!("env sets {name}, which may choose what is executed"));
                }
                Some(found)
            }
            Some(_) => mentioned(agent, argv, "the options of env may choose another program"),
            None => None,
        },
        // Not bun: it obeys the project's bunfig.toml.
        "node" if rest.first().is_some_and(|script| is_script(agent, script)) => Some(Pick {
            program: rest[0].clone(),
            way: Way::Own,
            at: 1,
        }),
        name if agent.programs.iter().any(|own| own == name) => Some(Pick {
            program: first.clone(),
            way: Way::Own,
            at: 0,
        }),
        name if is_runner(name, rest) => {
            let why = format!("{name} runs the package that the project's files and the registry choose");
            mentioned(agent, argv, &why)
        }
        name if WRAPPERS.contains(&name) => {
            mentioned(agent, argv, &format!("{name} decides what is executed"))
        }
        _ => None,
    }
}

/// The agent behind a first word that is none of the known runners and wrappers: for a preset that a person names, whose
/// key must not go to what that word starts.
#[must_use]
pub fn behind(agent: &Agent, argv: &[String]) -> Option<Pick> {
    let first = base(argv.first()?);
    mentioned(agent, argv, &format!("{first} decides what is executed"))
}

fn is_script(agent: &Agent, script: &str) -> bool {
    let inside = |package: &String| script.contains(&format!("/node_modules/{package}/"));
    !script.starts_with('-') && agent.packages.iter().any(inside)
}

fn is_runner(name: &str, rest: &[String]) -> bool {
    let first = rest.iter().find(|word| !word.starts_with('-'));
    RUNNERS.iter().any(|(runner, verbs)| {
        *runner == name && (verbs.is_empty() || first.is_some_and(|verb| verbs.contains(&verb.as_str())))
    })
}

/// The agent, where a word behind the first names it; also one within a text for a shell.
fn mentioned(agent: &Agent, argv: &[String], why: &str) -> Option<Pick> {
    let known = |part: &str| {
        let bare = unversioned(part);
        agent.packages.iter().any(|name| name == bare)
            || agent
                .programs
                .iter()
                .any(|name| name == bare || name == base(part))
            || is_script(agent, part)
    };
    argv.iter().enumerate().skip(1).find_map(|(at, word)| {
        let mut parts = word.split(|letter: char| letter.is_whitespace() || ";&|()'\"`$=".contains(letter));
        parts.find(|part| known(part)).map(|part| Pick {
            program: part.to_owned(),
            way: Way::Uncertain(why.to_owned()),
            at,
        })
    })
}

/// The name of a variable that may choose what is executed: one that loaders read, or any whose value could be a path
/// or an option.
fn chooses(word: &str) -> Option<&str> {
    let (name, value) = word.split_once('=')?;
    let upper = name.to_ascii_uppercase();
    let loads = LOADERS.iter().any(|start| upper.starts_with(start)) || upper.ends_with("PATH");
    let plain = |word: &str| {
        !word.starts_with(['-', '.', '~'])
            && word
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.,:@+".contains(&byte))
    };
    let plain = is_web_address(value) || value.split(' ').all(plain);
    (loads || !plain).then_some(name)
}

/// Whether a value is the address of a server, which is no file of the project.
fn is_web_address(value: &str) -> bool {
    let rest = value.strip_prefix("https://").or(value.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        rest.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.,:@+/?=&%~[]".contains(&byte))
    })
}

/// The first of these variables that may choose what is executed.
pub fn choosing_variable<'v>(variables: impl IntoIterator<Item = (&'v str, &'v str)>) -> Option<&'v str> {
    variables
        .into_iter()
        .find(|(name, value)| chooses(&format!("{name}={value}")).is_some())
        .map(|(name, _)| name)
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
    let parts = argv.iter().flat_map(|word| {
        let within = word.split(|letter: char| letter.is_whitespace() || ";&|()'\"`$=".contains(letter));
        std::iter::once(word.as_str()).chain(within)
    });
    parts.into_iter().any(|word| {
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

/// Whether a word sets a variable (`NAME=VALUE`), to a shell and to `env` alike.
#[must_use]
pub fn is_assignment(word: &str) -> bool {
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

    fn agent() -> Agent {
        Agent {
            programs: vec!["claude".to_owned()],
            packages: vec!["@anthropic-ai/claude-code".to_owned()],
            ..Agent::default()
        }
    }

    fn found(line: &str) -> Option<String> {
        let agent = agent();
        let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
        pick(&agent, &argv)
            .filter(|pick| pick.way == Way::Own)
            .map(|pick| pick.program)
    }

    fn uncertain(line: &str) -> bool {
        let agent = agent();
        let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
        pick(&agent, &argv).is_some_and(|pick| pick.way != Way::Own)
    }

    #[test]
    fn an_agent_is_found_through_wrappers_that_are_certain() {
        for (line, program) in [
            ("claude -p hi", "claude"),
            ("/opt/x/bin/claude", "/opt/x/bin/claude"),
            ("env A=1 B= claude", "claude"),
            ("env TERM=dumb DEBUG=1 claude", "claude"),
            ("env API_URL=https://llm.example:8443/v1?a=b claude", "claude"),
            (
                "node /x/node_modules/@anthropic-ai/claude-code/cli.js",
                "/x/node_modules/@anthropic-ai/claude-code/cli.js",
            ),
        ] {
            assert_eq!(found(line).as_deref(), Some(program), "{line}");
        }
    }

    #[test]
    fn behind_any_other_first_word_the_agent_is_not_the_one_that_is_executed() {
        let agent = agent();
        for line in [
            "pnpm claude",
            "yarn claude",
            "npm --prefix . exec claude",
            "yarn --cwd . run claude",
            "poetry run claude",
            "xvfb-run claude",
            "/lib64/ld-linux-x86-64.so.2 bin/claude",
        ] {
            let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let found = pick(&agent, &argv).or_else(|| behind(&agent, &argv));
            assert!(found.is_some_and(|pick| pick.way != Way::Own), "{line}");
        }
        let argv = ["./own-wrapper".to_owned()];
        assert_eq!(behind(&agent, &argv), None, "control: it names no agent");
    }

    #[test]
    fn whatever_may_take_a_file_of_the_project_is_never_the_agent_itself() {
        for line in [
            "npx claude",
            "npx -y @anthropic-ai/claude-code@2.1.0 -p x",
            "npx --package x claude",
            "/usr/bin/npx claude",
            "pnpx claude",
            "bunx claude",
            "uvx claude",
            "npm exec claude",
            "npm --silent x -- claude",
            "pnpm dlx claude",
            "pnpm exec claude",
            "yarn dlx @anthropic-ai/claude-code",
            "yarn run claude",
            "bun /x/node_modules/@anthropic-ai/claude-code/cli.js",
            "bun x claude",
            "uv tool run claude",
            "pipx run claude",
            "env PATH=bin claude",
            "env PATH=/p/bin:/usr/bin claude",
            "env LD_PRELOAD=x claude",
            "env NODE_OPTIONS=-r claude",
            "env A=./x claude",
            "env A=-r claude",
            "env BASH_ENV=x claude",
            "env -S claude",
            "env -i claude",
            "env -u X claude",
            "env -S claude --p",
            "env A=1 npx claude",
            "env A=1 env PATH=x claude",
            "nice claude",
            "nice -n 5 claude",
            "timeout 5 claude",
            "nohup claude",
            "xargs claude",
            "sh -c claude",
            "sh -c exec claude",
            "bash -lc ./node_modules/.bin/claude",
            "node node_modules/.bin/claude",
            "sudo claude",
        ] {
            assert!(uncertain(line), "{line}");
            assert_eq!(found(line), None, "{line}");
        }
    }

    #[test]
    fn a_variable_that_may_choose_what_is_executed_is_named() {
        let none = [
            ("TASK", "fix the bug"),
            ("TRACEPARENT", "00-ab-cd-01"),
            ("URL", "http://a.example/x"),
        ];
        assert_eq!(choosing_variable(none), None);
        for (name, value) in [
            ("PATH", "bin"),
            ("Path", "bin"),
            ("NODE_OPTIONS", "x"),
            ("LD_PRELOAD", "x.so"),
            ("HOME", "x"),
            ("ANY", "./bin/claude"),
            ("ANY", "a -r b"),
            ("ANY", "file:///x"),
            ("ANY", "a bin/b"),
        ] {
            assert_eq!(
                choosing_variable([("A", "b"), (name, value)]),
                Some(name),
                "{value}"
            );
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
