//! Findings where they belong, none where the clock jumps, and bounds whatever comes.
use super::*;
use serde_json::json;

const RULES: &str = r#"{"version":1,"rules":[
  {"id":"denials","when":"denial-burst","threshold":5,"windowSeconds":60,"severity":"medium","action":"alert"},
  {"id":"hosts","when":"new-host","threshold":2,"windowSeconds":60,"severity":"low","action":"note"},
  {"id":"bytes","when":"bytes-out","threshold":1000000000,"factor":10,"windowSeconds":60,"severity":"medium","action":"alert"},
  {"id":"execs","when":"exec-burst","threshold":4,"windowSeconds":10,"severity":"low","action":"note"},
  {"id":"files","when":"file-burst","threshold":100,"windowSeconds":10,"severity":"low","action":"note"},
  {"id":"decoy","when":"canary","threshold":1,"windowSeconds":60,"severity":"high","action":"pause"}]}"#;

struct World {
    anomalies: Anomalies,
    seq: HashMap<String, u64>,
}

impl World {
    fn new() -> Self {
        let rules = Rules::parse("test", RULES.as_bytes()).unwrap();
        Self {
            anomalies: Anomalies::new(rules, Baseline::new()),
            seq: HashMap::new(),
        }
    }

    fn tell(&mut self, run: &str, time_ms: u64, kind: &str, data: Value) -> Vec<String> {
        let seq = self.seq.entry(run.to_owned()).or_default();
        *seq += 1;
        let event = RunEvent {
            seq: *seq,
            time_ms,
            kind: kind.to_owned(),
            data,
        };
        let run = RunId::try_from(run.to_owned()).unwrap();
        let subject = Subject {
            run: &run,
            project: "/p",
            agent: "claude",
        };
        let found = self.anomalies.observe(&subject, &event);
        assert!(
            self.anomalies.observe(&subject, &event).is_empty(),
            "the same event twice"
        );
        found.into_iter().map(|finding| finding.rule).collect()
    }

    fn reach(&mut self, run: &str, host: &str) -> Vec<String> {
        self.tell(
            run,
            1000,
            "net",
            json!({"verdict": "allowed", "host": host, "port": 443}),
        )
    }

    fn denials(&mut self, run: &str, times: impl IntoIterator<Item = u64>) -> usize {
        times
            .into_iter()
            .map(|time| self.tell(run, time, "denied", json!({"kind": "fs"})).len())
            .sum()
    }
}

#[test]
fn a_burst_of_denials_is_found_and_the_same_number_spread_out_is_not() {
    let mut world = World::new();
    assert_eq!(world.denials("fast", (0..5).map(|n| n * 1000)), 1);
    assert_eq!(world.denials("slow", (0..50).map(|n| n * 16_000)), 0);
    assert_eq!(world.denials("just-below", (0..4).map(|n| n * 1000)), 0);
    let together = world.tell(
        "many",
        0,
        "net",
        json!({"verdict": "denied", "host": "x", "count": 5}),
    );
    assert_eq!(together, ["denials"]);
}

#[test]
fn a_clock_that_jumps_in_either_direction_makes_no_burst() {
    let mut world = World::new();
    let hour = 3_600_000;
    // Set back by an hour between two denials that are an hour apart.
    assert_eq!(
        world.denials(
            "back",
            [hour * 9, hour * 9 + 1, hour * 9 + 2, hour * 9 + 3, hour * 8]
        ),
        0
    );
    // Set forward.
    assert_eq!(world.denials("forward", [0, 1, 2, 3, hour * 100]), 0);
    // Back and forth at every event.
    assert_eq!(world.denials("both", (0..100).map(|n| hour * (1 + n % 2 * 5))), 0);
    // A real burst after a jump is still found.
    assert_eq!(
        world.denials("after", [hour * 9, hour, hour + 1, hour + 2, hour + 3, hour + 4]),
        1
    );
    // Events of one moment that come out of order are no jump.
    assert_eq!(world.denials("disorder", [1000, 990, 1005, 1001, 1006]), 1);
}

#[test]
fn a_host_is_new_only_where_earlier_runs_of_the_same_project_did_not_reach_it() {
    let mut world = World::new();
    for run in ["a", "b"] {
        assert!(world.reach(run, "api.x.com").is_empty(), "nothing is known yet");
        world.tell(run, 2000, "ended", json!({"code": 0}));
    }
    assert!(world.anomalies.take_learned());
    assert!(!world.anomalies.take_learned());
    assert!(world.reach("c", "api.x.com").is_empty());
    assert_eq!(world.reach("c", "evil.org"), ["hosts"]);
    assert!(world.reach("c", "evil.org").is_empty(), "told once per run");
    let looked_up = json!({"verdict": "allowed", "host": "y.org", "port": 0});
    assert!(world.tell("c", 1000, "net", looked_up).is_empty());
    let denied = json!({"verdict": "denied", "host": "z.org", "port": 443});
    assert!(world.tell("c", 1000, "net", denied).is_empty());
}

#[test]
fn a_run_whose_decoy_was_touched_teaches_nothing() {
    let mut world = World::new();
    for run in ["a", "b"] {
        world.reach(run, "api.x.com");
        world.tell(run, 2000, "ended", json!({}));
    }
    world.reach("c", "evil.org");
    assert_eq!(
        world.tell("c", 1, "canary", json!({"where": "header"})),
        ["decoy"]
    );
    world.tell("c", 2000, "ended", json!({}));
    assert_eq!(world.reach("d", "evil.org"), ["hosts"]);
}

#[test]
fn bytes_out_are_found_above_the_threshold_and_above_what_is_usual() {
    let mut world = World::new();
    let mib = 1024 * 1024;
    for run in ["a", "b", "c"] {
        assert!(
            world
                .tell(run, 1, "traffic", json!({"bytes_out": 2 * mib}))
                .is_empty()
        );
        world.tell(run, 2000, "ended", json!({"net": {"bytes_out": 2 * mib}}));
    }
    assert!(
        world
            .tell("d", 1, "traffic", json!({"bytes_out": 19 * mib}))
            .is_empty()
    );
    assert_eq!(
        world.tell("d", 2, "traffic", json!({"bytes_out": 21 * mib})),
        ["bytes"]
    );
    assert!(
        world
            .tell("d", 3, "traffic", json!({"bytes_out": 22 * mib}))
            .is_empty()
    );
    let other = World::new().tell("x", 1, "ended", json!({"net": {"bytes_out": 1_000_000_000u64}}));
    assert_eq!(other, ["bytes"]);
}

#[test]
fn bursts_of_programs_and_files_are_found() {
    let mut world = World::new();
    let found: usize = (0..4)
        .map(|n| world.tell("a", n, "exec", json!({"argv": []})).len())
        .sum();
    assert_eq!(found, 1);
    assert!(world.tell("a", 9, "files", json!({"changed": 99})).is_empty());
    assert_eq!(world.tell("a", 10, "files", json!({"changed": ["x"]})), ["files"]);
}

#[test]
fn the_baseline_reads_back_and_a_foreign_or_torn_file_is_refused() {
    let mut world = World::new();
    world.reach("a", "x.com");
    world.tell("a", 1, "ended", json!({}));
    let saved = world.anomalies.baseline().save();
    assert_eq!(&Baseline::load(&saved).unwrap(), world.anomalies.baseline());
    for end in 0..saved.len() {
        assert!(Baseline::load(&saved[..end]).is_err());
    }
    assert!(Baseline::load(br#"{"version":2,"learned":0,"subjects":{}}"#).is_err());
    assert!(Baseline::load(br#"{"version":1,"learned":0,"subjects":{},"x":1}"#).is_err());
}

/// A small generator: the same numbers for the same seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

fn random_event(numbers: &mut Numbers, seq: u64) -> (String, RunEvent) {
    let kinds = [
        "denied", "net", "traffic", "canary", "exec", "files", "ended", "state", "\u{0}",
    ];
    let huge = [0, 1, u64::MAX, 1 << 40];
    let host = format!(
        "h{}.example\n{}",
        numbers.below(5000),
        "x".repeat(usize::try_from(numbers.below(600)).unwrap())
    );
    let verdict = ["allowed", "denied", "asked", ""][usize::try_from(numbers.below(4)).unwrap()];
    let number = huge[usize::try_from(numbers.below(4)).unwrap()];
    let data = match numbers.below(4) {
        0 => Value::Null,
        1 => json!([1, "x"]),
        _ => json!({"host": host, "verdict": verdict, "count": number, "bytes_out": number,
            "changed": number, "where": host, "net": {"bytes_out": number}}),
    };
    let event = RunEvent {
        seq: if numbers.below(10) == 0 {
            numbers.below(50)
        } else {
            seq
        },
        time_ms: [0, u64::MAX, seq * 100, numbers.below(1 << 50)][usize::try_from(numbers.below(4)).unwrap()],
        kind: kinds[usize::try_from(numbers.below(9)).unwrap()].to_owned(),
        data,
    };
    (format!("run-{}", numbers.below(6000)), event)
}

#[test]
fn whatever_events_come_state_is_bounded_and_the_same_events_give_the_same_findings() {
    let once = |seed: u64| {
        let rules = Rules::parse("test", RULES.as_bytes()).unwrap();
        let mut anomalies = Anomalies::new(rules, Baseline::new());
        let (mut numbers, mut findings) = (Numbers(seed), Vec::new());
        for seq in 1..30_000 {
            let (run, event) = random_event(&mut numbers, seq);
            let run = RunId::try_from(run).unwrap();
            let project = format!("/p{}", numbers.below(3000));
            let agent = "a".repeat(usize::try_from(numbers.below(400)).unwrap());
            let subject = Subject {
                run: &run,
                project: &project,
                agent: &agent,
            };
            findings.extend(anomalies.observe(&subject, &event));
            assert!(anomalies.runs.len() <= MAX_RUNS);
        }
        assert!(
            anomalies
                .runs
                .values()
                .all(|watch| watch.hosts.len() <= MAX_HOSTS)
        );
        assert!(anomalies.baseline.subjects() <= 1024);
        let saved = anomalies.baseline().save();
        assert_eq!(&Baseline::load(&saved).unwrap(), anomalies.baseline());
        assert!(
            findings
                .iter()
                .all(|finding| finding.text.len() < 1024 && !finding.text.contains('\n'))
        );
        (findings, saved)
    };
    let first = once(7);
    assert!(!first.0.is_empty());
    assert_eq!(first, once(7));
}

#[test]
fn one_rule_speaks_about_one_run_a_bounded_number_of_times() {
    let mut world = World::new();
    let spoken = world.denials("a", (0..5000).map(|n| n * 10));
    assert_eq!(spoken, usize::try_from(MOST_FINDINGS).unwrap());
}
