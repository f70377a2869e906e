//! What handlers take out of a request: the body, the parameters, the parts of the address. Each refuses with the name of
//! what is wrong.
use crate::errors::Refusal;
use crate::json;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use bastle_contract::Code;
use http_body_util::{BodyExt, Limited};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;

/// Largest body; requests for many runs may be larger.
const MOST_BODY: usize = 1024 * 1024;
const MOST_SPAWN: usize = 4 * 1024 * 1024;
/// How long a body may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A JSON body, read strictly. None at all is an empty object.
pub(crate) struct Body<T>(pub(crate) T);

/// Parameters of the address.
pub(crate) struct Params<T>(pub(crate) T);

/// Parts of the address.
pub(crate) struct PathOf<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refusal> {
        let most = match request.uri().path() {
            "/api/v1/runs" | "/api/v1/agents/spawn" => MOST_SPAWN,
            _ => MOST_BODY,
        };
        let (parts, body) = request.into_parts();
        let bytes = read_body(&parts.headers, body, most).await?;
        let bytes = if bytes.is_empty() { &b"{}"[..] } else { &bytes };
        json::parse(bytes)
            .map(Self)
            .map_err(|wrong| Refusal::bad(wrong.to_string()))
    }
}

/// The bytes of a body, within bounds and in time.
pub(crate) async fn bytes_of(body: axum::body::Body, most: usize) -> Result<bytes::Bytes, Refusal> {
    let read = tokio::time::timeout(PATIENCE, Limited::new(body, most).collect())
        .await
        .map_err(|_| slow())?
        .map_err(|error| too_large(error.as_ref(), most))?;
    Ok(read.to_bytes())
}

/// The bytes of a body that says it is JSON, within bounds of size and time.
pub(crate) async fn read_body(
    headers: &HeaderMap,
    body: axum::body::Body,
    most: usize,
) -> Result<bytes::Bytes, Refusal> {
    let bytes = bytes_of(body, most).await?;
    if !bytes.is_empty() {
        check_media(headers)?;
    }
    Ok(bytes)
}

fn check_media(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut given = headers.get_all(header::CONTENT_TYPE).iter();
    let media = match (given.next(), given.next()) {
        (Some(media), None) => media.to_str().unwrap_or_default(),
        (None, _) | (_, Some(_)) => "",
    };
    let (media, rest) = media.split_once(';').unwrap_or((media, ""));
    let rest = rest.trim().to_ascii_lowercase();
    let utf8 = rest.is_empty() || rest == "charset=utf-8" || rest == "charset=\"utf-8\"";
    if media.trim().eq_ignore_ascii_case("application/json") && utf8 {
        return Ok(());
    }
    Err(
        Refusal::new(Code::ApiMediaType, "the body is not said to be JSON", "")
            .help("content-type: application/json"),
    )
}

fn slow() -> Refusal {
    Refusal::new(Code::ApiBusy, "the body did not arrive in time", "").status(StatusCode::REQUEST_TIMEOUT)
}

fn too_large(error: &(dyn std::error::Error + 'static), most: usize) -> Refusal {
    if error.is::<http_body_util::LengthLimitError>() {
        return Refusal::new(
            Code::ApiTooLarge,
            format!("the body has more than {most} bytes"),
            "",
        );
    }
    Refusal::bad("the body ended early")
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(error) => Err(Refusal::bad(crate::dto::plain(&error.body_text()))),
        }
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for PathOf<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(value)) => Ok(Self(value)),
            Err(error) => Err(Refusal::bad(crate::dto::plain(&error.body_text()))),
        }
    }
}

/// A body that is any JSON object, for what another crate reads.
pub(crate) fn object(value: &Value) -> Result<(), Refusal> {
    match value {
        Value::Object(_) => Ok(()),
        _ => Err(Refusal::bad("the body is no object")),
    }
}
