//! Callers that say of themselves that they are programs, and the addresses at which only programs speak.
//!
//! **Trust:** a declaration only takes rights away, so it is believed; a caller that leaves it out is judged by its token
//! or uid alone. On the local socket a process of the same user can leave it out: see docs/mcp.md.
use super::Who;
use crate::errors::Refusal;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bastle_control::fleet::{Caller, Declared, PrincipalKind, Role};

/// The header of a declaration: `NAME` or `NAME; role=ROLE`.
pub(crate) const DECLARED: HeaderName = HeaderName::from_static("bastle-principal");

/// The value of the header for a caller that was recognised already, so that the next check gives it no more.
pub(crate) fn header_of(name: &str, caller: &Caller) -> Option<HeaderValue> {
    // The role of a run's own token is below all that can be declared.
    let role = Some(caller.role).filter(|role| *role != Role::Run);
    HeaderValue::try_from(Declared::program(name, role).to_string()).ok()
}

/// The caller as what it declares to be, or as what speaks at this address.
pub(super) fn narrowed(who: Who, headers: &HeaderMap, path: &str) -> Result<Who, Refusal> {
    let Who(caller, token) = who;
    let mut said = headers.get_all(DECLARED).iter();
    let first = said.next();
    if said.next().is_some() {
        return Err(Refusal::bad("bastle-principal: said twice"));
    }
    let declared = match first {
        Some(value) => {
            let text = value.to_str().unwrap_or_default();
            let parsed =
                Declared::parse(text).map_err(|why| Refusal::bad(format!("bastle-principal: {why}")))?;
            Some(parsed)
        }
        None => speaks_at(path).map(|name| {
            // Without a token nobody said how much the program may: as much as starting and stopping runs.
            let local = caller.kind == PrincipalKind::LocalPerson;
            Declared::program(name, local.then_some(Role::Operator))
        }),
    };
    Ok(match declared {
        Some(declared) => Who(caller.declared(&declared), token),
        None => Who(caller, token),
    })
}

/// The protocol that programs speak at an address.
fn speaks_at(path: &str) -> Option<&'static str> {
    let below = |root: &str| {
        path.strip_prefix(root)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    [("/mcp", "mcp"), ("/a2a", "a2a")]
        .into_iter()
        .find_map(|(root, name)| below(root).then_some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn as_said(caller: Caller, said: &[&str], path: &str) -> Result<Caller, Refusal> {
        let mut headers = HeaderMap::new();
        for value in said {
            headers.append(DECLARED, HeaderValue::try_from(*value).unwrap());
        }
        narrowed(Who(caller, None), &headers, path).map(|Who(caller, _)| caller)
    }

    #[test]
    fn what_speaks_a_protocol_of_programs_is_a_program_and_no_admin() {
        for (path, id) in [
            ("/mcp", "agent:mcp"),
            ("/a2a/jsonrpc", "agent:a2a"),
            ("/a2a", "agent:a2a"),
        ] {
            let caller = as_said(Caller::owner(0), &[], path).unwrap();
            assert_eq!((caller.id.as_str(), caller.role), (id, Role::Operator), "{path}");
            assert_eq!(caller.kind, PrincipalKind::Program);
        }
        for path in ["/api/v1/runs", "/mcpx", "/api/v1/mcp"] {
            let caller = as_said(Caller::owner(0), &[], path).unwrap();
            assert_eq!(
                (caller.id.as_str(), caller.role),
                ("uid:0", Role::Admin),
                "{path}"
            );
        }
    }

    #[test]
    fn a_declaration_that_is_doubled_or_not_understood_is_refused() {
        for said in [
            &["mcp", "mcp"][..],
            &[""],
            &["mcp; role=owner"],
            &["mcp; role=run"],
        ] {
            assert!(
                as_said(Caller::owner(0), said, "/api/v1/runs").is_err(),
                "{said:?}"
            );
        }
        let caller = as_said(Caller::owner(0), &["mcp; role=viewer"], "/mcp").unwrap();
        assert_eq!(caller.role, Role::Viewer);
    }

    #[test]
    fn a_token_keeps_its_name_and_its_role_over_a_protocol_of_programs() {
        let mut caller = Caller::owner(0);
        caller.id = "token:abc".to_owned();
        caller.kind = PrincipalKind::TokenPerson;
        caller.role = Role::Approver;
        let after = as_said(caller.clone(), &[], "/mcp").unwrap();
        assert_eq!((after.id.as_str(), after.role), ("token:abc", Role::Approver));
        assert_eq!(after.kind, PrincipalKind::Program);
        // What is asked inside in its name has no more than this.
        let inner = header_of("mcp", &after).unwrap();
        let again = as_said(caller, &[inner.to_str().unwrap()], "/api/v1/runs").unwrap();
        assert_eq!(again, after);
    }
}
