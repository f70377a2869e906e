//! Bytes, files and names: in the workspace counted by the write guard, in private directories by the kernel.
use crate::host::{names, tree};
use crate::support::for_each_identity;
use std::path::Path;

const WAYS: &str = r#"
dd if=/dev/zero of=dd.bin bs=64k count=40 2>&1 | head -1
truncate -s 5M truncate.bin; echo "truncate $?"
fallocate -l 5M fallocate.bin; echo "fallocate $?"
dd if=/dev/zero of=sparse.bin bs=1 count=1 seek=50M 2>/dev/null; echo "sparse $?"
cp big cp.bin; echo "cp $?"
cat big >> cat.bin; echo "cat $?"
i=0; while [ $i -lt 2000 ]; do head -c 4096 big > small-$i || break; i=$((i+1)); done; [ $i -eq 2000 ]; echo "small $?"
perl -e 'open F, ">", "perl.bin"; for (1..80) { syswrite(F, "x" x 65536) or exit 1 }' 2>/dev/null; echo "perl $?"
"#;

/// The sum of the sizes of all files, as a program sees them.
fn bytes(root: &Path) -> usize {
    tree(root).values().map(|(_, bytes)| bytes.len()).sum()
}

#[test]
fn the_workspace_does_not_grow_past_the_disk_limit_whichever_way_is_tried() {
    for_each_identity(|lab| {
        // Each way alone in a fresh fence, so that each meets the limit itself and not what another has left.
        let ways: Vec<&str> = WAYS.trim().lines().collect();
        for way in ways {
            let big = lab.project("big", &"x".repeat(2 << 20));
            let before = bytes(&lab.workspace());
            let output = lab.fence().flags(["--disk", "1M"]).sh(way);
            let grown = bytes(&lab.workspace()) - before;
            assert!(grown <= 1 << 20, "{way}: {grown} bytes: {output:?}");
            let refused = ["quota", "No space", "1\n", "File too large"];
            assert!(
                refused.iter().any(|word| output.ended.stdout.contains(word)),
                "{way}: {output:?}"
            );
            let told = output.events("denied");
            assert!(
                told.iter().any(|event| event["kind"] == "limit"),
                "{way}: {:?}",
                output.audit
            );
            let control = lab.fence().flags(["--disk", "100M"]).sh(way);
            let grown = bytes(&lab.workspace()) - before;
            assert!(grown > 1 << 20, "control {way}: only {grown} bytes: {control:?}");
            for name in names(&lab.workspace()) {
                std::fs::remove_file(lab.workspace().join(name)).expect("own file");
            }
            assert!(!big.exists());
        }
    });
}

#[test]
fn what_was_removed_or_shortened_can_be_written_again_but_never_more_at_once() {
    for_each_identity(|lab| {
        let script = "for i in 1 2 3 4 5; do head -c 700000 /dev/zero > a || exit 1; rm a; done; head -c 700000 /dev/zero > a; \
                      head -c 700000 /dev/zero > b; echo $?";
        let output = lab.fence().flags(["--disk", "1M"]).sh(script);
        let grown = bytes(&lab.workspace());
        assert!(grown <= 1 << 20, "{grown} bytes: {output:?}");
        assert_ne!(output.said(), "0", "{output:?}");
    });
}

#[test]
fn private_directories_do_not_grow_past_the_disk_limit() {
    for_each_identity(|lab| {
        for directory in ["/tmp", "$HOME", "/var/tmp", "/dev/shm"] {
            let fill = format!(
                "cd {directory} && for i in 1 2 3 4 5; do head -c 500000 /dev/zero > f$i || break; done; \
                 truncate -s 5M t; fallocate -l 5M g; du -kc f* t g | tail -1 | cut -f1"
            );
            let output = lab.fence().flags(["--disk", "1M"]).sh(&fill);
            let used: u64 = output
                .said()
                .parse()
                .unwrap_or_else(|_| panic!("{directory}: {output:?}"));
            assert!(
                (512..=1024).contains(&used),
                "{directory}: {used} KiB: {output:?}"
            );
            assert!(
                output.ended.stderr.contains("No space left"),
                "{directory}: {output:?}"
            );
            let control = lab.fence().flags(["--disk", "100M"]).sh(&fill);
            assert!(
                control.said().parse::<u64>().is_ok_and(|used| used > 2048),
                "control {directory}: {control:?}"
            );
        }
        assert!(names(&lab.workspace()).is_empty());
    });
}

#[test]
fn private_directories_share_one_limit() {
    for_each_identity(|lab| {
        let fill = "for d in /tmp $HOME /var/tmp /dev/shm; do head -c 600000 /dev/zero > $d/f; echo $?; done";
        let output = lab.fence().flags(["--disk", "1M"]).sh(fill);
        assert_eq!(
            output.said().lines().filter(|code| *code == "0").count(),
            1,
            "{output:?}"
        );
        let control = lab.fence().flags(["--disk", "10M"]).sh(fill);
        assert_eq!(control.said(), "0\n0\n0\n0", "control: with room");
    });
}

#[test]
fn no_more_names_come_into_being_than_allowed_in_the_workspace_or_in_private_directories() {
    for_each_identity(|lab| {
        let make = [
            "mkdir d$i",
            ": > f$i",
            "ln -s x s$i",
            "mkfifo p$i",
            "ln big h$i",
            "cp -r folder c$i",
        ];
        for way in make {
            lab.project("big", "x");
            lab.project("folder/x", "x");
            let before = tree(&lab.workspace()).len();
            let script = format!("i=0; while [ $i -lt 60 ]; do {way} || break; i=$((i+1)); done");
            let output = lab.fence().flags(["--max-inodes", "20"]).sh(&script);
            let made = tree(&lab.workspace()).len() - before;
            assert_eq!(made, 20, "{way}: {output:?}");
            assert!(output.ended.stderr.contains("quota"), "{way}: {output:?}");
            for path in tree(&lab.workspace()).into_keys().rev() {
                if path != lab.workspace() {
                    let removed = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir(&path));
                    removed.expect("own file");
                }
            }
        }
        let made = lab
            .fence()
            .flags(["--max-inodes", "20"])
            .sh("for i in $(seq 60); do touch /tmp/f$i; done; ls /tmp | grep -c ^f");
        assert!(
            made.said().parse::<u32>().is_ok_and(|made| made <= 20),
            "{made:?}"
        );
        let control = lab
            .fence()
            .flags(["--max-inodes", "200"])
            .sh("for i in $(seq 60); do touch /tmp/f$i; done; ls /tmp | grep -c ^f");
        assert_eq!(control.said(), "60", "control: with room");
    });
}

#[test]
fn no_more_distinct_files_are_changed_than_allowed() {
    for_each_identity(|lab| {
        for index in 0..10 {
            lab.project(&format!("old{index}"), "old");
        }
        let script = "for i in 0 1 2; do echo new > old$i; done; for i in 1 2 3 4 5; do echo new > new$i; done; rm old9; mv old8 moved; \
                      echo again > old1; chmod 600 old7; echo end";
        let output = lab.fence().flags(["--max-files", "5"]).sh(script);
        assert!(output.ended.stderr.contains("quota"), "{output:?}");
        let after = tree(&lab.workspace());
        let changed = |path: &Path| {
            after
                .get(path)
                .is_none_or(|(_, bytes)| bytes.as_slice() != b"old")
        };
        let old: Vec<bool> = (0..10)
            .map(|index| changed(&lab.workspace().join(format!("old{index}"))))
            .collect();
        let fresh = names(&lab.workspace())
            .into_iter()
            .filter(|name| !name.starts_with("old"))
            .count();
        let touched = old.iter().filter(|changed| **changed).count() + fresh;
        assert_eq!(touched, 5, "{old:?} {fresh}: {output:?}");
        assert_eq!(
            std::fs::read_to_string(lab.workspace().join("old1")).expect("is there"),
            "again\n",
            "the same file may be changed again"
        );
        let control = lab.fence().flags(["--max-files", "50"]).sh(script);
        assert_eq!(
            (control.said(), control.events("denied").len()),
            ("end", 0),
            "control: with room: {control:?}"
        );
    });
}

#[test]
fn overwriting_the_same_bytes_counts_every_time() {
    for_each_identity(|lab| {
        let script = "i=0; while [ $i -lt 300 ]; do dd if=/dev/zero of=same bs=1024 count=1 conv=notrunc 2>/dev/null || break; \
                      i=$((i+1)); done; echo $i";
        let output = lab.fence().flags(["--max-written", "100K"]).sh(script);
        assert_eq!(output.said(), "100", "{output:?}");
        assert_eq!(bytes(&lab.workspace()), 1024);
        assert!(output.ended.stderr.contains("BST-LIM-006"), "{output:?}");
        assert_eq!(
            output.events("ended")[0]["usage"]["bytes_written"].as_u64(),
            Some(100 * 1024)
        );
        let control = lab.fence().flags(["--max-written", "10M"]).sh(script);
        assert_eq!(control.said(), "300", "control: with room");
    });
}
