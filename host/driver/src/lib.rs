//! The front doors: an intercepting proxy and its upstream, a webhook server for kube-apiserver, or a gateway
//! in front of the drivers of BCS clusters; and the operator's endpoints.
//!
//! [`Driver::bind`] takes a [`Config`] and a [`Host`](admittance::Host) and binds the ports;
//! [`Driver::run`] serves until it is told to stop. A request passes, from the outside in: the
//! connection with its time limits, the limit on requests in flight and the access log, the host's
//! chains (`admittance::AdmissionLayer`), forwarding as their dialect says, and the upstream. An
//! AdmissionReview ends at the chains (`admittance::ReviewService`); at a gateway there are none.

mod admin;
pub mod api;
mod config;
mod definitions_api;
mod discovery;
mod driver;
mod ensembles;
mod forwarding;
mod front;
mod gateway;
mod metric_names;
mod namespaces;
mod other_servers;
mod registration;
mod server_info;

pub use admin::{
    RenderMetrics,
    token::{InvalidTokenDigest, Token, TokenDigest, TokenFile, TokenFileError, TokenSource},
};
pub use config::{
    AdminConfig, AdminTls, BcsConfig, CertificateHolder, Config, ConsoleConfig, ConsoleScheme,
    DefinitionPlace, DiscoveryConfig, ExternalAddress, FrontConfig, HistoryConfig, InvalidNodePath, Limits,
    ListenConfig, LogConfig, LogFormat, LogLevel, NodePath, RegistrationConfig, Role, SchedulersConfig,
    StoreConfig, TokensInTheClear, ZooKeeperConfig,
};
pub use driver::{Driver, Error, Shutdown, Stopped};
pub use ensembles::Ensembles;
pub use gateway::{
    ApiGroup, ClusterId, EndpointConfig, GatewayConfig, InvalidApiGroup, Permission, PlainGroups, Statuses,
    TokenTable, TokensConfig,
};
pub use metric_names::describe_metrics;
pub use namespaces::{FileNamespaces, NamespacesConfig};
pub use registration::RegistrationError;
pub use server_info::ServerInfo;
