//! Forms that pages of the console send.

use axum::{body::Body, extract::FromRequest, response::Response};
use http::Request;
use serde::{Deserialize, de::DeserializeOwned};
use subtle::ConstantTimeEq as _;

use super::{
    layout::{self, Section},
    session::{self, Session},
    sign_in,
};
use crate::{Api, access, config::Role, error::ApiError, route};

/// The media type of forms.
const MEDIA_TYPE: &str = "application/x-www-form-urlencoded";

/// A form that a page of the console sent, with its user.
#[derive(Debug)]
pub(super) struct Form<T> {
    pub(super) session: Session,
    pub(super) fields: T,
}

/// A form that changes something; its user has the role Admin.
#[derive(Debug)]
pub(super) struct Change<T> {
    pub(super) session: Session,
    pub(super) fields: T,
}

/// Every form has this field.
#[derive(Deserialize)]
struct Key {
    #[serde(default)]
    form_key: String,
}

impl<T: DeserializeOwned + Send> FromRequest<Api> for Form<T> {
    type Rejection = Response;

    async fn from_request(request: Request<Body>, api: &Api) -> Result<Self, Response> {
        let (head, body) = request.into_parts();
        if let Err(denied) = access::from_own_page(&head, true) {
            return Err(sign_in::refused(&head, &denied));
        }
        let session = session::known(&head, api).map_err(|response| *response)?;
        let refused = |error: ApiError| layout::refusal(&session, Section::Live, &error);
        let text = text(&head, body).await.map_err(refused)?;
        let malformed = |error: serde_html_form::de::Error| {
            refused(ApiError::Malformed(format!("the form is invalid: {error}")))
        };
        let Key { form_key } = serde_html_form::from_str(&text).map_err(malformed)?;
        let is_known = form_key.as_bytes().ct_eq(session.form_key.as_bytes());
        if session.form_key.is_empty() || !bool::from(is_known) {
            return Err(refused(ApiError::Malformed(
                "the page with this form is from another session: open it again".to_owned(),
            )));
        }
        let fields = serde_html_form::from_str(&text).map_err(malformed)?;
        Ok(Self { session, fields })
    }
}

impl<T: DeserializeOwned + Send> FromRequest<Api> for Change<T> {
    type Rejection = Response;

    async fn from_request(request: Request<Body>, api: &Api) -> Result<Self, Response> {
        let Form { session, fields } = Form::from_request(request, api).await?;
        if session.role < Role::Admin {
            let caller = session.caller.clone();
            tracing::info!(target: "admittance::audit", %caller, "refused: a form of the console that only the role Admin may send");
            let denied = access::Denied::OnlyReads { caller };
            return Err(layout::refusal(&session, Section::Live, &denied.into()));
        }
        Ok(Self { session, fields })
    }
}

/// The body of a form.
pub(super) async fn text(head: &http::request::Parts, body: Body) -> Result<String, ApiError> {
    route::media_type(&head.headers, &[MEDIA_TYPE])?;
    let bytes = route::collect(head, body).await?;
    String::from_utf8(bytes.into()).map_err(|_| ApiError::Malformed("the form is not valid UTF-8".to_owned()))
}

/// The names in a field, separated by commas or spaces.
pub(super) fn names(text: &str) -> Vec<String> {
    let names = text.split([',', ' ', '\n', '\r', '\t']);
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}
