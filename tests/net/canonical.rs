//! Requests in every spelling: what is judged is what the server gets, over HTTP/1 and HTTP/2 alike.
use crate::support::{Limit, for_each_identity};
use crate::world::{Scripts, codes, host, world};
use serde_json::json;
use std::time::Duration;

const SLOW: Limit = Limit(Duration::from_secs(120));

#[test]
fn a_path_or_method_in_disguise_is_refused_over_both_versions_of_http() {
    for_each_identity(|lab| {
        let name = host("disguised");
        let output = world()
            .fence(lab, &[&format!("GET,POST {name}:{{tls}}/public/**")])
            .within(SLOW)
            .shell(&format!(
                "for version in --http1.1 --http2; do\n\
                 go() {{ curl -s $version --path-as-is -o /dev/null -w '%{{http_code}}\\n' \"$@\"; }}\n\
                 for path in %2e%2e/private ..%2fprivate '..;/private' a%5cb %252e%252e/x %c0%ae%c0%ae/x %ef%bc%8e%ef%bc%8e/x %00 a%2fb /a; do\n\
                 go https://{name}:{{tls}}/public/$path; done\n\
                 go -X get https://{name}:{{tls}}/public/a\n\
                 go https://{name}:{{tls}}/%70ublic/%7Ea; done"
            ));
        let lines: Vec<&str> = output.said().lines().collect();
        assert_eq!(lines.len(), 24, "{output:?}");
        for version in lines.chunks(12) {
            assert!(version[..11].iter().all(|line| *line == "400"), "{output:?}");
            assert_eq!(version[11], "200", "control: {output:?}");
        }
        let paths: Vec<_> = world()
            .seen(&name)
            .iter()
            .map(|r| r["path"].to_string())
            .collect();
        assert_eq!(
            paths,
            ["\"/public/~a\"", "\"/public/~a\""],
            "sent as it was judged"
        );
    });
}

#[test]
fn a_method_override_is_refused_where_methods_or_paths_decide_and_nowhere_else() {
    for_each_identity(|lab| {
        let (narrow, wide) = (host("narrow"), host("wide"));
        let rules = [format!("GET,POST {narrow}:{{tls}}"), format!("{wide}:{{plain}}")];
        let output = world().fence(lab, &[&rules[0], &rules[1]]).within(SLOW).shell(&format!(
            "go() {{ curl -s -o /dev/null -w '%{{http_code}}\\n' \"$@\"; }}\n\
             for field in X-HTTP-Method-Override X-HTTP-Method X-Method-Override X-Original-URL X-Rewrite-URL; do\n\
             go -d a=b -H \"$field: DELETE\" https://{narrow}:{{tls}}/x; done\n\
             go -d a=b 'https://{narrow}:{{tls}}/x?_method=DELETE'\n\
             go -d 'a=b&_method=DELETE' https://{narrow}:{{tls}}/x\n\
             go -F a=b -F _method=DELETE https://{narrow}:{{tls}}/x\n\
             go -d a=b https://{narrow}:{{tls}}/x\n\
             go -F file=b https://{narrow}:{{tls}}/x\n\
             go -d _method=DELETE -H 'X-HTTP-Method-Override: DELETE' http://{wide}:{{plain}}/x"
        ));
        let lines: Vec<&str> = output.said().lines().collect();
        assert_eq!(lines[..8], ["400"; 8], "{output:?}");
        assert_eq!(lines[8..], ["200"; 3], "controls: {output:?}");
        assert_eq!(world().seen(&narrow).len(), 2, "{output:?}");
        assert!(
            codes(&output, &narrow).iter().all(|code| code == "BST-NET-006"),
            "{output:?}"
        );
    });
}

#[test]
fn a_body_or_header_in_disguise_names_no_other_method_or_path() {
    for_each_identity(|lab| {
        let name = host("spelled");
        let rule = format!("GET,POST,MOVE {name}:{{tls}}/public/**");
        let output = world().fence(lab, &[&rule]).within(SLOW).shell(&format!(
            "go() {{ curl -s -o /dev/null -w '%{{http_code}}\\n' \"$@\" https://{name}:{{tls}}/public/x; }}\n\
             go -d 'a=b&_method=DELETE' -H 'Content-Type:'\n\
             go -d 'a=b&_method=DELETE' -H 'Content-Type: application/x-www-form-urlencoded, a/b'\n\
             go -d abc -H 'Content-Encoding: gzip'\n\
             go -d abc -H 'Content-Type: application/x-www-form-urlencoded; charset=ibm037'\n\
             go -d '{{\"_method\":\"DELETE\"}}' -H 'Content-Type: application/json'\n\
             go --http1.1 -H 'X_Original_URL: /admin'\n\
             go --http2 -H 'x_http_method: DELETE'\n\
             go -X MOVE -H 'Destination: /public/%2e%2e/private'\n\
             go -X MOVE -H 'Destination: /private/x'\n\
             go -X MOVE -H 'Destination: /public/y'\n\
             go -d '{{\"method\":\"DELETE\"}}' -H 'Content-Type: application/json'\n\
             go -H 'X_Request_Id: 1'"
        ));
        let lines: Vec<&str> = output.said().lines().collect();
        assert_eq!(lines.len(), 12, "{output:?}");
        assert_eq!(lines[..8], ["400"; 8], "{output:?}");
        assert_eq!(lines[8], "403", "{output:?}");
        assert_eq!(lines[9..], ["200"; 3], "controls: {output:?}");
        assert_eq!(world().seen(&name).len(), 3, "{output:?}");
    });
}

#[test]
fn a_call_in_a_body_of_another_type_is_refused_where_rules_name_operations() {
    for_each_identity(|lab| {
        let (rpc, graph) = (host("mcp"), host("graphql"));
        let net = json!({ "allow": [
            { "rule": format!("POST {rpc}:{{tls}}/mcp"), "rpc": ["tools/list"] },
            { "rule": format!("GET,POST {graph}:{{tls}}/graphql"), "graphql": ["query"] } ] });
        let policy = world().policy(lab, &world().document(&net, &json!({})));
        let output = world().under(lab, &policy).within(SLOW).shell(&format!(
            "rpc() {{ curl -s -o /dev/null -w '%{{http_code}}\\n' -d '{{\"method\":\"tools/list\"}}' \"$@\" https://{rpc}:{{tls}}/mcp; }}\n\
             graph() {{ curl -s -o /dev/null -w '%{{http_code}}\\n' -H 'content-type: application/json' -d \"$1\" \"https://{graph}:{{tls}}/graphql$2\"; }}\n\
             for kind in 'application/json; charset=utf-16' text/plain application/x-www-form-urlencoded 'multipart/form-data; boundary=x' ''; do\n\
             rpc -H \"content-type: $kind\"; done\n\
             graph '{{\"query\":\"{{ a }}\",\"extensions\":{{\"persistedQuery\":{{\"sha256Hash\":\"x\"}}}}}}'\n\
             graph '{{\"query\":\"{{ a }}\",\"id\":\"stored\"}}'\n\
             graph '{{\"query\":\"{{ a }}\"}}' '?documentId=7'\n\
             curl -s -o /dev/null -w '%{{http_code}}\\n' 'https://{graph}:{{tls}}/graphql?query=%7Ba%7D&extensions=%7B%7D'\n\
             rpc -H 'content-type: application/json; charset=utf-8'\n\
             graph '{{\"query\":\"{{ a }}\"}}'"
        ));
        let lines: Vec<&str> = output.said().lines().collect();
        assert_eq!(lines.len(), 11, "{output:?}");
        assert_eq!(lines[..9], ["403"; 9], "{output:?}");
        assert_eq!(lines[9..], ["200"; 2], "controls: {output:?}");
        assert_eq!((world().seen(&rpc).len(), world().seen(&graph).len()), (1, 1));
    });
}
