//! The cluster that a command reads from.

use std::{path::PathBuf, time::Duration};

use admittance_cluster::{Cluster, ClusterConfig, ClusterSource};
use bytes::Bytes;
use clap::Args;
use http::{HeaderMap, Request, StatusCode, header::RETRY_AFTER};
use http_body_util::{BodyExt, Limited};
use serde_json::Value as Json;

/// Which cluster it is.
#[derive(Debug, Args)]
pub(crate) struct ClusterArguments {
    /// The kubeconfig of the cluster [default: that of kubectl].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context in the kubeconfig [default: the current one].
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl ClusterArguments {
    /// Whether one of the arguments is given.
    pub(crate) fn are_given(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }

    /// The cluster. Nothing is sent yet.
    pub(crate) async fn connect(&self) -> crate::Result<Cluster> {
        let source = if self.are_given() {
            ClusterSource::Kubeconfig {
                path: self.kubeconfig.clone(),
                context: self.context.clone(),
            }
        } else {
            ClusterSource::Infer
        };
        Ok(Cluster::connect(&ClusterConfig { source }).await?)
    }
}

/// An answer of the API server.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

/// The largest answer.
const LIMIT: usize = 64 << 20;

/// How often an overloaded API server is asked, at most.
const ATTEMPTS: u32 = 6;

/// The pause if the API server names none, and the longest that it may name.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Sends a GET. While the API server is overloaded, it is sent again after the time that the answer names.
pub(crate) async fn get(cluster: &Cluster, path: &str) -> crate::Result<Answer> {
    let mut attempt = 1;
    loop {
        let response = cluster.forward(Request::get(path).body(Bytes::new())?).await?;
        let status = response.status();
        if matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        ) && attempt < ATTEMPTS
        {
            tokio::time::sleep(pause(response.headers())).await;
            attempt += 1;
            continue;
        }
        let body = Limited::new(response.into_body(), LIMIT).collect().await;
        let body = body.map_err(|error| format!("{path}: {error}"))?.to_bytes();
        return Ok(Answer { status, body });
    }
}

fn pause(headers: &HeaderMap) -> Duration {
    let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let seconds = seconds.and_then(|text| text.trim().parse().ok());
    seconds.map_or(PAUSE, Duration::from_secs).min(LONGEST_PAUSE)
}

impl Answer {
    /// The body of a successful answer; `None` if nothing was found.
    pub(crate) fn found(self, path: &str) -> crate::Result<Option<Bytes>> {
        match self.status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => Ok(Some(self.body)),
            _ => Err(self.error(path)),
        }
    }

    /// The error for an answer that is not successful.
    pub(crate) fn error(&self, path: &str) -> crate::Error {
        let answer: Json = serde_json::from_slice(&self.body).unwrap_or_default();
        let message = answer.get("message").and_then(Json::as_str).unwrap_or_default();
        format!("{path}: the API server answered {}: {message}", self.status).into()
    }
}
