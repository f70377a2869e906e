//! The stub resolver against name servers that lie, fail and hesitate.
use crate::dial::Refused;
use crate::resolve::Resolver;
use crate::testing::table;
use bastle_contract::Code;
use bastle_policy::{Host, NetPolicy};
use hickory_proto::op::{Message, MessageType, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

/// A name server; `answer` turns a good empty answer into what it says.
async fn server(answer: impl Fn(&Query, &mut Message) + Send + Sync + 'static) -> SocketAddr {
    // Both kinds on one port; another test may have taken the other kind of a port.
    let (tcp, udp) = loop {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()).await {
            break (tcp, udp);
        }
    };
    let address = udp.local_addr().unwrap();
    let answer = Arc::new(answer);
    let reply = move |packet: &[u8], over_tcp: bool| {
        let query = Message::from_vec(packet).unwrap();
        let mut message = Message::new();
        message.set_id(query.id()).set_message_type(MessageType::Response);
        message.add_query(query.queries()[0].clone());
        answer(&query.queries()[0], &mut message);
        if over_tcp {
            message.set_truncated(false);
        }
        message.to_vec().unwrap()
    };
    let over_tcp = reply.clone();
    tokio::spawn(async move {
        let mut buffer = [0; 2_048];
        while let Ok((n, peer)) = udp.recv_from(&mut buffer).await {
            udp.send_to(&reply(&buffer[..n], false), peer).await.unwrap();
        }
    });
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = tcp.accept().await {
            let n = stream.read_u16().await.unwrap();
            let mut packet = vec![0; n.into()];
            stream.read_exact(&mut packet).await.unwrap();
            let answer = over_tcp(&packet, true);
            stream
                .write_u16(u16::try_from(answer.len()).unwrap())
                .await
                .unwrap();
            stream.write_all(&answer).await.unwrap();
        }
    });
    address
}

fn asking(servers: &[SocketAddr]) -> NetPolicy {
    let mut policy = table(r#"{"allow": ["a.example"]}"#, &[]);
    policy.resolvers = servers.to_vec();
    policy
}

fn say(message: &mut Message, name: &str, address: &str) {
    let data = match address.parse::<IpAddr>().unwrap() {
        IpAddr::V4(v4) => RData::A(A(v4)),
        IpAddr::V6(v6) => RData::AAAA(AAAA(v6)),
    };
    message.add_answer(Record::from_rdata(Name::from_ascii(name).unwrap(), 30, data));
}

async fn look(policy: &NetPolicy) -> Result<Vec<IpAddr>, Refused> {
    Resolver::new()
        .checked(policy, &Host::new("a.example").unwrap())
        .await
}

fn addresses(list: &[&str]) -> Vec<IpAddr> {
    list.iter().map(|a| a.parse().unwrap()).collect()
}

#[tokio::test]
async fn one_refused_address_among_good_ones_refuses_the_name() {
    for bad in [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "::1",
        "fe80::1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
    ] {
        let v6 = bad.contains(':');
        let server = server(move |query, message| match (query.query_type(), v6) {
            (RecordType::A, false) => {
                say(message, "a.example.", "93.184.216.34");
                say(message, "a.example.", bad);
            }
            (RecordType::A, true) => say(message, "a.example.", "93.184.216.34"),
            (RecordType::AAAA, true) => say(message, "a.example.", bad),
            _ => {}
        })
        .await;
        let refused = look(&asking(&[server])).await.unwrap_err();
        assert_eq!(refused.code, Code::NetAddress, "{bad}: {refused}");
    }
}

#[tokio::test]
async fn a_second_answer_that_differs_is_checked_like_the_first() {
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let server = server(move |query, message| {
        if query.query_type() == RecordType::A {
            let rebound = count.fetch_add(1, Ordering::SeqCst) > 0;
            say(
                message,
                "a.example.",
                if rebound { "127.0.0.1" } else { "93.184.216.34" },
            );
        }
    })
    .await;
    let policy = asking(&[server]);
    let resolver = Resolver::new();
    let host = Host::new("a.example").unwrap();
    assert_eq!(
        resolver.checked(&policy, &host).await,
        Ok(addresses(&["93.184.216.34"]))
    );
    // Remembered: nobody is asked, so nobody can rebind.
    assert_eq!(
        resolver.checked(&policy, &host).await,
        Ok(addresses(&["93.184.216.34"]))
    );
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert_eq!(look(&policy).await.unwrap_err().code, Code::NetAddress);
}

#[tokio::test]
async fn aliases_are_followed_and_records_beside_the_chain_are_not_believed() {
    let server = server(|query, message| {
        let alias = RData::CNAME(CNAME(Name::from_ascii("b.example.").unwrap()));
        message.add_answer(Record::from_rdata(
            Name::from_ascii("a.example.").unwrap(),
            30,
            alias,
        ));
        if query.query_type() == RecordType::A {
            say(message, "stray.example.", "127.0.0.1");
            say(message, "b.example.", "93.184.216.34");
        } else {
            say(message, "b.example.", "2606:2800:220:1::1");
        }
    })
    .await;
    assert_eq!(
        look(&asking(&[server])).await,
        Ok(addresses(&["2606:2800:220:1::1", "93.184.216.34"]))
    );
}

#[tokio::test]
async fn failure_emptiness_and_circles_are_no_answer() {
    for code in [
        ResponseCode::ServFail,
        ResponseCode::NXDomain,
        ResponseCode::Refused,
        ResponseCode::NoError,
    ] {
        let server = server(move |_, message| {
            message.set_response_code(code);
            let circle = RData::CNAME(CNAME(Name::from_ascii("a.example.").unwrap()));
            message.add_answer(Record::from_rdata(
                Name::from_ascii("a.example.").unwrap(),
                30,
                circle,
            ));
        })
        .await;
        let refused = look(&asking(&[server])).await.unwrap_err();
        assert_eq!(refused.code, Code::NetResolve, "{code}");
    }
    assert_eq!(look(&asking(&[])).await.unwrap_err().code, Code::NetResolve);
}

#[tokio::test]
async fn an_answer_to_another_question_or_with_another_number_is_not_taken() {
    let number = server(|_, message| {
        message.set_id(message.id() ^ 1);
        say(message, "a.example.", "93.184.216.34");
    });
    let name = server(|_, message| {
        message.take_queries();
        message.add_query(Query::query(
            Name::from_ascii("b.example.").unwrap(),
            RecordType::A,
        ));
        say(message, "a.example.", "93.184.216.34");
    });
    let (number, name) = (number.await, name.await);
    let (number, name) = (asking(&[number]), asking(&[name]));
    let (number, name) = tokio::join!(look(&number), look(&name));
    assert_eq!(number.unwrap_err().code, Code::NetResolve);
    assert_eq!(name.unwrap_err().code, Code::NetResolve);
}

#[tokio::test]
async fn a_cut_answer_is_asked_for_again_over_tcp_and_the_next_server_helps_out() {
    let failing = server(|_, message| {
        message.set_response_code(ResponseCode::ServFail);
    })
    .await;
    let cut = server(|query, message| {
        message.set_truncated(true);
        if query.query_type() == RecordType::A {
            say(message, "a.example.", "93.184.216.34");
        }
    })
    .await;
    assert_eq!(
        look(&asking(&[failing, cut])).await,
        Ok(addresses(&["93.184.216.34"]))
    );
}
