use std::{io, path::PathBuf, time::Duration};

use docker_credential::{CredentialRetrievalError, DockerCredential};

use super::{Network, registry::is_docker_hub};
use crate::{Error, catalog::on_disk};

/// The timeout of a credential helper, which may ask a keychain but not a person.
const HELPER_TIMEOUT: Duration = Duration::from_secs(30);

/// The name under which `docker login` stores the credentials for Docker Hub.
const DOCKER_HUB_LOGIN: &str = "https://index.docker.io/v1/";

impl Network {
    /// The credentials for a registry in Docker's configuration. Read each time, because helpers return
    /// short-lived credentials.
    pub(super) async fn credential(&self, registry: &str) -> Result<Option<DockerCredential>, Error> {
        let failed = |problem: String| Error::Credentials {
            registry: registry.to_owned(),
            problem,
        };
        let Some(path) = self.docker_config() else {
            return Ok(None);
        };
        let file = match admittance_watch::file::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(format!("{}: {error}", path.display()))),
        };
        let login = if is_docker_hub(registry) {
            DOCKER_HUB_LOGIN
        } else {
            registry
        };
        let login = login.to_owned();
        // A helper is another program, so this blocks.
        let credential =
            on_disk(move || docker_credential::get_credential_from_reader(io::BufReader::new(file), &login));
        let credential = tokio::time::timeout(HELPER_TIMEOUT, credential)
            .await
            .map_err(|_| {
                failed(format!(
                    "the credential helper named in {} does not answer",
                    path.display()
                ))
            })?;
        // Its output is parsed by a crate that may panic.
        let credential = credential.map_err(|error| match error {
            Error::Panicked(message) => failed(format!("reading {} failed: {message}", path.display())),
            error => error,
        })?;
        match credential {
            Ok(credential) => Ok(Some(credential)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(failed(format!(
                "{}: {}; `docker login {registry}` rewrites it",
                path.display(),
                message(error)
            ))),
        }
    }

    fn docker_config(&self) -> Option<PathBuf> {
        let named = self
            .config
            .docker_config
            .clone()
            .or_else(|| std::env::var_os("DOCKER_CONFIG").map(PathBuf::from))
            .or_else(|| std::env::home_dir().map(|home| home.join(".docker")))?;
        Some(if named.is_dir() {
            named.join("config.json")
        } else {
            named
        })
    }
}

/// Whether the error means that there are no credentials for this registry. Helpers report that only by this
/// sentence of Docker's library.
fn is_not_found(error: &CredentialRetrievalError) -> bool {
    match error {
        CredentialRetrievalError::NoCredentialConfigured | CredentialRetrievalError::ConfigNotFound => true,
        CredentialRetrievalError::HelperFailure { stdout, stderr, .. } => [stdout, stderr]
            .iter()
            .any(|output| output.contains("credentials not found")),
        _ => false,
    }
}

/// The error without the helper's standard output, which may contain a secret.
fn message(error: CredentialRetrievalError) -> String {
    match error {
        CredentialRetrievalError::HelperFailure { helper, stderr, .. } => {
            format!("the credential helper {helper} failed: {}", stderr.trim())
        }
        CredentialRetrievalError::HelperCommunicationError => {
            "the credential helper that it names cannot be started; check that it is installed and in PATH"
                .to_owned()
        }
        CredentialRetrievalError::ConfigReadError => {
            "it is not a valid Docker configuration (config.json)".to_owned()
        }
        error => error.to_string(),
    }
}
