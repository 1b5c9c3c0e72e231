use std::{
    collections::BTreeMap,
    io::{self, Read as _},
    path::PathBuf,
    time::Duration,
};

use docker_credential::{CredentialRetrievalError, DockerCredential};
use serde::{Deserialize, de::IgnoredAny};

use super::{FetchClient, registry::is_docker_hub};
use crate::{Error, OciReference, catalog::run_on_disk};

/// The timeout of a credential helper. It is long enough for a keychain, but not for a dialogue with a person.
const HELPER_TIMEOUT: Duration = Duration::from_secs(30);

/// The key under which `docker login` stores the credentials for Docker Hub.
const DOCKER_HUB_LOGIN: &str = "https://index.docker.io/v1/";

impl FetchClient {
    /// Reads a repository's credentials from Docker's configuration each time, because helpers return short-lived ones.
    pub(super) async fn find_credential(&self, artifact: &OciReference) -> Result<Option<DockerCredential>, Error> {
        let registry = artifact.registry();
        let credentials_error = |problem: String| Error::Credentials {
            registry: registry.to_owned(),
            problem,
        };
        let Some(path) = self.docker_config_path() else {
            return Ok(None);
        };
        let mut config = Vec::new();
        let outcome = admittance_watch::file::open(&path).and_then(|mut file| file.read_to_end(&mut config));
        match outcome {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(credentials_error(format!("{}: {error}", path.display()))),
        }
        let login = find_login_key(&config, artifact);
        let lookup = run_on_disk(move || docker_credential::get_credential_from_reader(config.as_slice(), &login));
        let result = tokio::time::timeout(HELPER_TIMEOUT, lookup).await.map_err(|_| {
            credentials_error(format!(
                "the credential helper named in {} does not answer",
                path.display()
            ))
        })?;
        let credential = result.map_err(|error| match error {
            Error::Panicked(message) => credentials_error(format!("reading {} failed: {message}", path.display())),
            error => error,
        })?;
        match credential {
            Ok(credential) => Ok(Some(credential)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(credentials_error(format!(
                "{}: {}; `docker login {registry}` rewrites it",
                path.display(),
                error_message(error)
            ))),
        }
    }

    fn docker_config_path(&self) -> Option<PathBuf> {
        let config_path = self
            .config
            .docker_config
            .clone()
            .or_else(|| std::env::var_os("DOCKER_CONFIG").map(PathBuf::from))
            .or_else(|| std::env::home_dir().map(|home| home.join(".docker")))?;
        Some(if config_path.is_dir() {
            config_path.join("config.json")
        } else {
            config_path
        })
    }
}

/// Returns the key in Docker's `config.json` under which the credentials for a repository are stored. podman chooses
/// the key in the same way.
fn find_login_key(config: &[u8], artifact: &OciReference) -> String {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Config {
        auths: Option<BTreeMap<String, IgnoredAny>>,
        cred_helpers: Option<BTreeMap<String, IgnoredAny>>,
    }
    // An invalid configuration counts as empty here, because `docker_credential` reads it next and reports the error.
    let config: Config = serde_json::from_slice(config).unwrap_or_default();
    let registry = artifact.registry();
    let has_key = |keys: &Option<BTreeMap<String, IgnoredAny>>, key: &str| {
        keys.as_ref().is_some_and(|keys| keys.contains_key(key))
    };
    let mut key = if is_docker_hub(registry) {
        format!("docker.io/{}", artifact.repository())
    } else {
        format!("{registry}/{}", artifact.repository())
    };
    while let Some((parent, _)) = key.rsplit_once('/')
        && !has_key(&config.cred_helpers, registry)
    {
        if has_key(&config.auths, &key) {
            return key;
        }
        key = parent.to_owned();
    }
    if is_docker_hub(registry) {
        DOCKER_HUB_LOGIN.to_owned()
    } else {
        registry.to_owned()
    }
}

/// A credential helper reports missing credentials only by a sentence, which comes from Docker's library.
fn is_not_found(error: &CredentialRetrievalError) -> bool {
    match error {
        CredentialRetrievalError::NoCredentialConfigured | CredentialRetrievalError::ConfigNotFound => true,
        CredentialRetrievalError::HelperFailure { stdout, stderr, .. } => [stdout, stderr]
            .iter()
            .any(|output| output.contains("credentials not found")),
        _ => false,
    }
}

/// Describes an error of reading credentials without the output of a credential helper, which may contain a secret.
fn error_message(error: CredentialRetrievalError) -> String {
    match error {
        CredentialRetrievalError::HelperFailure { helper, stderr, .. } => {
            format!("the credential helper {helper} failed: {}", stderr.trim())
        }
        CredentialRetrievalError::HelperCommunicationError => {
            "the credential helper that it names cannot be started; check that it is installed and in PATH".to_owned()
        }
        CredentialRetrievalError::ConfigReadError => "it is not a valid Docker configuration (config.json)".to_owned(),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_repository_prefix_with_credentials_is_used() {
        let config = |keys: &str| format!(r#"{{"auths": {{{keys}}}}}"#);
        for (config, reference, expected) in [
            (config(""), "r.example.com/a/b:1", "r.example.com"),
            (config(r#""r.example.com": {}"#), "r.example.com/a/b:1", "r.example.com"),
            (
                config(r#""r.example.com": {}, "r.example.com/a": {}, "r.example.com/a/b": {}"#),
                "r.example.com/a/b:1",
                "r.example.com/a/b",
            ),
            (
                config(r#""r.example.com": {}, "r.example.com/a": {}"#),
                "r.example.com/a/b/c:1",
                "r.example.com/a",
            ),
            (
                config(r#""r.example.com/a": {}"#),
                "r.example.com/ab:1",
                "r.example.com",
            ),
            (
                config(r#""r.example.com:5000/a": {}"#),
                "r.example.com:5000/a:1",
                "r.example.com:5000/a",
            ),
            (config(r#""docker.io/a": {}"#), "docker.io/a/b:1", "docker.io/a"),
            (config(""), "docker.io/a/b:1", DOCKER_HUB_LOGIN),
            (
                r#"{"auths": {"r.example.com/a": {}}, "credHelpers": {"r.example.com": "x"}}"#.to_owned(),
                "r.example.com/a:1",
                "r.example.com",
            ),
            ("no JSON".to_owned(), "r.example.com/a:1", "r.example.com"),
        ] {
            let reference = reference.parse().unwrap();
            assert_eq!(find_login_key(config.as_bytes(), &reference), expected, "{config}");
        }
    }
}
