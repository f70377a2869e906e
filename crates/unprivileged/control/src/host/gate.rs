//! What is refused before an unfenced start: tools by name, paths by place. A check of words, not a boundary.
use bastle_contract::{AbsPath, Code, Fault};
use bastle_policy::command::{CommandOutcome, CommandRule, CommandRules, judge};
use std::path::{Component, Path, PathBuf};

/// Tools that are off: a shell or a network tool without a fence is anything, deletion cannot be undone.
const OFF: &[&str] = &[
    "sh",
    "bash",
    "dash",
    "ash",
    "zsh",
    "ksh",
    "mksh",
    "fish",
    "csh",
    "tcsh",
    "busybox",
    "toybox",
    "curl",
    "wget",
    "aria2c",
    "nc",
    "ncat",
    "netcat",
    "socat",
    "ssh",
    "scp",
    "sftp",
    "ftp",
    "lftp",
    "telnet",
    "rsync",
    "nmap",
    "rm",
    "rmdir",
    "unlink",
    "shred",
    "sudo",
    "su",
    "doas",
    "pkexec",
    "docker",
    "podman",
    "nerdctl",
    "buildah",
    "kubectl",
    "chroot",
    "unshare",
    "nsenter",
    "mount",
    "umount",
    "dd",
    "mkfs",
    "eval",
    "exec",
    "find * -delete",
];

/// Refuses a command line that names such a tool, directly or through a wrapper, or a path outside the workspace.
pub(super) fn check(argv: &[String], cwd: &AbsPath, workspace: &AbsPath) -> Result<(), Fault> {
    tools(argv)?;
    for argument in argv.iter().skip(1) {
        for path in paths(argument) {
            if !within(path, cwd, workspace) {
                let what = format!("{path:?} is outside the workspace {workspace}");
                return Err(Fault::new(
                    Code::HostTool,
                    what,
                    "without a fence only paths of the workspace are accepted as arguments",
                )
                .help("use the native backend: bastle doctor shows what it needs"));
            }
        }
    }
    Ok(())
}

fn tools(argv: &[String]) -> Result<(), Fault> {
    let refused = |what: String, why: String| {
        Fault::new(Code::HostTool, what, why)
            .help("use the native backend: bastle doctor shows what it needs")
    };
    let deny = OFF
        .iter()
        .filter_map(|tool| CommandRule::parse_restriction(tool).ok())
        .collect();
    let rules = CommandRules {
        allow: Vec::new(),
        ask: Vec::new(),
        deny,
    };
    let verdict = judge(&line(argv), &rules, CommandOutcome::Allow);
    match verdict.outcome {
        CommandOutcome::Allow => {}
        CommandOutcome::Ask | CommandOutcome::Deny => {
            let tool = verdict.rule.unwrap_or(verdict.part);
            return Err(refused(
                format!("{tool:?} is off without a fence"),
                verdict.reason,
            ));
        }
    }
    // The judge reads words; a link in the workspace can give a shell another name.
    let program = Path::new(&argv[0]);
    let real = std::fs::canonicalize(program)
        .ok()
        .filter(|_| program.components().count() > 1);
    let name = real
        .as_deref()
        .and_then(Path::file_name)
        .and_then(|name| name.to_str());
    match name {
        Some(name) if OFF.contains(&name) => Err(refused(
            format!("{:?} is {name}, which is off without a fence", argv[0]),
            String::new(),
        )),
        Some(_) | None => Ok(()),
    }
}

/// The words as one shell line, each quoted where needed.
fn line(argv: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    let quoted = argv
        .iter()
        .map(|word| match !word.is_empty() && word.chars().all(plain) {
            true => word.clone(),
            false => format!("'{}'", word.replace('\'', "'\\''")),
        });
    quoted.collect::<Vec<_>>().join(" ")
}

/// What of an argument may name a file: itself, a value behind `=`, and the path glued to an option (`-I/usr`).
fn paths(argument: &str) -> Vec<&str> {
    let mut found = Vec::new();
    if !argument.starts_with('-') {
        found.push(argument);
    } else if let Some(at) = argument.find('/') {
        found.push(&argument[at..]);
    }
    if let Some((_, value)) = argument.split_once('=') {
        found.push(value);
    }
    found
}

/// Whether a word, taken as a path, stays in the workspace: as written, and where its links lead.
fn within(word: &str, cwd: &AbsPath, workspace: &AbsPath) -> bool {
    if word.starts_with('~') {
        return false;
    }
    let mut clean = PathBuf::from("/");
    for component in cwd.as_path().join(word).components() {
        match component {
            Component::Normal(part) => clean.push(part),
            Component::ParentDir => drop(clean.pop()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    // The nearest part that exists decides where the rest would be made.
    let real = clean
        .ancestors()
        .find_map(|part| std::fs::canonicalize(part).ok());
    clean.starts_with(workspace.as_path()) && real.is_some_and(|real| real.starts_with(workspace.as_path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> (std::path::PathBuf, AbsPath) {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).unwrap();
        let root = std::env::temp_dir().join(format!("bastle-gate-{:016x}", u64::from_ne_bytes(seed)));
        std::fs::create_dir_all(root.join("ws/src")).unwrap();
        std::os::unix::fs::symlink("/etc", root.join("ws/link")).unwrap();
        std::os::unix::fs::symlink("/bin/sh", root.join("ws/tool")).unwrap();
        let root = std::fs::canonicalize(root).unwrap();
        let workspace = AbsPath::from_path(&root.join("ws")).unwrap();
        (root, workspace)
    }

    #[test]
    fn shells_network_tools_and_deletion_are_refused_also_through_wrappers() {
        let (root, ws) = workspace();
        let tool = ws.join("tool").unwrap().to_string();
        for line in [
            "sh -c x",
            "/bin/bash",
            "env sh",
            "timeout 5 curl x",
            "nice -n 3 wget x",
            "sudo make",
            "docker ps",
            "rm -r src",
            "rm x",
            "find . -exec rm x",
            "xargs rm",
            "ssh host",
            "env -i A=b nc -l",
            &tool,
        ] {
            let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let fault = check(&argv, &ws, &ws).expect_err(line);
            assert_eq!(fault.code, Code::HostTool, "{line}");
        }
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_path_outside_the_workspace_is_refused_in_every_disguise() {
        let (root, ws) = workspace();
        for word in [
            "/etc/passwd",
            "../x",
            "src/../../x",
            "~/.ssh",
            "--file=/etc/passwd",
            "-I/usr/include",
            "link/passwd",
            "link",
            "of=../x",
        ] {
            assert!(
                check(&["cat".to_owned(), word.to_owned()], &ws, &ws).is_err(),
                "{word}"
            );
        }
        for word in [
            "src",
            "src/../src/a",
            "./new/file",
            "-n",
            "--color=never",
            "a b",
            "plain",
        ] {
            assert!(
                check(&["cat".to_owned(), word.to_owned()], &ws, &ws).is_ok(),
                "{word}"
            );
        }
        std::fs::remove_dir_all(root).unwrap();
    }
}
