use admittance::{NamespacedChains, catalog::signature::SourcePattern};
use admittance_definitions::{
    Mistakes,
    document::{Node, readers},
    read_allow,
};
use admittance_fleet::PolicySystem;

use super::zookeeper::{Ensembles, path};
use crate::config::DefinitionPlace;

pub(super) fn definitions(
    node: &Node<'_>,
    ensembles: Ensembles,
    has_cluster: bool,
    mistakes: &mut Mistakes,
) -> Option<Vec<DefinitionPlace>> {
    let mut places = Vec::new();
    for entry in &node.list(mistakes)? {
        let Some(place) = place(entry, ensembles, has_cluster, mistakes) else {
            continue;
        };
        // Otherwise every definition would be read twice.
        let is_same =
            |other: &DefinitionPlace| *other == place || (other.is_kubernetes() && place.is_kubernetes());
        if place.as_file().is_none() && places.iter().any(is_same) {
            entry.wrong("this store is listed twice", "remove it", mistakes);
        }
        places.push(place);
    }
    Some(places)
}

fn place(
    node: &Node<'_>,
    ensembles: Ensembles,
    has_cluster: bool,
    mistakes: &mut Mistakes,
) -> Option<DefinitionPlace> {
    if !node.json().is_object() {
        return node.file(mistakes).map(DefinitionPlace::File);
    }
    let mut fields = node.object(mistakes)?;
    let stores = fields.present(&["zookeeper", "customResources", "kubernetes"]);
    fields.finish(mistakes);
    match stores.as_slice() {
        [("zookeeper", node)] => {
            let path = path(node, DefinitionPlace::DEFAULT_PATH, mistakes)?;
            ensembles.need_cluster(node, mistakes);
            Some(DefinitionPlace::ZooKeeper { path })
        }
        [("customResources", node)] => {
            let mut fields = node.object(mistakes)?;
            let default = DefinitionPlace::DEFAULT_NAMESPACE.to_owned();
            let namespace = fields.get("namespace", default, readers::parse_with(namespace), mistakes);
            fields.finish(mistakes);
            need_cluster(node, has_cluster, mistakes);
            Some(DefinitionPlace::CustomResources { namespace })
        }
        [("kubernetes", node)] => {
            let mut fields = node.object(mistakes)?;
            let namespaced = fields.get_or_default("namespaced", namespaced, mistakes);
            let default = DefinitionPlace::DEFAULT_LEASE.to_owned();
            let lease = fields.get(
                "lease",
                default,
                readers::parse_with(DefinitionPlace::parse_lease),
                mistakes,
            );
            let policies = fields.get_or_default("policies", policies, mistakes);
            fields.finish(mistakes);
            need_cluster(node, has_cluster, mistakes);
            Some(DefinitionPlace::Kubernetes {
                namespaced,
                lease,
                policies,
            })
        }
        _ => {
            let fix = "write a path, `kubernetes: {}`, `zookeeper: {}` or `customResources: {}`";
            node.wrong("exactly one store of definitions is expected", fix, mistakes);
            None
        }
    }
}

/// The systems whose policies are read.
fn policies(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Vec<PolicySystem>> {
    let fix = "list Kubernetes, Gatekeeper or Kubewarden, or remove it";
    node.different_words(fix, "the system is listed twice", mistakes)
}

/// What chains of namespaces may use.
fn namespaced(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<NamespacedChains> {
    let mut fields = node.object(mistakes)?;
    let mut may_use = NamespacedChains::default();
    let patterns =
        |node: &Node<'_>, mistakes: &mut Mistakes| node.list_of(Node::parse::<SourcePattern>, mistakes);
    may_use.modules = fields.get_or_default("modules", patterns, mistakes);
    may_use.webhooks = fields.get_or_default("webhooks", Node::word, mistakes);
    if let Some(allow) = fields.optional("allow") {
        may_use.allow = read_allow(&allow, mistakes);
        if !may_use.allow.environment.is_empty() {
            let message = "chains give their plugins any environment variables";
            allow.wrong(message, "remove `environment`", mistakes);
        }
    }
    fields.finish(mistakes);
    Some(may_use)
}

/// Resources are those of the cluster of the configuration.
fn need_cluster(node: &Node<'_>, has_cluster: bool, mistakes: &mut Mistakes) {
    if !has_cluster {
        node.wrong(super::NO_CLUSTER, super::ADD_CLUSTER, mistakes);
    }
}

/// A valid name of a Kubernetes namespace.
pub(super) fn namespace(text: &str) -> Result<String, String> {
    admittance_admission::is_dns_label(text)
        .then(|| text.to_owned())
        .ok_or_else(|| {
            format!(
                "{text:?} is not a valid namespace: write lower case letters, digits and -, such as bkbcs"
            )
        })
}
