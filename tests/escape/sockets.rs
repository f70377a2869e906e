//! Attacks through sockets: what listens on the host must be out of reach.
use crate::support::{Identity, for_each_identity};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

fn all(expected: &str, count: usize) -> Vec<String> {
    vec![expected.to_owned(); count]
}

#[test]
fn an_abstract_socket_of_the_host_cannot_be_reached() {
    for_each_identity(|lab| {
        let name = format!("bastle-escape-{}-{:?}", std::process::id(), lab.identity);
        let address = SocketAddr::from_abstract_name(&name).expect("a fresh name");
        let _listener = UnixListener::bind_addr(&address).expect("a fresh name");
        let attacks: [&[&str]; 1] = [&["abstract", &name]];
        assert_eq!(lab.fenced(&attacks), all("ECONNREFUSED", 1));
        assert_eq!(lab.unfenced(&attacks), all("OK", 1), "control: without the fence");
    });
}

#[test]
fn a_path_socket_of_the_host_is_not_in_view() {
    for_each_identity(|lab| {
        let path = lab.outside().join("agent.sock");
        let _listener = UnixListener::bind(&path).expect("a fresh name");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777))
            .expect("own socket");
        let path = path.to_str().expect("UTF-8").to_owned();
        let attacks: [&[&str]; 1] = [&["unix", &path]];
        assert_eq!(lab.fenced(&attacks), all("ENOENT", 1));
        assert_eq!(lab.unfenced(&attacks), all("OK", 1), "control: without the fence");
        let services: [&[&str]; 5] = [
            &["stat", "/var/run/docker.sock"],
            &["stat", "/run/docker.sock"],
            &["stat", "/run/dbus/system_bus_socket"],
            &["stat", "/run/user"],
            &["stat", "/tmp/.X11-unix"],
        ];
        assert_eq!(lab.fenced(&services), all("ENOENT", 5));
    });
}

#[test]
fn a_service_on_the_hosts_loopback_cannot_be_reached() {
    for_each_identity(|lab| {
        let four = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let port = four.local_addr().expect("is bound").port().to_string();
        let six = TcpListener::bind("[::1]:0").ok();
        let port6 = six.as_ref().map_or("9".to_owned(), |six| {
            six.local_addr().expect("is bound").port().to_string()
        });
        let attacks: [&[&str]; 3] = [
            &["tcp", "127.0.0.1", &port],
            &["tcp", "::1", &port6],
            &["own-loopback"],
        ];
        let seen = lab.fenced(&attacks);
        assert_eq!(
            (seen[0].as_str(), seen[2].as_str()),
            ("ECONNREFUSED", "OK"),
            "its own loopback works: the control"
        );
        assert!(
            ["ECONNREFUSED", "errno-99"].contains(&seen[1].as_str()),
            "{seen:?}"
        );
        assert_eq!(
            lab.unfenced(&attacks[..1]),
            all("OK", 1),
            "control: without the fence"
        );
    });
}

#[test]
fn nothing_leads_out_of_the_sandbox() {
    for_each_identity(|lab| {
        // Documentation addresses: never a real host. The last is what clouds call metadata.
        let attacks: [&[&str]; 6] = [
            &["tcp", "192.0.2.1", "443"],
            &["tcp", "198.51.100.7", "53"],
            &["tcp", "2001:db8::1", "443"],
            &["tcp", "169.254.169.254", "80"],
            &["family", "2", "3", "1"],
            &["family", "2", "2", "1"],
        ];
        let seen = lab.fenced(&attacks);
        assert_eq!(seen[..2], all("ENETUNREACH", 2));
        assert!(
            ["ENETUNREACH", "errno-99"].contains(&seen[2].as_str()),
            "{seen:?}"
        );
        assert_eq!(seen[3..5], ["ENETUNREACH", "EPERM"], "metadata; raw sockets");
        assert!(
            ["EACCES", "EPERM"].contains(&seen[5].as_str()),
            "ping sockets: {seen:?}"
        );
        let output = lab.fence().sh("cat /proc/net/route /proc/net/dev");
        let interfaces: Vec<&str> = output
            .ended
            .stdout
            .lines()
            .filter(|line| line.contains(':'))
            .collect();
        assert!(
            interfaces.iter().all(|line| line.trim_start().starts_with("lo:")
                || line.contains("tunl")
                || line.contains("sit")
                || line.contains("gre")
                || line.contains("ip6")
                || line.contains("vti")
                || line.contains("erspan")
                || line.contains('#')),
            "{output:?}"
        );
        if lab.identity == Identity::Root {
            assert_eq!(
                lab.unfenced(&[&["family", "2", "3", "1"]]),
                all("OK", 1),
                "control: root outside has raw sockets"
            );
        }
        let names = lab.fence().run(["getent", "hosts", "example.invalid"]);
        assert_eq!(names.ended.code, 2, "no name is resolved: {names:?}");
        assert_eq!(
            lab.fence().run(["getent", "hosts", "localhost"]).ended.code,
            0,
            "control: its own name"
        );
    });
}
