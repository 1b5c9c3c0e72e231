//! Files that a configuration names, which are mounted next to it in a Pod.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value as Json;

use super::{Error, layout};

/// Texts by file name. Lives until the ConfigMap is created from it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ConfigFiles(BTreeMap<String, String>);

impl ConfigFiles {
    /// Adds the files of the sections `modules` and `signatures`, and changes their paths in `root` to those
    /// in a Pod.
    ///
    /// # Errors
    ///
    /// When a file cannot be read.
    pub(super) fn of(root: &mut Json, directory: &Path) -> Result<Self, Error> {
        let mut carried = Self::default();
        let mut take = |node: Option<&mut Json>| carried.take(node, directory);
        take(root.pointer_mut("/modules/ca"))?;
        for rule in entries(root.get_mut("signatures")) {
            for key in entries(rule.get_mut("keys")) {
                take(Some(key))?;
            }
            // A trusted_root.json, or its parts as files.
            take(rule.pointer_mut("/keyless/trustRoot"))?;
            for part in ["authorities", "signatureLog", "certificateLog"] {
                take(rule.pointer_mut(&format!("/keyless/trustRoot/{part}")))?;
            }
        }
        Ok(carried)
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// A value that is not a string is ignored.
    fn take(&mut self, node: Option<&mut Json>, directory: &Path) -> Result<(), Error> {
        let Some(Json::String(named)) = node else {
            return Ok(());
        };
        let path: PathBuf = directory.join(&*named);
        let text = fs::read_to_string(&path).map_err(|source| Error::File {
            path: path.clone(),
            source,
        })?;
        let own = layout::key(&path.file_name().unwrap_or_default().to_string_lossy());
        let names = (1_u32..).map(|number| match number {
            1 => own.clone(),
            number => format!("{number}-{own}"),
        });
        // If two directories have files of the same name, the second is renamed.
        let is_free = |name: &String| {
            let is_taken = name == layout::CONFIG_FILE || name == layout::CLIENT_CA_FILE;
            !is_taken && self.0.get(name).is_none_or(|there| *there == text)
        };
        if let Some(name) = names.into_iter().find(is_free) {
            name.clone_into(named);
            self.0.insert(name, text);
        }
        Ok(())
    }
}

fn entries(node: Option<&mut Json>) -> &mut [Json] {
    node.and_then(Json::as_array_mut)
        .map(Vec::as_mut_slice)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_file_is_carried_once() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("other")).unwrap();
        for (name, text) in [
            ("ca.pem", "ca"),
            ("cosign.pub", "key"),
            ("other/cosign.pub", "other key"),
            ("other/admittance.yaml", "odd"),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let mut root = json!({
            "modules": {"ca": "ca.pem", "attempts": 3},
            "signatures": [
                {"source": "a", "keys": ["cosign.pub", "other/cosign.pub"]},
                {"source": "b", "keys": ["./cosign.pub"]},
                {"source": "c", "keyless": {"trustRoot": "other/admittance.yaml"}},
                {"source": "d", "keyless": {"trustRoot": {"authorities": "ca.pem", "signatureLog": "cosign.pub"}}},
                {"source": "e", "accept": "Unsigned"},
            ],
        });
        let carried = ConfigFiles::of(&mut root, folder.path()).unwrap();
        assert_eq!(
            root,
            json!({
                "modules": {"ca": "ca.pem", "attempts": 3},
                "signatures": [
                    {"source": "a", "keys": ["cosign.pub", "2-cosign.pub"]},
                    {"source": "b", "keys": ["cosign.pub"]},
                    {"source": "c", "keyless": {"trustRoot": "2-admittance.yaml"}},
                    {"source": "d", "keyless": {"trustRoot": {"authorities": "ca.pem", "signatureLog": "cosign.pub"}}},
                    {"source": "e", "accept": "Unsigned"},
                ],
            })
        );
        let files: Vec<_> = carried.files().collect();
        assert_eq!(
            files,
            [
                ("2-admittance.yaml", "odd"),
                ("2-cosign.pub", "other key"),
                ("ca.pem", "ca"),
                ("cosign.pub", "key"),
            ]
        );
        let mut root = json!({"modules": {"ca": "none.pem"}});
        let error = ConfigFiles::of(&mut root, folder.path()).unwrap_err();
        assert!(error.to_string().contains("none.pem"), "{error}");
    }
}
