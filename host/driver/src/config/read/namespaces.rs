use admittance_admission::StaticNamespaces;
use admittance_cluster::{ClusterConfig, ClusterSource};
use admittance_definitions::{
    Mistakes,
    document::{Fields, Node, readers},
};

use crate::namespaces::{self, FileNamespaces, NamespacesConfig};

pub(super) fn namespaces(fields: &mut Fields<'_>, mistakes: &mut Mistakes) -> NamespacesConfig {
    let (list, file) = (fields.optional("namespaces"), fields.optional("namespacesFile"));
    if fields.has("cluster") {
        for node in [&list, &file].into_iter().flatten() {
            let message = "namespaces are read from the cluster, and cannot be listed too";
            node.wrong(message, "remove it, or remove `cluster`", mistakes);
        }
    }
    if let (Some(_), Some(node)) = (&list, &file) {
        let message = "namespaces are listed twice";
        node.wrong(message, "keep `namespaces` or `namespacesFile`", mistakes);
        return NamespacesConfig::default();
    }
    fields
        .get_optional("namespaces", listed, mistakes)
        .or_else(|| fields.get_optional("namespacesFile", in_file, mistakes))
        .unwrap_or_default()
}

fn listed(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<NamespacesConfig> {
    let listed = namespaces::listed(node, mistakes)?;
    Some(NamespacesConfig::Listed(StaticNamespaces::new(listed)))
}

fn in_file(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<NamespacesConfig> {
    match FileNamespaces::read(&node.file(mistakes)?) {
        Ok(file) => Some(NamespacesConfig::File(file)),
        Err(found) => {
            mistakes.extend(found);
            None
        }
    }
}

pub(super) fn cluster(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<ClusterConfig> {
    let mut fields = node.object(mistakes)?;
    let kubeconfig = fields.get_optional("kubeconfig", Node::file, mistakes);
    let context = fields.get_optional("context", readers::text, mistakes);
    fields.finish(mistakes);
    let source = match (kubeconfig, context) {
        (None, None) => ClusterSource::Infer,
        (path, context) => ClusterSource::Kubeconfig { path, context },
    };
    Some(ClusterConfig { source })
}
