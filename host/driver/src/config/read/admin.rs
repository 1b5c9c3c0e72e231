use std::collections::BTreeSet;

use admittance_admin::{AdminConfig, AdminRole, AdminTls, AdminToken, CertificateHolder, TokenFile, TokenSource};
use admittance_definitions::document::{Fields, Node, readers};
use admittance_net::tls::ServerTls;

use super::ports;

pub(super) fn admin(node: &Node<'_>) -> Option<AdminConfig> {
    let mut fields = node.object()?;
    let address = fields.get_required("address", "write 127.0.0.1:9090", ports::read_address);
    let tls = fields.get_optional("tls", ports::server_tls_reader(ServerTls::of_admin_files));
    let clients = fields.get_or_default("clients", named_list(read_client, |client| &client.name));
    let tokens = fields.get_or_default("tokens", named_list(read_token, |token| &token.name));
    let [tls_node, clients_node, tokens_node] = ["tls", "clients", "tokens"].map(|name| fields.optional(name));
    let asks_clients = tls_node.as_ref().is_some_and(|node| has_field(node, "clientCa"));
    match (&clients_node, &tls_node) {
        (Some(node), _) if !asks_clients => node.add_mistake(
            "clients are not asked for certificates",
            "name the authorities of clients in `admin.tls.clientCa`",
        ),
        (None, Some(node)) if asks_clients => node.add_mistake(
            "clients are asked for certificates, but none is allowed",
            "list who may use the API in `admin.clients`, or remove `clientCa`",
        ),
        _ => {}
    }
    let mut config = AdminConfig::new(address?);
    match (tls, tls_node) {
        (Some(server), _) => config = config.with_tls(AdminTls { server, clients }),
        // The section `tls` is present but invalid. Its mistake was reported when the section was read.
        (None, Some(_)) => return None,
        (None, None) => {}
    }
    match config.with_tokens(tokens) {
        Ok(config) => Some(config),
        Err(error) => {
            let node = tokens_node.as_ref().unwrap_or(node);
            node.reject(error.to_string(), "add `admin.tls`, or listen on 127.0.0.1")
        }
    }
}

fn has_field(node: &Node<'_>, name: &str) -> bool {
    node.json().get(name).is_some_and(|value| !value.is_null())
}

fn named_list<T>(
    read_entry: impl Fn(&Node<'_>) -> Option<T>,
    name: impl Fn(&T) -> &str,
) -> impl Fn(&Node<'_>) -> Option<Vec<T>> {
    move |node| {
        let mut names = BTreeSet::new();
        let unique = |node: &Node<'_>| {
            let entry = read_entry(node)?;
            if names.insert(name(&entry).to_owned()) {
                return Some(entry);
            }
            let message = format!("two entries have the name {:?}", name(&entry));
            node.reject(message, "give each its own name")
        };
        node.filled_list_of("name who may use the API", unique)
    }
}

fn read_role(fields: &mut Fields<'_>) -> Option<AdminRole> {
    fields.get_required("role", "write Read or Admin", Node::word)
}

fn read_token(node: &Node<'_>) -> Option<AdminToken> {
    let mut fields = node.object()?;
    let name = fields.get_required("name", "say whose it is", readers::text);
    let role = read_role(&mut fields);
    let source = match fields.present_fields(&["file", "sha256"]).as_slice() {
        [("file", node)] => readers::file_with(TokenFile::read)(node).map(TokenSource::File),
        [("sha256", node)] => node.parse().map(TokenSource::Digest),
        _ => {
            let message = "exactly one source of the token is required";
            node.reject(message, "write one of `file` and `sha256`")
        }
    };
    Some(AdminToken {
        name: name?,
        role: role?,
        source: source?,
    })
}

fn read_client(node: &Node<'_>) -> Option<CertificateHolder> {
    let mut fields = node.object()?;
    let fix = "write the certificate's common name, or a DNS name or URI of it";
    let name = fields.get_required("name", fix, readers::text);
    let role = read_role(&mut fields);
    Some(CertificateHolder {
        name: name?,
        role: role?,
    })
}
