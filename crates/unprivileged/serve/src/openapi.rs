//! The OpenAPI document, made from the table of routes.
mod names;

use crate::routes::{Form, Gives, Route, table};
use serde_json::json;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    Components, ContentBuilder, InfoBuilder, OpenApi, OpenApiBuilder, PathItem, PathsBuilder, Ref, RefOr,
    Required,
};
use utoipa::{PartialSchema, ToSchema};

/// Name of the scheme by which callers are recognised.
const SCHEME: &str = "token";

/// The document.
#[must_use]
pub fn document() -> OpenApi {
    let mut components = Components::new();
    let problem = <crate::dto::Problem as PartialSchema>::schema();
    components
        .schemas
        .insert(crate::dto::Problem::name().into_owned(), problem);
    components.security_schemes.insert(
        SCHEME.to_owned(),
        RefOr::T(SecurityScheme::Http(
            HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build(),
        )),
    );
    let mut paths = PathsBuilder::new();
    for route in table() {
        let path = route.path;
        let method = match route.method.as_str() {
            "POST" => HttpMethod::Post,
            "PUT" => HttpMethod::Put,
            "DELETE" => HttpMethod::Delete,
            _ => HttpMethod::Get,
        };
        let operation = operation(route, &mut components);
        paths = paths.path(path, PathItem::new(method, operation));
    }
    OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("bastle")
                .version("v1")
                .description(Some(
                    "Runs of AI coding agents inside a kernel-enforced fence. Refusals are problem+json with a stable code.",
                ))
                .build(),
        )
        .paths(paths.build())
        .components(Some(components))
        .build()
}

fn operation(route: Route, components: &mut Components) -> utoipa::openapi::path::Operation {
    let mut operation = OperationBuilder::new()
        .summary(Some(route.about))
        .operation_id(names::operation_id(route.method.as_str(), route.path))
        .tag(tag(route.path));
    match route.need.role() {
        Some(role) => {
            operation = operation
                .description(Some(format!("Role: {}.", role.word())))
                .security(SecurityRequirement::new(SCHEME, Vec::<String>::new()));
        }
        None => operation = operation.description(Some("Needs no token.")),
    }
    for name in variables(route.path) {
        operation = operation.parameter(in_path(name));
    }
    for parameter in route.params.clone() {
        operation = operation.parameter(parameter);
    }
    if let Some(form) = route.takes {
        let content = ContentBuilder::new().schema(Some(keep(form, components))).build();
        operation = operation.request_body(Some(
            RequestBodyBuilder::new()
                .content("application/json", content)
                .required(Some(Required::True))
                .build(),
        ));
    }
    let good = ResponseBuilder::new().description("Done.");
    let good = match route.gives {
        Gives::Json(form) => {
            let content = ContentBuilder::new()
                .schema(Some(keep(*form, components)))
                .build();
            good.content("application/json", content)
        }
        Gives::Bytes(media) => good.content(media, ContentBuilder::new().build()),
        Gives::Nothing => good,
        Gives::Upgrade => good.description("A WebSocket."),
    };
    operation = operation.response(route.status.to_string(), good.build());
    if route.path == "/api/v1/runs" && route.status == 201 {
        let again = ResponseBuilder::new()
            .description("The answer to an earlier request of the same key.")
            .content(
                "application/json",
                ContentBuilder::new()
                    .schema(Some(Ref::from_schema_name("BatchReport")))
                    .build(),
            );
        operation = operation.response("200", again.build());
    }
    if route.path.ends_with("/files/content") {
        let part = ResponseBuilder::new()
            .description("The part that was asked for.")
            .content("application/octet-stream", ContentBuilder::new().build());
        operation = operation.response("206", part.build());
    }
    let problem = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name(crate::dto::Problem::name())))
        .build();
    let refused = ResponseBuilder::new()
        .description("Refused; nothing was done.")
        .content("application/problem+json", problem)
        .build();
    operation.response("default", refused).build()
}

/// Keeps the form under its name and refers to it.
fn keep(form: Form, components: &mut Components) -> RefOr<utoipa::openapi::Schema> {
    for (name, schema) in form.parts {
        components.schemas.insert(name, schema);
    }
    form.of
}

fn variables(path: &str) -> impl Iterator<Item = &str> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{').and_then(|part| part.strip_suffix('}')))
}

fn in_path(name: &str) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .schema(Some(ObjectBuilder::new().schema_type(Type::String).build()))
        .build()
}

fn tag(path: &str) -> &str {
    path.strip_prefix("/api/v1/")
        .and_then(|rest| rest.split('/').next())
        .filter(|first| {
            matches!(
                *first,
                "runs" | "agents" | "batches" | "approvals" | "tokens" | "profiles" | "presets" | "policies"
            )
        })
        .unwrap_or("daemon")
}

/// The document as text, as it is checked in.
#[must_use]
pub fn text() -> String {
    let value =
        serde_json::to_value(document()).unwrap_or_else(|error| json!({ "error": error.to_string() }));
    let text = serde_json::to_string_pretty(&value).unwrap_or_default();
    format!("{text}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_that_is_checked_in_is_the_one_the_code_makes() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
        if std::env::var_os("BASTLE_BLESS").is_some() {
            std::fs::write(file, text()).unwrap();
        }
        let kept = std::fs::read_to_string(file).unwrap();
        assert!(
            kept == text(),
            "BASTLE_BLESS=1 cargo test -p bastle-serve openapi writes {file}"
        );
    }

    #[test]
    fn every_route_is_in_the_document_and_only_these_need_no_token() {
        let document = serde_json::to_value(document()).unwrap();
        let mut open = Vec::new();
        for route in table() {
            let method = route.method.as_str().to_ascii_lowercase();
            let operation = &document["paths"][route.path][&method];
            assert!(operation.is_object(), "{method} {}", route.path);
            match route.need.role() {
                Some(_) => assert!(operation["security"].is_array(), "{}", route.path),
                None => open.push(route.path),
            }
        }
        open.sort_unstable();
        assert_eq!(open, ["/api/v1/openapi.json", "/healthz", "/readyz"]);
        assert_eq!(document["openapi"], "3.1.0");
    }
}
