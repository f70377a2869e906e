//! From rules to a BPF program. Pure.
use super::table::ARCHITECTURE;
use bastle_sys::seccomp::Instruction;
use std::collections::BTreeMap;

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The kernel carries it out.
    Allow,
    /// It fails with this errno.
    Fail(i32),
    /// init decides.
    HandOver,
}

/// A test on the low half of one register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// Equal to the value.
    Equals(u32),
    /// Shares a bit with the mask.
    AnyOf(u32),
}

/// `if register passes test then action`; the first that applies wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) register: u8,
    pub(super) test: Test,
    pub(super) action: Action,
}

/// What happens to one call: its cases in order, else the last action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) cases: Vec<Case>,
    pub(super) otherwise: Action,
}

/// Rules by call number; a call without one fails with `EPERM`.
pub(super) type Rules = BTreeMap<i64, Rule>;

const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER_EQUAL: u16 = 0x35;
const JUMP_SET: u16 = 0x45;
const RETURN: u16 = 0x06;

const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGS: u32 = 16;

/// Compiles the rules. Architecture and the x32 bit are checked first: a number means nothing without them.
pub(super) fn assemble(rules: &Rules) -> Vec<Instruction> {
    let mut program = vec![
        load(ARCH),
        jump(JUMP_EQUAL, ARCHITECTURE, 1, 0),
        ret(Action::Fail(libc::ENOSYS)),
        load(NUMBER),
    ];
    if cfg!(target_arch = "x86_64") {
        program.extend([
            jump(JUMP_GREATER_EQUAL, 0x4000_0000, 0, 1),
            ret(Action::Fail(libc::ENOSYS)),
        ]);
    }
    program.extend(search(&intervals(rules)));
    program
}

/// Neighbouring numbers with the same fate, each interval by its first number; the last one is open.
fn intervals(rules: &Rules) -> Vec<(u32, Rule)> {
    let refused = Rule {
        cases: Vec::new(),
        otherwise: Action::Fail(libc::EPERM),
    };
    let mut found: Vec<(u32, Rule)> = Vec::new();
    let mut next = 0;
    let mut add = |start: u32, rule: &Rule| match found.last() {
        Some((_, last)) if last == rule => {}
        Some(_) | None => found.push((start, rule.clone())),
    };
    for (number, rule) in rules {
        let number = *number as u32;
        if number > next || next == 0 {
            add(next, &refused);
        }
        add(number, rule);
        next = number + 1;
    }
    add(next, &refused);
    found
}

/// A binary search over the intervals. Shallow, because the kernel walks the program once for every call number when
/// it is installed, and once per call that is not simply allowed.
fn search(intervals: &[(u32, Rule)]) -> Vec<Instruction> {
    match intervals {
        [] => vec![ret(Action::Fail(libc::EPERM))],
        [(_, rule)] => body(rule),
        _ => {
            let (lower, upper) = intervals.split_at(intervals.len() / 2);
            let below = search(lower);
            let mut program = vec![
                jump(JUMP_GREATER_EQUAL, upper[0].0, 0, 1),
                jump(JUMP, below.len() as u32, 0, 0),
            ];
            program.extend(below);
            program.extend(search(upper));
            program
        }
    }
}

fn body(rule: &Rule) -> Vec<Instruction> {
    let mut body = Vec::new();
    for case in &rule.cases {
        body.push(load(ARGS + 8 * u32::from(case.register)));
        body.push(match case.test {
            Test::Equals(value) => jump(JUMP_EQUAL, value, 0, 1),
            Test::AnyOf(mask) => jump(JUMP_SET, mask, 0, 1),
        });
        body.push(ret(case.action));
    }
    body.push(ret(rule.otherwise));
    body
}

fn load(offset: u32) -> Instruction {
    Instruction {
        code: LOAD,
        jt: 0,
        jf: 0,
        k: offset,
    }
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> Instruction {
    Instruction { code, jt, jf, k }
}

fn ret(action: Action) -> Instruction {
    let k = match action {
        Action::Allow => libc::SECCOMP_RET_ALLOW,
        Action::Fail(errno) => libc::SECCOMP_RET_ERRNO | (errno as u32 & 0xffff),
        Action::HandOver => libc::SECCOMP_RET_USER_NOTIF,
    };
    Instruction {
        code: RETURN,
        jt: 0,
        jf: 0,
        k,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel would.
    fn run(program: &[Instruction], arch: u32, number: u32, args: [u64; 6]) -> u32 {
        let (mut at, mut accumulator) = (0_usize, 0_u32);
        loop {
            let Instruction { code, jt, jf, k } = program[at];
            let branch = |taken: bool| usize::from(if taken { jt } else { jf });
            at += 1 + match code {
                LOAD => {
                    accumulator = match k {
                        NUMBER => number,
                        ARCH => arch,
                        _ => args[((k - ARGS) / 8) as usize] as u32,
                    };
                    0
                }
                JUMP => k as usize,
                JUMP_EQUAL => branch(accumulator == k),
                JUMP_GREATER_EQUAL => branch(accumulator >= k),
                JUMP_SET => branch(accumulator & k != 0),
                RETURN => return k,
                _ => unreachable!(),
            };
        }
    }

    fn errno(errno: i32) -> u32 {
        libc::SECCOMP_RET_ERRNO | errno as u32
    }

    #[test]
    fn a_call_without_a_rule_or_through_another_entry_is_refused() {
        let allow = Rule {
            cases: vec![],
            otherwise: Action::Allow,
        };
        let program = assemble(&Rules::from([(39, allow)]));
        assert_eq!(run(&program, ARCHITECTURE, 39, [0; 6]), libc::SECCOMP_RET_ALLOW);
        assert_eq!(run(&program, ARCHITECTURE, 40, [0; 6]), errno(libc::EPERM));
        assert_eq!(run(&program, 0x4000_0003, 39, [0; 6]), errno(libc::ENOSYS));
        #[cfg(target_arch = "x86_64")]
        assert_eq!(
            run(&program, ARCHITECTURE, 39 | 0x4000_0000, [0; 6]),
            errno(libc::ENOSYS)
        );
    }

    #[test]
    fn the_first_case_that_applies_wins_and_only_low_halves_count() {
        let rule = Rule {
            cases: vec![
                Case {
                    register: 1,
                    test: Test::Equals(7),
                    action: Action::Fail(libc::EACCES),
                },
                Case {
                    register: 0,
                    test: Test::AnyOf(0x10),
                    action: Action::HandOver,
                },
            ],
            otherwise: Action::Allow,
        };
        let program = assemble(&Rules::from([(1, rule)]));
        let judge = |args| run(&program, ARCHITECTURE, 1, args);
        assert_eq!(judge([0x10, 7, 0, 0, 0, 0]), errno(libc::EACCES));
        assert_eq!(judge([0x30, 8, 0, 0, 0, 0]), libc::SECCOMP_RET_USER_NOTIF);
        assert_eq!(judge([0x20, 0xdead_0000_0007, 0, 0, 0, 0]), errno(libc::EACCES));
        assert_eq!(judge([0x20, 8, 0, 0, 0, 0]), libc::SECCOMP_RET_ALLOW);
    }

    #[test]
    fn the_program_of_the_agent_says_for_every_number_what_its_rules_say_and_is_short() {
        let spec = super::super::FilterSpec {
            debuggers: true,
            counting: true,
            watched: true,
            pinned: true,
        };
        let rules = super::super::rules::for_agent(spec);
        let program = assemble(&rules);
        assert!(program.len() <= 4096);
        for number in 0..2000_u32 {
            let expected = match rules.get(&i64::from(number)) {
                None => errno(libc::EPERM),
                Some(rule) => {
                    let plain = Rules::from([(0, rule.clone())]);
                    run(&assemble(&plain), ARCHITECTURE, 0, [7, 7, 7, 7, 7, 7])
                }
            };
            assert_eq!(
                run(&program, ARCHITECTURE, number, [7, 7, 7, 7, 7, 7]),
                expected,
                "call {number}"
            );
        }
    }
}
