//! Git hosts: every host that is a remote of the workspace or that policy names, and every way to write to one.
use crate::pushes::{COMMIT, fence, pushed, reference};
use crate::support::{Limit, for_each_identity};
use crate::world::{Scripts, codes, host, world};
use serde_json::json;
use std::time::Duration;

const SLOW: Limit = Limit(Duration::from_secs(180));

#[test]
fn a_push_option_goes_out_only_where_policy_names_it() {
    for_each_identity(|lab| {
        let name = host("git");
        let label = format!("agent/{}", name.split('.').next().expect("a label"));
        let git = json!({ "push": "allow", "branches": ["agent/*"], "pushOptions": ["ci.skip"] });
        let output = fence(lab, &name, &git).shell(&format!(
            "{COMMIT}git push -q -o merge_request.create origin HEAD:refs/heads/{label}-a; echo status $?\n\
             git push -q -o ci.skip -o merge_request.create origin HEAD:refs/heads/{label}-b; echo status $?\n\
             git push -q -o ci.skip origin HEAD:refs/heads/{label}-c; echo status $?"
        ));
        let statuses = pushed(&output);
        assert!(
            statuses[..2].iter().all(|status| *status != "status 0"),
            "{output:?}"
        );
        assert_eq!(statuses[2], "status 0", "control: {output:?}");
        for gone in ["a", "b"] {
            assert_eq!(
                reference("project.git", &format!("refs/heads/{label}-{gone}")),
                None,
                "{output:?}"
            );
        }
        assert!(
            output.ended.stderr.contains("pushOptions"),
            "git says why: {output:?}"
        );
    });
}

#[test]
fn a_push_to_a_repository_in_disguise_is_refused() {
    for_each_identity(|lab| {
        let name = host("git");
        let label = format!("agent/{}", name.split('.').next().expect("a label"));
        let git = json!({ "push": "allow", "branches": ["agent/*"], "remotes": ["origin"] });
        let url = format!("https://{name}:{{tls}}/git");
        let output = fence(lab, &name, &git).shell(&format!(
            "{COMMIT}for path in project.git/../foreign.git x/%2e%2e/foreign.git /foreign.git project.git%2f..%2fforeign.git foreign.git.git; do\n\
             git push -q {url}/$path HEAD:refs/heads/{label}; echo status $?; done\n\
             git push -q {url}/project.git HEAD:refs/heads/{label}; echo status $?"
        ));
        let statuses = pushed(&output);
        assert_eq!(statuses.len(), 6, "{output:?}");
        assert!(
            statuses[..5].iter().all(|status| *status != "status 0"),
            "{output:?}"
        );
        assert_eq!(statuses[5], "status 0", "control: {output:?}");
        assert_eq!(
            reference("foreign.git", &format!("refs/heads/{label}")),
            None,
            "{output:?}"
        );
    });
}

#[test]
fn a_write_to_a_git_host_that_is_no_push_is_denied_unless_a_rule_names_it() {
    for_each_identity(|lab| {
        let (forge, named, other, cloned) = (host("forge"), host("named"), host("other"), host("git"));
        let net = json!({ "allow": [
            format!("{forge}:{{tls}}"), format!("{other}:{{plain}}"), format!("{cloned}:{{tls}}"),
            format!("POST {named}:{{tls}}/api/v4/projects/7/merge_requests") ] });
        let rest = json!({ "git": { "push": "allow", "hosts": [forge, named, cloned] } });
        let policy = world().policy(lab, &world().document(&net, &rest));
        let output = world().under(lab, &policy).within(SLOW).shell(&format!(
            "go() {{ curl -s -o /dev/null -w '%{{http_code}}\\n' \"$@\"; }}\n\
             json() {{ go -H 'content-type: application/vnd.git-lfs+json' -d \"$1\" https://{forge}:{{tls}}/$2; }}\n\
             for method in PUT MKCOL MOVE PROPPATCH LOCK DELETE PATCH; do go -X $method https://{forge}:{{tls}}/a/b.git/refs/heads/main; done\n\
             json '{{}}' api/v4/projects/1/repository/commits\n\
             json '{{}}' api/v1/repos/a/b/contents/x\n\
             json '{{}}' repos/a/b/git/refs\n\
             json '{{}}' a/_apis/git/repositories/b/pushes\n\
             json '{{\"query\":\"mutation {{ createCommitOnBranch }}\"}}' api/graphql\n\
             json '{{\"query\":\"{{ viewer }}\",\"id\":\"stored\"}}' graphql\n\
             go -X POST https://{forge}:{{tls}}/a//b\n\
             go -X PUT -d '{{}}' https://{forge}:{{tls}}/repos/acme/app/contents/info/refs\n\
             go -X PATCH -H 'content-type: application/json' -d '{{\"sha\":\"1\",\"force\":true}}' https://{forge}:{{tls}}/repos/acme/app/git/refs/heads/info/refs\n\
             go -X DELETE https://{forge}:{{tls}}/acme/app.git/info/refs\n\
             json '{{}}' api/v1/repos/a/b/contents/git-upload-pack\n\
             go -H 'content-type: application/x-git-upload-pack-request' -d 0000 https://{forge}:{{tls}}/api/v1/repos/a/b/contents/git-upload-pack\n\
             json '{{\"operation\":\"download\",\"content\":\"\"}}' api/v1/repos/a/b/contents/info/lfs/objects/batch\n\
             json '{{\"query\":\"{{ viewer }}\",\"content\":\"\"}}' api/v1/repos/a/b/contents/graphql\n\
             go -H 'content-type: application/x-git-receive-pack-request' -d 0000 https://{forge}:{{tls}}/api/v4/projects/1/merge_requests\n\
             echo controls\n\
             go https://{forge}:{{tls}}/api/v4/projects/group%2Fname\n\
             json '{{\"query\":\"{{ viewer {{ login }} }}\"}}' graphql\n\
             json '{{\"operation\":\"download\",\"objects\":[]}}' a/b.git/info/lfs/objects/batch\n\
             json '{{\"operation\":\"upload\",\"objects\":[]}}' a/b.git/info/lfs/objects/batch\n\
             go -d '{{}}' https://{named}:{{tls}}/api/v4/projects/7/merge_requests\n\
             go -X PUT http://{other}:{{plain}}/x\n\
             git clone -q https://{cloned}:{{tls}}/git/project.git /tmp/made >&2 && git -C /tmp/made fetch -q --refetch >&2 && echo cloned"
        ));
        let (denied, controls) = output.said().split_once("controls").expect("both parts");
        let denied: Vec<&str> = denied.lines().collect();
        assert_eq!(denied.len(), 22, "{output:?}");
        assert!(
            denied.iter().all(|line| ["403", "400"].contains(line)),
            "{output:?}"
        );
        assert_eq!(
            controls.trim(),
            format!("{}\ncloned", ["200"; 6].join("\n")),
            "{output:?}"
        );
        assert_eq!(
            (world().seen(&forge).len(), world().seen(&named).len()),
            (4, 1),
            "{output:?}"
        );
        assert!(
            codes(&output, &forge).contains(&"BST-NET-010".to_owned()),
            "{output:?}"
        );
    });
}

#[test]
fn an_upload_of_large_files_follows_the_rule_about_pushing() {
    for_each_identity(|lab| {
        let forge = host("forge");
        let net = json!({ "allow": [format!("{forge}:{{tls}}")] });
        let rest = json!({ "git": { "push": "deny", "hosts": [forge] } });
        let policy = world().policy(lab, &world().document(&net, &rest));
        let output = world().under(lab, &policy).within(SLOW).shell(&format!(
            "json() {{ curl -s -o /dev/null -w '%{{http_code}}\\n' -H \"content-type: $3\" -d \"$1\" https://{forge}:{{tls}}/a/b.git/info/lfs/$2; }}\n\
             lfs=application/vnd.git-lfs+json\n\
             json '{{\"operation\":\"upload\"}}' objects/batch $lfs\n\
             json '{{\"operation\":\"download\",\"operation\":\"upload\"}}' objects/batch $lfs\n\
             json '{{\"operation\":\"download\",\"Operation\":\"upload\"}}' objects/batch $lfs\n\
             curl -s -o /dev/null -w '%{{http_code}}\\n' -X PUT -d x https://{forge}:{{tls}}/a/b.git/info/lfs/objects/info/refs\n\
             json '{{\"operation\":\"download\"}}' objects/batch text/plain\n\
             json '{{}}' objects/verify $lfs\n\
             json '{{}}' locks $lfs\n\
             json '{{\"operation\":\"download\"}}' objects/batch $lfs"
        ));
        let lines: Vec<&str> = output.said().lines().collect();
        assert_eq!(lines[..7], ["403"; 7], "{output:?}");
        assert_eq!(lines[7..], ["200"], "control: {output:?}");
        assert_eq!(world().seen(&forge).len(), 1, "{output:?}");
    });
}
