use std::{io, path::PathBuf};

use admittance::definitions::{Location, Mistakes};

use super::certificates::CertificateError;

/// Why manifests cannot be printed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Mistakes(#[from] Mistakes),
    #[error(
        "no definition was found in {0}; name files, or directories with *.yaml, *.yml or *.json in them"
    )]
    NoChains(String),
    #[error("{path}: {source}", path = path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("the plugin {path} cannot be read: {source}; build it (`cargo task plugins`), or change the definition", path = path.display())]
    Module { path: PathBuf, source: io::Error },
    #[error("{first} and {second} differ but would both be named {name}; rename one of them", first = first.display(), second = second.display())]
    SameName {
        first: PathBuf,
        second: PathBuf,
        name: String,
    },
    #[error("the plugin {path} has {size} bytes; the limit of a ConfigMap is 1048576; put the plugins into the image, and name their directory there with --modules-in-image", path = path.display())]
    ModuleTooLarge { path: PathBuf, size: usize },
    #[error(
        "the definitions have {size} bytes together; the limit of a ConfigMap is 1048576; split the installation with --name"
    )]
    DocumentsTooLarge { size: usize },
    #[error("{path}: the sources of its plugins cannot be edited in place; write each as `source: file:...` on a line of its own", path = .0.display())]
    NotRewritten(PathBuf),
    #[error("{path}: this is not the configuration of a webhook server; write `dialect: {{ kubernetes: {{}} }}`, without `upstream`", path = .0.display())]
    NoWebhookServer(PathBuf),
    #[error(
        "{location}: the chain {chain} has a rule with only `kinds`, but the API server matches requests by \
         resource; list `resources` in it"
    )]
    KindsOnly { location: Location, chain: String },
    #[error(transparent)]
    Certificates(#[from] CertificateError),
    #[error("the manifests cannot be printed: {0}")]
    Output(io::Error),
}
