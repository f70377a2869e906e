//! What runs of this machine use right now: one look at `/proc`, summed below the first process of each run.
//!
//! **Trust:** numbers of the kernel; names, which are the agent's, are passed over.
use std::collections::BTreeMap;

/// Processor time in milliseconds, and resident memory in bytes; pages that processes share count in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Processor time, user and system.
    pub cpu_ms: u64,
    /// Resident memory.
    pub memory: u64,
}

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    parent: u32,
    used: Used,
}

/// What each of these processes and everything below it uses; one that is gone is left out.
#[must_use]
pub fn look(firsts: &[u32]) -> BTreeMap<u32, Used> {
    if firsts.is_empty() {
        return BTreeMap::new();
    }
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return BTreeMap::new();
    };
    let all: BTreeMap<u32, Process> = entries
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let text = std::fs::read(entry.path().join("stat")).ok()?;
            Some((pid, parse(&String::from_utf8_lossy(&text), ticks, page)?))
        })
        .collect();
    sums(&all, firsts)
}

/// Reads one line of `stat`. The name in it may hold spaces and brackets: the last one ends it.
fn parse(text: &str, ticks: u64, page: u64) -> Option<Process> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let spent = number(11)?.saturating_add(number(12)?);
    Some(Process {
        parent: u32::try_from(number(1)?).ok()?,
        used: Used {
            cpu_ms: spent.saturating_mul(1000) / ticks,
            memory: number(21)?.saturating_mul(page),
        },
    })
}

fn sums(all: &BTreeMap<u32, Process>, firsts: &[u32]) -> BTreeMap<u32, Used> {
    let mut sums: BTreeMap<u32, Used> = firsts
        .iter()
        .filter(|pid| all.contains_key(pid))
        .map(|pid| (*pid, Used::default()))
        .collect();
    for (pid, process) in all {
        let mut at = *pid;
        // Parents of a moment ago may form a ring with those of now: no line of descent is this long.
        for _ in 0..64 {
            if let Some(sum) = sums.get_mut(&at) {
                sum.cpu_ms = sum.cpu_ms.saturating_add(process.used.cpu_ms);
                sum.memory = sum.memory.saturating_add(process.used.memory);
                break;
            }
            match all.get(&at) {
                Some(process) => at = process.parent,
                None => break,
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_name_looks_like_fields_is_read_by_its_numbers() {
        let line = "7 (a) 9 (b)) S 3 7 7 0 -1 0 0 0 0 0 150 50 0 0 20 0 1 0 5 1000 25 0";
        let process = parse(line, 100, 4096).unwrap();
        assert_eq!(process.parent, 3);
        assert_eq!((process.used.cpu_ms, process.used.memory), (2000, 25 * 4096));
        for cut in 0..line.len() {
            let part = parse(&line[..cut], 100, 4096);
            assert!(part.is_none_or(|part| part.parent == 3), "{cut}");
        }
        assert!(parse("", 100, 4096).is_none());
    }

    #[test]
    fn everything_below_the_first_process_counts_and_nothing_else() {
        let process = |parent, cpu_ms| Process {
            parent,
            used: Used { cpu_ms, memory: 1 },
        };
        let all = BTreeMap::from([
            (10, process(1, 1)),
            (11, process(10, 20)),
            (12, process(11, 300)),
            (13, process(1, 4000)),
            (14, process(15, 1)),
            (15, process(14, 1)),
        ]);
        let sums = sums(&all, &[10, 99]);
        assert_eq!(
            sums,
            BTreeMap::from([(
                10,
                Used {
                    cpu_ms: 321,
                    memory: 3
                }
            )])
        );
    }
}
