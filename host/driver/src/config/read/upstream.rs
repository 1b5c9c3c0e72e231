use admittance_bcs::SchedulersConfig;
use admittance_definitions::document::{Fields, Node, readers};
use admittance_net::{
    tls::{self, ClientTls, Identity, TlsError, Trust},
    upstream::{HealthCheck, UpstreamConfig, UpstreamServer},
};
use http::uri::PathAndQuery;

use super::{
    SectionContext,
    lists::{ListNode, read_list},
    ports::pem_file_reader,
    read_duration,
    zookeeper::read_path,
};

type UpstreamSection<'a> = (SchedulersConfig, UpstreamConfig, Vec<ListNode<'a>>);

pub(crate) fn upstream_section<'a>(
    fields: &mut Fields<'a>,
    sections: SectionContext<'_>,
) -> Option<UpstreamSection<'a>> {
    let fix = "write `upstream: { servers: [ \"http://127.0.0.1:8081\" ] }`, or `discover: {}` for schedulers of BCS";
    fields.get_required("upstream", fix, |node| read_upstream(node, sections))
}

pub(crate) fn refuse_discovery<T>(fields: &mut Fields<'_>, why: &str, fix: &str) -> Option<T> {
    let mut upstream = fields.optional("upstream")?.object()?.ignoring_others();
    upstream.optional("discover")?.reject(why, fix)
}

/// Reads the section `upstream`, which lists the servers or lets the driver discover them. Only schedulers can be
/// discovered.
fn read_upstream<'a>(node: &Node<'a>, sections: SectionContext<'_>) -> Option<UpstreamSection<'a>> {
    let mut fields = node.object()?;
    let mut needs_authorities = false;
    let servers = if let Some(node) = fields.optional("discover") {
        let why = "`servers` and `discover` cannot both be set";
        fields.refuse("servers", why, "keep `servers` or `discover`");
        let path = read_path(&node, SchedulersConfig::DEFAULT_PATH);
        sections.ensembles.need_cluster(&node);
        path.map(SchedulersConfig::Discovered)
    } else {
        let fix = "write [ \"http://127.0.0.1:8081\" ]";
        let servers = readers::filled_list_of(fix, Node::parse::<UpstreamServer>);
        let servers = fields.get_required("servers", fix, servers);
        needs_authorities = servers.iter().flatten().any(UpstreamServer::is_tls);
        servers.map(SchedulersConfig::Listed)
    };
    let config = read_upstream_config(&mut fields, needs_authorities);
    let lists = fields.get_or_default("lists", readers::list_of(read_list));
    Some((servers?, config?, lists))
}

/// Reads the settings for connections to servers: TLS, timeouts and health checks.
pub(crate) fn read_upstream_config(fields: &mut Fields<'_>, needs_authorities: bool) -> Option<UpstreamConfig> {
    let tls = client_tls(fields, needs_authorities);
    let (connect, response) = (
        UpstreamConfig::DEFAULT_CONNECT_TIMEOUT,
        UpstreamConfig::DEFAULT_RESPONSE_TIMEOUT,
    );
    let connect_timeout = fields.get("connectTimeout", connect, read_duration);
    let response_timeout = fields.get("responseTimeout", response, read_duration);
    let health = fields.get_optional("health", read_health);
    Some(UpstreamConfig {
        tls: tls?,
        connect_timeout,
        response_timeout,
        health,
    })
}

/// Reads a client's `tls`. By default, the client trusts the system's certificate authorities.
pub(crate) fn client_tls(fields: &mut Fields<'_>, needs_authorities: bool) -> Option<ClientTls> {
    if let Some(node) = fields.optional("tls") {
        return read_upstream_tls(&node);
    }
    let trust = if needs_authorities {
        Trust::System
    } else {
        Trust::SystemAnd(None)
    };
    let tls = tls::client_config(trust, None).map(ClientTls::from);
    fields.node().accept(tls.map_err(with_advice))
}

fn with_advice(error: TlsError) -> String {
    match error {
        TlsError::NoSystemAuthority { .. } => format!("{error}; name a file with `ca`"),
        error => error.to_string(),
    }
}

fn read_upstream_tls(node: &Node<'_>) -> Option<ClientTls> {
    let before = node.mistake_count();
    let mut fields = node.object()?;
    let ca = fields.get_optional("ca", pem_file_reader(tls::certificates));
    let certificate = fields.get_optional("certificate", pem_file_reader(tls::certificates));
    let key = fields.get_optional("key", pem_file_reader(tls::private_key));
    if fields.has("certificate") != fields.has("key") {
        let message = "a certificate and its key are only used together";
        node.add_mistake(message, "name both, or neither");
    }
    let server_name = fields.optional("serverName");
    // If the file of certificate authorities that is configured cannot be read, no settings are returned. Otherwise,
    // the driver would trust the authorities of the operating system instead.
    let is_valid = node.mistake_count() == before;
    if !is_valid {
        return None;
    }
    let identity = certificate
        .zip(key)
        .map(|(certificate, key)| Identity { certificate, key });
    let tls = node.accept(ClientTls::of_files(ca, identity).map_err(with_advice))?;
    let Some(node) = server_name else {
        return Some(tls);
    };
    let parse_server_name = |name: &str| {
        let name_error = |_| format!("{name:?} is not a valid DNS name: write one that the certificates have");
        tls.with_server_name(name).map_err(name_error)
    };
    node.parse_with(parse_server_name)
}

fn read_health(node: &Node<'_>) -> Option<HealthCheck> {
    let mut fields = node.object()?;
    let fix = "write the path to GET, /healthz";
    let path = fields.get_required("path", fix, readers::parse_with(parse_health_path));
    let interval = fields.get("interval", HealthCheck::DEFAULT_INTERVAL, read_duration);
    let timeout = fields.get("timeout", HealthCheck::DEFAULT_TIMEOUT, read_duration);
    Some(HealthCheck {
        path: path?,
        interval,
        timeout,
        authorization: None,
    })
}

fn parse_health_path(text: &str) -> Result<PathAndQuery, String> {
    match text.parse::<PathAndQuery>() {
        Ok(path) if text.starts_with('/') => Ok(path),
        _ => Err(format!("{text:?} is not a valid path: write /healthz")),
    }
}
