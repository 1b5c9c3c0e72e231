use admittance::catalog::signature::{
    IdentityPattern, IssuerUrl, Keyless, PublicKey, PublicKeys, Requirement, SignaturePolicy, SignatureRule,
    SourcePattern, TrustRoot,
};
use admittance_definitions::{Mistakes, document::Node};
use admittance_watch::file;

use super::{each, good, if_there};

/// The list of rules. An empty one would refuse all modules, so it is a mistake.
pub(super) fn signatures(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<SignaturePolicy> {
    let entries = node.filled_list(
        "write [ { source: \"oci://registry/**\", keys: [ cosign.pub ] } ]",
        mistakes,
    )?;
    each(&entries, mistakes, rule).map(SignaturePolicy::new)
}

fn rule(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<SignatureRule> {
    let mut fields = node.object(mistakes)?;
    let source = fields.get_required(
        "source",
        "write `oci://registry/repository`, or `**` for all",
        Node::parse::<SourcePattern>,
        mistakes,
    );
    let (keys, keyless_node, accept) = (
        fields.optional("keys"),
        fields.optional("keyless"),
        fields.optional("accept"),
    );
    fields.finish(mistakes);
    let requirement = match (keys, keyless_node, accept) {
        (Some(node), None, None) => public_keys(&node, mistakes).map(Requirement::Keys),
        (None, Some(node), None) => keyless(&node, mistakes).map(Requirement::Keyless),
        (None, None, Some(node)) => node
            .one_of("value of `accept`", &[("Unsigned", ())], mistakes)
            .map(|()| Requirement::Unsigned),
        _ => {
            node.wrong(
                "exactly one requirement is expected",
                "write one of `keys`, `keyless` and `accept`",
                mistakes,
            );
            None
        }
    };
    Some(SignatureRule {
        source: source?,
        requirement: requirement?,
    })
}

fn public_keys(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<PublicKeys> {
    let entries = node.filled_list("name PEM files with public keys", mistakes)?;
    let keys = each(&entries, mistakes, |entry, mistakes| {
        good(PublicKey::read(&entry.file(mistakes)?), entry, mistakes)
    });
    good(PublicKeys::new(keys?), node, mistakes)
}

fn keyless(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Keyless> {
    let mut fields = node.object(mistakes)?;
    let identity = fields.get_required(
        "identity",
        "write the e-mail address or the URI of the signer",
        Node::parse::<IdentityPattern>,
        mistakes,
    );
    let issuer = fields.get_required(
        "issuer",
        "write the URL of the issuer of the identity, https://token.actions.githubusercontent.com",
        Node::parse::<IssuerUrl>,
        mistakes,
    );
    let trust_root = fields.get_required(
        "trustRoot",
        "name a trusted_root.json, or write `{ authorities: ..., signatureLog: ... }`",
        trust_root,
        mistakes,
    );
    fields.finish(mistakes);
    Some(Keyless {
        trust_root: trust_root?,
        identity: identity?,
        issuer: issuer?,
    })
}

/// A `trusted_root.json` of sigstore, or the equivalent PEM files.
fn trust_root(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<TrustRoot> {
    if node.json().is_string() {
        let path = node.file(mistakes)?;
        return good(TrustRoot::read(&path), node, mistakes);
    }
    let mut fields = node.object(mistakes)?;
    let authorities = fields.get_required("authorities", "name a PEM file", text_of, mistakes);
    let signature_log = fields.get_required("signatureLog", "name a PEM file", text_of, mistakes);
    let certificate_log = if_there(fields.optional("certificateLog"), mistakes, text_of);
    fields.finish(mistakes);
    let root = TrustRoot::from_pem(&authorities?, &signature_log?, certificate_log?.as_deref());
    good(root, node, mistakes)
}

/// The largest PEM file in bytes.
const LARGEST_PEM: u64 = 1 << 20;

fn text_of(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<String> {
    let path = node.file(mistakes)?;
    let read =
        file::read_to_string(&path, LARGEST_PEM).map_err(|error| format!("{}: {error}", path.display()));
    good(read, node, mistakes)
}
