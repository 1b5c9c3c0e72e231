use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use admittance_definitions::{Mistakes, document::Node};
use admittance_net::tls::{self, Identity, ServerTls, TlsError};

use super::{good, if_there};
use crate::config::ListenConfig;

pub(super) fn address(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<SocketAddr> {
    let text = node.text(mistakes)?;
    let address = text.parse().ok();
    if address.is_none() {
        node.wrong(
            format!("{text:?} is not a valid address to listen on"),
            "write an IP address and a port, 127.0.0.1:8080",
            mistakes,
        );
    }
    address
}

pub(super) fn listen(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<ListenConfig> {
    let mut fields = node.object(mistakes)?;
    let mut config = ListenConfig::default();
    if let Some(address) = fields
        .optional("address")
        .and_then(|node| address(&node, mistakes))
    {
        config.address = address;
    }
    if let Some(node) = fields.optional("tls") {
        config.tls = server_tls(&node, ServerTls::of_files, mistakes);
    }
    fields.finish(mistakes);
    Some(config)
}

/// What a port shows, and `clientCa`; `load` says what that one is for.
pub(super) fn server_tls(
    node: &Node<'_>,
    load: fn(Identity, Option<PathBuf>) -> Result<ServerTls, TlsError>,
    mistakes: &mut Mistakes,
) -> Option<ServerTls> {
    let mut fields = node.object(mistakes)?;
    let certificate = fields.get_required(
        "certificate",
        "name a PEM file",
        |node, mistakes| pem_file(node, tls::certificates, mistakes),
        mistakes,
    );
    let key = fields.get_required(
        "key",
        "name a PEM file",
        |node, mistakes| pem_file(node, tls::private_key, mistakes),
        mistakes,
    );
    // Without the configured authority, every client would be accepted.
    let client_ca = if_there(fields.optional("clientCa"), mistakes, |node, mistakes| {
        pem_file(node, tls::certificates, mistakes)
    });
    fields.finish(mistakes);
    let identity = Identity {
        certificate: certificate?,
        key: key?,
    };
    good(load(identity, client_ca?), node, mistakes)
}

/// A file that holds what is read from it, so that each wrong file is told at its own field. Whether they
/// go together is seen later.
pub(super) fn pem_file<T>(
    node: &Node<'_>,
    read: fn(&Path) -> Result<T, TlsError>,
    mistakes: &mut Mistakes,
) -> Option<PathBuf> {
    let path = node.file(mistakes)?;
    good(read(&path), node, mistakes)?;
    Some(path)
}
