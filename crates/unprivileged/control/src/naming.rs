//! Names of runs: two words and four digits, easy to say and unlikely to collide.
use bastle_contract::{Code, Fault, RunId};

const FIRST: &[&str] = &[
    "amber", "brave", "brisk", "calm", "clear", "crisp", "dim", "dry", "early", "fair", "firm", "fond",
    "gentle", "glad", "grey", "kind", "late", "light", "lucky", "mild", "neat", "pale", "plain", "proud",
    "quick", "quiet", "red", "shy", "sly", "soft", "still", "warm",
];
const SECOND: &[&str] = &[
    "badger", "crane", "curlew", "dipper", "dove", "eider", "falcon", "finch", "fox", "hare", "heron",
    "ibex", "jackdaw", "kite", "lark", "lynx", "marten", "mole", "newt", "otter", "owl", "plover", "raven",
    "robin", "seal", "shrew", "stoat", "swift", "tern", "vole", "wren", "yak",
];

/// A fresh name.
pub fn new_run_id() -> Result<RunId, Fault> {
    let fault = |why: String| Fault::new(Code::StateDir, "cannot name the run", why);
    let number = getrandom::u32().map_err(|error| fault(error.to_string()))?;
    let pick = |words: &[&'static str], bits: u32| words[bits as usize % words.len()];
    let name = format!(
        "{}-{}-{:04x}",
        pick(FIRST, number & 0xff),
        pick(SECOND, (number >> 8) & 0xff),
        number >> 16
    );
    RunId::try_from(name).map_err(|error| fault(error.to_string()))
}
