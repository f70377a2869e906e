//! Which parts of Landlock this kernel has, what replaces the others, and what this distribution offers.
use super::{Check, State};
use bastle_contract::{HostFacts, LandlockPart, LandlockParts};
use bastle_control::newer_kernel;

pub(super) fn check(facts: &HostFacts) -> Check {
    let lsm = std::fs::read_to_string("/sys/kernel/security/lsm")
        .ok()
        .map(|list| format!(" (lsm: {})", list.trim()))
        .unwrap_or_default();
    judge(facts, &lsm, &newer_kernel(&facts.kernel))
}

fn judge(facts: &HostFacts, lsm: &str, newer: &str) -> Check {
    let parts = facts.landlock;
    let has = |part: &LandlockPart| parts.has(*part);
    if LandlockPart::ALL.iter().all(has) {
        return Check::new(State::Ok, "landlock", format!("ABI {}{lsm}", facts.landlock_abi));
    }
    // Linux 7.1 is newer than what most distributions have: nothing to repair.
    if LandlockPart::ALL
        .iter()
        .all(|part| has(part) || *part == LandlockPart::Unix)
    {
        let fact = format!("ABI {}{lsm}: {parts} ({})", facts.landlock_abi, parts.replaced());
        return Check::new(State::Ok, "landlock", fact);
    }
    if parts.reach_the_floor() {
        let fact = format!("ABI {}{lsm}: {parts}", facts.landlock_abi);
        return Check::new(State::Warning, "landlock", fact)
            .consequence(format!("held by one layer and not by two: {}", parts.replaced()))
            .fix(newer);
    }
    let fact = match facts.landlock_abi {
        0 => format!("not there{lsm}"),
        abi => format!("ABI {abi}{lsm}"),
    };
    // The fix is told once, with the cause of the trial that failed.
    Check::new(State::Problem, "landlock", fact).consequence(format!(
        "the fence needs ABI {} (Linux 5.19): bastle run refuses to start; --waive landlock runs with one layer less",
        LandlockParts::FLOOR
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bastle_contract::CgroupFacts;

    fn at(abi: u32) -> Check {
        let facts = HostFacts {
            kernel: "6.1.0".to_owned(),
            arch: "x86_64".to_owned(),
            uid: 1000,
            gid: 1000,
            authority: bastle_contract::Authority::User,
            landlock_abi: abi,
            landlock: LandlockParts::up_to(abi),
            seccomp_notify: true,
            cpus: 1,
            memory: 0,
            cgroup: CgroupFacts::none(),
        };
        judge(&facts, "", "newer")
    }

    #[test]
    fn a_kernel_below_abi_6_is_warned_about_and_one_below_2_is_a_problem() {
        for (abi, state) in [
            (0, State::Problem),
            (1, State::Problem),
            (2, State::Warning),
            (5, State::Warning),
            (6, State::Ok),
            (9, State::Ok),
        ] {
            let check = at(abi);
            assert_eq!(check.state, state, "{abi}");
            assert_eq!(check.fix.is_empty(), state != State::Warning, "{abi}");
        }
        let told = at(2).consequence;
        assert!(at(7).fact.ends_with("(path sockets: mount-ns)"), "{}", at(7).fact);
        assert_eq!(at(9).fact, "ABI 9");
        for word in ["signals: pid-ns", "abstract sockets: net-ns", "truncate: mount"] {
            assert!(told.contains(word), "{told}");
        }
    }
}
