//! The front doors: an intercepting proxy and its upstream, or a webhook server for kube-apiserver; and the
//! operator's endpoints.
//!
//! [`Driver::bind`] takes a [`Config`] and a [`Host`](admittance::Host) and binds the ports;
//! [`Driver::run`] serves until it is told to stop. A request passes, from the outside in: the
//! connection with its time limits, the limit on requests in flight and the access log, the host's
//! chains (`admittance::AdmissionLayer`), the way onward that their dialect says, and the upstream. An
//! AdmissionReview ends at the chains
//! (`admittance::ReviewService`).

mod admin;
pub mod api;
mod config;
mod driver;
mod front;
mod listener;
mod measure;
mod namespaces;
mod onward;
pub mod tls;
mod upstream;

pub use admin::{
    RenderMetrics,
    token::{InvalidTokenDigest, Token, TokenDigest, TokenFile, TokenFileError, TokenSource},
};
pub use config::{
    AdminConfig, AdminTls, CertificateHolder, Config, FrontConfig, HealthCheck, HistoryConfig, Limits,
    ListenConfig, LogConfig, LogFormat, LogLevel, Role, StoreConfig, TokensInTheClear, UpstreamConfig,
};
pub use driver::{Driver, Error, Shutdown, Stopped};
pub use measure::describe_metrics;
pub use namespaces::{FileNamespaces, NamespacesConfig};
pub use upstream::{Client, InvalidServer, Server, ServerHealth, Upstream};
