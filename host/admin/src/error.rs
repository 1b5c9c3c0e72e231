//! Converts the errors of the API to replies.

use admittance::{ChangeError, DisableError, Error, HistoryError};
use admittance_definitions::{self as definitions, StoreError};
use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header::WWW_AUTHENTICATE};

use crate::{
    access::AccessDenied,
    api::{ErrorDetail, ErrorReply},
};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    #[error(transparent)]
    Denied(#[from] AccessDenied),
    #[error("{0}")]
    Malformed(String),
    #[error("{0}")]
    NotFound(String),
    #[error("the path does not allow this method; see /v1/openapi.json")]
    MethodNotAllowed,
    #[error("the body did not arrive in time")]
    BodyTimeout,
    #[error("{0}")]
    Conflict(String),
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    #[error("unsupported content type `{0}`: send application/yaml or application/json")]
    UnsupportedMediaType(String),
    #[error("nothing was changed, because the definitions cannot go live")]
    CannotGoLive(Vec<String>),
    #[error("the request was not evaluated, because there are mistakes")]
    CannotEvaluate(Vec<String>),
    /// The driver cannot process the request now. A later attempt may succeed.
    #[error("{0}")]
    Unavailable(String),
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Definitions(error) => error.into(),
            ChangeError::Table(error) => error.into(),
            ChangeError::History(error) => error.into(),
            ChangeError::SeveralStores { .. }
            | ChangeError::Waits(_)
            | ChangeError::Store(StoreError::ChangedMeanwhile { .. } | StoreError::OneAtATime { .. }) => {
                Self::Conflict(error.to_string())
            }
            error => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<definitions::PlanError> for ApiError {
    fn from(error: definitions::PlanError) -> Self {
        use definitions::PlanError as Change;
        match &error {
            Change::Mistakes(mistakes) => Self::cannot_go_live(mistakes.iter()),
            Change::Nothing(_) | Change::AmbiguousStage(_) => Self::Malformed(error.to_string()),
            Change::Unknown(_) => Self::NotFound(error.to_string()),
            Change::AlreadyThere { .. } | Change::Conflict(_) => Self::Conflict(error.to_string()),
        }
    }
}

impl From<DisableError> for ApiError {
    fn from(error: DisableError) -> Self {
        match error {
            DisableError::NotFound(text) => Self::NotFound(text),
            DisableError::Conflict(text) => Self::Conflict(text),
            error => Self::Malformed(error.to_string()),
        }
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        match error {
            Error::Definitions(mistakes) => Self::cannot_go_live(mistakes.iter()),
            Error::Stages(errors) => Self::cannot_go_live(errors.iter()),
            Error::History(error) => error.into(),
            error => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<HistoryError> for ApiError {
    fn from(error: HistoryError) -> Self {
        match error {
            HistoryError::Unknown(_) => Self::NotFound(error.to_string()),
            error => Self::Unavailable(error.to_string()),
        }
    }
}

impl ApiError {
    pub(crate) fn cannot_evaluate(mistakes: impl Iterator<Item: ToString>) -> Self {
        Self::CannotEvaluate(mistakes.map(|mistake| mistake.to_string()).collect())
    }

    fn cannot_go_live(mistakes: impl Iterator<Item: ToString>) -> Self {
        Self::CannotGoLive(mistakes.map(|mistake| mistake.to_string()).collect())
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Denied(AccessDenied::NoToken | AccessDenied::OtherScheme | AccessDenied::UnknownToken) => {
                StatusCode::UNAUTHORIZED
            }
            Self::Denied(_) => StatusCode::FORBIDDEN,
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::CannotGoLive(_) | Self::CannotEvaluate(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns the challenge for `WWW-Authenticate` (RFC 6750, section 3).
    fn challenge(&self) -> Option<&'static str> {
        match self {
            Self::Denied(AccessDenied::UnknownToken) => Some("Bearer realm=\"admittance\", error=\"invalid_token\""),
            _ if self.status() == StatusCode::UNAUTHORIZED => Some("Bearer realm=\"admittance\""),
            _ => None,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        let challenge = self.challenge();
        let message = self.to_string();
        let mistakes = match self {
            Self::CannotGoLive(mistakes) | Self::CannotEvaluate(mistakes) => mistakes,
            _ => Vec::new(),
        };
        let error = ErrorDetail { message, mistakes };
        let mut response = (status, Json(ErrorReply { error })).into_response();
        if let Some(challenge) = challenge {
            let challenge = HeaderValue::from_static(challenge);
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        response
    }
}
