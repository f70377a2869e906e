//! Both versions of HTTP give one form, and its form is stable.
use super::*;
use crate::http1::{Target, parse_head};
use crate::via::Via;
use bastle_contract::egress::Face;
use bastle_policy::Host;
use proptest::prelude::*;

fn site() -> Site {
    Site {
        via: Via {
            face: Face::Https,
            host: Host::new("a.example").unwrap(),
            port: 443,
        },
        scheme: Scheme::Https,
    }
}

type Form = (
    String,
    String,
    Option<String>,
    Media,
    Option<&'static str>,
    Option<&'static str>,
);

fn form(request: CanonicalRequest) -> Form {
    let refused = [PathDemand::Plain, PathDemand::Honest].map(|demand| request.refused_path(demand));
    (
        request.method.to_string(),
        request.path,
        request.query,
        request.media,
        refused[0],
        refused[1],
    )
}

/// What HTTP/1 makes of these; `None`: refused.
fn first(method: &str, target: &str, media: &str) -> Option<Form> {
    let head = format!("{method} {target} HTTP/1.1\r\nHost: a.example\r\nContent-Type: {media}\r\n\r\n");
    let head = parse_head(head.as_bytes()).ok()?;
    let Target::Origin(target) = head.target else {
        return None;
    };
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
        None => (target, None),
    };
    let parsed = Parsed {
        method: head.method,
        path,
        query,
        scheme: None,
        authority: None,
        headers: head.headers,
        length: Some(0),
        can_upgrade: true,
    };
    CanonicalRequest::new(&site(), parsed).ok().map(form)
}

/// What HTTP/2 makes of them, through the same parsers of pseudo-headers that the library uses.
fn second(method: &str, target: &str, media: &str) -> Option<Form> {
    let path = http::uri::PathAndQuery::try_from(target).ok()?;
    let mut headers = HeaderMap::new();
    headers.insert("content-type", http::HeaderValue::from_str(media).ok()?);
    let parsed = Parsed {
        method: Method::from_bytes(method.as_bytes()).ok()?,
        path: path.path().to_owned(),
        query: path.query().map(str::to_owned),
        scheme: Some("https".to_owned()),
        authority: Some("a.example".to_owned()),
        headers,
        length: Some(0),
        can_upgrade: false,
    };
    CanonicalRequest::new(&site(), parsed).ok().map(form)
}

#[test]
fn a_body_is_json_only_where_every_reader_takes_it_for_utf_8_json() {
    let media = |value: &str| {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", value.parse().unwrap());
        Media::of(&headers)
    };
    for json in [
        "application/json",
        "Application/JSON; charset=UTF-8",
        "application/json;charset=\"utf-8\"",
        "application/vnd.api+json",
    ] {
        assert_eq!(media(json), Media::Json, "{json}");
    }
    for other in [
        "application/json; charset=utf-16",
        "application/json; charset=utf-7",
        "application/json; charset=utf-8; charset=utf-16",
        "application/json, text/plain",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/graphql",
        "json",
    ] {
        assert_ne!(media(other), Media::Json, "{other}");
    }
    assert_eq!(Media::of(&HeaderMap::new()), Media::Absent);
}

#[test]
fn a_lower_case_method_a_foreign_scheme_or_a_raw_byte_is_refused_in_both_versions() {
    for (method, target) in [
        ("get", "/"),
        ("Get", "/"),
        ("GET", "/\u{e9}"),
        ("TRACE", "/"),
        ("trace", "/"),
    ] {
        assert_eq!(
            (first(method, target, "a/b"), second(method, target, "a/b")),
            (None, None),
            "{method} {target}"
        );
    }
    assert!(first("GET", "/%61?b", "a/b").is_some() && second("GET", "/%61?b", "a/b").is_some());
}

proptest! {
    #[test]
    fn http_1_and_http_2_give_the_same_request_for_the_same_bytes(
        method in "(GET|POST|get|Post|PATCH|M-SEARCH|TRACE)",
        target in "/([a-z./;?&=\\\\{}\"|^<>~!$é]|%[0-9a-fA-F]{2}|%2[eEfF]|%){0,20}",
        media in "(application/json|application/json; charset=(utf-8|utf-16)|text/plain|multipart/x|a,b)",
    ) {
        let (one, two) = (first(&method, &target, &media), second(&method, &target, &media));
        // The library of one version may refuse bytes that the other takes; where both take them they agree.
        if let (Some(one), Some(two)) = (&one, &two) {
            prop_assert_eq!(one, two);
        }
        if let Some(two) = &two {
            prop_assert_eq!(one.as_ref(), Some(two), "HTTP/2 takes nothing that HTTP/1 refuses");
        }
    }

    #[test]
    fn the_canonical_request_of_what_is_sent_is_itself(
        target in "/([a-z./;?&=~]|%[0-9a-fA-F]{2}|%2[eEfF]){0,20}",
    ) {
        if let Some(once) = first("GET", &target, "a/b") {
            let sent = match &once.2 {
                Some(query) => format!("{}?{query}", once.1),
                None => once.1.clone(),
            };
            prop_assert_eq!(first("GET", &sent, "a/b"), Some(once));
        }
    }
}
