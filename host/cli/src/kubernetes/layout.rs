//! Names the paths and ports in a Pod.

/// The directories of a Pod. Each is a separate volume: an update changes all of its files at once, and new
/// files appear without a new Pod. References between them are relative paths, so that the directories may be
/// mounted anywhere.
pub(super) const CONFIG: &str = "/etc/admittance/config";
pub(super) const CHAINS: &str = "/etc/admittance/chains";
pub(super) const MODULES: &str = "/etc/admittance/modules";
pub(super) const TLS: &str = "/etc/admittance/tls";
pub(super) const ADMIN: &str = "/etc/admittance/admin";
/// An emptyDir, which every user may write to, or the volume of a claim, which the group may. Compiled code is read
/// only from a directory that no other user can write to, so the program creates one in it.
pub(super) const CACHE: &str = "/var/cache/admittance";
/// The directory of the history, with the same permissions.
pub(super) const STATE: &str = "/var/lib/admittance";

/// The directories above, relative to one another.
pub(super) const RELATIVE_CHAINS: &str = "../chains";
pub(super) const RELATIVE_MODULES: &str = "../modules";
pub(super) const RELATIVE_TLS: &str = "../tls";
pub(super) const RELATIVE_ADMIN: &str = "../admin";

/// The kubeconfig of a static Pod, which has no service account.
pub(super) const RELATIVE_KUBECONFIG: &str = "../cluster/kubeconfig";

/// The file name of the configuration.
pub(super) const CONFIG_FILE: &str = "admittance.yaml";
/// The file name of client CAs, in the directories of the configuration and of the admin port.
pub(super) const CLIENT_CA_FILE: &str = "client-ca.pem";
/// The keys of a Secret of the type `kubernetes.io/tls`.
pub(super) const CERTIFICATE_FILE: &str = "tls.crt";
pub(super) const KEY_FILE: &str = "tls.key";
pub(super) const CA_FILE: &str = "ca.crt";

/// The names of the ports.
pub(super) const WEBHOOK_PORT: &str = "webhook";
pub(super) const ADMIN_PORT: &str = "admin";
