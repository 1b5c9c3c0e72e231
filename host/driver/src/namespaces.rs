//! Reads namespaces and their labels from a file, for installations without a cluster.

use std::path::Path;

use admittance_admission::{Labels, NamespaceLookupError, NamespaceSource, StaticNamespaces, async_trait};
use admittance_definitions::{
    Mistakes,
    document::{self, Node, readers},
};
use admittance_watch::FileValue;

/// The source of the labels of namespaces if the driver uses no cluster.
#[derive(Clone, Debug)]
pub enum NamespacesConfig {
    Listed(StaticNamespaces),
    File(FileNamespaces),
}

impl Default for NamespacesConfig {
    fn default() -> Self {
        Self::Listed(StaticNamespaces::default())
    }
}

/// The namespaces in a file, which is read again when it changes.
///
/// The file contains `name: { label: value }` for each namespace, or the documents that `kubectl get namespaces
/// --output yaml` prints: Namespaces, or a List of them. Namespaces that are not in the file have only the label
/// `kubernetes.io/metadata.name`.
#[derive(Clone, Debug)]
pub struct FileNamespaces(FileValue<StaticNamespaces>);

impl FileNamespaces {
    pub fn read(path: &Path) -> Result<Self, Mistakes> {
        let path = path.to_owned();
        FileValue::load([path.clone()], move || read_namespaces(&path)).map(Self)
    }

    /// Reloads the file of namespaces when it changes, unless the new content is invalid. Never completes.
    pub(crate) async fn follow(self) {
        let report = |loaded: Result<&StaticNamespaces, &str>| {
            if let Err(mistakes) = loaded {
                tracing::error!("the changed namespaces are invalid, so the previous ones stay in use: {mistakes}");
            }
        };
        self.0.follow(report).await;
    }
}

#[async_trait]
impl NamespaceSource for FileNamespaces {
    async fn labels(&self, namespace: &str) -> Result<Labels, NamespaceLookupError> {
        self.0.current().labels(namespace).await
    }
}

fn read_namespaces(path: &Path) -> Result<StaticNamespaces, Mistakes> {
    let mut mistakes = Mistakes::new();
    let mut namespaces = Vec::new();
    for document in document::read_file(path, &mut mistakes) {
        collect_namespaces(&document.root(&mut mistakes), &mut namespaces);
    }
    mistakes.into_result(StaticNamespaces::new(namespaces))
}

fn collect_namespaces(node: &Node<'_>, namespaces: &mut Vec<(String, Labels)>) {
    match node.json().get("kind").and_then(|kind| kind.as_str()) {
        None => namespaces.extend(read_namespace_map(node).unwrap_or_default()),
        Some("Namespace") => namespaces.extend(read_namespace(node)),
        Some("List" | "NamespaceList") => {
            let items = node.object().and_then(|fields| {
                fields
                    .ignoring_others()
                    .get_required("items", "list Namespaces", Node::list)
            });
            for item in items.unwrap_or_default() {
                collect_namespaces(&item, namespaces);
            }
        }
        Some(kind) => {
            let fix = "write Namespaces, a List of them, or `name: { label: value }`";
            node.add_mistake(format!("{kind:?} is not a Namespace"), fix);
        }
    }
}

pub(crate) fn read_namespace_map(node: &Node<'_>) -> Option<Vec<(String, Labels)>> {
    let entries = node.map()?.into_iter();
    entries
        .map(|(name, node)| Some((name.to_owned(), node.string_map()?)))
        .collect()
}

fn read_namespace(node: &Node<'_>) -> Option<(String, Labels)> {
    let fix = "name the namespace";
    let mut fields = node.object()?.ignoring_others();
    let mut metadata = fields.get_required("metadata", fix, Node::object)?.ignoring_others();
    let name = metadata.get_required("name", fix, readers::text)?;
    Some((name, metadata.get_or_default("labels", Node::string_map)))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn write_namespaces(text: &str) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("namespaces.yaml");
        std::fs::write(&path, text).unwrap();
        (directory, path)
    }

    #[tokio::test]
    async fn namespace_labels_are_read_from_all_three_formats() {
        for text in [
            "prod: { team: a }\ntest: {}\n",
            "apiVersion: v1\nkind: Namespace\nmetadata: { name: prod, uid: x, labels: { team: a } }\n---\n\
             kind: Namespace\nmetadata: { name: test }\n",
            "apiVersion: v1\nkind: List\nmetadata: { resourceVersion: \"\" }\nitems:\n\
             - { kind: Namespace, metadata: { name: prod, labels: { team: a } }, status: { phase: Active } }\n",
        ] {
            let (_directory, path) = write_namespaces(text);
            let namespaces = FileNamespaces::read(&path).unwrap();
            let labels = namespaces.labels("prod").await.unwrap();
            assert_eq!(labels.get("team").map(String::as_str), Some("a"), "{text}");
            assert_eq!(namespaces.labels("test").await.unwrap().len(), 1, "{text}");
        }
    }

    #[test]
    fn an_invalid_namespaces_file_is_reported() {
        for (text, expected) in [
            ("prod: a\n", "prod: a string where an object is expected"),
            ("prod: { team: 1 }\n", "prod.team: a number where a string is expected"),
            ("kind: Pod\nmetadata: { name: a }\n", "\"Pod\" is not a Namespace"),
            ("kind: Namespace\nmetadata: {}\n", "metadata.name: missing"),
            ("kind: List\n", "items: missing"),
        ] {
            let (_directory, path) = write_namespaces(text);
            let mistakes = FileNamespaces::read(&path).unwrap_err().to_string();
            assert!(mistakes.contains(expected), "{text}: {mistakes}");
        }
    }

    #[tokio::test]
    async fn a_changed_namespaces_file_is_reloaded_unless_it_is_invalid() {
        let (_directory, path) = write_namespaces("prod: { team: a }\n");
        let namespaces = FileNamespaces::read(&path).unwrap();
        let follow = tokio::spawn(namespaces.clone().follow());
        let team = async |team: &str| {
            loop {
                let labels = namespaces.labels("prod").await.unwrap();
                if labels.get("team").map(String::as_str) == Some(team) {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        let patience = std::time::Duration::from_secs(60);
        std::fs::write(&path, "prod: [\n").unwrap();
        std::fs::write(&path, "prod: { team: b }\n").unwrap();
        tokio::time::timeout(patience, team("b")).await.unwrap();
        assert!(!follow.is_finished());
        follow.abort();
    }
}
