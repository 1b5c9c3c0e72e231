use admittance_bcs::SchedulersConfig;
use admittance_definitions::{
    Mistakes,
    document::{Fields, Node},
};
use admittance_net::{
    tls::{self, ClientTls, Identity, TlsError, Trust},
    upstream::{HealthCheck, Server, UpstreamConfig},
};
use http::uri::PathAndQuery;

use super::{bcs, duration, good, if_there, parsed_list, ports::pem_file, zookeeper::Ensembles};

/// `upstream`. Only schedulers can be discovered.
pub(super) fn upstream(
    node: &Node<'_>,
    ensembles: Ensembles,
    mistakes: &mut Mistakes,
) -> Option<(SchedulersConfig, UpstreamConfig)> {
    let fix = "write [ \"http://127.0.0.1:8081\" ]";
    let mut fields = node.object(mistakes)?;
    let discover = fields.optional("discover");
    let listed = match &discover {
        None => fields.required("servers", fix, mistakes),
        Some(_) => {
            let why = "`servers` and `discover` cannot both be set";
            fields.refuse("servers", why, "keep `servers` or `discover`", mistakes);
            None
        }
    };
    let listed = listed.and_then(|node| {
        node.filled_list(fix, mistakes)?;
        parsed_list::<Server>(&node, mistakes)
    });
    let needs_authorities = listed.iter().flatten().any(Server::is_tls);
    let servers = match discover {
        None => listed.map(SchedulersConfig::Listed),
        Some(node) => bcs::discovery(&node, ensembles, mistakes).map(SchedulersConfig::Discovered),
    };
    let config = reached(&mut fields, needs_authorities, mistakes);
    fields.finish(mistakes);
    Some((servers?, config?))
}

pub(super) fn reached(
    fields: &mut Fields<'_>,
    needs_authorities: bool,
    mistakes: &mut Mistakes,
) -> Option<UpstreamConfig> {
    let tls = client_tls(fields, needs_authorities, mistakes);
    let connect_timeout = duration(
        fields,
        "connectTimeout",
        UpstreamConfig::DEFAULT_CONNECT_TIMEOUT,
        mistakes,
    );
    let response_timeout = duration(
        fields,
        "responseTimeout",
        UpstreamConfig::DEFAULT_RESPONSE_TIMEOUT,
        mistakes,
    );
    let health = if_there(fields.optional("health"), mistakes, health);
    Some(UpstreamConfig {
        tls: tls?,
        connect_timeout: connect_timeout?,
        response_timeout: response_timeout?,
        health: health?,
    })
}

/// `tls` of a client. The system's authorities are only required if a server needs them.
pub(super) fn client_tls(
    fields: &mut Fields<'_>,
    needs_authorities: bool,
    mistakes: &mut Mistakes,
) -> Option<ClientTls> {
    if let Some(node) = fields.optional("tls") {
        return upstream_tls(&node, mistakes);
    }
    let trust = match needs_authorities {
        true => Trust::System,
        false => Trust::SystemAnd(None),
    };
    let tls = tls::client(trust, None).map(ClientTls::from);
    good(tls.map_err(with_advice), fields.node(), mistakes)
}

fn with_advice(error: TlsError) -> String {
    match error {
        TlsError::NoSystemAuthority { .. } => format!("{error}; name a file with `ca`"),
        error => error.to_string(),
    }
}

fn upstream_tls(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<ClientTls> {
    let mut fields = node.object(mistakes)?;
    let ca = fields
        .optional("ca")
        .map(|node| pem_file(&node, tls::certificates, mistakes));
    let certificate = fields
        .optional("certificate")
        .map(|node| pem_file(&node, tls::certificates, mistakes));
    let key = fields
        .optional("key")
        .map(|node| pem_file(&node, tls::private_key, mistakes));
    let server_name = fields.optional("serverName");
    fields.finish(mistakes);
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some(Identity {
            certificate: certificate?,
            key: key?,
        }),
        (None, None) => None,
        _ => {
            node.wrong(
                "a certificate and its key are only used together",
                "name both, or neither",
                mistakes,
            );
            return None;
        }
    };
    // An unreadable authority must not fall back to the system's authorities.
    let ca = match ca {
        Some(path) => Some(path?),
        None => None,
    };
    let tls = good(
        ClientTls::of_files(ca, identity).map_err(with_advice),
        node,
        mistakes,
    )?;
    match server_name {
        None => Some(tls),
        Some(node) => node.parse_with(
            |name| {
                let wrong =
                    |_| format!("{name:?} is not a valid DNS name: write one that the certificates have");
                tls.with_server_name(name).map_err(wrong)
            },
            mistakes,
        ),
    }
}

fn health(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<HealthCheck> {
    let mut fields = node.object(mistakes)?;
    let path = fields
        .required("path", "write the path to GET, /healthz", mistakes)
        .and_then(|node| {
            let read = |text: &str| match text.parse::<PathAndQuery>() {
                Ok(path) if text.starts_with('/') => Ok(path),
                _ => Err(format!("{text:?} is not a valid path: write /healthz")),
            };
            node.parse_with(read, mistakes)
        });
    let interval = duration(&mut fields, "interval", HealthCheck::DEFAULT_INTERVAL, mistakes);
    let timeout = duration(&mut fields, "timeout", HealthCheck::DEFAULT_TIMEOUT, mistakes);
    fields.finish(mistakes);
    Some(HealthCheck {
        path: path?,
        interval: interval?,
        timeout: timeout?,
    })
}
