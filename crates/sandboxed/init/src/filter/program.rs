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
    let mut layout = Layout::default();
    let mut next = layout.search(&intervals(rules));
    let foreign = layout.end(Action::Fail(libc::ENOSYS));
    if cfg!(target_arch = "x86_64") {
        next = layout.branch(JUMP_GREATER_EQUAL, 0x4000_0000, foreign, next);
    }
    next = layout.load(NUMBER, next);
    next = layout.branch(JUMP_EQUAL, ARCHITECTURE, next, foreign);
    layout.load(ARCH, next);
    layout.program()
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

/// A program that is laid down from its end: jumps lead forward only, so that wherever one leads to is there already.
/// What is the same is there once. Short, because the kernel translates every instruction whenever it is installed.
#[derive(Default)]
struct Layout {
    /// The last one first.
    reversed: Vec<Instruction>,
    ends: BTreeMap<u32, Place>,
    bodies: Vec<(Rule, Place)>,
}

/// An instruction, by how many there were when it was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place(usize);

impl Layout {
    fn push(&mut self, code: u16, k: u32, (jt, jf): (u8, u8)) -> Place {
        self.reversed.push(Instruction { code, jt, jf, k });
        Place(self.reversed.len() - 1)
    }

    /// How many instructions the next one to be added would skip on the way to `place`.
    fn skipped(&self, place: Place) -> usize {
        self.reversed.len() - 1 - place.0
    }

    /// Where a call ends in this way.
    fn end(&mut self, action: Action) -> Place {
        let value = answer(action);
        if let Some(place) = self.ends.get(&value) {
            return *place;
        }
        let place = self.push(RETURN, value, (0, 0));
        self.ends.insert(value, place);
        place
    }

    /// To `yes` or to `no`. A condition can skip 255 instructions; what is farther away is led to by a step between.
    fn branch(&mut self, code: u16, k: u32, yes: Place, no: Place) -> Place {
        let (mut yes, mut no) = (yes, no);
        loop {
            match (u8::try_from(self.skipped(yes)), u8::try_from(self.skipped(no))) {
                (Ok(jt), Ok(jf)) => return self.push(code, k, (jt, jf)),
                (Err(_), _) => yes = self.step(yes),
                (_, Err(_)) => no = self.step(no),
            }
        }
    }

    fn step(&mut self, to: Place) -> Place {
        let skipped = self.skipped(to) as u32;
        self.push(JUMP, skipped, (0, 0))
    }

    /// Loads a word of what is judged, then goes on at `next`.
    fn load(&mut self, offset: u32, next: Place) -> Place {
        if self.skipped(next) > 0 {
            self.step(next);
        }
        self.push(LOAD, offset, (0, 0))
    }

    /// What becomes of a call once its number is known.
    fn body(&mut self, rule: &Rule) -> Place {
        if let Some((_, place)) = self.bodies.iter().find(|(known, _)| known == rule) {
            return *place;
        }
        let mut next = self.end(rule.otherwise);
        for Case {
            register,
            test,
            action,
        } in rule.cases.iter().rev()
        {
            let applies = self.end(*action);
            let (code, value) = match *test {
                Test::Equals(value) => (JUMP_EQUAL, value),
                Test::AnyOf(mask) => (JUMP_SET, mask),
            };
            next = self.branch(code, value, applies, next);
            next = self.load(ARGS + 8 * u32::from(*register), next);
        }
        self.bodies.push((rule.clone(), next));
        next
    }

    /// A binary search over the intervals. Shallow, because the kernel walks the program once for every call number when
    /// it is installed, and once per call that is not simply allowed.
    fn search(&mut self, intervals: &[(u32, Rule)]) -> Place {
        match intervals {
            [] => self.end(Action::Fail(libc::EPERM)),
            [(_, rule)] => self.body(rule),
            _ => {
                let (lower, upper) = intervals.split_at(intervals.len() / 2);
                let (above, below) = (self.search(upper), self.search(lower));
                self.branch(JUMP_GREATER_EQUAL, upper[0].0, above, below)
            }
        }
    }

    fn program(mut self) -> Vec<Instruction> {
        self.reversed.reverse();
        self.reversed
    }
}

fn answer(action: Action) -> u32 {
    match action {
        Action::Allow => libc::SECCOMP_RET_ALLOW,
        Action::Fail(errno) => libc::SECCOMP_RET_ERRNO | (errno as u32 & 0xffff),
        Action::HandOver => libc::SECCOMP_RET_USER_NOTIF,
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
            listed: false,
            live: true,
        };
        let rules = super::super::rules::for_agent(spec);
        let program = assemble(&rules);
        // The kernel translates it at every start: what is the same must stand there once.
        assert!(program.len() <= 256, "{} instructions", program.len());
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

    #[test]
    fn a_program_whose_ends_are_farther_away_than_a_condition_reaches_says_the_same() {
        // No two neighbours alike, each with a body of its own: hundreds of instructions between a test and its end.
        let rules: Rules = (0..300_u32)
            .map(|number| {
                let case = Case {
                    register: (number % 6) as u8,
                    test: Test::Equals(number),
                    action: Action::Fail(libc::EACCES),
                };
                let otherwise = if number.is_multiple_of(2) {
                    Action::Allow
                } else {
                    Action::HandOver
                };
                (
                    i64::from(number),
                    Rule {
                        cases: vec![case],
                        otherwise,
                    },
                )
            })
            .collect();
        let program = assemble(&rules);
        assert!(program.len() > 600, "{} instructions", program.len());
        for number in 0..301_u32 {
            let otherwise = match rules.get(&i64::from(number)) {
                Some(rule) => answer(rule.otherwise),
                None => errno(libc::EPERM),
            };
            assert_eq!(
                run(&program, ARCHITECTURE, number, [u64::MAX; 6]),
                otherwise,
                "call {number}"
            );
            let applies = if number < 300 {
                errno(libc::EACCES)
            } else {
                otherwise
            };
            let args = [u64::from(number); 6];
            assert_eq!(
                run(&program, ARCHITECTURE, number, args),
                applies,
                "call {number}"
            );
        }
        assert_eq!(run(&program, 0, 5, [0; 6]), errno(libc::ENOSYS));
    }
}
