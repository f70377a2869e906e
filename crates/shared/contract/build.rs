//! Takes the names that are protected in place out of the catalogue when the program is built: every start needs them,
//! and reading the whole catalogue would take longer than planning.
#![allow(clippy::expect_used, clippy::panic)]
use std::path::Path;

fn main() {
    let data = "data/host-executed.json";
    println!("cargo::rerun-if-changed={data}");
    println!("cargo::rerun-if-changed=build.rs");
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
    let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
    let file = Path::new(&out).join("protected_in_place.rs");
    let text = format!("static CATALOGUE: [&str; {}] = {patterns:?};\n", patterns.len());
    std::fs::write(file, text).expect("can be written");
}
