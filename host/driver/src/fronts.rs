//! Lists the front ends that a configuration can name. Each is a module with its section, its service and its status,
//! and a row of [`FRONTS`].

mod bcs;
mod gateway;
mod proxy;
mod reviews;

use std::{any::Any, fmt::Debug, net::IpAddr, sync::Arc};

use admittance::{BodyLimits, Host, Passage};
use admittance_admin::Route;
use admittance_admission::{Reach, enumerated};
use admittance_bcs::{
    ConnectedUpstream, Drivers, HealthInfo, Ports, Registrar,
    zookeeper::{Ensembles, NoEnsemble},
};
use admittance_definitions::document::{Fields, Node};
use admittance_dialect::{Dialect, End};
use admittance_fleet::{WebhooksConfig, audit::AuditConfig};
use admittance_gateway::{Recipient, accounts::Accounts};
use admittance_net::{
    tls::{CertificateStatus, ClientTls},
    upstream::{Server, Upstream, UpstreamConfig},
};
use async_trait::async_trait;
use axum::body::Body;
use futures_util::future::{BoxFuture, FutureExt, join_all};
use http::{HeaderMap, Request, Response};

pub(crate) use self::proxy::method;
pub use self::{proxy::ProxyConfig, reviews::ReviewsConfig};
use crate::{
    Connections, Error, Limits,
    config::{ListConfig, Sections, upstream_section},
    handler::Serving,
    status::DriverStatus,
};

/// A front end as the configuration describes it. Lives until the driver is bound.
#[async_trait]
pub trait FrontConfig: Any + Debug + Send + Sync {
    fn dialect_name(&self) -> &str;

    /// Starts the front end, whose service can then answer requests.
    async fn start(self: Box<Self>, context: StartContext<'_>) -> Result<StartedFront, Error>;

    /// Returns the dialect of the control plane; `None` without one.
    fn dialect(&self) -> Option<Arc<dyn Dialect>> {
        None
    }

    /// Returns the cluster of every request, if it is known.
    fn cluster(&self) -> Option<&str> {
        None
    }

    /// Returns the connection to the upstream; `None` without one.
    fn upstream(&self) -> Option<&UpstreamConfig> {
        None
    }

    /// Returns the headers of every request to the upstream.
    fn headers(&self) -> HeaderMap {
        HeaderMap::new()
    }

    fn clients(&self) -> Vec<&ClientTls> {
        self.upstream()
            .map(|upstream| &upstream.tls)
            .into_iter()
            .collect()
    }

    /// Replaces the servers of the upstream.
    ///
    /// # Errors
    ///
    /// Fails if the servers cannot be replaced; the text says why.
    fn set_servers(&mut self, servers: Vec<Server>) -> Result<(), &'static str>;

    /// Connects to the upstream, for its lists; `None` without a control plane.
    ///
    /// # Errors
    ///
    /// Fails if its servers are to be discovered without an ensemble.
    fn connect(&self, _ensembles: &Ensembles) -> Result<Option<ConnectedUpstream>, NoEnsemble> {
        Ok(None)
    }

    /// Returns whether the replicas agree on a table through the cluster's ensemble of ZooKeeper.
    fn agrees_in_zookeeper(&self) -> bool {
        false
    }

    /// Returns the webhook configurations that the leader of the replicas keeps up to date.
    fn webhooks(&self) -> Option<&WebhooksConfig> {
        None
    }

    /// Returns the audits that the leader of the replicas makes.
    fn audit(&self) -> Option<&AuditConfig> {
        None
    }

    fn default_limits(&self) -> Limits {
        Limits::default()
    }
}

impl dyn FrontConfig {
    pub fn reach(&self) -> Reach {
        let webhooks = self.webhooks();
        webhooks
            .map(|webhooks| webhooks.registration.reach())
            .unwrap_or_default()
    }

    /// Returns the configuration of this front end; `None` if it is another one.
    pub fn downcast_ref<T: FrontConfig>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }

    /// Returns the configuration of this front end for changes; `None` if it is another one.
    pub fn downcast_mut<T: FrontConfig>(&mut self) -> Option<&mut T> {
        (self as &mut dyn Any).downcast_mut()
    }
}

/// The configuration and the connections with which a front end starts.
#[derive(Clone, Copy, Debug)]
pub struct StartContext<'a> {
    pub ports: Ports,
    pub connections: &'a Connections,
    pub host: &'a Host,
    pub bodies: BodyLimits,
}

#[derive(Debug)]
pub struct StartedFront {
    pub(crate) front: Arc<dyn Front>,
    pub(crate) registrar: Option<Registrar>,
    /// The drivers with which the front end may agree on a table.
    pub(crate) drivers: Option<Drivers>,
}

impl StartedFront {
    fn unregistered(front: impl Front) -> Self {
        Self {
            front: Arc::new(front),
            registrar: None,
            drivers: None,
        }
    }
}

/// A running front end. Lives as long as its port.
pub(crate) trait Front: Debug + Send + Sync + 'static {
    /// Answers the requests of a port until it is stopped.
    fn serve(&self, serving: Serving) -> BoxFuture<'static, ()>;

    /// Returns everything to which requests are forwarded.
    fn upstreams(&self) -> Vec<Upstream>;

    /// Returns the dialect that reads requests, if console users may write them as HTTP requests.
    fn dialect(&self) -> Option<Arc<dyn Dialect>> {
        None
    }

    /// Adds the sections of the front end to `GET /v1/status`.
    fn report(&self, status: &mut DriverStatus) {
        let servers = self.upstreams();
        status.upstream = servers
            .iter()
            .flat_map(Upstream::health)
            .map(Into::into)
            .collect();
    }

    /// Returns `/healthz` in the format of bcs-mesos-driver, if the front end replaces it. `ip` is the listen address.
    fn health(&self, _ip: IpAddr) -> Option<HealthInfo> {
        None
    }

    fn tls_status(&self) -> Option<CertificateStatus> {
        self.upstreams().first()?.tls_status()
    }

    /// Returns the users and clusters that the admin API shows and changes.
    fn accounts(&self) -> Option<&Accounts> {
        None
    }

    /// Returns the reason why the front end cannot answer requests yet.
    fn not_ready(&self) -> Option<&'static str> {
        None
    }

    /// Waits until the front end can answer requests; `None` if it can from the start.
    fn becomes_ready(&self) -> Option<BoxFuture<'_, ()>> {
        None
    }

    /// Checks the health of servers and reloads changed files, until this future is dropped.
    fn follow(&self) -> BoxFuture<'_, ()> {
        async {
            let upstreams = self.upstreams();
            let follow = |upstream: &Upstream| {
                let upstream = upstream.clone();
                async move { tokio::join!(upstream.check_health(), upstream.keep_tls_fresh()) }
            };
            join_all(upstreams.iter().map(follow)).await;
        }
        .boxed()
    }

    fn tunnels_ended(&self) -> BoxFuture<'_, ()> {
        async {
            join_all(self.upstreams().iter().map(Upstream::tunnels_ended)).await;
        }
        .boxed()
    }

    /// Begins to stop, while requests in flight continue.
    fn stop(&self) {}
}

/// The service of a front end. Cheap to clone.
pub(crate) trait FrontService: Clone + Debug + Send + Sync + 'static {
    fn answer(&self, request: Request<Body>) -> impl Future<Output = Answer> + Send;

    fn reply(&self, path: &str, end: &End<'_>) -> Response<Body>;
}

/// A reply and its fields for the access log.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) response: Response<Body>,
    pub(crate) passage: Option<Passage>,
    /// The cluster and user of a request to a gateway.
    pub(crate) recipient: Option<Recipient>,
}

impl From<Response<Body>> for Answer {
    fn from(response: Response<Body>) -> Self {
        Self {
            passage: response.extensions().get().copied(),
            response,
            recipient: None,
        }
    }
}

/// A front end and the lists of its upstream, as read from the configuration.
pub(crate) type FrontSection = (Box<dyn FrontConfig>, Vec<ListConfig>);

/// A kind of front end, and the reader of its section: the node below `dialect`, and the fields of the whole file.
#[derive(Clone, Copy)]
struct FrontRow {
    key: &'static str,
    /// A minimal section, for messages.
    example: &'static str,
    read: fn(&Node<'_>, &mut Fields<'_>, Sections<'_>) -> Option<FrontSection>,
    admin_routes: fn() -> Vec<Route>,
}

/// Returns the routes of the admin port that belong to front ends. Every driver has all of them.
pub(crate) fn admin_routes() -> Vec<Route> {
    FRONTS.iter().flat_map(|row| (row.admin_routes)()).collect()
}

static FRONTS: [FrontRow; 4] = [bcs::ROW, proxy::ROW, reviews::ROW, gateway::ROW];

/// Reads `dialect`, and the sections that depend on it.
pub(crate) fn read(fields: &mut Fields<'_>, sections: Sections<'_>) -> Option<FrontSection> {
    let examples = enumerated(FRONTS.map(|row| format!("`{}`", row.example)), "or");
    let fix = format!("write one below `dialect`: {examples}");
    let Some((row, node)) = fields.get_required("dialect", &fix, |node| choose(node, &examples)) else {
        // The sections that depend on the dialect are read too, to report their mistakes.
        fields.get_optional("registration", |node| bcs::registration(node, None, sections));
        upstream_section(fields, sections);
        return None;
    };
    (row.read)(&node, fields, sections)
}

fn choose<'a>(node: &Node<'a>, examples: &str) -> Option<(&'static FrontRow, Node<'a>)> {
    let mut fields = node.object()?;
    let present = fields.present(&FRONTS.map(|row| row.key));
    fields.finish();
    match present.as_slice() {
        [(key, node)] => {
            let row = FRONTS.iter().find(|row| row.key == *key)?;
            Some((row, node.clone()))
        }
        [] => node.reject("no dialect is configured", format!("write {examples}")),
        _ => {
            let keys = enumerated(FRONTS.map(|row| format!("`{}`", row.key)), "and");
            node.reject("several dialects are configured", format!("keep one of {keys}"))
        }
    }
}

/// Refuses `registration` for a front end that no other program discovers.
fn refuse_registration(fields: &mut Fields<'_>) {
    let why = "only drivers of the dialect `bcs` and gateways are registered";
    fields.refuse("registration", why, "remove it");
}
