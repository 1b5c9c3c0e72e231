//! Defines the paths in a Pod on which its configuration and chains depend.

/// The directory of chains in a Pod. Each directory is a separate volume, so that an update replaces all its files at
/// once, and new files appear without a new Pod. References between directories are relative paths.
pub(super) const CHAINS: &str = "/etc/admittance/chains";
pub(super) const MODULES: &str = "/etc/admittance/modules";
/// The directory for modules and compiled code: an emptyDir that every user can write to, or the volume of a claim that
/// the group can write to. The program creates a private directory in it, so that nobody else writes compiled code.
pub(super) const CACHE: &str = "/var/cache/admittance";
/// The directory of the history, with the same permissions as [`CACHE`].
pub(super) const STATE: &str = "/var/lib/admittance";

/// The path of [`CHAINS`] relative to the other directories.
pub(super) const RELATIVE_CHAINS: &str = "../chains";
pub(super) const RELATIVE_MODULES: &str = "../modules";
pub(super) const RELATIVE_TLS: &str = "../tls";
pub(super) const RELATIVE_ADMIN: &str = "../admin";

/// The kubeconfig of a static Pod, which cannot have a service account.
pub(super) const RELATIVE_KUBECONFIG: &str = "../cluster/kubeconfig";

pub(super) const CONFIG_FILE: &str = "admittance.yaml";
/// The file name of client CAs, both in the directory of the configuration and in the directory of the admin port.
pub(super) const CLIENT_CA_FILE: &str = "client-ca.pem";
/// The key of the certificate in a Secret of the type `kubernetes.io/tls`.
pub(super) const CERTIFICATE_FILE: &str = "tls.crt";
pub(super) const KEY_FILE: &str = "tls.key";
pub(super) const CA_FILE: &str = "ca.crt";
