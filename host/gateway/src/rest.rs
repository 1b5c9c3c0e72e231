//! The management API of bcs-api below `/rest`: users, clusters, register tokens and credentials.

mod error;
mod handlers;
mod routes;

use std::sync::Arc;

use admittance::{BodyError, BodyLimits};
use admittance_dialect::json_reply;
use admittance_net::{bearer::bearer_token, header::only_value};
use axum::body::Body;
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, Response, StatusCode, header::AUTHORIZATION, request::Parts};
use serde_json::Value;

use self::{
    error::RestError,
    handlers::RestCall,
    routes::{AllowedCallers, find_row},
};
use crate::{
    Statuses,
    accounts::{Accounts, Directory, RegisteredCluster, TokenDenied, UserSession},
};

/// The largest request body in bytes. The largest bodies contain credentials with a bundle of certificates.
const LARGEST_BODY: usize = 256 * 1024;
/// The prefix of a header `Authorization` with basic authentication. Its password is a token.
const BASIC_SCHEME: &[u8] = b"Basic ";

#[derive(Debug)]
pub(super) struct RestAnswer {
    pub(super) response: Response<Body>,
    pub(super) word: &'static str,
    pub(super) holder: Option<Arc<str>>,
}

pub(super) fn is_rest_path(path: &str) -> bool {
    path.starts_with("/rest/")
}

/// Answers a request of the management API. `statuses` affects only replies to invalid input.
pub(super) async fn answer(
    accounts: &Accounts,
    head: &Parts,
    body: Body,
    limits: BodyLimits,
    statuses: Statuses,
) -> RestAnswer {
    let mut holder = None;
    let (response, word) = match reply_json(accounts, head, body, limits, &mut holder).await {
        Ok(json) => (json_reply(StatusCode::OK, json.to_string()), "rest"),
        Err(error) => {
            let (method, path) = (&head.method, head.uri.path());
            tracing::info!(%method, path, user = holder.as_deref(), "refused: {error}");
            (error.reply(statuses), error.label())
        }
    };
    RestAnswer {
        response: response.map(Body::from),
        word,
        holder,
    }
}

async fn reply_json(
    accounts: &Accounts,
    head: &Parts,
    body: Body,
    mut limits: BodyLimits,
    holder: &mut Option<Arc<str>>,
) -> Result<Value, RestError> {
    let (row, parameter) = find_row(&head.method, head.uri.path())?;
    let directory = accounts.directory()?;
    let caller = match row.needs {
        AllowedCallers::Nothing => None,
        AllowedCallers::User | AllowedCallers::SuperUser | AllowedCallers::Cluster(_) => {
            Some(authenticate_caller(&directory, &head.headers)?)
        }
    };
    *holder = caller.as_ref().map(|caller| caller.session.user.name.as_str().into());
    let cluster = authorize(row.needs, &directory, caller.as_ref(), &parameter)?;
    limits.size = limits.size.min(LARGEST_BODY);
    let body = limits.collect(head, body).await;
    let call = RestCall {
        accounts,
        directory: &directory,
        caller,
        cluster,
        parameter: &parameter,
        query: head.uri.query().unwrap_or_default(),
        body: &body.map_err(|error| match error {
            BodyError::NoMemory(refused) => RestError::Overloaded(refused),
            error => RestError::Body(error.end_reason().to_string()),
        })?,
    };
    call.run(row.action).await
}

#[derive(Debug)]
struct RestCaller {
    session: UserSession,
    token: Vec<u8>,
}

fn authenticate_caller(directory: &Directory, headers: &HeaderMap) -> Result<RestCaller, RestError> {
    // Several headers are refused, because their tokens could belong to several users.
    let value = only_value(headers, AUTHORIZATION)
        .ok_or(TokenDenied::Unknown)?
        .as_bytes();
    let presented = match value.split_at_checked(BASIC_SCHEME.len()) {
        Some((scheme, encoded)) if scheme.eq_ignore_ascii_case(BASIC_SCHEME) => password(encoded),
        _ => bearer_token(value).map(<[u8]>::to_vec),
    };
    let token = presented.ok_or(TokenDenied::Unknown)?;
    let session = directory.authenticate(&token)?;
    Ok(RestCaller { session, token })
}

/// Returns the password in credentials of basic authentication. The name of the user is ignored.
fn password(encoded: &[u8]) -> Option<Vec<u8>> {
    let decoded = BASE64_STANDARD.decode(encoded.trim_ascii()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    decoded.get(colon + 1..).map(<[u8]>::to_vec)
}

/// Checks that the caller may use the route. Returns the cluster in the path, or `None` for other routes.
fn authorize(
    needs: AllowedCallers,
    directory: &Directory,
    caller: Option<&RestCaller>,
    parameter: &str,
) -> Result<Option<Arc<RegisteredCluster>>, RestError> {
    let Some(RestCaller { session, .. }) = caller else {
        return Ok(None);
    };
    let user = &session.user;
    match needs {
        AllowedCallers::SuperUser if !user.is_super_user => Err(RestError::NotSuperUser(user.name.to_string())),
        AllowedCallers::Nothing | AllowedCallers::User | AllowedCallers::SuperUser => Ok(None),
        AllowedCallers::Cluster(needed) => {
            // For a cluster that the user may not see, the reply is that it does not exist.
            let cluster = directory
                .cluster(parameter)
                .filter(|cluster| directory.permission(user, cluster).is_some())
                .ok_or_else(|| RestError::ClusterNotFound(parameter.to_owned()))?;
            directory.check_permission(user, cluster, needed)?;
            Ok(Some(cluster.clone()))
        }
    }
}
