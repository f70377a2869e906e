//! Forms and JSON that name a method, however they are written and cut, and those that do not.
use super::*;
use proptest::prelude::*;

fn found(scan: fn() -> FormScan, body: &[u8], step: usize) -> bool {
    let mut scan = scan();
    body.chunks(step).any(|piece| scan.feed(piece)) || scan.finish()
}

fn in_json(malformed: Malformed, body: &[u8], step: usize) -> bool {
    let mut scan = JsonScan::new(malformed);
    body.chunks(step).any(|piece| scan.feed(piece))
}

#[test]
fn a_form_that_names_a_method_is_found_however_it_is_written_and_cut() {
    for body in [
        &b"_method=DELETE"[..],
        b"a=b&_method=DELETE",
        b"a=b;%5Fmethod=DELETE&c=d",
        b"a=b&_METHOD=DELETE",
        b"a=b&+_method[]=DELETE",
        b"a=b&.method=DELETE",
        b"a=b&X-HTTP-Method-Override=DELETE",
        b"a=b&%u0058-HTTP-Method-Override=DELETE",
        b"_method%00x=DELETE",
        b"_httpmethod=DELETE",
        b"a=b&httpMethod=DELETE",
        b"a=b&method=DELETE",
        b"method=%44elete&a=b",
        b"+method[]=+PATCH+&a=b",
        b"method=PROPPATCH;a=b",
    ] {
        for step in [1, 3, 100] {
            assert!(
                found(FormScan::encoded, body, step),
                "{:?}",
                String::from_utf8_lossy(body)
            );
        }
    }
    // APIs call a procedure or choose a way of paying by a parameter of this name: it is one only where its value is a method.
    for body in [
        &b"method=x&a_method=y"[..],
        b"method=flickr.photos.delete",
        b"method=DELETED",
        b"method=getUser&a=DELETE",
        b"method=&a=DELETE",
        b"a_method=DELETE",
        b"a=method=DELETE",
        b"a=_method",
        b"a=b&_methods=c",
        b"",
    ] {
        assert!(
            !found(FormScan::encoded, body, 2),
            "{:?}",
            String::from_utf8_lossy(body)
        );
    }
}

#[test]
fn a_multipart_form_that_names_a_method_is_found_and_others_pass() {
    let part = |name: &str| {
        format!("--x\r\nContent-Disposition: form-data; {name}\r\n\r\nDELETE\r\n--x--\r\n").into_bytes()
    };
    for name in [
        "name=\"_method\"",
        "NAME=_method",
        "name='_method'",
        "name*=utf-8''%5Fmethod",
        "name=\"\\_method\"",
        "name*0=\"_met\"; name*1=\"hod\"",
        "name*0*=utf-8''_met; name*1*=hod",
        "name=\"=?utf-8?Q?=5Fmethod?=\"",
        "name=\"method\"",
        "name=method; filename=\"x\"\r\nContent-Type: text/plain",
    ] {
        for step in [1, 7, 1000] {
            assert!(found(FormScan::multipart, &part(name), step), "{name}");
        }
    }
    for name in [
        "name=\"file\"; filename=\"_method\"",
        "name=\"my_method\"",
        "filename=\"a\"",
    ] {
        let control = name.contains("filename=\"_method\"");
        assert_eq!(found(FormScan::multipart, &part(name), 5), control, "{name}");
    }
    let long = vec![b'n'; 200_000];
    assert!(!found(FormScan::multipart, &long, 1000));
}

#[test]
fn a_name_behind_blanks_is_found_however_many_there_are() {
    for blank in ["+", " ", "%20", "%09"] {
        for count in [1, 30, 53, 54, 79, 158, 159, 160, 161, 500] {
            for name in ["_method", "%5Fmethod"] {
                let body = format!("a=b&{}{name}=DELETE", blank.repeat(count));
                assert!(
                    found(FormScan::encoded, body.as_bytes(), 7),
                    "{blank:?} {count} {name}"
                );
            }
        }
    }
    let padded = format!(
        "--x\r\ncontent-disposition: form-data; name={}\"_method\"\r\n\r\n",
        " ".repeat(200)
    );
    assert!(found(FormScan::multipart, padded.as_bytes(), 7));
    let long = format!("{}=b", "name".repeat(100));
    assert!(!found(FormScan::encoded, long.as_bytes(), 7), "control");
}

#[test]
fn json_that_names_a_method_at_its_top_is_found_however_it_is_written_and_cut() {
    for body in [
        r#"{"_method":"DELETE"}"#,
        r#" { "a" : [1, {"b": "}"}] , "_METHOD" : 1 }"#,
        r#"{"a":"\\","\u005fmethod":"DELETE"}"#,
        r#"{"a\"b":"\"","_method":"DELETE"}"#,
        r#"{"a":1}{"_method":"DELETE"}"#,
        "{\"a\":1}\n{\"_method\":\"DELETE\"}",
        "\u{feff}{\"_method\":\"DELETE\"}",
        r#"{"x-http-method-override":"DELETE"}"#,
    ] {
        for step in [1, 3, 1000] {
            for malformed in [Malformed::Refused, Malformed::Passes] {
                assert!(in_json(malformed, body.as_bytes(), step), "{body}");
            }
        }
    }
    for body in [
        r#"{"method":"DELETE","a":{"_method":1},"b":"_method","c":["_method"]}"#,
        r#"[{"_method":1}]"#,
        r#""_method""#,
        "null",
        "-1.5e+3",
        "",
        "{}",
        "\u{1e}{\"a\":\"\u{e9}\"}\n",
    ] {
        for step in [1, 1000] {
            assert!(!in_json(Malformed::Refused, body.as_bytes(), step), "{body}");
        }
    }
}

#[test]
fn json_in_which_a_lenient_reader_could_see_another_key_is_refused_where_it_was_announced() {
    for body in [
        r#"{/*"*/"a":1,"_method":1}"#,
        "# a\n{}",
        "{'_method':1}",
        "{_method:1}",
        "{\"a\":'\"'}",
        "{\"\\u00zzmethod\":1}",
        "\u{0}{\u{0}\"",
        "a=b",
    ] {
        assert!(in_json(Malformed::Refused, body.as_bytes(), 3), "{body}");
        assert!(!in_json(Malformed::Passes, body.as_bytes(), 3), "{body}");
    }
}

proptest! {
    #[test]
    fn keys_of_json_are_found_exactly_where_a_parser_finds_them(
        keys in proptest::collection::vec("_method|[a-z\"\\\\_{}\\[\\],:é]{0,6}", 0..5),
        values in proptest::collection::vec("[a-z\"\\\\{}\\[\\],:é]{0,6}|_method", 5),
        step in 1usize..9,
    ) {
        let nested: serde_json::Map<_, _> = values.iter().map(|v| (v.clone(), serde_json::json!([v]))).collect();
        let object: serde_json::Map<_, _> = keys
            .iter()
            .zip(&values)
            .map(|(key, value)| (key.clone(), serde_json::json!([value, nested])))
            .collect();
        let expected = object.keys().any(|key| names_method(key.as_bytes()));
        let text = serde_json::Value::Object(object.clone()).to_string();
        prop_assert_eq!(in_json(Malformed::Refused, text.as_bytes(), step), expected, "{}", text);
        let pretty = serde_json::to_string_pretty(&object).unwrap();
        prop_assert_eq!(in_json(Malformed::Passes, pretty.as_bytes(), step), expected, "{}", pretty);
        let list = serde_json::json!([object]).to_string();
        prop_assert!(!in_json(Malformed::Refused, list.as_bytes(), step), "{}", list);
    }

    #[test]
    fn no_respelling_of_a_header_hides_an_override(
        name in "x-http-method-override|x-original-url|x-envoy-original-path|x-amz-copy-source|x-method",
        marks in "[-_.]{8}",
        upper in any::<u8>(),
    ) {
        let mut marks = marks.chars();
        let respelled: String = name
            .chars()
            .enumerate()
            .map(|(at, c)| match c {
                '-' => marks.next().unwrap_or('-'),
                _ if upper & (1 << (at % 8)) != 0 => c.to_ascii_uppercase(),
                _ => c,
            })
            .collect();
        prop_assert!(is_field(&respelled), "{}", respelled);
    }
}

#[test]
fn ordinary_headers_name_no_method_or_path() {
    for name in [
        "accept",
        "authorization",
        "content-type",
        "cookie",
        "host",
        "origin",
        "referer",
        "x-request-id",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "x-api-key",
        "x-original-host",
        "x-amz-date",
        "x-amz-content-sha256",
        "x-stainless-retry-count",
        "access-control-request-method",
        "x-http-client",
        "destination",
    ] {
        assert!(!is_field(name), "{name}");
    }
}

proptest! {
    #[test]
    fn no_cut_changes_what_is_found(
        text in "([{}\\[\\],:\"\\\\/ \r\n&;=+%*'?.-]|%[0-9a-f]{2}|%u00[0-9a-f]{2}|\\\\u00[0-9a-f]{2}|\\\\[nrtbf]|name|_?method|=GET|\r\n\r\n|\\PC){0,40}",
    ) {
        fuzz_scans(text.as_bytes());
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        fuzz_scans(&bytes);
    }
}
