use admittance_admission::StaticNamespaces;
use admittance_cluster::{ClusterConfig, ClusterSource};
use admittance_definitions::{
    Mistakes,
    document::{Fields, Node},
};

use crate::namespaces::{self, FileNamespaces, NamespacesConfig};

pub(super) fn namespaces(fields: &mut Fields<'_>, mistakes: &mut Mistakes) -> Option<NamespacesConfig> {
    let (list, file) = (fields.optional("namespaces"), fields.optional("namespacesFile"));
    if fields.has("cluster") {
        for node in [&list, &file].into_iter().flatten() {
            let message = "namespaces are read from the cluster, and cannot be listed too";
            node.wrong(message, "remove it, or remove `cluster`", mistakes);
        }
    }
    match (list, file) {
        (None, None) => Some(NamespacesConfig::default()),
        (Some(node), None) => {
            let listed = namespaces::listed(&node, mistakes)?;
            Some(NamespacesConfig::Listed(StaticNamespaces::new(listed)))
        }
        (None, Some(node)) => match FileNamespaces::read(&node.file(mistakes)?) {
            Ok(file) => Some(NamespacesConfig::File(file)),
            Err(found) => {
                for mistake in found.iter() {
                    mistakes.push(mistake.clone());
                }
                None
            }
        },
        (Some(_), Some(node)) => {
            let message = "namespaces are listed twice";
            node.wrong(message, "keep `namespaces` or `namespacesFile`", mistakes);
            None
        }
    }
}

pub(super) fn cluster(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<ClusterConfig> {
    let mut fields = node.object(mistakes)?;
    let kubeconfig = match fields.optional("kubeconfig") {
        Some(node) => Some(node.file(mistakes)?),
        None => None,
    };
    let context = match fields.optional("context") {
        Some(node) => Some(node.text(mistakes)?.to_owned()),
        None => None,
    };
    fields.finish(mistakes);
    let source = match (kubeconfig, context) {
        (None, None) => ClusterSource::Infer,
        (path, context) => ClusterSource::Kubeconfig { path, context },
    };
    Some(ClusterConfig { source })
}
