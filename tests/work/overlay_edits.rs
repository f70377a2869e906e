//! The user edits the project while an overlay lies above it, or after: what the agent did is still there whole, and
//! what is told about the edited files is true.
use super::review::{git, json, repository, say, says};
use super::support::{Lab, for_each_identity};
use std::process::Command;

/// A run in an overlay; gives its name.
#[track_caller]
fn overlay(lab: &Lab, script: &str) -> String {
    let fence = lab.fence().flags(["--workspace", "overlay"]);
    let name = fence.name().to_owned();
    let output = fence.sh(script);
    assert_eq!(output.ended.code, 0, "{output:?}");
    name
}

fn project(lab: &Lab) {
    lab.project("docs/kept.md", "kept\n");
    lab.project("docs/gone.md", "gone\n");
    repository(lab);
}

/// What the archive has under a name.
fn archived(lab: &Lab, name: &str) -> String {
    let output = Command::new("tar")
        .args(["-xOf"])
        .arg(lab.home().join("x.tar"))
        .arg(name)
        .output()
        .expect("tar starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_run_in_an_overlay_is_exported_and_forked_whatever_the_user_edited_since() {
    for_each_identity(|lab| {
        project(lab);
        let run = overlay(lab, "echo agent > src/new.c; echo agent >> docs/kept.md");
        lab.project("src/main.c", "int edited;\n");
        std::fs::remove_file(lab.workspace().join("docs/gone.md")).expect("is there");

        let value = json(
            lab,
            &format!("export {run} {}", lab.home().join("x.tar").display()),
            0,
        );
        let told: Vec<&str> = value["from_project"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|one| one["shown"].as_str())
            .collect();
        assert_eq!(told, ["docs/gone.md", "src/main.c"], "{value:#}");
        assert_eq!(value["whole"], true, "{value:#}");
        assert_eq!(archived(lab, "src/new.c"), "agent\n");
        assert_eq!(archived(lab, "docs/kept.md"), "kept\nagent\n");
        assert_eq!(archived(lab, "src/main.c"), "int edited;\n");
        assert_eq!(archived(lab, "docs/gone.md"), "");

        let forked = says(lab, &format!("fork {run} --name child"), 0);
        let truth = "note: src/main.c: changed in the project since the run began; the new copy has it as the project has it now";
        assert!(forked.stderr.contains(truth), "{forked:?}");
        // The user's edit is no work of the agent's.
        let names = says(lab, "diff child --name-only", 0).stdout;
        assert_eq!(names, "docs/kept.md\nsrc/new.c\n");
        json(lab, "apply child", 0);
        let read = |path: &str| std::fs::read_to_string(lab.workspace().join(path)).expect("is there");
        assert_eq!(read("src/main.c"), "int edited;\n");
        assert_eq!(read("docs/kept.md"), "kept\nagent\n");
        assert!(!lab.workspace().join("docs/gone.md").exists());
    });
}

#[test]
fn a_rollback_of_an_overlay_makes_what_it_reports_also_where_the_user_removed_the_file() {
    for_each_identity(|lab| {
        project(lab);
        let run = overlay(lab, "rm docs/gone.md; echo agent > docs/kept.md");
        says(lab, &format!("snapshot {run} work"), 0);
        says(lab, &format!("rollback {run} 0"), 0);
        assert_eq!(
            says(lab, &format!("diff {run} --name-only"), 0).stdout,
            "",
            "control"
        );
        std::fs::remove_file(lab.workspace().join("docs/gone.md")).expect("is there");
        let told = says(lab, &format!("rollback {run} work"), 0);
        assert!(told.stdout.contains("D docs/gone.md"), "{told:?}");
        git(lab, &["checkout", "-q", "docs/gone.md"]);
        let names = says(lab, &format!("diff {run} --name-only"), 0).stdout;
        assert_eq!(
            names, "docs/gone.md\ndocs/kept.md\n",
            "a deletion that was reported is missing"
        );
    });
}

#[test]
fn an_overlay_counts_as_applied_although_the_user_edited_another_file() {
    for_each_identity(|lab| {
        project(lab);
        let run = overlay(lab, "echo agent > src/new.c");
        lab.project("src/main.c", "int edited;\n");
        json(lab, &format!("apply {run}"), 0);
        let removed = say(lab, &format!("rm {run}"));
        assert_eq!(removed.code, 0, "{removed:?}");
    });
}
