//! The API of BCS for definitions of hooks: `admissionwebhook`, as clients of bcs-mesos-driver use it.
//!
//! bcs-mesos-driver forwards these requests to the scheduler, which stores the definitions. This program handles them
//! itself with the host's definition stores, so that a change of a definition takes effect here.

mod change;
mod refusal;
mod request;
mod stored;

use std::sync::Arc;

use admittance::{BodyLimits, Host, Passage, REQUEST_ID, request_span, request_uid, trace_context};
use admittance_admission::Uid;
use admittance_definitions::BcsObject;
use admittance_dialect::{Class, Dialect, EndReason, append_warnings};
use admittance_net::{
    listener::{ClientCertificate, ConnectedClient},
    tls::subject_names,
};
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, request::Parts};
use metrics::counter;
use serde_json::Value as Json;
use tracing::Instrument;

pub(crate) use self::request::DefinitionRequest;
use self::{
    change::{Changer, DefinitionWrite},
    refusal::DefinitionRefusal,
};
use crate::{Bcs, metric_names, reply};

const PASSAGE: &str = "definitions";

/// Serves requests about definitions of hooks. Cheap to clone; lives as long as the driver.
///
/// These requests do not pass through the chains. If a chain refuses every request, users can thus still repair it.
#[derive(Clone, Debug)]
pub(crate) struct DefinitionsApi(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    host: Host,
    dialect: Arc<Bcs>,
    limits: BodyLimits,
}

impl DefinitionsApi {
    /// `dialect` checks the cluster of a request, and writes the reply if the request cannot be read.
    pub(crate) fn new(host: Host, dialect: Arc<Bcs>, limits: BodyLimits) -> Self {
        Self(Arc::new(Inner { host, dialect, limits }))
    }

    /// Replies to a request that [`DefinitionRequest::parse`] has recognized.
    pub(crate) async fn answer(
        &self,
        definition_request: DefinitionRequest,
        mut request: Request<Body>,
    ) -> Response<Body> {
        let uid = request_uid(request.headers());
        let span = request_span(&uid, trace_context(request.headers_mut()).as_ref());
        let response = self.0.answer(definition_request, request).instrument(span).await;
        with_uid(response, &uid).map(Body::from)
    }
}

impl Inner {
    async fn answer(&self, definition_request: DefinitionRequest, request: Request<Body>) -> Response<Bytes> {
        let (head, body) = request.into_parts();
        if let Class::Refuse(rejection) = self.dialect.classify(&head) {
            return self.end_reply(&EndReason::Rejected(&rejection));
        }
        let body = match self.limits.collect(&head, body).await {
            Ok(body) => body,
            Err(error) => return self.end_reply(&error.end_reason()),
        };
        let action = definition_request.as_str();
        let result = self.run_request(definition_request, &head, &body).await;
        let code = result.as_ref().err().map(DefinitionRefusal::code);
        let number = code.map_or(0, reply::Code::number).to_string();
        counter!(metric_names::DEFINITIONS, "action" => action, "code" => number).increment(1);
        let response = match result {
            Ok((data, warnings)) => {
                let mut response = reply::success_reply(data);
                append_warnings(response.headers_mut(), &warnings);
                response
            }
            Err(refusal) => {
                tracing::info!(action, "the definition is refused: {refusal}");
                reply::failure_reply(refusal.code(), &refusal.to_string())
            }
        };
        Passage::Ended(PASSAGE).mark_response(response)
    }

    async fn run_request(
        &self,
        definition_request: DefinitionRequest,
        head: &Parts,
        body: &[u8],
    ) -> Result<(Json, Vec<String>), DefinitionRefusal> {
        let change = match definition_request {
            DefinitionRequest::Create { namespace } => {
                DefinitionWrite::Create(BcsObject::parse(body)?.with_default_namespace(&namespace))
            }
            DefinitionRequest::Update { namespace } => {
                DefinitionWrite::Update(BcsObject::parse(body)?.with_default_namespace(&namespace))
            }
            DefinitionRequest::Delete(name) => DefinitionWrite::Delete(name),
            DefinitionRequest::Get(name) => {
                return match stored::find(&self.host, &name).await? {
                    Some(stored) => match &stored.object {
                        Some(object) => Ok((object.with_unset_fields(), Vec::new())),
                        None => Err(DefinitionRefusal::Unreadable(name)),
                    },
                    None => Err(DefinitionRefusal::NotFoundOnGet(name)),
                };
            }
            DefinitionRequest::List => {
                let stored = stored::list_all(&self.host).await?;
                let objects = stored.iter().filter_map(|stored| stored.object.as_ref());
                return Ok((objects.map(BcsObject::with_unset_fields).collect(), Vec::new()));
            }
        };
        let changer = Changer {
            host: self.host.clone(),
            author: author_name(head),
        };
        Ok((Json::Null, changer.run(change).await?))
    }

    fn end_reply(&self, end: &EndReason<'_>) -> Response<Bytes> {
        tracing::info!(end = end.as_str(), "the request ends here: {end}");
        Passage::Ended(end.as_str()).mark_response(self.dialect.reply(end))
    }
}

fn author_name(head: &Parts) -> Option<String> {
    let certificate = head.extensions.get::<ClientCertificate>();
    let names = certificate.map(|ClientCertificate(certificate)| subject_names(certificate));
    match names.and_then(|names| names.into_iter().next()) {
        Some(name) => Some(format!("certificate {name}")),
        None => {
            let client = head.extensions.get::<ConnectedClient>()?;
            Some(format!("client {}", client.address.ip()))
        }
    }
}

fn with_uid(mut response: Response<Bytes>, uid: &Uid) -> Response<Bytes> {
    if let Ok(uid) = HeaderValue::from_str(uid.as_str()) {
        response.headers_mut().insert(REQUEST_ID, uid);
    }
    response
}
