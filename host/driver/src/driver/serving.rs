use std::sync::Arc;

use admittance::{
    BodyLimits, Host,
    dialect::{Dialect, bcs::Behind},
};
use admittance_net::upstream::{Choice, Servers, Upstream, UpstreamConfig};
use tower::Layer;

use super::Error;
use crate::{
    admin::BcsHealth,
    config::{ConsoleConfig, FrontConfig, Limits, SchedulersConfig},
    definitions_api::DefinitionsApi,
    discovery::{Discovery, Registered},
    ensembles::Ensembles,
    forwarding::{Forwarding, Patience},
    front::FrontService,
    gateway::Gateway,
    other_servers::OtherServers,
    registration::{Ports, Registrar},
};

/// What answers the requests of the driver's port, and what it needs for it. Lives as long as the driver.
#[derive(Debug)]
pub(super) struct Serving {
    pub(super) service: FrontService,
    /// The way from the chains to them.
    pub(super) forwarding: Option<Forwarding>,
    /// The servers behind it, if it hands requests on.
    pub(super) upstream: Option<Upstream>,
    /// How they are found, when they are not listed.
    pub(super) discovery: Option<Discovery>,
    /// The same for a gateway, in place of both.
    pub(super) gateway: Option<Gateway>,
    /// How others are to find it, if they are.
    pub(super) registrar: Option<Registrar>,
    /// How it tells its operators that it is well, when they expect it in the way of bcs-mesos-driver.
    pub(super) bcs_health: Option<BcsHealth>,
}

/// What answers requests beside the upstream.
#[derive(Debug, Default)]
struct BesideUpstream {
    definitions: Option<DefinitionsApi>,
    consoles: Option<ConsoleConfig>,
    custom_resources: bool,
}

impl Serving {
    pub(super) fn new(
        front: FrontConfig,
        ports: Ports,
        ensembles: &Ensembles,
        host: &Host,
        limits: &Limits,
    ) -> Result<Self, Error> {
        match front {
            FrontConfig::Proxy {
                dialect,
                servers,
                upstream,
            } => Ok(Self::proxy(
                dialect,
                (Servers::Listed(servers), Choice::Turns),
                upstream,
                host,
                limits,
                BesideUpstream::default(),
            )),
            FrontConfig::Bcs(bcs) => {
                let (servers, discovery) = match &bcs.servers {
                    SchedulersConfig::Listed(servers) => (Servers::Listed(servers.clone()), None),
                    SchedulersConfig::Discovered(discovery) => {
                        let zookeeper = ensembles.cluster().ok_or(Error::NoEnsemble {
                            setting: "upstream.discover",
                            ensemble: "zookeeper.cluster",
                        })?;
                        let discovery =
                            Discovery::start(zookeeper, discovery.path.clone(), Registered::Schedulers);
                        (Servers::Followed(discovery.servers()), Some(discovery))
                    }
                };
                let choice = match bcs.behind {
                    Behind::Driver => Choice::Turns,
                    Behind::Scheduler => Choice::Master,
                };
                let registrar = bcs
                    .registration
                    .as_ref()
                    .map(|registration| Registrar::new(registration, &bcs.cluster, ports, ensembles))
                    .transpose()?;
                let dialect = Arc::new(bcs.dialect());
                let definitions = DefinitionsApi::new(host.clone(), dialect.clone(), body_limits(limits));
                let serving = Self::proxy(
                    dialect,
                    (servers, choice),
                    bcs.upstream,
                    host,
                    limits,
                    BesideUpstream {
                        definitions: Some(definitions),
                        consoles: Some(bcs.console),
                        custom_resources: bcs.custom_resources,
                    },
                );
                let bcs_health = serving
                    .upstream
                    .clone()
                    // A bcs-mesos-driver behind it has one of its own.
                    .filter(|_| bcs.behind == Behind::Scheduler)
                    .map(|upstream| BcsHealth {
                        cluster: bcs.cluster.as_str().to_owned(),
                        ip: ports.address.ip(),
                        upstream,
                        discovered: discovery.as_ref().map(Discovery::servers),
                    });
                Ok(Self {
                    discovery,
                    registrar,
                    bcs_health,
                    ..serving
                })
            }
            FrontConfig::Gateway(config) => {
                let service = ensembles.service();
                if config.discovery.is_some() && service.is_none() {
                    return Err(Error::NoEnsemble {
                        setting: "dialect.gateway.discover",
                        ensemble: "zookeeper.service",
                    });
                }
                let gateway = Gateway::new(config, service, body_limits(limits));
                Ok(Self {
                    service: FrontService::Gateway(gateway.clone()),
                    forwarding: None,
                    upstream: None,
                    discovery: None,
                    gateway: Some(gateway),
                    registrar: None,
                    bcs_health: None,
                })
            }
            FrontConfig::Reviews => {
                let service = host
                    .reviews()
                    .body_limit(limits.body)
                    .body_timeout(limits.body_timeout);
                Ok(Self {
                    service: FrontService::Reviews(service),
                    forwarding: None,
                    upstream: None,
                    discovery: None,
                    gateway: None,
                    registrar: None,
                    bcs_health: None,
                })
            }
        }
    }

    fn proxy(
        dialect: Arc<dyn Dialect>,
        (servers, choice): (Servers, Choice),
        config: UpstreamConfig,
        host: &Host,
        limits: &Limits,
        beside: BesideUpstream,
    ) -> Self {
        let patience = Patience {
            reply: config.response_timeout,
            taker: config.connect_timeout,
        };
        let upstream = Upstream::new(servers, choice, config);
        let other_servers = OtherServers::new(
            beside.consoles,
            beside.custom_resources,
            &upstream,
            body_limits(limits),
        );
        let forwarding = Forwarding::new(
            dialect.clone(),
            body_limits(limits),
            upstream.clone(),
            patience,
            other_servers,
        );
        let layer = host
            .layer_with(dialect.clone())
            .body_limit(limits.body)
            .body_timeout(limits.body_timeout);
        Self {
            service: FrontService::Proxy(layer.layer(forwarding.clone()), dialect, beside.definitions),
            forwarding: Some(forwarding),
            upstream: Some(upstream),
            discovery: None,
            gateway: None,
            registrar: None,
            bcs_health: None,
        }
    }
}

fn body_limits(limits: &Limits) -> BodyLimits {
    BodyLimits {
        size: limits.body,
        time: limits.body_timeout,
    }
}
