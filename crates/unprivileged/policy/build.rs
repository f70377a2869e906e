//! Makes the danger matrix a table of the program when it is built: every start needs it, and parsing JSON would take longer
//! than planning.
#![allow(clippy::expect_used, clippy::panic)]
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let data = "danger-matrix.json";
    println!("cargo::rerun-if-changed={data}");
    let text = std::fs::read_to_string(data).expect("the matrix can be read");
    let rows: Vec<serde_json::Map<String, serde_json::Value>> =
        serde_json::from_str(&text).expect("the matrix is a list of objects");
    let mut table = String::from("&[");
    for row in &rows {
        let text = |key: &str| row[key].as_str().expect("a text");
        let known = ["kind", "name", "tier", "why", "example"];
        assert!(row.keys().all(|key| known.contains(&key.as_str())), "{row:?}");
        let tier = match row["tier"].as_u64() {
            Some(1) => "Silent",
            Some(2) => "Logged",
            Some(3) => "Stops",
            other => panic!("tier {other:?} does not exist"),
        };
        let example = row
            .get("example")
            .map(|example| example.as_str().expect("a text"));
        table.push_str(&format!(
            "DangerEntry {{ kind: {:?}, name: {:?}, tier: Tier::{tier}, why: {:?}, example: {example:?} }},",
            text("kind"),
            text("name"),
            text("why"),
        ));
    }
    table.push(']');
    let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
    std::fs::write(Path::new(&out).join("danger_matrix.rs"), table).expect("can be written");
}
