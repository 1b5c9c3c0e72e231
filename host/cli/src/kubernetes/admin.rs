//! The admin port of a Pod: its users, and the files with their tokens.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::{Map, Value as Json, json};

use super::{
    Error,
    layout::{ADMIN_FROM_BESIDE, CERTIFICATE_FILE, CLIENT_CA_FILE, KEY_FILE, TLS_FROM_BESIDE},
};

/// The section `admin` of the operator's configuration, for a Pod.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Admin {
    /// The section without the address.
    section: Map<String, Json>,
    /// The files that it names, by their names in the Secret. They include keys and tokens.
    pub(super) files: BTreeMap<String, String>,
}

impl Admin {
    /// From a validated section.
    ///
    /// # Errors
    ///
    /// When a file cannot be read.
    pub(super) fn of(section: Option<&Json>, directory: &Path) -> Result<Self, Error> {
        let Some(Json::Object(section)) = section else {
            return Ok(Self::default());
        };
        let mut section = section.clone();
        section.remove("address");
        let mut files = BTreeMap::new();
        let mut carry = |node: Option<&mut Json>, name: &str| {
            let Some(Json::String(named)) = node else {
                return Ok(());
            };
            let path = directory.join(&*named);
            let text = fs::read_to_string(&path).map_err(|source| Error::File { path, source })?;
            *named = format!("{ADMIN_FROM_BESIDE}/{name}");
            files.insert(name.to_owned(), text);
            Ok::<_, Error>(())
        };
        if let Some(tls) = section.get_mut("tls") {
            carry(tls.get_mut("certificate"), CERTIFICATE_FILE)?;
            carry(tls.get_mut("key"), KEY_FILE)?;
            carry(tls.get_mut("clientCa"), CLIENT_CA_FILE)?;
        }
        let tokens = section.get_mut("tokens").and_then(Json::as_array_mut);
        for (number, token) in (1_u32..).zip(tokens.into_iter().flatten()) {
            carry(token.get_mut("file"), &format!("token-{number}"))?;
        }
        // On the operator's machine they were for loopback; a Pod's port is used over the network.
        if section.contains_key("tokens") && !section.contains_key("tls") {
            let own = json!({
                "certificate": format!("{TLS_FROM_BESIDE}/{CERTIFICATE_FILE}"),
                "key": format!("{TLS_FROM_BESIDE}/{KEY_FILE}"),
            });
            section.insert("tls".to_owned(), own);
        }
        Ok(Self { section, files })
    }

    /// The section with this address.
    pub(super) fn at(&self, address: String) -> Json {
        let mut section = Map::new();
        section.insert("address".to_owned(), address.into());
        section.extend(self.section.clone());
        Json::Object(section)
    }

    pub(super) fn is_https(&self) -> bool {
        self.section.contains_key("tls")
    }

    /// Whether any user may use the API below `/v1`.
    pub(super) fn has_users(&self) -> bool {
        self.section.contains_key("tokens") || self.section.contains_key("clients")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_section_names_is_carried() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.pem", "a.key", "ca.pem", "ci.token"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let token = json!({"name": "ci", "role": "Admin", "file": "ci.token"});
        let digest = json!({"name": "board", "role": "Read", "sha256": "00"});
        let section = json!({
            "address": "127.0.0.1:9000",
            "tls": {"certificate": "a.pem", "key": "a.key", "clientCa": "ca.pem"},
            "clients": [{"name": "alice", "role": "Admin"}],
            "tokens": [digest, token],
        });
        let admin = Admin::of(Some(&section), folder.path()).unwrap();
        assert_eq!(
            admin.at("0.0.0.0:9090".to_owned()),
            json!({
                "address": "0.0.0.0:9090",
                "tls": {
                    "certificate": "../admin/tls.crt", "key": "../admin/tls.key",
                    "clientCa": "../admin/client-ca.pem",
                },
                "clients": [{"name": "alice", "role": "Admin"}],
                "tokens": [digest, {"name": "ci", "role": "Admin", "file": "../admin/token-2"}],
            })
        );
        let files: Vec<_> = admin
            .files
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        assert_eq!(
            files,
            [
                ("client-ca.pem", "ca.pem"),
                ("tls.crt", "a.pem"),
                ("tls.key", "a.key"),
                ("token-2", "ci.token")
            ]
        );
        assert!(admin.is_https() && admin.has_users());

        let admin = Admin::of(
            Some(&json!({"address": "127.0.0.1:1", "tokens": [digest]})),
            folder.path(),
        )
        .unwrap();
        assert!(admin.is_https() && admin.files.is_empty());
        assert_eq!(admin.at(String::new())["tls"]["key"], "../tls/tls.key");
        let admin = Admin::of(None, folder.path()).unwrap();
        assert!(!admin.is_https() && !admin.has_users());
        let missing = json!({"tokens": [{"file": "none.token"}]});
        let error = Admin::of(Some(&missing), folder.path()).unwrap_err();
        assert!(error.to_string().contains("none.token"), "{error}");
    }
}
