use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use admittance_definitions::document::{Node, readers};
use admittance_net::tls::{self, Identity, ServerTls, TlsError};

use crate::config::ListenConfig;

pub(super) fn read_address(node: &Node<'_>) -> Option<SocketAddr> {
    let text = node.text()?;
    let address = text.parse().ok();
    if address.is_none() {
        node.add_mistake(
            format!("{text:?} is not a valid address to listen on"),
            "write an IP address and a port, 127.0.0.1:8080",
        );
    }
    address
}

pub(super) fn listen(node: &Node<'_>) -> Option<ListenConfig> {
    let mut fields = node.object()?;
    Some(ListenConfig {
        address: fields.get("address", ListenConfig::default().address, read_address),
        tls: fields.get_optional("tls", server_tls_reader(ServerTls::of_files)),
    })
}

pub(super) fn server_tls_reader(
    load: fn(Identity, Option<PathBuf>) -> Result<ServerTls, TlsError>,
) -> impl Fn(&Node<'_>) -> Option<ServerTls> {
    move |node| {
        let mut fields = node.object()?;
        let fix = "name a PEM file";
        let certificate = fields.get_required("certificate", fix, pem_file_reader(tls::certificates));
        let key = fields.get_required("key", fix, pem_file_reader(tls::private_key));
        let client_ca = fields.get_optional("clientCa", pem_file_reader(tls::certificates));
        let identity = Identity {
            certificate: certificate?,
            key: key?,
        };
        node.accept(load(identity, client_ca))
    }
}

/// Reads a field that contains the path of a PEM file, and checks that the file can be parsed.
pub(super) fn pem_file_reader<T>(read: fn(&Path) -> Result<T, TlsError>) -> impl Fn(&Node<'_>) -> Option<PathBuf> {
    readers::file_with(move |path| read(path).map(|_| path.to_owned()))
}
