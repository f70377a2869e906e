//! Statements of finished runs: signed over what was done, refused where anything differs.
use super::review::{EDIT, json, leave, repository, says, work};
use super::support::for_each_identity;
use serde_json::Value;

#[test]
fn a_finished_run_is_sealed_with_its_result_and_a_changed_statement_is_not_genuine() {
    for_each_identity(|lab| {
        repository(lab);
        let run = work(lab, EDIT);
        let value = json(lab, &format!("seal {run}"), 0);
        let statement = &value["statement"];
        let names: Vec<&str> = statement["subject"]
            .as_array()
            .expect("subjects")
            .iter()
            .filter_map(|subject| subject["name"].as_str())
            .collect();
        assert_eq!(names, ["tree", "README", "src/new.c"], "{statement:#}");
        let details = &statement["predicate"]["runDetails"];
        assert_eq!(details["metadata"]["invocationId"], *run);
        let begun = statement.pointer("/predicate/buildDefinition/resolvedDependencies/1/digest/gitCommit");
        assert!(
            begun
                .and_then(Value::as_str)
                .is_some_and(|commit| commit.len() == 40)
        );

        let file = lab.workspace().join("run.intoto.jsonl");
        says(lab, &format!("seal {run} -o {}", file.display()), 0);
        let checked = json(lab, &format!("seal --verify {}", file.display()), 0);
        assert_eq!(
            (&checked["run"], &checked["statement"]),
            (&value["run"], statement)
        );
        says(lab, &format!("seal {run} -o {}", file.display()), 2);

        let envelope = std::fs::read_to_string(&file).expect("is there");
        let mut changed: Value = serde_json::from_str(&envelope).expect("JSON");
        let payload = changed["payload"].as_str().expect("text").to_owned();
        let twin = if payload.starts_with('e') { "f" } else { "e" };
        changed["payload"] = format!("{twin}{}", &payload[1..]).into();
        for (name, text) in [
            ("changed.jsonl", changed.to_string()),
            ("cut.jsonl", envelope[..envelope.len() / 2].to_owned()),
            ("unsigned.jsonl", envelope.replace("\"sig\"", "\"gis\"")),
        ] {
            let file = lab.workspace().join(name);
            std::fs::write(&file, text).expect("can be written");
            let refused = says(lab, &format!("seal --verify {}", file.display()), 1);
            assert!(
                refused.stderr.contains("does not verify"),
                "{name}: {}",
                refused.stderr
            );
        }
        let other = lab.workspace().join("other.pub");
        std::fs::write(&other, format!("{}\n", "3b".repeat(32))).expect("can be written");
        let foreign = format!("seal --verify {} --key {}", file.display(), other.display());
        says(lab, &foreign, 1);

        leave(lab, &run, b"src/later.c", b"later\n");
        let later = json(lab, &format!("seal {run}"), 0);
        assert_ne!(
            later["statement"]["subject"][0], statement["subject"][0],
            "another tree, another digest"
        );
        says(lab, "seal no-such-run", 3);
    });
}
