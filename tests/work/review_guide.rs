//! The guide is true: its commands are run, and what it shows is what comes.
use super::review::repository;
use super::support::{Lab, Limit, bastle, for_each_identity, run};
use std::path::Path;

/// The commands of the guide's transcripts, each with the lines shown below it.
fn transcript(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut steps: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| inside) {
            steps.push((command, Vec::new()));
        } else if let (true, Some((_, lines))) = (inside, steps.last_mut()) {
            lines.push(line);
        }
    }
    steps
}

/// Whether a line fits a shown one, in which `…` stands for anything.
fn fits(line: &str, shown: &str) -> bool {
    let mut rest = line;
    for (number, part) in shown.split('…').enumerate() {
        rest = match (number, rest.find(part)) {
            (0, Some(0)) => &rest[part.len()..],
            (1.., Some(at)) => &rest[at + part.len()..],
            (_, _) => return false,
        };
    }
    rest.is_empty() || shown.ends_with('…')
}

fn shell(lab: &Lab, command: &str) -> String {
    let directory = bastle().parent().expect("lies in a directory");
    let program = bastle()
        .file_name()
        .and_then(|name| name.to_str())
        .expect("UTF-8");
    let mut shell = lab.command(Path::new("/bin/sh"));
    // The guide says `bastle`; the program under test may have another name.
    let line = format!(
        "bastle() {{ {}/{program} \"$@\"; }}; {command}",
        directory.display()
    );
    let ended = run(shell.args(["-c", &line]), b"", Limit::HANG);
    assert_eq!(ended.code, 0, "{command}: {ended:#?}");
    ended.stdout + &ended.stderr
}

#[test]
fn every_command_of_the_guide_does_what_the_guide_shows() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/workspace.md");
    let guide = std::fs::read_to_string(guide).expect("the guide is there");
    let steps = transcript(&guide);
    assert!(steps.len() > 8, "the guide has commands: {steps:?}");
    for_each_identity(|lab| {
        repository(lab);
        for (command, shown) in &steps {
            let said = shell(lab, command);
            for expected in shown {
                assert!(
                    said.lines().any(|line| fits(line, expected)),
                    "{command}: {expected:?} in\n{said}"
                );
            }
            // A status with nothing below it says that nothing changed.
            if command.starts_with("git status") && shown.is_empty() {
                assert_eq!(said, "", "{command}");
            }
        }
    });
}
