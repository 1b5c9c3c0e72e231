use std::collections::BTreeSet;

use admittance_admin::{AdminConfig, AdminTls, CertificateHolder, Role, Token, TokenFile, TokenSource};
use admittance_definitions::{
    Mistakes,
    document::{Fields, Node},
};
use admittance_net::{bearer::TokenDigest, tls::ServerTls};

use super::{each, good, if_there, owned, ports, section};

pub(super) fn admin(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<AdminConfig> {
    let mut fields = node.object(mistakes)?;
    let address = fields.get_required("address", "write 127.0.0.1:9090", ports::address, mistakes);
    let (tls_node, clients_node) = (fields.optional("tls"), fields.optional("clients"));
    let tokens_node = fields.optional("tokens");
    fields.finish(mistakes);
    let clients = section(clients_node.clone(), mistakes, |node, mistakes| {
        named_list(node, client, |client| &client.name, mistakes)
    });
    let tokens = section(tokens_node.clone(), mistakes, |node, mistakes| {
        named_list(node, token, |token| &token.name, mistakes)
    });
    let tls = if_there(tls_node.clone(), mistakes, |node, mistakes| {
        ports::server_tls(node, ServerTls::of_admin_files, mistakes)
    });
    let asks_clients = tls_node.as_ref().is_some_and(|node| has_field(node, "clientCa"));
    match (&clients_node, asks_clients) {
        (Some(node), false) => node.wrong(
            "clients are not asked for certificates",
            "name the authorities of clients in `admin.tls.clientCa`",
            mistakes,
        ),
        (None, true) => tls_node.as_ref().into_iter().for_each(|node| {
            node.wrong(
                "clients are asked for certificates, but none is allowed",
                "list who may use the API in `admin.clients`, or remove `clientCa`",
                mistakes,
            );
        }),
        _ => {}
    }
    let (address, clients, tokens) = (address?, clients?, tokens?);
    let mut config = AdminConfig::new(address);
    if let Some(server) = tls? {
        config = config.with_tls(AdminTls { server, clients });
    }
    match (config.with_tokens(tokens), tokens_node) {
        (Ok(config), _) => Some(config),
        (Err(error), tokens) => {
            tokens.as_ref().unwrap_or(node).wrong(
                error.to_string(),
                "add `admin.tls`, or listen on 127.0.0.1",
                mistakes,
            );
            None
        }
    }
}

fn has_field(node: &Node<'_>, name: &str) -> bool {
    node.json().get(name).is_some_and(|value| !value.is_null())
}

/// A list of entries with unique names; `None` if one is invalid.
fn named_list<T>(
    node: &Node<'_>,
    read: impl Fn(&Node<'_>, &mut Mistakes) -> Option<T>,
    name: impl Fn(&T) -> &str,
    mistakes: &mut Mistakes,
) -> Option<Vec<T>> {
    let entries = node.filled_list("name who may use the API", mistakes)?;
    let mut names = BTreeSet::new();
    each(&entries, mistakes, |node, mistakes| {
        let entry = read(node, mistakes)?;
        if names.insert(name(&entry).to_owned()) {
            return Some(entry);
        }
        let message = format!("two entries have the name {:?}", name(&entry));
        node.wrong(message, "give each its own name", mistakes);
        None
    })
}

fn role(fields: &mut Fields<'_>, mistakes: &mut Mistakes) -> Option<Role> {
    fields.get_required("role", "write Read or Admin", Node::word, mistakes)
}

fn token(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Token> {
    let mut fields = node.object(mistakes)?;
    let name = fields.get_required("name", "say whose it is", owned, mistakes);
    let role = role(&mut fields, mistakes);
    let (file, digest) = (fields.optional("file"), fields.optional("sha256"));
    fields.finish(mistakes);
    let source = match (file, digest) {
        (Some(node), None) => {
            let path = node.file(mistakes)?;
            good(TokenFile::read(&path), &node, mistakes).map(TokenSource::File)
        }
        (None, Some(node)) => node.parse::<TokenDigest>(mistakes).map(TokenSource::Digest),
        _ => {
            let message = "exactly one source of the token is required";
            node.wrong(message, "write one of `file` and `sha256`", mistakes);
            None
        }
    };
    Some(Token {
        name: name?,
        role: role?,
        source: source?,
    })
}

fn client(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<CertificateHolder> {
    let mut fields = node.object(mistakes)?;
    let name = fields.get_required(
        "name",
        "write the certificate's common name, or a DNS name or URI of it",
        owned,
        mistakes,
    );
    let role = role(&mut fields, mistakes);
    fields.finish(mistakes);
    Some(CertificateHolder {
        name: name?,
        role: role?,
    })
}
