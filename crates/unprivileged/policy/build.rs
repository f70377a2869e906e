//! Makes tables of the program out of data files when it is built: the names that are protected in place, and the danger
//! matrix. Every start needs them, and parsing JSON would take longer than planning.
#![allow(clippy::expect_used, clippy::panic)]
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    protected_in_place();
    danger_matrix();
}

/// Writes `file` of the build's own directory.
fn write(file: &str, text: &str) {
    let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
    std::fs::write(Path::new(&out).join(file), text).expect("can be written");
}

fn danger_matrix() {
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
    write("danger_matrix.rs", &table);
}

fn protected_in_place() {
    let data = "data/host-executed.json";
    println!("cargo::rerun-if-changed={data}");
    let text = std::fs::read_to_string(data).expect("the catalogue can be read");
    let catalogue: serde_json::Value = serde_json::from_str(&text).expect("the catalogue is JSON");
    let entries = catalogue["entries"]
        .as_array()
        .expect("the catalogue has entries");
    let patterns: Vec<&str> = entries
        .iter()
        .filter(|entry| entry["protect_in_place"] == true)
        .map(|entry| entry["pattern"].as_str().expect("an entry has a pattern"))
        .collect();
    assert!(!patterns.is_empty(), "the catalogue protects nothing");
    write("protected_in_place.rs", &format!("&{patterns:?}"));
}
