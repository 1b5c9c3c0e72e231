//! Serves as the driver of a BCS Mesos cluster, or as a proxy in front of such a driver.

mod section;

use std::{net::IpAddr, sync::Arc};

use admittance_bcs::{
    BcsConfig, ConnectedUpstream, Drivers, HealthInfo, MesosDriver, Registrar, SchedulersConfig, UpstreamKind,
    zookeeper::{Ensembles, NoEnsemble},
};
use admittance_dialect::{Dialect, EndReason};
use admittance_net::upstream::{Upstream, UpstreamConfig, UpstreamServer};
use async_trait::async_trait;
use axum::body::Body;
use futures_util::future::{BoxFuture, FutureExt};
use http::{HeaderMap, Request, Response};

pub(super) use self::section::read_registration;
use super::{FrontConfig, FrontReply, FrontRow, FrontService, OpenedFront, StartContext, StartedFront};
use crate::{
    Error,
    config::{check_lists, refuse_discovery, upstream_section},
    handler::FrontEndHandler,
    status::DriverStatus,
};

pub(super) const ROW: FrontRow = FrontRow {
    key: "bcs",
    example: "bcs: { cluster: ... }",
    admin_routes: Vec::new,
    read: |node, fields, sections| {
        let bcs = section::read_dialect(node, sections);
        let cluster = bcs.as_ref().map(|bcs| &bcs.cluster);
        let registration = fields.get_optional("registration", |node| read_registration(node, cluster, sections));
        let (servers, upstream, lists) = upstream_section(fields, sections)?;
        let bcs = bcs?;
        let upstream_kind = match (bcs.upstream_kind, &servers) {
            (None, SchedulersConfig::Listed(_)) => UpstreamKind::Driver,
            (None, SchedulersConfig::Discovered(_)) => UpstreamKind::Scheduler,
            (Some(UpstreamKind::Driver), SchedulersConfig::Discovered(_)) => {
                let why = "schedulers are discovered, and `dialect.bcs.behind` says that a driver is behind";
                return refuse_discovery(fields, why, "write `servers`, or `behind: scheduler`");
            }
            (Some(upstream_kind), _) => upstream_kind,
        };
        let config = BcsConfig {
            cluster: bcs.cluster,
            upstream_kind,
            servers,
            upstream,
            console: bcs.console,
            allows_custom_resources: bcs.custom_resources,
            registration,
        };
        let lists = check_lists(lists, &config)?;
        Some((Box::new(config), lists))
    },
};

#[async_trait]
impl FrontConfig for BcsConfig {
    fn dialect_name(&self) -> &str {
        "bcs"
    }

    async fn start(self: Box<Self>, context: StartContext<'_>) -> Result<StartedFront, Error> {
        let (ports, ensembles) = (context.ports, &context.connections.ensembles);
        let registration = self.registration.as_ref();
        let registrar = registration.map(|config| Registrar::new(config, &self.cluster, ports, ensembles));
        let drivers = ensembles
            .cluster()
            .map(|zookeeper| Drivers::new(zookeeper, &self.cluster, registration, ports));
        let (registrar, cluster) = (registrar.transpose()?, context.connections.cluster.clone());
        let driver = MesosDriver::new(*self, ensembles, cluster, context.host, context.body_limits)?;
        Ok(StartedFront {
            front: Arc::new(driver),
            registrar,
            drivers,
        })
    }

    fn dialect(&self) -> Option<Arc<dyn Dialect>> {
        Some(Arc::new(BcsConfig::dialect(self)))
    }

    fn cluster(&self) -> Option<&str> {
        Some(self.cluster.as_str())
    }

    fn upstream(&self) -> Option<&UpstreamConfig> {
        Some(&self.upstream)
    }

    fn headers(&self) -> HeaderMap {
        BcsConfig::dialect(self).headers()
    }

    fn servers(&self) -> &[UpstreamServer] {
        match &self.servers {
            SchedulersConfig::Listed(servers) => servers,
            SchedulersConfig::Discovered(_) => &[],
        }
    }

    fn set_servers(&mut self, servers: Vec<UpstreamServer>) -> Result<(), &'static str> {
        self.servers = SchedulersConfig::Listed(servers);
        Ok(())
    }

    fn connect(&self, ensembles: &Ensembles) -> Result<Option<ConnectedUpstream>, NoEnsemble> {
        BcsConfig::connect(self, ensembles).map(Some)
    }

    fn agrees_in_zookeeper(&self) -> bool {
        true
    }
}

impl OpenedFront for MesosDriver {
    fn serve(&self, serving: FrontEndHandler) -> BoxFuture<'static, ()> {
        serving.run(self.clone()).boxed()
    }

    fn upstreams(&self) -> Vec<Upstream> {
        vec![self.upstream().clone()]
    }

    fn report(&self, status: &mut DriverStatus) {
        status.upstream = self.upstream().health().into_iter().map(Into::into).collect();
        status.discovery = self.discovery();
    }

    fn health(&self, ip: IpAddr) -> Option<HealthInfo> {
        MesosDriver::health(self, ip)
    }
}

impl FrontService for MesosDriver {
    async fn answer(&self, request: Request<Body>) -> FrontReply {
        MesosDriver::answer(self, request).await.into()
    }

    fn reply_to_ended(&self, _: &str, end: &EndReason<'_>) -> Response<Body> {
        MesosDriver::reply(self, end).map(Body::from)
    }
}
