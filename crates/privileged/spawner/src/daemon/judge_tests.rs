//! The books of the front, without a socket.
use super::*;
use bastle_contract::CgroupFacts;

fn books(max_workers: u32, adopted: &[Entry]) -> Books {
    let own = rustix::process::geteuid().as_raw();
    let text = format!(
        r#"{{"version":1,"max_workers":{max_workers},"callers":[
            {{"uid":{own},"roots":["/srv"],"max_workers":3,"rate":{{"per_second":1,"burst":1000}}}}]}}"#
    );
    let facts = HostFacts {
        kernel: String::new(),
        arch: String::new(),
        uid: 0,
        gid: 0,
        authority: bastle_contract::Authority::Root,
        landlock_abi: 6,
        landlock: bastle_contract::LandlockParts::up_to(6),
        seccomp_notify: true,
        cpus: 1,
        memory: 0,
        cgroup: CgroupFacts::none(),
    };
    Books::new(Ceiling::parse(&text).unwrap(), facts, adopted)
}

fn half(books: &mut Books, waiting: &[Half]) -> Result<Half, Box<Judged>> {
    let (one, other) = bastle_contract::socket::pair().unwrap();
    drop(other);
    books.welcome(one, waiting, Instant::now())
}

fn hello() -> ToDaemon {
    ToDaemon::Hello {
        version: WIRE_VERSION,
    }
}

fn verdict(judged: &Judged) -> Result<u64, Code> {
    match judged {
        Judged::Serve(_, ticket) => Ok(*ticket),
        Judged::Refuse(_, fault) => Err(fault.code),
        Judged::Answer(..) => panic!("an answer"),
    }
}

fn wish(books: &mut Books) -> Result<u64, Code> {
    let half = half(books, &[]).unwrap_or_else(|_| panic!("welcome"));
    verdict(&books.judge(half, &hello()))
}

#[test]
fn more_runs_than_there_is_room_for_are_refused_until_one_has_ended() {
    let mut books = books(10, &[]);
    let tickets: Vec<u64> = (0..3).map(|_| wish(&mut books).unwrap()).collect();
    assert_eq!(wish(&mut books), Err(Code::SpawnWorkers));
    books.ended(tickets[1]);
    assert!(wish(&mut books).is_ok());
    assert_eq!(wish(&mut books), Err(Code::SpawnWorkers));
}

#[test]
fn runs_of_an_earlier_daemon_count() {
    let adopted: Vec<Entry> = (0..2)
        .map(|number| Entry {
            uid: 4000 + number,
            pid: 1 + number,
            since_ms: 0,
            run: None,
        })
        .collect();
    let mut books = books(3, &adopted);
    assert!(wish(&mut books).is_ok());
    assert_eq!(wish(&mut books), Err(Code::SpawnWorkers));
    books.ended(0);
    assert!(wish(&mut books).is_ok());
}

#[test]
fn connections_that_say_nothing_are_bounded() {
    let mut books = books(10, &[]);
    let mut waiting = Vec::new();
    let refused = loop {
        match half(&mut books, &waiting) {
            Ok(half) => waiting.push(half),
            Err(judged) => break verdict(&judged),
        }
    };
    assert_eq!(
        (waiting.len(), refused),
        (MOST_HALF_OPEN_EACH, Err(Code::SpawnRate))
    );
}

#[test]
fn another_version_is_told_apart_from_nonsense() {
    let code = |frame: &str| understand(frame.as_bytes()).map_err(|fault| fault.code);
    assert_eq!(code(r#"{"type":"hello","version":1}"#), Ok(hello()));
    assert_eq!(code(r#"{"type":"hello","version":99}"#), Err(Code::SpawnVersion));
    assert_eq!(
        code(r#"{"type":"greet","version":99,"new":true}"#),
        Err(Code::SpawnVersion)
    );
    for bad in ["", "{}", "[]", r#"{"type":"greet","version":1}"#, "\u{0}"] {
        assert_eq!(code(bad), Err(Code::SpawnFrame), "{bad:?}");
    }
}
