//! Attacks by what a file may do and whose it is: owners, set-uid bits, capabilities of files. The host is looked at after each.
use crate::filesystem::{all, text};
use crate::support::{Identity, for_each_identity};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

#[test]
fn capabilities_cannot_be_put_on_a_file() {
    for_each_identity(|lab| {
        let program = lab.project("program", "#!/bin/sh\n");
        let attack: &[&str] = &["file-capability", text(&program)];
        assert_eq!(
            lab.fenced(&[attack, &["chmod", text(&program), "0755"]]),
            ["EPERM", "OK"]
        );
        if lab.identity == Identity::Root {
            assert_eq!(lab.unfenced(&[attack]), all("OK", 1), "control: root outside");
        }
    });
}

#[test]
fn what_the_agent_makes_belongs_to_the_owner_of_the_workspace() {
    for_each_identity(|lab| {
        let output = lab
            .fence()
            .sh("echo x > made; mkdir dir; ln -s made link; chown 0:0 made; id -u");
        assert_eq!(output.said(), "1000", "{output:?}");
        for name in ["made", "dir", "link"] {
            let meta = lab.workspace().join(name).symlink_metadata().expect("was made");
            assert_eq!(meta.uid(), lab.identity.uid(), "{name}");
        }
        let outside = lab.fence().attack(&[&["become", "0"]]).0;
        assert_eq!(outside, all("EINVAL", 1), "uid 0 does not exist inside");
    });
}

#[test]
fn a_set_uid_or_set_gid_program_cannot_be_left_behind() {
    for_each_identity(|lab| {
        lab.project("program", "#!/bin/sh\n");
        let attacks: [&[&str]; 4] = [
            &["chmod", "program", "04755"],
            &["chmod", "program", "02755"],
            &["fchmodat2", "program", "06755"],
            &["chmod", "program", "0711"],
        ];
        let (seen, output) = lab.fence().attack(&attacks);
        let mode = lab
            .workspace()
            .join("program")
            .metadata()
            .expect("is there")
            .permissions()
            .mode();
        assert_eq!(
            mode & 0o6000,
            0,
            "the host has a set-uid program of the invoker: {mode:o} {output:?}"
        );
        assert_eq!(seen, ["EPERM", "EPERM", "EPERM", "OK"]);
        assert_eq!(
            lab.unfenced(&attacks[..1]),
            all("OK", 1),
            "control: without the fence"
        );
    });
}

#[test]
fn a_file_cannot_be_born_set_uid() {
    for_each_identity(|lab| {
        let ways = ["open", "creat", "mknod", "tmpfile"];
        let attacks: Vec<[&str; 4]> = ways
            .iter()
            .map(|way| ["create-mode", way, way, "06755"])
            .collect();
        let attacks: Vec<&[&str]> = attacks.iter().map(|attack| &attack[..]).collect();
        let (seen, output) = lab.fence().attack(&attacks);
        for (way, result) in ways.iter().zip(&seen) {
            let mode = lab
                .workspace()
                .join(way)
                .metadata()
                .map_or(0, |meta| meta.permissions().mode());
            assert_eq!(mode & 0o6000, 0, "{way} made {mode:o} on the host: {output:?}");
            assert_eq!(result, "EPERM", "{way}: {output:?}");
        }
        let harmless = lab.fenced(&[&["create-mode", "open", "harmless", "0755"]]);
        assert_eq!(harmless, all("OK", 1), "control: other bits are kept");
        let control = lab.unfenced(&[&["create-mode", "open", "control", "06755"]]);
        assert_eq!(control, all("OK", 1), "control: without the fence");
    });
}

#[test]
fn a_set_uid_program_in_view_has_no_effect() {
    for_each_identity(|lab| {
        if lab.identity == Identity::Current {
            return; // Only root can make one of another user.
        }
        let program = lab.outside().join("set-uid");
        std::fs::copy(lab.attacker(), &program).expect("can be copied");
        // Of a user that is neither the invoker nor the agent.
        std::os::unix::fs::chown(&program, Some(60_002), Some(60_002)).expect("root can");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o6755)).expect("root can");
        let outside = text(&lab.outside()).to_owned();
        let output = lab
            .fence()
            .flags(["--ro", &outside])
            .run([text(&program), "effective-uid", "1000"]);
        assert_eq!(
            (output.ended.code, output.said()),
            (0, "OK"),
            "still the agent: {output:?}"
        );
        let command = crate::support::run(
            lab.command(&program).args(["effective-uid", "60002"]),
            b"",
            crate::support::Limit::HANG,
        );
        assert_eq!(command.code, 0, "control: outside it takes effect: {command:?}");
    });
}
