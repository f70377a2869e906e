//! What counts as a request to a model.
use super::*;
use proptest::prelude::*;

#[test]
fn the_built_in_data_is_readable_and_names_every_api_once() {
    let read: Table = serde_json::from_str(BUILT_IN).unwrap();
    for api in ModelApi::ALL {
        assert_eq!(
            read.apis.iter().filter(|data| data.api == api).count(),
            1,
            "{api:?}"
        );
        assert_eq!(Declared::parse(api.name()), Some(Declared::Api(api)));
    }
    assert!(read.hosts.len() > 40 && read.apis.iter().all(|data| !data.paths.is_empty()));
    for pattern in read
        .apis
        .iter()
        .flat_map(|data| &data.paths)
        .chain(&read.management)
    {
        assert_eq!(
            &pattern.to_lowercase(),
            pattern,
            "patterns are compared in lower case"
        );
    }
}

#[test]
fn no_spelling_of_a_path_hides_a_request() {
    for odd in [
        "/v1/messages",
        "/v1/messages/",
        "/v1//messages",
        "//v1/messages",
        "/V1/Messages",
        "/v1/%6dessages",
        "/v1/%6Dessages/",
        "/v1/%256dessages",
        "/v1%2fmessages",
        "/v1/./messages",
        "/x/../v1/messages",
        "/v1/messages;a=b",
        "/v1;x/messages",
        "/v1\\messages",
        "/v1/messages%20",
        "/v1/messages%00",
        "/v1/messages%3Fbeta",
        "/v1/messages/%2e",
    ] {
        assert_eq!(counting_path(odd), "/v1/messages", "{odd}");
    }
    assert_eq!(
        counting_path("/v1/messages/count_tokens"),
        "/v1/messages/count_tokens"
    );
}

proptest! {
    #[test]
    fn escaping_any_characters_of_a_path_changes_nothing(mask in 0u32..(1 << 12)) {
        let plain = "/v1/messages";
        let spelled: String = plain
            .bytes()
            .enumerate()
            .map(|(at, byte)| if mask >> at & 1 == 1 { format!("%{byte:02x}") } else { char::from(byte).to_string() })
            .collect();
        prop_assert_eq!(counting_path(&spelled), plain);
    }

    #[test]
    fn any_text_has_a_canonical_path_that_is_its_own(text in "\\PC{0,60}") {
        let once = counting_path(&text);
        prop_assert!(once.starts_with('/') && !once.contains("//"));
    }
}
