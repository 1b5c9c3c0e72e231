use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use admittance_definitions::{
    Mistakes,
    document::{Node, readers},
};
use admittance_net::tls::{self, Identity, ServerTls, TlsError};

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
    let default = ListenConfig::default();
    let config = ListenConfig {
        address: fields.get("address", default.address, address, mistakes),
        tls: fields.get_optional("tls", server_tls(ServerTls::of_files), mistakes),
    };
    fields.finish(mistakes);
    Some(config)
}

/// Reads the certificate of a port and its `clientCa`, which `load` turns into the use of client certificates.
pub(super) fn server_tls(
    load: fn(Identity, Option<PathBuf>) -> Result<ServerTls, TlsError>,
) -> impl Fn(&Node<'_>, &mut Mistakes) -> Option<ServerTls> {
    move |node, mistakes| {
        let mut fields = node.object(mistakes)?;
        let fix = "name a PEM file";
        let certificate = fields.get_required("certificate", fix, pem_file(tls::certificates), mistakes);
        let key = fields.get_required("key", fix, pem_file(tls::private_key), mistakes);
        let client_ca = fields.get_optional("clientCa", pem_file(tls::certificates), mistakes);
        fields.finish(mistakes);
        let identity = Identity {
            certificate: certificate?,
            key: key?,
        };
        node.accept(load(identity, client_ca), mistakes)
    }
}

/// Reads the path of a PEM file, and parses the file, so that each wrong file is reported at its own field. Whether the
/// files match is checked later.
pub(super) fn pem_file<T>(
    read: fn(&Path) -> Result<T, TlsError>,
) -> impl Fn(&Node<'_>, &mut Mistakes) -> Option<PathBuf> {
    readers::file_with(move |path| read(path).map(|_| path.to_owned()))
}
