//! What the API says when it does not do what was asked.

use admittance::{ChangeError, Error, HistoryError};
use admittance_definitions::{self as definitions, StoreError};
use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header::WWW_AUTHENTICATE};

use crate::{
    access::Denied,
    api::{ErrorDetail, ErrorReply},
};

/// Why a request to the API is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ApiError {
    Denied(Denied),
    /// The request itself is wrong: why.
    Malformed(String),
    /// Not found.
    NotFound(String),
    OtherMethod,
    /// The body did not come in time.
    BodyTimeout,
    /// It conflicts with the current state.
    Conflict(String),
    /// The body is larger than this many bytes.
    TooLarge(usize),
    /// The body is neither YAML nor JSON.
    OtherMediaType(String),
    /// Nothing was changed, because the definitions cannot go live: each mistake.
    CannotGoLive(Vec<String>),
    /// The driver cannot do it now: why.
    Unavailable(String),
}

impl From<Denied> for ApiError {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Definitions(error) => error.into(),
            ChangeError::Table(error) => error.into(),
            ChangeError::History(error) => error.into(),
            ChangeError::SeveralStores { .. }
            | ChangeError::Store(StoreError::ChangedMeanwhile { .. } | StoreError::OneAtATime { .. }) => {
                Self::Conflict(error.to_string())
            }
            error => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<definitions::ChangeError> for ApiError {
    fn from(error: definitions::ChangeError) -> Self {
        use definitions::ChangeError as Change;
        match &error {
            Change::Mistakes(mistakes) => {
                Self::CannotGoLive(mistakes.iter().map(ToString::to_string).collect())
            }
            Change::Nothing(_) | Change::List(_) | Change::AmbiguousStage { .. } => {
                Self::Malformed(error.to_string())
            }
            Change::Unknown { .. } | Change::UnknownStage { .. } => Self::NotFound(error.to_string()),
            Change::AlreadyThere { .. }
            | Change::PlaceTaken { .. }
            | Change::NoDirectory(_)
            | Change::InList { .. }
            | Change::Ambiguous { .. }
            | Change::NoCandidate { .. }
            | Change::SharesFile { .. } => Self::Conflict(error.to_string()),
        }
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        match error {
            Error::Definitions(mistakes) => {
                Self::CannotGoLive(mistakes.iter().map(ToString::to_string).collect())
            }
            Error::Stages(errors) => Self::CannotGoLive(errors.iter().map(ToString::to_string).collect()),
            Error::History(error) => error.into(),
            error => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<HistoryError> for ApiError {
    fn from(error: HistoryError) -> Self {
        match error {
            HistoryError::Unknown { .. } => Self::NotFound(error.to_string()),
            error => Self::Unavailable(error.to_string()),
        }
    }
}

impl ApiError {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Denied(Denied::NoToken | Denied::OtherScheme | Denied::UnknownToken) => {
                StatusCode::UNAUTHORIZED
            }
            Self::Denied(_) => StatusCode::FORBIDDEN,
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::OtherMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::OtherMediaType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::CannotGoLive(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// RFC 6750, section 3.
    fn challenge(&self) -> Option<&'static str> {
        match self {
            Self::Denied(Denied::UnknownToken) => {
                Some("Bearer realm=\"admittance\", error=\"invalid_token\"")
            }
            _ if self.status() == StatusCode::UNAUTHORIZED => Some("Bearer realm=\"admittance\""),
            _ => None,
        }
    }

    fn detail(self) -> ErrorDetail {
        let (message, mistakes) = match self {
            Self::Denied(denied) => (denied.to_string(), Vec::new()),
            Self::Malformed(message)
            | Self::NotFound(message)
            | Self::Conflict(message)
            | Self::Unavailable(message) => (message, Vec::new()),
            Self::OtherMethod => (
                "the path does not allow this method; see /v1/openapi.json".to_owned(),
                Vec::new(),
            ),
            Self::BodyTimeout => ("the body did not arrive in time".to_owned(), Vec::new()),
            Self::TooLarge(limit) => (format!("the body is larger than {limit} bytes"), Vec::new()),
            Self::OtherMediaType(found) => (
                format!("unsupported content type `{found}`: send application/yaml or application/json"),
                Vec::new(),
            ),
            Self::CannotGoLive(mistakes) => (
                "nothing was changed, because the definitions cannot go live".to_owned(),
                mistakes,
            ),
        };
        ErrorDetail { message, mistakes }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        let challenge = self.challenge();
        let reply = ErrorReply { error: self.detail() };
        let mut response = (status, Json(reply)).into_response();
        if let Some(challenge) = challenge {
            let challenge = HeaderValue::from_static(challenge);
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        response
    }
}
