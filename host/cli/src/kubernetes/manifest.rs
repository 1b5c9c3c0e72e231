//! Prints the objects of an installation, or writes them to files.

use std::{fs, io, path::Path};

use admittance_definitions::document::{Mistakes, to_json, to_yaml};
use serde_json::Value as Json;

use crate::{
    files::{self, PUBLIC_MODE, SECRET_MODE},
    output,
};

#[derive(Debug)]
pub(super) struct CommentedManifest {
    comment: String,
    pub(super) object: Json,
}

impl From<Json> for CommentedManifest {
    fn from(object: Json) -> Self {
        Self {
            comment: String::new(),
            object,
        }
    }
}

impl CommentedManifest {
    pub(super) fn parse(document: &str) -> Result<Option<Self>, Mistakes> {
        let document = document.trim_start();
        let is_comment = |line: &&str| line.starts_with('#');
        let comment: String = document.split_inclusive('\n').take_while(is_comment).collect();
        if comment.len() == document.len() {
            return Ok(None);
        }
        let object = to_json("chart", document)?;
        Ok(Some(Self { comment, object }))
    }

    pub(super) fn rank(&self) -> Option<usize> {
        KIND_ORDER.iter().position(|kind| *kind == self.kind())
    }

    pub(super) fn kind(&self) -> &str {
        self.object.get("kind").and_then(Json::as_str).unwrap_or_default()
    }

    pub(super) fn is_too_large_for_annotation(&self) -> bool {
        const MAX_ANNOTATIONS_SIZE: usize = 256 * 1024;
        // kubectl writes the whole object into an annotation. Annotations may have 256 KiB together, and 1024 bytes of
        // them are reserved for the key and for other annotations.
        self.object.to_string().len() > MAX_ANNOTATIONS_SIZE - 1024
    }

    pub(super) fn text(&self) -> String {
        self.comment.clone() + &to_yaml(&self.object)
    }
}

pub(super) fn print_manifests(manifests: &[CommentedManifest]) -> crate::Result<()> {
    let text: String = manifests.iter().map(CommentedManifest::text).collect();
    Ok(output::write(&text)?)
}

/// The kinds of all objects of an installation, in the order in which to apply them.
const KIND_ORDER: [&str; 17] = [
    "CustomResourceDefinition",
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "Secret",
    "ConfigMap",
    "Service",
    "Deployment",
    "PodDisruptionBudget",
    "HorizontalPodAutoscaler",
    "NetworkPolicy",
    "ServiceMonitor",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

/// Each file name begins with a number, because `kubectl apply -f DIRECTORY` applies files in order of names.
pub(super) fn write_files(directory: &Path, manifests: &[CommentedManifest]) -> crate::Result<()> {
    fs::create_dir_all(directory).map_err(files::error_at(directory))?;
    for (index, kind) in KIND_ORDER.iter().enumerate() {
        let of_kind = manifests.iter().filter(|manifest| manifest.kind() == *kind);
        let text: String = of_kind.map(CommentedManifest::text).collect();
        let path = directory.join(format!("{index:02}-{}.yaml", kind.to_ascii_lowercase()));
        if text.is_empty() {
            // There are no objects of this kind. If an earlier run has written a file for the kind, the file is
            // removed, because `kubectl apply` on the directory would still apply it.
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(files::error_at(&path)(error).into());
                }
                _ => continue,
            }
        }
        let mode = if *kind == "Secret" { SECRET_MODE } else { PUBLIC_MODE };
        files::replace_file(&path, text.as_bytes(), mode)?;
    }
    Ok(())
}
