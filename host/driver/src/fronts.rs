//! Lists the front ends that a configuration can name. Each front end has a row in [`FRONTS`], and a module that reads
//! its section of the configuration, serves requests and reports its status.

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
use admittance_dialect::{Dialect, EndReason};
use admittance_fleet::{WebhooksConfig, audit::AuditConfig};
use admittance_gateway::{ServiceRecipient, accounts::Accounts};
use admittance_net::{
    tls::{CertificateState, ClientTls},
    upstream::{Upstream, UpstreamConfig, UpstreamServer},
};
use async_trait::async_trait;
use axum::body::Body;
use futures_util::future::{BoxFuture, FutureExt, join_all};
use http::{HeaderMap, Request, Response};

pub(crate) use self::proxy::parse_method;
pub use self::{proxy::ProxyConfig, reviews::ReviewsConfig};
use crate::{
    Connections, Error, Limits,
    config::{ListConfig, SectionContext, upstream_section},
    handler::FrontEndHandler,
    status::DriverStatus,
};

/// The configuration of a front end.
#[async_trait]
pub trait FrontConfig: Any + Debug + Send + Sync {
    fn dialect_name(&self) -> &str;

    /// Starts the front end, so that it can answer requests.
    async fn start(self: Box<Self>, context: StartContext<'_>) -> Result<StartedFront, Error>;

    /// Returns the dialect of the control plane; `None` for a front end without a control plane.
    fn dialect(&self) -> Option<Arc<dyn Dialect>> {
        None
    }

    /// Returns the name of the cluster to which the front end belongs; `None` if it is not configured.
    fn cluster(&self) -> Option<&str> {
        None
    }

    /// Returns the connection settings of the upstream; `None` for a front end without an upstream.
    fn upstream(&self) -> Option<&UpstreamConfig> {
        None
    }

    /// Returns the servers of the upstream that are listed in the configuration. The list is empty if there is no
    /// upstream, or if the servers are discovered.
    fn servers(&self) -> &[UpstreamServer] {
        &[]
    }

    /// Returns the headers that are added to every request to the upstream.
    fn headers(&self) -> HeaderMap {
        HeaderMap::new()
    }

    fn client_tls(&self) -> Vec<&ClientTls> {
        self.upstream().map(|upstream| &upstream.tls).into_iter().collect()
    }

    /// Replaces the servers of the upstream.
    ///
    /// # Errors
    ///
    /// Fails with a reason if this front end has no servers that can be replaced.
    fn set_servers(&mut self, servers: Vec<UpstreamServer>) -> Result<(), &'static str>;

    /// Returns a connection for reading lists of the upstream's objects; `None` without a control plane.
    ///
    /// # Errors
    ///
    /// Fails if the servers are discovered through an ensemble that is not connected.
    fn connect(&self, _ensembles: &Ensembles) -> Result<Option<ConnectedUpstream>, NoEnsemble> {
        Ok(None)
    }

    /// Returns whether the replicas use the cluster's ZooKeeper ensemble to agree on the table of chains to use.
    fn agrees_in_zookeeper(&self) -> bool {
        false
    }

    /// Returns the webhook configurations that the leader of the replicas keeps up to date.
    fn webhooks(&self) -> Option<&WebhooksConfig> {
        None
    }

    /// Returns the audits that the leader of the replicas runs.
    fn audit(&self) -> Option<&AuditConfig> {
        None
    }

    fn default_limits(&self) -> Limits {
        Limits::default()
    }
}

impl dyn FrontConfig {
    pub fn reach(&self) -> Reach {
        match self.webhooks() {
            Some(webhooks) => webhooks.registration.reach(),
            None => Reach {
                resources: self.dialect().and_then(|dialect| dialect.resources()),
                ..Reach::default()
            },
        }
    }

    /// Returns this configuration as the type `T`; `None` if it has another type.
    pub fn downcast_ref<T: FrontConfig>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }

    /// Returns this configuration as the type `T`, to change it; `None` if it has another type.
    pub fn downcast_mut<T: FrontConfig>(&mut self) -> Option<&mut T> {
        (self as &mut dyn Any).downcast_mut()
    }
}

/// The values that a front end needs to start.
#[derive(Clone, Copy, Debug)]
pub struct StartContext<'a> {
    pub ports: Ports,
    pub connections: &'a Connections,
    pub host: &'a Host,
    pub body_limits: BodyLimits,
}

#[derive(Debug)]
pub struct StartedFront {
    pub(crate) front: Arc<dyn OpenedFront>,
    pub(crate) registrar: Option<Registrar>,
    pub(crate) drivers: Option<Drivers>,
}

impl StartedFront {
    fn without_registration(front: impl OpenedFront) -> Self {
        Self {
            front: Arc::new(front),
            registrar: None,
            drivers: None,
        }
    }
}

pub(crate) trait OpenedFront: Debug + Send + Sync + 'static {
    fn serve(&self, serving: FrontEndHandler) -> BoxFuture<'static, ()>;

    fn upstreams(&self) -> Vec<Upstream>;

    /// Returns the dialect whose HTTP requests users can write in the console; `None` if they cannot write any.
    fn dialect(&self) -> Option<Arc<dyn Dialect>> {
        None
    }

    /// Adds what is known about this front end to the reply to `GET /v1/status`.
    fn report(&self, status: &mut DriverStatus) {
        let servers = self.upstreams();
        status.upstream = servers.iter().flat_map(Upstream::health).map(Into::into).collect();
    }

    /// Returns the reply to `/healthz` in bcs-mesos-driver's format; `None` for the usual reply. `ip` is the listen
    /// address.
    fn health(&self, _ip: IpAddr) -> Option<HealthInfo> {
        None
    }

    fn tls_status(&self) -> Option<CertificateState> {
        self.upstreams().first()?.tls_status()
    }

    /// Returns the users and clusters of the front end, which the admin API manages; `None` if it has none.
    fn accounts(&self) -> Option<&Accounts> {
        None
    }

    /// Returns why the front end cannot answer requests yet; `None` if it can.
    fn not_ready_reason(&self) -> Option<&'static str> {
        None
    }

    /// Returns a future that completes once the front end can answer requests; `None` if it can do so from the start.
    fn becomes_ready(&self) -> Option<BoxFuture<'_, ()>> {
        None
    }

    /// Checks the health of the front end's servers, and reloads changed files. Never completes.
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

    fn wait_for_tunnels(&self) -> BoxFuture<'_, ()> {
        async {
            join_all(self.upstreams().iter().map(Upstream::wait_until_tunnels_end)).await;
        }
        .boxed()
    }

    fn stop(&self) {}
}

/// Answers the requests of a port. Cheap to clone.
pub(crate) trait FrontService: Clone + Debug + Send + Sync + 'static {
    fn answer(&self, request: Request<Body>) -> impl Future<Output = FrontReply> + Send;

    fn reply_to_ended(&self, path: &str, end: &EndReason<'_>) -> Response<Body>;
}

/// A reply to a client, with fields for the access log.
#[derive(Debug)]
pub(crate) struct FrontReply {
    pub(crate) response: Response<Body>,
    pub(crate) passage: Option<Passage>,
    /// The cluster and the user of the request. Only a gateway knows them.
    pub(crate) recipient: Option<ServiceRecipient>,
}

impl From<Response<Body>> for FrontReply {
    fn from(response: Response<Body>) -> Self {
        Self {
            passage: response.extensions().get().copied(),
            response,
            recipient: None,
        }
    }
}

pub(crate) type FrontSection = (Box<dyn FrontConfig>, Vec<ListConfig>);

#[derive(Clone, Copy)]
struct FrontRow {
    key: &'static str,
    /// A minimal valid section of the front end, for error messages.
    example: &'static str,
    read: fn(&Node<'_>, &mut Fields<'_>, SectionContext<'_>) -> Option<FrontSection>,
    admin_routes: fn() -> Vec<Route>,
}

/// Returns the admin port's routes for front ends. A driver has the routes of all front ends, whichever it runs.
pub(crate) fn admin_routes() -> Vec<Route> {
    FRONTS.iter().flat_map(|row| (row.admin_routes)()).collect()
}

static FRONTS: [FrontRow; 4] = [bcs::ROW, proxy::ROW, reviews::ROW, gateway::ROW];

pub(crate) fn read(fields: &mut Fields<'_>, sections: SectionContext<'_>) -> Option<FrontSection> {
    let examples = enumerated(FRONTS.map(|row| format!("`{}`", row.example)), "or");
    let fix = format!("write one below `dialect`: {examples}");
    let Some((row, node)) = fields.get_required("dialect", &fix, |node| choose_front(node, &examples)) else {
        // The sections `registration` and `upstream` depend on the dialect, which is invalid here. They are read
        // nevertheless, so that the mistakes in them are reported too.
        fields.get_optional("registration", |node| bcs::read_registration(node, None, sections));
        upstream_section(fields, sections);
        return None;
    };
    (row.read)(&node, fields, sections)
}

fn choose_front<'a>(node: &Node<'a>, examples: &str) -> Option<(&'static FrontRow, Node<'a>)> {
    let mut fields = node.object()?;
    let present = fields.present_fields(&FRONTS.map(|row| row.key));
    match present.as_slice() {
        [(key, node)] => {
            let row = FRONTS.iter().find(|row| row.key == *key)?;
            Some((row, node.clone()))
        }
        // The section has keys, but none of them names a dialect. `fields` reports each unknown key and suggests the
        // key that was probably meant, so nothing is reported here.
        [] if !node.children().is_empty() => None,
        [] => node.reject("no dialect is configured", format!("write {examples}")),
        _ => {
            let keys = enumerated(FRONTS.map(|row| format!("`{}`", row.key)), "and");
            node.reject("several dialects are configured", format!("keep one of {keys}"))
        }
    }
}

fn refuse_registration(fields: &mut Fields<'_>) {
    let why = "only drivers of the dialect `bcs` and gateways are registered";
    fields.refuse("registration", why, "remove it");
}
