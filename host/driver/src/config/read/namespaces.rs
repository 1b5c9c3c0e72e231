use admittance_admission::StaticNamespaces;
use admittance_cluster::{ClusterConfig, ClusterSource};
use admittance_definitions::document::{Fields, Node, readers};

use crate::namespaces::{self, FileNamespaces, NamespacesConfig};

pub(super) fn namespaces(fields: &mut Fields<'_>) -> NamespacesConfig {
    let (list, file) = (fields.optional("namespaces"), fields.optional("namespacesFile"));
    if fields.has("cluster") {
        for node in [&list, &file].into_iter().flatten() {
            let message = "namespaces are read from the cluster, and cannot be listed too";
            node.add_mistake(message, "remove it, or remove `cluster`");
        }
    }
    if let (Some(_), Some(node)) = (&list, &file) {
        let message = "namespaces are listed twice";
        node.add_mistake(message, "keep `namespaces` or `namespacesFile`");
        return NamespacesConfig::default();
    }
    fields
        .get_optional("namespaces", read_static_namespaces)
        .or_else(|| fields.get_optional("namespacesFile", read_namespaces_file))
        .unwrap_or_default()
}

fn read_static_namespaces(node: &Node<'_>) -> Option<NamespacesConfig> {
    let entries = namespaces::read_namespace_map(node)?;
    Some(NamespacesConfig::Listed(StaticNamespaces::new(entries)))
}

fn read_namespaces_file(node: &Node<'_>) -> Option<NamespacesConfig> {
    let file = FileNamespaces::read(&node.file_path()?);
    node.accept_read(file).map(NamespacesConfig::File)
}

pub(super) fn read_cluster(node: &Node<'_>) -> Option<ClusterConfig> {
    let mut fields = node.object()?;
    let kubeconfig = fields.get_optional("kubeconfig", Node::file_path);
    let context = fields.get_optional("context", readers::text);
    let source = match (kubeconfig, context) {
        (None, None) => ClusterSource::Infer,
        (path, context) => ClusterSource::Kubeconfig { path, context },
    };
    Some(ClusterConfig { source })
}
