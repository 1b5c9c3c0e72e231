//! Names of objects, and paths in a Pod.

use std::{fmt, str::FromStr};

/// The name of a namespace or of a namespaced object: a DNS label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Label(String);

impl FromStr for Label {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_label = !text.is_empty()
            && text.len() <= 63
            && text.chars().all(fits)
            && !text.starts_with('-')
            && !text.ends_with('-');
        if is_label {
            Ok(Self(text.to_owned()))
        } else {
            Err("write 1 to 63 lower-case letters, digits and `-`, with no `-` at either end".to_owned())
        }
    }
}

impl Label {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name of the installation, which is the prefix of the names of all its objects. It is also the name of
/// a Service, so it must begin with a letter, and leave room for suffixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name(Label);

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let label: Label = text.parse()?;
        if text.starts_with(|first: char| first.is_ascii_lowercase()) && text.len() <= Self::LONGEST {
            Ok(Self(label))
        } else {
            Err(format!(
                "begin with a letter, and use at most {} characters",
                Self::LONGEST
            ))
        }
    }
}

impl Name {
    const LONGEST: usize = 40;

    pub(super) fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The Secret with certificate and key.
    pub(super) fn tls(&self) -> String {
        format!("{self}-tls")
    }

    /// The Secret of the admin port.
    pub(super) fn admin(&self) -> String {
        format!("{self}-admin")
    }

    /// The ConfigMap with the configuration.
    pub(super) fn config(&self) -> String {
        format!("{self}-config")
    }

    /// The ConfigMap with the chains.
    pub(super) fn chains(&self) -> String {
        format!("{self}-chains")
    }

    /// The ConfigMap with a module.
    pub(super) fn module(&self, slug: &str) -> String {
        format!("{self}-module-{slug}")
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The directories of a Pod. Each is a separate volume: an update changes all of its files at once, and new
/// files appear without a new Pod. References between them are relative paths, so that the directories may be
/// mounted anywhere.
pub(super) const CONFIG: &str = "/etc/admittance/config";
pub(super) const CHAINS: &str = "/etc/admittance/chains";
pub(super) const MODULES: &str = "/etc/admittance/modules";
pub(super) const TLS: &str = "/etc/admittance/tls";
pub(super) const ADMIN: &str = "/etc/admittance/admin";
/// An emptyDir, which every user may write to. Compiled code is read only from a directory that no other user
/// can write to, so the program creates one in it.
pub(super) const CACHE: &str = "/var/cache/admittance";
/// The same, for the history.
pub(super) const STATE: &str = "/var/lib/admittance";

/// The relative path from one of the directories to another.
pub(super) const CHAINS_FROM_BESIDE: &str = "../chains";
pub(super) const MODULES_FROM_BESIDE: &str = "../modules";
pub(super) const TLS_FROM_BESIDE: &str = "../tls";
pub(super) const ADMIN_FROM_BESIDE: &str = "../admin";

/// The file name of the configuration.
pub(super) const CONFIG_FILE: &str = "admittance.yaml";
/// The file name of client CAs, in the directory of the configuration and in that of the admin port.
pub(super) const CLIENT_CA_FILE: &str = "client-ca.pem";
/// The keys of a Secret of the type `kubernetes.io/tls`.
pub(super) const CERTIFICATE_FILE: &str = "tls.crt";
pub(super) const KEY_FILE: &str = "tls.key";
pub(super) const CA_FILE: &str = "ca.crt";

/// The ports' names.
pub(super) const WEBHOOK_PORT: &str = "webhook";
pub(super) const ADMIN_PORT: &str = "admin";

/// Namespaces with this label are excluded.
pub(super) const IGNORE_LABEL: &str = "admittance.dev/ignore";

/// A file name that is valid as a key of a ConfigMap.
pub(super) fn key(file_name: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    file_name.chars().map(|c| if fits(c) { c } else { '-' }).collect()
}
