use admittance_bcs::SchedulersConfig;
use admittance_definitions::{
    Mistakes,
    document::{Fields, Node, readers},
};
use admittance_net::{
    tls::{self, ClientTls, Identity, TlsError, Trust},
    upstream::{HealthCheck, Server, UpstreamConfig},
};
use http::uri::PathAndQuery;

use super::{
    Sections, duration,
    lists::{ListNode, list},
    ports::pem_file,
    zookeeper::path,
};

type UpstreamSection<'a> = (SchedulersConfig, UpstreamConfig, Vec<ListNode<'a>>);

/// Reads `upstream` of a front end that has one.
pub(crate) fn upstream_section<'a>(
    fields: &mut Fields<'a>,
    sections: Sections<'_>,
    mistakes: &mut Mistakes,
) -> Option<UpstreamSection<'a>> {
    let fix = "write `upstream: { servers: [ \"http://127.0.0.1:8081\" ] }`, or `discover: {}` for schedulers of BCS";
    fields.get_required("upstream", fix, |node, m| upstream(node, sections, m), mistakes)
}

pub(crate) fn refuse_discovery<T>(
    fields: &mut Fields<'_>,
    why: &str,
    fix: &str,
    mistakes: &mut Mistakes,
) -> Option<T> {
    let mut upstream = fields.optional("upstream")?.object(mistakes)?;
    upstream.optional("discover")?.wrong(why, fix, mistakes);
    None
}

/// Reads `upstream`. Only the servers of schedulers can be discovered.
fn upstream<'a>(
    node: &Node<'a>,
    sections: Sections<'_>,
    mistakes: &mut Mistakes,
) -> Option<UpstreamSection<'a>> {
    let mut fields = node.object(mistakes)?;
    let mut needs_authorities = false;
    let servers = if let Some(node) = fields.optional("discover") {
        let why = "`servers` and `discover` cannot both be set";
        fields.refuse("servers", why, "keep `servers` or `discover`", mistakes);
        let path = path(&node, SchedulersConfig::DEFAULT_PATH, mistakes);
        sections.ensembles.need_cluster(&node, mistakes);
        path.map(SchedulersConfig::Discovered)
    } else {
        let fix = "write [ \"http://127.0.0.1:8081\" ]";
        let servers = readers::filled_list_of(fix, Node::parse::<Server>);
        let servers = fields.get_required("servers", fix, servers, mistakes);
        needs_authorities = servers.iter().flatten().any(Server::is_tls);
        servers.map(SchedulersConfig::Listed)
    };
    let config = reached(&mut fields, needs_authorities, mistakes);
    let lists = fields.get_or_default("lists", readers::list_of(list), mistakes);
    fields.finish(mistakes);
    Some((servers?, config?, lists))
}

/// Reads the connection to servers from the fields of their section.
pub(crate) fn reached(
    fields: &mut Fields<'_>,
    needs_authorities: bool,
    mistakes: &mut Mistakes,
) -> Option<UpstreamConfig> {
    let tls = client_tls(fields, needs_authorities, mistakes);
    let (connect, response) = (
        UpstreamConfig::DEFAULT_CONNECT_TIMEOUT,
        UpstreamConfig::DEFAULT_RESPONSE_TIMEOUT,
    );
    let connect_timeout = fields.get("connectTimeout", connect, duration, mistakes);
    let response_timeout = fields.get("responseTimeout", response, duration, mistakes);
    let health = fields.get_optional("health", health, mistakes);
    Some(UpstreamConfig {
        tls: tls?,
        connect_timeout,
        response_timeout,
        health,
    })
}

/// Reads `tls` of a client. The system's authorities are only required if a server needs them.
pub(crate) fn client_tls(
    fields: &mut Fields<'_>,
    needs_authorities: bool,
    mistakes: &mut Mistakes,
) -> Option<ClientTls> {
    if let Some(node) = fields.optional("tls") {
        return upstream_tls(&node, mistakes);
    }
    let trust = if needs_authorities {
        Trust::System
    } else {
        Trust::SystemAnd(None)
    };
    let tls = tls::client(trust, None).map(ClientTls::from);
    fields.node().accept(tls.map_err(with_advice), mistakes)
}

fn with_advice(error: TlsError) -> String {
    match error {
        TlsError::NoSystemAuthority { .. } => format!("{error}; name a file with `ca`"),
        error => error.to_string(),
    }
}

fn upstream_tls(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<ClientTls> {
    let before = mistakes.len();
    let mut fields = node.object(mistakes)?;
    let ca = fields.get_optional("ca", pem_file(tls::certificates), mistakes);
    let certificate = fields.get_optional("certificate", pem_file(tls::certificates), mistakes);
    let key = fields.get_optional("key", pem_file(tls::private_key), mistakes);
    if fields.has("certificate") != fields.has("key") {
        let message = "a certificate and its key are only used together";
        node.wrong(message, "name both, or neither", mistakes);
    }
    let server_name = fields.optional("serverName");
    // An unreadable authority must not be replaced with the system's authorities.
    let is_valid = mistakes.len() == before;
    fields.finish(mistakes);
    if !is_valid {
        return None;
    }
    let identity = certificate
        .zip(key)
        .map(|(certificate, key)| Identity { certificate, key });
    let tls = node.accept(ClientTls::of_files(ca, identity).map_err(with_advice), mistakes)?;
    let Some(node) = server_name else {
        return Some(tls);
    };
    let named = |name: &str| {
        let wrong = |_| format!("{name:?} is not a valid DNS name: write one that the certificates have");
        tls.with_server_name(name).map_err(wrong)
    };
    node.parse_with(named, mistakes)
}

fn health(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<HealthCheck> {
    let mut fields = node.object(mistakes)?;
    let fix = "write the path to GET, /healthz";
    let path = fields.get_required("path", fix, readers::parse_with(health_path), mistakes);
    let interval = fields.get("interval", HealthCheck::DEFAULT_INTERVAL, duration, mistakes);
    let timeout = fields.get("timeout", HealthCheck::DEFAULT_TIMEOUT, duration, mistakes);
    fields.finish(mistakes);
    Some(HealthCheck {
        path: path?,
        interval,
        timeout,
        authorization: None,
    })
}

fn health_path(text: &str) -> Result<PathAndQuery, String> {
    match text.parse::<PathAndQuery>() {
        Ok(path) if text.starts_with('/') => Ok(path),
        _ => Err(format!("{text:?} is not a valid path: write /healthz")),
    }
}
