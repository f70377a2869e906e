//! Chores of the repository: `cargo xtask test | agents | tidy | bench | fuzz | dist | package`. Developer tool; never shipped.
//!
//! Trust: runs with the developer's own rights, on the developer's own tree. It installs system packages only
//! in `test` and `bench --install`, and agents in `test` and `agents`, and says so before it does.
#![forbid(unsafe_code)]

mod bench;
mod dist;
mod fuzz;
mod hosts;
mod package;
mod sh;
mod test;
mod tidy;

use sh::Failed;
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask CHORE

  tidy                           the rules of the house: arrows, zones, unsafe, headers, sizes, documents
  test [--fast] [--fail-fast] [--advisories] [FILTER]
                                 everything a change must pass; installs what is missing
                                 --fast: format, lints, tidy and unit tests only
                                 FILTER: only tests whose name contains it
  test --hosts [--record] [--list] [--bin PATH] [GUEST]
                                 real kernels and systems as guests, one after the other; every check in each
                                 --record: write what came of it into docs/hosts.md
  agents                         install the agents that tests run, as `test` does, into target/agents
  bench start [--samples N] [--install] [--bin PATH]
  bench policy [--samples N] [--bin PATH]
                                 compare with peers and with the lower bound; writes bench/results.json
  bench workspace [--samples N] [--bin PATH]
                                 trees of 20 000 files: some minutes; says what it measures, prints what it has
  bench review [--samples N] [--bin PATH]
                                 5 000 changed files to the project and back, and an archive of them
  bench daemon [--runs N] [--events N] [--bin PATH]
                                 the daemon under load: memory, spawns, events, restart
  dist [--target x86_64|aarch64] the binary as it is shipped: one static file; prints where it is
  package [--bin PATH] [--out DIR] [--as-built]
                                 a Debian package of it, the list of what it is made of, and SHA256SUMS
                                 --as-built: also of a binary that is not shipped; its version says so
  fuzz [--seconds N] [--builtin] [TARGET]
                                 coverage-guided where nightly is installed, else the built-in mutation loop
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (chore, rest) = match arguments.split_first() {
        Some((chore, rest)) => (chore.as_str(), rest),
        None => ("", &[][..]),
    };
    let outcome = match chore {
        "tidy" => tidy::main(rest),
        "test" => test::main(rest),
        "agents" => test::install_agents(rest),
        "bench" => bench::main(rest),
        "fuzz" => fuzz::main(rest),
        "dist" => dist::main(rest),
        "package" => package::main(rest),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(())
        }
        other => Err(Failed::new(format!("unknown chore {other:?}"), USAGE)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) if failed.is_told() => ExitCode::FAILURE,
        Err(failed) => {
            eprintln!("xtask: {failed}");
            ExitCode::FAILURE
        }
    }
}
