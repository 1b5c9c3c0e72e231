use admittance_definitions::{Mistakes, document::Node};
use http::uri::PathAndQuery;

use super::{duration, good, if_there, parsed_list, ports::pem_file};
use crate::{
    config::{HealthCheck, UpstreamConfig},
    tls::{self, ClientTls, Identity},
    upstream::Server,
};

pub(super) fn upstream(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<UpstreamConfig> {
    let mut fields = node.object(mistakes)?;
    let servers = fields
        .required("servers", "write [ \"http://127.0.0.1:8081\" ]", mistakes)
        .and_then(|node| {
            node.filled_list("write [ \"http://127.0.0.1:8081\" ]", mistakes)?;
            parsed_list::<Server>(&node, mistakes)
        });
    let tls = match fields.optional("tls") {
        Some(node) => upstream_tls(&node, mistakes),
        // Without a server that needs them, the system's authorities need not be there.
        None if servers.iter().flatten().any(Server::is_tls) => {
            good(tls::client(None, None).map(ClientTls::from), node, mistakes)
        }
        None => good(
            tls::client(None, None)
                .or_else(|_| tls::no_client())
                .map(ClientTls::from),
            node,
            mistakes,
        ),
    };
    let connect_timeout = duration(
        &mut fields,
        "connectTimeout",
        UpstreamConfig::DEFAULT_CONNECT_TIMEOUT,
        mistakes,
    );
    let response_timeout = duration(
        &mut fields,
        "responseTimeout",
        UpstreamConfig::DEFAULT_RESPONSE_TIMEOUT,
        mistakes,
    );
    let health = if_there(fields.optional("health"), mistakes, health);
    fields.finish(mistakes);
    Some(UpstreamConfig {
        servers: servers?,
        tls: tls?,
        connect_timeout: connect_timeout?,
        response_timeout: response_timeout?,
        health: health?,
    })
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
    fields.finish(mistakes);
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some(Identity {
            certificate: certificate?,
            key: key?,
        }),
        (None, None) => None,
        _ => {
            node.wrong(
                "a certificate is of no use without its key, nor the key without the certificate",
                "name both, or neither",
                mistakes,
            );
            return None;
        }
    };
    // An authority that cannot be read must not become the system's own.
    let ca = match ca {
        Some(path) => Some(path?),
        None => None,
    };
    good(ClientTls::of_files(ca, identity), node, mistakes)
}

fn health(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<HealthCheck> {
    let mut fields = node.object(mistakes)?;
    let path = fields
        .required("path", "write the path to GET, /healthz", mistakes)
        .and_then(|node| {
            let read = |text: &str| match text.parse::<PathAndQuery>() {
                Ok(path) if text.starts_with('/') => Ok(path),
                _ => Err(format!("{text:?} is no path: write /healthz")),
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
