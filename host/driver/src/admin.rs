//! The operator's port: `/healthz`, `/readyz`, `/metrics`.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use admittance::{Configured, Host, PluginStatus};
use admittance_cluster::{Cluster, WatchStatus};
use axum::{Json, Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};

use crate::{
    tls::{ServerTls, TlsStatus},
    upstream::Upstream,
};

/// Writes all metrics in Prometheus' text format.
pub type RenderMetrics = Arc<dyn Fn() -> String + Send + Sync>;

/// What the operator's port tells. Lives as long as the driver.
#[derive(Clone)]
pub(crate) struct Admin {
    /// None: clients use plain HTTP.
    pub(crate) tls: Option<ServerTls>,
    pub(crate) host: Host,
    /// None behind kube-apiserver.
    pub(crate) upstream: Option<Upstream>,
    /// None: no cluster is asked.
    pub(crate) cluster: Option<Cluster>,
    pub(crate) is_stopping: Arc<AtomicBool>,
    pub(crate) metrics: RenderMetrics,
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("is_stopping", &self.is_stopping)
            .finish_non_exhaustive()
    }
}

impl Admin {
    pub(crate) fn router(self) -> Router {
        Router::new()
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(readiness))
            .route("/metrics", get(metrics))
            .with_state(self)
    }
}

/// Ready until it is told to stop. An upstream that is down does not make it unready: clients would get
/// a refused connection in place of a reply that says what is wrong. The detail shows it.
async fn readiness(State(admin): State<Admin>) -> impl IntoResponse {
    let is_ready = !admin.is_stopping.load(Ordering::Relaxed);
    let status = if is_ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let table = admin.host.table();
    let chains: Vec<_> = table
        .chains()
        .iter()
        .map(|chain| {
            json!({
                "name": chain.name.as_ref(),
                "phase": chain.phase.as_str(),
                "stages": chain.stages.len(),
            })
        })
        .collect();
    let plugins: Vec<_> = table.plugins().iter().map(plugin).collect();
    let servers: Vec<_> = admin
        .upstream
        .iter()
        .flat_map(Upstream::health)
        .map(|health| json!({"server": health.server, "up": health.is_up}))
        .collect();
    let reload = admin.host.last_reload();
    let listen = admin.tls.as_ref().and_then(ServerTls::status);
    let certificates: Vec<_> = listen
        .into_iter()
        .chain(admin.upstream.iter().filter_map(Upstream::tls_status))
        .map(certificate)
        .collect();
    let detail = json!({
        "revision": reload.revision,
        "reloadError": reload.error.as_ref().map(ToString::to_string),
        "cluster": admin.cluster.as_ref().map(cluster),
        "ready": is_ready,
        "stopping": !is_ready,
        "chains": chains,
        "plugins": plugins,
        "upstream": servers,
        "certificates": certificates,
    });
    (status, Json(detail))
}

fn plugin(status: &PluginStatus) -> Value {
    let (configured, reason) = match &status.configured {
        Configured::Snapshot => ("once", None),
        Configured::PerCall { reason } => ("in every call", Some(reason)),
    };
    json!({
        "chain": &*status.chain,
        "phase": status.phase.as_str(),
        "stage": &*status.stage,
        "plugin": status.plugin,
        "version": status.version,
        "digest": status.digest.to_string(),
        "configured": configured,
        "reason": reason,
    })
}

fn certificate(status: TlsStatus) -> Value {
    let not_after = status
        .not_after
        .map(|time| humantime::format_rfc3339_seconds(time).to_string());
    json!({
        "certificate": status.name,
        "notAfter": not_after,
        "reloadError": status.problem,
    })
}

fn cluster(cluster: &Cluster) -> Value {
    let status = cluster.status();
    let kinds: Vec<_> = status
        .kinds
        .iter()
        .map(|(kind, status)| watch(&kind.to_string(), status))
        .collect();
    json!({
        "server": status.server,
        "namespaces": watch("v1/Namespace", &status.namespaces),
        "kinds": kinds,
    })
}

fn watch(kind: &str, status: &WatchStatus) -> Value {
    json!({
        "kind": kind,
        "state": status.state.as_str(),
        "since": time(status.since),
        "objects": status.objects,
        "heard": status.heard.map(time),
        "lastError": status.last_error,
    })
}

/// As logs write it.
fn time(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

async fn metrics(State(admin): State<Admin>) -> impl IntoResponse {
    (
        [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        (admin.metrics)(),
    )
}
