//! Prints and writes objects.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use admittance_definitions::document::to_yaml;
use serde_json::Value as Json;

use super::Error;

/// An object with a comment.
#[derive(Debug)]
pub(super) struct Manifest {
    pub(super) comment: &'static str,
    pub(super) object: Json,
}

impl Manifest {
    pub(super) fn new(comment: &'static str, object: Json) -> Self {
        Self { comment, object }
    }

    fn kind(&self) -> &str {
        self.object.get("kind").and_then(Json::as_str).unwrap_or_default()
    }

    /// Whether the object is too large for the annotation of `kubectl apply`, by the limit of Kubernetes.
    pub(super) fn is_too_large_for_annotation(&self) -> bool {
        const LARGEST_ANNOTATIONS: usize = 256 * 1024;
        // Some room for the annotation's key, and for other annotations.
        self.object.to_string().len() > LARGEST_ANNOTATIONS - 1024
    }

    fn text(&self) -> String {
        let document = to_yaml(&self.object);
        // A comment above the document separator does not belong to the previous document.
        if self.comment.is_empty() {
            document
        } else {
            format!("# {}\n{document}", self.comment)
        }
    }
}

/// Prints all of them to standard output.
pub(super) fn print(manifests: &[Manifest]) -> Result<(), Error> {
    let text: String = manifests.iter().map(Manifest::text).collect();
    let written = io::stdout().lock().write_all(text.as_bytes());
    written.map_err(Error::Output)
}

/// Writes a file for each kind, named so that `kubectl apply -f DIRECTORY` applies them in order.
pub(super) fn write(directory: &Path, manifests: &[Manifest]) -> Result<(), Error> {
    let at = |path: &Path| {
        let path = path.to_owned();
        |source| Error::File { path, source }
    };
    fs::create_dir_all(directory).map_err(at(directory))?;
    for (index, kind) in KINDS.iter().enumerate() {
        let of_kind = manifests.iter().filter(|manifest| manifest.kind() == *kind);
        let text: String = of_kind.map(Manifest::text).collect();
        let path = directory.join(format!("{index:02}-{}.yaml", kind.to_ascii_lowercase()));
        if text.is_empty() {
            // A file of an earlier run would be applied with the others.
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&path)(error)),
                _ => continue,
            }
        }
        replace(directory, &path, &text, *kind == SECRET).map_err(at(&path))?;
    }
    Ok(())
}

const SECRET: &str = "Secret";

/// All kinds, in the order of printing.
pub(super) const KINDS: [&str; 12] = [
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    SECRET,
    "ConfigMap",
    "Service",
    "Deployment",
    "PodDisruptionBudget",
    "NetworkPolicy",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

/// Writes a file atomically. A Secret is readable only by its owner.
fn replace(directory: &Path, path: &Path, text: &str, is_secret: bool) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(text.as_bytes())?;
    let mode = if is_secret { 0o600 } else { 0o644 };
    file.as_file().set_permissions(fs::Permissions::from_mode(mode))?;
    file.persist(path).map(drop).map_err(|error| error.error)
}
