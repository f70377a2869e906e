//! A ceiling is believed as a whole or not at all.
use super::*;
use std::os::unix::fs::PermissionsExt;

const GOOD: &str = r#"{
    "version": 1,
    "max_workers": 10,
    "callers": [
        { "uid": 7, "roots": ["/srv/ws"], "max_workers": 2, "rate": { "per_second": 1, "burst": 5 },
          "limits": { "memory": "4GiB", "pids": 100, "timeout": "1h" }, "backends": ["native"] },
        { "group": "root", "roots": [], "allow_unconfined": true }
    ]
}"#;

fn caller(uid: u32, groups: &[u32]) -> Caller {
    Caller {
        uid,
        gid: uid,
        groups: groups.to_vec(),
    }
}

#[test]
fn a_caller_that_no_entry_names_is_not_found_and_the_first_that_fits_holds() {
    let ceiling = Ceiling::parse(GOOD).unwrap();
    assert!(ceiling.find(&caller(8, &[9])).is_none());
    let named = ceiling.find(&caller(7, &[0])).unwrap();
    assert_eq!((named.who, named.max_workers), (Who::Uid(7), 2));
    let limits = [
        (LimitKind::WallTime, 3_600_000),
        (LimitKind::Memory, 4 << 30),
        (LimitKind::Pids, 100),
    ];
    assert_eq!(named.allowance.limits, limits);
    assert!(!named.allowance.unconfined);
    assert_eq!(ceiling.find(&caller(8, &[9, 0])).unwrap().who, Who::Gid(0));
}

#[test]
fn a_document_with_an_unknown_doubled_missing_or_impossible_part_is_refused() {
    let replaced = |from: &str, to: &str| {
        assert!(GOOD.contains(from), "{from}");
        Ceiling::parse(&GOOD.replacen(from, to, 1))
    };
    for (from, to) in [
        ("\"version\": 1", "\"version\": 2"),
        ("\"version\": 1", "\"version\": 1, \"version\": 1"),
        ("\"version\": 1", "\"version\": 1, \"extra\": 1"),
        ("\"version\": 1", "\"version\": 1, \"min_landlock_abi\": 1"),
        ("\"version\": 1", "\"version\": 1, \"min_landlock_abi\": 10"),
        ("\"max_workers\": 10", "\"max_workers\": 0"),
        ("\"max_workers\": 10", "\"max_workers\": 100001"),
        ("\"max_workers\": 10,", ""),
        ("\"uid\": 7", "\"uid\": 7, \"user\": \"root\""),
        ("\"uid\": 7, ", ""),
        ("\"uid\": 7", "\"user\": \"nobody-of-that-name\""),
        ("\"group\": \"root\"", "\"group\": \"root\\n\""),
        ("\"/srv/ws\"", "\"srv/ws\""),
        ("\"/srv/ws\"", "\"/srv/../etc\""),
        ("\"/srv/ws\"", "\"/proc/self\""),
        ("\"4GiB\"", "\"4GiB\", \"memory\": 1"),
        ("\"4GiB\"", "\"lots\""),
        ("\"pids\": 100", "\"pid\": 100"),
        ("\"pids\": 100", "\"output\": 100"),
        ("\"per_second\": 1", "\"per_second\": 0"),
        ("\"native\"", "\"magic\""),
        ("\"allow_unconfined\": true", "\"allow_unconfined\": \"yes\""),
    ] {
        assert!(replaced(from, to).is_err(), "{from} → {to}");
    }
    assert!(Ceiling::parse(&format!("{GOOD} x")).is_err(), "trailing bytes");
    let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
    assert!(Ceiling::parse(&deep).is_err(), "deep");
}

#[test]
fn the_abi_that_a_site_demands_holds_for_every_caller() {
    let stated = GOOD.replacen("\"version\": 1", "\"version\": 1, \"min_landlock_abi\": 6", 1);
    let abis = |text: &str| -> Vec<u32> {
        let ceiling = Ceiling::parse(text).unwrap();
        ceiling
            .callers
            .iter()
            .map(|named| named.allowance.landlock_abi)
            .collect()
    };
    assert!(abis(&stated).iter().all(|abi| *abi == 6));
    assert!(abis(GOOD).iter().all(|abi| *abi == 0), "control");
}

#[test]
fn no_text_makes_the_parser_fall_over() {
    // Every cut and every changed byte of a good document: refused or understood, never a crash.
    for at in 0..GOOD.len() {
        drop(Ceiling::parse(&GOOD[..at]));
        for byte in [b'0', b'"', b'{', b']', b'-', 0] {
            let mut bytes = GOOD.as_bytes().to_vec();
            bytes[at] = byte;
            if let Ok(text) = String::from_utf8(bytes) {
                drop(Ceiling::parse(&text));
            }
        }
    }
}

#[test]
fn a_file_that_others_can_write_that_is_a_link_or_too_large_is_refused() {
    let place = std::env::temp_dir().join(format!("bastle-ceiling-{}", std::process::id()));
    std::fs::create_dir(&place).unwrap();
    let file = place.join("ceiling.json");
    std::fs::write(&file, GOOD).unwrap();
    let with_mode = |mode: u32| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        Ceiling::load(&file).is_ok()
    };
    let modes = [0o644, 0o600, 0o664, 0o646, 0o666].map(with_mode);
    with_mode(0o644);
    let link = place.join("link.json");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let linked = Ceiling::load(&link).is_ok();
    std::fs::write(&file, format!("{GOOD}{}", " ".repeat(64 * 1024))).unwrap();
    let large = Ceiling::load(&file).is_ok();
    let other = rustix::process::geteuid().is_root().then(|| {
        std::fs::write(&file, GOOD).unwrap();
        std::os::unix::fs::chown(&file, Some(1001), None).unwrap();
        Ceiling::load(&file).is_ok()
    });
    std::fs::remove_dir_all(&place).unwrap();
    assert_eq!(modes, [true, true, false, false, false]);
    assert_eq!((linked, large, other.unwrap_or(false)), (false, false, false));
}

#[test]
fn the_template_and_its_schema_know_the_same_fields() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../packaging");
    let text = std::fs::read_to_string(format!("{root}/ceiling.json")).unwrap();
    // Its user may not exist on this host; everything else must be as it is read.
    let ceiling = Ceiling::parse(&text.replace("\"user\": \"bastle\"", "\"uid\": 900"));
    assert!(ceiling.is_ok(), "{ceiling:?}");
    let schema = std::fs::read_to_string(format!("{root}/ceiling.schema.json")).unwrap();
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    let keys = |at: &serde_json::Value| -> Vec<String> {
        let properties = at["properties"].as_object().unwrap();
        assert_eq!(at["additionalProperties"], false);
        properties.keys().cloned().collect()
    };
    let caller = &schema["properties"]["callers"]["items"];
    let mut limits = keys(&caller["properties"]["limits"]);
    limits.sort();
    let mut known: Vec<String> = LimitKind::ALL
        .iter()
        // Held by control, which is the caller's own.
        .filter(|kind| !matches!(kind, LimitKind::Output | LimitKind::DiskReserve))
        .map(|kind| kind.name().to_owned())
        .collect();
    known.sort();
    assert_eq!(limits, known);
    let mut own = keys(caller);
    own.sort();
    let expected = [
        "allow_unconfined",
        "backends",
        "group",
        "limits",
        "max_workers",
        "rate",
        "roots",
        "uid",
        "user",
    ];
    assert_eq!(own, expected);
}
