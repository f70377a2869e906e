//! The guard against a real kernel: a child under the agent's own filter does real work, this process serves it.
mod counting;
mod creating;
mod harness;
mod opening;
mod patterns;
mod races;
mod spelling;

/// The child's side of every test: returns at once in an ordinary run.
#[test]
fn child_entry() {
    let tables = [
        creating::SCENARIOS,
        opening::SCENARIOS,
        counting::SCENARIOS,
        races::SCENARIOS,
        spelling::SCENARIOS,
    ];
    harness::become_child(&tables.concat());
}
