//! The one table of routes: method, address, what it asks of the caller, what it takes and gives, and who serves it.
//!
//! The router, the checks before every handler and the OpenAPI document are all made from it, so that none of them can
//! know a route that another does not.
mod agents;
pub(crate) mod approvals;
mod batches;
pub(crate) mod events;
pub(crate) mod extract;
pub(crate) mod files;
pub(crate) mod live;
pub(crate) mod meta;
mod policies;
mod profiles;
pub(crate) mod review;
pub(crate) mod runs;
pub(crate) mod spawn;
mod streams;
mod tokens;

pub(crate) use extract::{Body, Params, PathOf, read_body};

use crate::app::App;
use crate::errors::Refusal;
use crate::guard::{Need, authorize};
use axum::Router;
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, MethodRouter, on};
use bastle_contract::{Code, Fault};
use utoipa::openapi::path::{Parameter, ParameterIn};
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{Ref, RefOr};
use utoipa::{IntoParams, ToSchema};

/// A form of the OpenAPI document, with those it refers to.
pub(crate) struct Form {
    pub(crate) of: RefOr<Schema>,
    pub(crate) parts: Vec<(String, RefOr<Schema>)>,
}

impl Form {
    fn of<T: ToSchema>() -> Self {
        let mut parts = vec![(T::name().into_owned(), T::schema())];
        T::schemas(&mut parts);
        Self {
            of: Ref::from_schema_name(T::name()).into(),
            parts,
        }
    }
}

/// What a route answers with when all is well.
pub(crate) enum Gives {
    /// JSON of a form.
    Json(Box<Form>),
    /// Nothing but a status.
    Nothing,
    /// Bytes of a media type.
    Bytes(&'static str),
    /// A WebSocket.
    Upgrade,
}

/// One row.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) need: Need,
    pub(crate) about: &'static str,
    pub(crate) params: Vec<Parameter>,
    pub(crate) takes: Option<Form>,
    pub(crate) gives: Gives,
    pub(crate) status: u16,
    handler: MethodRouter<App>,
}

impl Route {
    fn new<H, T>(method: Method, path: &'static str, need: Need, about: &'static str, handler: H) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        let filter = match method {
            Method::POST => MethodFilter::POST,
            Method::PUT => MethodFilter::PUT,
            Method::DELETE => MethodFilter::DELETE,
            _ => MethodFilter::GET,
        };
        Self {
            method,
            path,
            need,
            about,
            params: Vec::new(),
            takes: None,
            gives: Gives::Nothing,
            status: 200,
            handler: on(filter, handler),
        }
    }

    pub(crate) fn get<H, T>(path: &'static str, need: Need, about: &'static str, handler: H) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        Self::new(Method::GET, path, need, about, handler)
    }

    pub(crate) fn post<H, T>(path: &'static str, need: Need, about: &'static str, handler: H) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        Self::new(Method::POST, path, need, about, handler)
    }

    pub(crate) fn put<H, T>(path: &'static str, need: Need, about: &'static str, handler: H) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        Self::new(Method::PUT, path, need, about, handler)
    }

    pub(crate) fn delete<H, T>(path: &'static str, need: Need, about: &'static str, handler: H) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        Self::new(Method::DELETE, path, need, about, handler)
    }

    pub(crate) fn params<T: IntoParams>(mut self) -> Self {
        self.params = T::into_params(|| Some(ParameterIn::Query));
        self
    }

    pub(crate) fn takes<T: ToSchema>(mut self) -> Self {
        self.takes = Some(Form::of::<T>());
        self
    }

    pub(crate) fn gives<T: ToSchema>(mut self) -> Self {
        self.gives = Gives::Json(Box::new(Form::of::<T>()));
        self
    }

    pub(crate) fn bytes(mut self, media: &'static str) -> Self {
        self.gives = Gives::Bytes(media);
        self
    }

    pub(crate) fn upgrades(mut self) -> Self {
        self.gives = Gives::Upgrade;
        self.status = 101;
        self
    }

    pub(crate) fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }
}

/// Every route there is.
pub(crate) fn table() -> Vec<Route> {
    let mut all = Vec::new();
    all.extend(meta::routes());
    all.extend(spawn::routes());
    all.extend(runs::routes());
    all.extend(live::routes());
    all.extend(review::routes());
    all.extend(files::routes());
    all.extend(streams::routes());
    all.extend(batches::routes());
    all.extend(approvals::routes());
    all.extend(tokens::routes());
    all.extend(profiles::routes());
    all.extend(policies::routes());
    all.extend(events::routes());
    all.extend(agents::routes());
    all.extend(crate::mcp::routes());
    all
}

/// The router made from the table. What is not in it is not served.
///
/// # Errors
/// When the system has no random numbers.
pub(crate) fn router(app: App) -> Result<Router, Fault> {
    // Tools ask the same router as everybody else, one that has no tools itself.
    let mcp = crate::mcp::Mcp::new(assembled(app.clone()), &app)?;
    Ok(assembled(app).layer(axum::Extension(mcp)))
}

fn assembled(app: App) -> Router {
    let mut router: Router<App> = Router::new();
    for route in table() {
        let guarded = route
            .handler
            .layer(from_fn_with_state((app.clone(), route.need), authorize));
        router = router.route(route.path, guarded);
    }
    // The agent protocol has forms of its own, told by its cards: its routes are guarded alike, and not in the document.
    for route in crate::a2a::routes() {
        let guarded = route
            .handler
            .layer(from_fn_with_state((app.clone(), route.need), authorize))
            .layer(axum::middleware::from_fn(crate::a2a::in_its_words));
        router = router.route(route.path, guarded);
    }
    router
        .fallback(missing)
        .method_not_allowed_fallback(other_method)
        .layer(from_fn_with_state(app.clone(), crate::guard::around))
        .with_state(app)
}

async fn missing() -> Refusal {
    Refusal::missing("nothing is served at this address").help("GET /api/v1/openapi.json")
}

async fn other_method() -> Refusal {
    Refusal::new(Code::ApiMethod, "this address does not serve that method", "")
}

/// Reads bytes as the body of a request or as the settings file: what is taken must read back as the same.
pub(crate) fn fuzz(bytes: &[u8]) {
    use crate::dto::{Answering, Applying, CanI, Ceiling, Granting, PutProfile, Ruling};
    use crate::json::parse;
    let Some((which, body)) = bytes.split_first() else {
        return;
    };
    match which % 9 {
        0 => spawn::fuzz(body),
        1 => tokens::fuzz(body),
        2 => fuzz_ceiling(parse::<Ceiling>(body).ok().and_then(|form| form.read().ok())),
        3 => drop(parse::<Applying>(body).map(|asked| review::wish(&asked, String::new()))),
        4 => drop(parse::<Answering>(body)),
        5 => drop(parse::<Granting>(body)),
        6 => drop(parse::<Ruling>(body)),
        7 => drop((parse::<PutProfile>(body), parse::<CanI>(body))),
        _ => fuzz_ceiling(crate::options::fuzz(body)),
    }
}

/// A ceiling that was taken is printed and read as the same one: nothing of it is lost on its way to a run.
fn fuzz_ceiling(ceiling: Option<bastle_policy::AuthorityCeiling>) {
    if let Some(ceiling) = ceiling {
        let form = bastle_policy::CeilingForm::from(ceiling.clone());
        assert_eq!(bastle_policy::AuthorityCeiling::try_from(form), Ok(ceiling));
    }
}
