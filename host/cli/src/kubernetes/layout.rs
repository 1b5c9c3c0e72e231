//! Defines the paths in a Pod on which its configuration and chains depend.

/// The directory of chains in a Pod. It is a volume of its own, like each directory here. An update replaces all files
/// of a volume at once, and new files appear in it without a new Pod. Paths from one directory to another are relative.
pub(super) const CHAINS: &str = "/etc/admittance/chains";
pub(super) const MODULES: &str = "/etc/admittance/modules";
/// The directory for modules and compiled code in a Pod. Every user can write to it if it is an emptyDir, and the group
/// if it is the volume of a claim. So the program creates a private directory in it, in which no one else can put
/// compiled code.
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
/// The name of the file with the CAs of clients. It may be in the directory of the configuration and in that of the
/// admin port.
pub(super) const CLIENT_CA_FILE: &str = "client-ca.pem";
/// The key under which a Secret of the type `kubernetes.io/tls` contains the certificate.
pub(super) const CERTIFICATE_FILE: &str = "tls.crt";
pub(super) const KEY_FILE: &str = "tls.key";
pub(super) const CA_FILE: &str = "ca.crt";
