use admittance_definitions::{
    Mistakes,
    document::{Node, readers},
};

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
        if place.as_file().is_none() && places.contains(&place) {
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
            node.object(mistakes)?.finish(mistakes);
            need_cluster(node, has_cluster, mistakes);
            Some(DefinitionPlace::Kubernetes)
        }
        _ => {
            let fix = "write a path, `kubernetes: {}`, `zookeeper: {}` or `customResources: {}`";
            node.wrong("exactly one store of definitions is expected", fix, mistakes);
            None
        }
    }
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
