//! Servers inside, reached at an address here: those of the agent, and nothing else.
use crate::living::{Living, conforms};
use crate::support::{Background, Limit, for_each_identity, run};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// A server of the agent's that echoes one connection after the other, in capitals.
const SERVER: &str = r#"
import socket, sys
s = socket.create_server((sys.argv[1], 0), family=socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
print(s.getsockname()[1], flush=True)
while True:
    c, _ = s.accept()
    whole = b""
    while piece := c.recv(65536):
        whole += piece
    c.sendall(whole.upper())
    c.close()
"#;

fn forward(living: &Living<'_>, port: &str) -> (Background, String) {
    let name = living.agent.name();
    let client = Background::start(&mut living.bastle(&["port", name, port, "--listen", "127.0.0.1:0"]));
    let at = client.line();
    (client, at)
}

fn ask(at: &str, text: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(at).expect("somebody listens here");
    stream.set_read_timeout(Some(Limit::HANG.0)).unwrap();
    let mut sender = stream.try_clone().unwrap();
    let text = text.to_vec();
    let writer = std::thread::spawn(move || {
        sender.write_all(&text).unwrap();
        sender.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers and closes");
    writer.join().unwrap();
    answer
}

#[test]
fn a_server_inside_is_reached_at_an_address_here_on_both_loopback_addresses() {
    for_each_identity(|lab| {
        let server = lab.project("server.py", SERVER);
        let living = Living::start(lab);
        for own in ["127.0.0.1", "::1"] {
            let inside = living.background(&["python3", "-B", server.to_str().unwrap(), own]);
            let port = inside.line();
            let (client, at) = forward(&living, &port);
            assert!(at.starts_with("127.0.0.1:"), "{at}");
            assert_eq!(ask(&at, b"hello"), b"HELLO");
            let large = vec![b'x'; 2_000_000];
            assert_eq!(
                ask(&at, &large),
                vec![b'X'; 2_000_000],
                "to the last byte, both ways"
            );
            assert!(
                TcpStream::connect(format!("127.0.0.1:{port}")).is_err() || at.ends_with(&port),
                "only there"
            );
            drop(client);
            assert!(TcpStream::connect(&at).is_err(), "and no longer than its client");
        }
        let notes = living.agent.events("note");
        assert!(notes.iter().any(|note| note["topic"] == "port"), "{notes:?}");
    });
}

#[test]
fn the_address_is_printed_as_json_where_it_is_asked_for() {
    for_each_identity(|lab| {
        let living = Living::start(lab);
        let words = [
            "port",
            living.agent.name(),
            "3000",
            "--wait",
            "--json",
            "--listen",
            "127.0.0.1:0",
        ];
        let client = Background::start(&mut living.bastle(&words));
        let mut text = String::new();
        let value = loop {
            text.push_str(&client.line());
            if let Ok(value) = serde_json::from_str::<serde_json::Value>(&text) {
                break value;
            }
        };
        conforms("port", &value);
        assert_eq!(value["port"], 3000);
        let at = value["listen"].as_str().unwrap();
        assert!(at.starts_with("127.0.0.1:"), "{at}");
        // Nothing answers inside: the connection is closed and says nothing.
        let mut stream = TcpStream::connect(at).expect("it listens all the same");
        stream.set_read_timeout(Some(Limit::HANG.0)).unwrap();
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        assert!(
            answer.is_empty()
                && read.map_or_else(
                    |error| error.kind() == std::io::ErrorKind::ConnectionReset,
                    |count| count == 0
                )
        );
    });
}

#[test]
fn a_port_on_which_nobody_listens_is_a_clear_error() {
    for_each_identity(|lab| {
        let living = Living::start(lab);
        let free = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let words = ["port", living.agent.name(), &free.to_string()];
        let refused = run(&mut living.bastle(&words), b"", Limit::HANG);
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(
            refused.stderr.contains("BST-EXEC-007") && refused.stderr.contains("nothing inside answers"),
            "{refused:?}"
        );
        let zero = run(
            &mut living.bastle(&["port", living.agent.name(), "0"]),
            b"",
            Limit::HANG,
        );
        assert_eq!(zero.code, 2, "{zero:?}");
    });
}

#[test]
fn a_server_that_accepts_nobody_holds_up_neither_init_nor_the_run() {
    for_each_identity(|lab| {
        let living = Living::start(lab);
        // Its queue holds one and is full.
        let setup = "(held.append(socket.create_server(('127.0.0.1', 0), backlog=0)), \
            [held.append(socket.create_connection(held[0].getsockname())) for _ in range(1)], held[0].getsockname()[1])[2]";
        let port = living.agent.does(setup);
        let words = ["port", living.agent.name(), &port];
        let mut waiting = Background::start(&mut living.bastle(&words));
        assert_eq!(living.exec(&["echo", "on"]).stdout, "on\n");
        assert_eq!(living.agent.does("1 + 1"), "2");
        // Given up, or let into the queue and listening: in both cases somebody was told.
        let ended = waiting.end(Limit(Duration::from_secs(20)));
        assert!(ended.is_none() || ended == Some(1), "{ended:?}");
    });
}

#[test]
fn the_ports_of_egress_are_not_forwarded() {
    for_each_identity(|lab| {
        let fence = lab.fence().flags(["--allow-net", "service.test:8443"]);
        let run_of = Background::start(&mut fence.command(["sh", "-c", "echo ready; exec sleep 300"]));
        assert_eq!(run_of.line(), "ready");
        for port in ["3128", "1080", "53"] {
            let mut line = lab.command(crate::support::bastle());
            line.args(["port", fence.name(), port, "--listen", "127.0.0.1:0"]);
            let refused = run(&mut line, b"", Limit::HANG);
            assert_eq!(refused.code, 1, "{port}: {refused:?}");
            assert!(refused.stderr.contains("egress"), "{port}: {refused:?}");
        }
    });
}

#[test]
fn the_agent_does_not_reach_the_address_outside() {
    for_each_identity(|lab| {
        let server = lab.project("server.py", SERVER);
        let living = Living::start(lab);
        let inside = living.background(&["python3", "-B", server.to_str().unwrap(), "127.0.0.1"]);
        let port = inside.line();
        let (_client, at) = forward(&living, &port);
        let (_, outside) = at.rsplit_once(':').unwrap();
        assert_ne!(outside, port, "the two differ, or nothing is tried");
        let attempt =
            |port: &str| format!("outcome(lambda: socket.create_connection(('127.0.0.1', {port})) and 'OK')");
        assert_eq!(living.agent.does(&attempt(&port)), "'OK'", "control: its own");
        assert_eq!(living.agent.does(&attempt(outside)), "'ECONNREFUSED'");
        assert_eq!(ask(&at, b"x"), b"X", "control: from here it is");
    });
}
