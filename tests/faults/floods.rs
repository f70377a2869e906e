//! Floods of records: what an agent does after thousands of denials and programs is on record all the same.
use crate::support::{Lab, Limit, identities};
use std::time::Duration;

const SLOW: Limit = Limit(Duration::from_secs(570));

#[test]
fn a_flood_of_programs_and_denials_hides_no_later_attempt_of_another_kind() {
    let identity = identities().pop().expect("there is always one");
    let lab = Lab::new(identity);
    // More programs than are kept one by one, more names of them than are told apart, more denials than are kept.
    let output = lab.fence().within(SLOW).sh(r#"
cp /bin/true t; i=0
while [ $i -lt 20010 ]; do ./t; i=$((i+1)); done
i=0
while [ $i -lt 560 ]; do ln -s t p$i; ./p$i; i=$((i+1)); done
ln -s t late
i=0
{
    while [ $i -lt 6000 ]; do true > .env.$i; i=$((i+1)); done
    mkdir /usr/evildir
    ln -s x .env.evillink
    true > .env.production
    true > id_rsa
    true > .env.6001
} 2> /dev/null
sleep 2
./late
echo done
"#);
    assert_eq!(output.said(), "done", "{:?}", output.ended);
    let denials = output.events("denied");
    let count = |part: &str| {
        let names = denials.iter().filter_map(|event| event["target"].as_str());
        names.filter(|target| target.contains(part)).count()
    };
    for later in ["/usr/evildir", ".env.evillink", ".env.production", "/id_rsa"] {
        assert_eq!(count(later), 1, "{later}");
    }
    assert_eq!(
        count(".env.6001"),
        0,
        "control: more of the flood is not kept one by one"
    );
    assert!((5_000..5_600).contains(&denials.len()), "{}", denials.len());
    let programs = output.events("exec");
    let started = |name: &str| {
        let paths = programs.iter().filter_map(|event| event["path"].as_str());
        paths.filter(|path| path.ends_with(name)).count()
    };
    assert_eq!(
        started("/late"),
        1,
        "one of a kind that nobody counts any more is sampled"
    );
    assert_eq!(started("/p0"), 1);
    assert!(programs.len() < 24_000, "{}", programs.len());
    let noted = |topic: &str| {
        output
            .events("note")
            .iter()
            .filter(|note| note["topic"] == topic)
            .count()
    };
    assert_eq!((noted("denials"), noted("programs")), (1, 1));
}
