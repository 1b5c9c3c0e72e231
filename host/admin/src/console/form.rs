//! Reads the forms of the console.

use axum::{body::Body, extract::FromRequest, response::Response};
use http::Request;
use serde::{Deserialize, de::DeserializeOwned};
use subtle::ConstantTimeEq as _;

use super::{
    layout::{self, Section},
    session::{self, Session},
    sign_in,
};
use crate::{
    Api, access,
    config::AdminRole,
    error::ApiError,
    route::{self, SMALL_BODY_LIMIT},
};

const MEDIA_TYPE: &str = "application/x-www-form-urlencoded";

/// A form with which a user with the role Admin changes something: the user's session, and the fields of the form. The
/// body of the form may have at most `LIMIT` bytes.
#[derive(Debug)]
pub(super) struct ChangeForm<T, const LIMIT: usize = SMALL_BODY_LIMIT> {
    pub(super) session: Session,
    pub(super) fields: T,
}

/// The hidden field that every form contains. Its secret value proves that a page of this console sent the form.
#[derive(Deserialize)]
struct FormKey {
    #[serde(default)]
    form_key: String,
}

impl<T: DeserializeOwned + Send, const LIMIT: usize> FromRequest<Api> for ChangeForm<T, LIMIT> {
    type Rejection = Response;

    async fn from_request(request: Request<Body>, api: &Api) -> Result<Self, Response> {
        let (session, fields) = read_form(request, api, AdminRole::Admin, LIMIT).await?;
        Ok(Self { session, fields })
    }
}

/// Returns the user who sent a form, and its fields. Refuses a role below `required_role` before it reads the body.
pub(super) async fn read_form<T: DeserializeOwned>(
    request: Request<Body>,
    api: &Api,
    required_role: AdminRole,
    limit: usize,
) -> Result<(Session, T), Response> {
    let (head, body) = request.into_parts();
    if let Err(denied) = access::check_own_page(&head, true) {
        return Err(sign_in::refuse(&head, &denied));
    }
    let session = session::require_session(&head, api).map_err(|response| *response)?;
    let refused = |error: ApiError| layout::refusal_page(&session, Section::Live, &error);
    if session.role < required_role {
        let caller = session.caller.clone();
        tracing::info!(target: "admittance::audit", %caller, "refused: a form of the console that only the role Admin may send");
        return Err(refused(access::AccessDenied::OnlyReads { caller }.into()));
    }
    let _permit = route::large_body_permit(api, &session.caller, limit).map_err(refused)?;
    let text = read_text(&head, body, limit).await.map_err(refused)?;
    let FormKey { form_key } = route::parse_parameters("form", &text).map_err(refused)?;
    let is_known = form_key.as_bytes().ct_eq(session.form_key.as_bytes());
    if session.form_key.is_empty() || !bool::from(is_known) {
        return Err(refused(ApiError::Malformed(
            "the page with this form is from another session: open it again".to_owned(),
        )));
    }
    let fields = route::parse_parameters("form", &text).map_err(refused)?;
    Ok((session, fields))
}

pub(super) async fn read_text(head: &http::request::Parts, body: Body, limit: usize) -> Result<String, ApiError> {
    route::check_media_type(&head.headers, &[MEDIA_TYPE])?;
    let bytes = route::collect_body(head, body, limit).await?;
    String::from_utf8(bytes.into()).map_err(|_| ApiError::Malformed("the form is not valid UTF-8".to_owned()))
}

/// Splits the text of a form field into names, which are separated by commas or spaces.
pub(super) fn split_names(text: &str) -> Vec<String> {
    let names = text.split([',', ' ', '\n', '\r', '\t']);
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}
