//! Defines the paths in a Pod on which its configuration and chains depend.

/// The directory of the definitions in a Pod. It is a volume of its own, because an update of a volume replaces all its
/// files at once.
pub(super) const CHAINS: &str = "/etc/admittance/chains";
pub(super) const MODULES: &str = "/etc/admittance/modules";
/// A volume in a Pod may be writable for every user. The program therefore makes a private directory in it, and keeps
/// the compiled code there.
pub(super) const CACHE: &str = "/var/cache/admittance";
/// The directory of the history, with the same permissions as [`CACHE`].
pub(super) const STATE: &str = "/var/lib/admittance";

/// The path of [`CHAINS`], relative to every other directory of the Pod's files.
pub(super) const RELATIVE_CHAINS: &str = "../chains";
pub(super) const RELATIVE_MODULES: &str = "../modules";
pub(super) const RELATIVE_TLS: &str = "../tls";
pub(super) const RELATIVE_ADMIN: &str = "../admin";

/// The kubeconfig of a static Pod, which cannot have a service account.
pub(super) const RELATIVE_KUBECONFIG: &str = "../cluster/kubeconfig";

pub(super) const CONFIG_FILE: &str = "admittance.yaml";
pub(super) const CLIENT_CA_FILE: &str = "client-ca.pem";
/// The key under which a Secret of the type `kubernetes.io/tls` contains the certificate.
pub(super) const CERTIFICATE_FILE: &str = "tls.crt";
pub(super) const KEY_FILE: &str = "tls.key";
pub(super) const CA_FILE: &str = "ca.crt";
