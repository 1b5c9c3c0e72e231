use admittance_definitions::{Mistakes, document::Node};

use super::{
    or,
    zookeeper::{Ensembles, path},
};
use crate::config::DefinitionPlace;

pub(super) fn definitions(
    node: &Node<'_>,
    ensembles: Ensembles,
    has_cluster: bool,
    mistakes: &mut Mistakes,
) -> Option<Vec<DefinitionPlace>> {
    let entries = node.list(mistakes)?;
    let mut stores = Vec::new();
    let mut places = Vec::new();
    for entry in &entries {
        let Some(place) = place(entry, ensembles, has_cluster, mistakes) else {
            continue;
        };
        // Otherwise every definition would be read twice.
        if place.as_file().is_none() {
            if stores.contains(&place) {
                entry.wrong("this store is listed twice", "remove it", mistakes);
            }
            stores.push(place.clone());
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
    let (zookeeper, resources) = (fields.optional("zookeeper"), fields.optional("customResources"));
    fields.finish(mistakes);
    match (zookeeper, resources) {
        (Some(zookeeper), None) => {
            let mut fields = zookeeper.object(mistakes)?;
            let path = path(&mut fields, DefinitionPlace::DEFAULT_PATH, mistakes);
            fields.finish(mistakes);
            ensembles.need_cluster(&zookeeper, mistakes)?;
            Some(DefinitionPlace::ZooKeeper { path: path? })
        }
        (None, Some(resources)) => {
            let mut fields = resources.object(mistakes)?;
            let default = DefinitionPlace::DEFAULT_NAMESPACE.to_owned();
            let namespace = or(
                fields.optional("namespace"),
                default,
                mistakes,
                |node, mistakes| node.parse_with(namespace, mistakes),
            );
            fields.finish(mistakes);
            if !has_cluster {
                resources.wrong(
                    "no Kubernetes cluster is configured",
                    "write `cluster: {}`, or `cluster: { kubeconfig: ... }`",
                    mistakes,
                );
                return None;
            }
            Some(DefinitionPlace::CustomResources {
                namespace: namespace?,
            })
        }
        _ => {
            node.wrong(
                "exactly one store of definitions is expected",
                "write a path, `zookeeper: {}` or `customResources: {}`",
                mistakes,
            );
            None
        }
    }
}

/// A valid name of a Kubernetes namespace.
fn namespace(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    let is_one = (1..=63).contains(&text.len())
        && text.bytes().all(is_plain)
        && !text.starts_with('-')
        && !text.ends_with('-');
    is_one.then(|| text.to_owned()).ok_or_else(|| {
        format!("{text:?} is not a valid namespace: write lower case letters, digits and -, such as bkbcs")
    })
}
