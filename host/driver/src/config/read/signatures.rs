use std::path::Path;

use admittance::catalog::signature::{
    IdentityPattern, IssuerUrl, Keyless, PublicKey, PublicKeys, Requirement, SignaturePolicy, SignatureRule,
    SourcePattern, TrustRoot,
};
use admittance_definitions::document::{Node, readers};
use admittance_watch::file;

/// Reads the list of signature rules. An empty list is a mistake, because it would refuse all modules.
pub(super) fn signatures(node: &Node<'_>) -> Option<SignaturePolicy> {
    let fix = "write [ { source: \"oci://registry/**\", keys: [ cosign.pub ] } ]";
    node.filled_list_of(fix, read_rule).map(SignaturePolicy::new)
}

fn read_rule(node: &Node<'_>) -> Option<SignatureRule> {
    let mut fields = node.object()?;
    let fix = "write `oci://registry/repository`, or `**` for all";
    let source = fields.get_required("source", fix, Node::parse::<SourcePattern>);
    let requirement = match fields.present_fields(&["keys", "keyless", "accept"]).as_slice() {
        [("keys", node)] => read_public_keys(node).map(Requirement::Keys),
        [("keyless", node)] => read_keyless(node).map(Requirement::Keyless),
        [("accept", node)] => node
            .one_of("value of `accept`", &[("Unsigned", ())])
            .map(|()| Requirement::Unsigned),
        _ => {
            let message = "exactly one requirement is expected";
            node.reject(message, "write one of `keys`, `keyless` and `accept`")
        }
    };
    Some(SignatureRule {
        source: source?,
        requirement: requirement?,
    })
}

fn read_public_keys(node: &Node<'_>) -> Option<PublicKeys> {
    let fix = "name PEM files with public keys";
    let keys = node.filled_list_of(fix, readers::file_with(PublicKey::read))?;
    node.accept(PublicKeys::new(keys))
}

fn read_keyless(node: &Node<'_>) -> Option<Keyless> {
    let mut fields = node.object()?;
    let fix = "write the e-mail address or the URI of the signer";
    let identity = fields.get_required("identity", fix, Node::parse::<IdentityPattern>);
    let fix = "write the URL of the issuer of the identity, https://token.actions.githubusercontent.com";
    let issuer = fields.get_required("issuer", fix, Node::parse::<IssuerUrl>);
    let fix = "name a trusted_root.json, or write `{ authorities: ..., signatureLog: ... }`";
    let trust_root = fields.get_required("trustRoot", fix, read_trust_root);
    Some(Keyless {
        trust_root: trust_root?,
        identity: identity?,
        issuer: issuer?,
    })
}

/// Reads a trust root, which is either sigstore's `trusted_root.json` or the same content in PEM files.
fn read_trust_root(node: &Node<'_>) -> Option<TrustRoot> {
    if node.json().is_string() {
        return readers::file_with(TrustRoot::read)(node);
    }
    let pem = readers::file_with(read_pem);
    let mut fields = node.object()?;
    let authorities = fields.get_required("authorities", "name a PEM file", &pem);
    let signature_log = fields.get_required("signatureLog", "name a PEM file", &pem);
    let certificate_log = fields.get_optional("certificateLog", &pem);
    let root = TrustRoot::from_pem(&authorities?, &signature_log?, certificate_log.as_deref());
    node.accept(root)
}

fn read_pem(path: &Path) -> Result<String, String> {
    /// The maximum size of `trusted_root.json`, in bytes.
    const MAX_PEM_SIZE: u64 = 1 << 20;
    file::read_to_string(path, MAX_PEM_SIZE).map_err(|error| format!("{}: {error}", path.display()))
}
