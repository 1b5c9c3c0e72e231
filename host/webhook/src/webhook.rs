use std::sync::Arc;

use admittance_admission::{Deadline, Failure, Hook, Protocol, Request, Response, ServiceNaming, WebhookTarget};
use async_trait::async_trait;

use crate::{
    Error, WebhookClients, WebhookConfig,
    call::WebhookCaller,
    endpoint::WebhookEndpoint,
    resource,
    review::{self, ReviewForm},
};

/// A webhook on a server. It may share its connections with other webhooks, so they may stay open after it is dropped.
///
/// A call is a POST, which is cancelled if the future is dropped. The webhook itself has a timeout only for connecting,
/// because the chain cancels each call at its deadline.
#[derive(derive_more::Debug, derive_more::Display)]
#[display("{}", caller.endpoint)]
#[debug("Webhook {{ endpoint: {:?}, form: {form:?}, .. }}", caller.endpoint.to_string())]
pub struct Webhook {
    caller: WebhookCaller,
    form: WebhookForm,
}

#[derive(Clone, Copy, Debug)]
enum WebhookForm {
    Resource,
    Review(ReviewForm),
}

impl Webhook {
    /// Creates a webhook. Nothing is sent, so its server need not be running yet.
    pub fn new(config: WebhookConfig, clients: &WebhookClients) -> Result<Self, Error> {
        let form = match &config.protocol {
            Protocol::BcsResource => WebhookForm::Resource,
            // This program supports all versions of the review, so it uses the one that the webhook lists first.
            Protocol::AdmissionReview { versions } => WebhookForm::Review(ReviewForm {
                version: *versions.first().ok_or(Error::NoReviewVersion)?,
                is_validating: config.is_validating,
            }),
        };
        let endpoint = WebhookEndpoint::new(&config.target, &config.protocol)?;
        let is_bcs_service = matches!(
            &config.target,
            WebhookTarget::Service {
                naming: ServiceNaming::Bcs,
                ..
            }
        );
        if is_bcs_service && config.ca_bundle.is_none() {
            return Err(Error::CaBundleMissing {
                service: endpoint.host().to_owned(),
            });
        }
        Ok(Self {
            caller: WebhookCaller {
                client: clients.client(config.ca_bundle.as_deref(), config.connect_timeout)?,
                endpoint,
                response_limit: config.response_limit,
            },
            form,
        })
    }
}

#[async_trait]
impl Hook for Webhook {
    async fn admit(&self, request: &Arc<Request>, deadline: Deadline) -> Result<Response, Failure> {
        match self.form {
            WebhookForm::Resource => resource::call(&self.caller, request, deadline).await,
            WebhookForm::Review(form) => review::call(&self.caller, form, request, deadline).await,
        }
    }
}
