//! `admittance kubeconfig`: prints a configuration with which kubectl reaches a cluster through a gateway.

use std::{env, fs, path::PathBuf};

use admittance_definitions::document::to_yaml;
use base64::{Engine, prelude::BASE64_STANDARD};
use clap::Args;
use serde_json::{Value as Json, json};

use crate::{files, output, remote::ServerUrl};

/// Print a kubeconfig for a cluster behind a gateway.
///
/// `admittance clusters` lists the identifiers of clusters. The command sends no request to the gateway.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance kubeconfig plain-dev --gateway https://gateway.example.com --token-file token")]
pub(crate) struct Arguments {
    /// The identifier of the cluster at the gateway.
    #[arg(value_name = "IDENTIFIER", value_parser = identifier)]
    identifier: String,
    /// The URL of the gateway.
    #[arg(long, value_name = "URL", env = "ADMITTANCE_GATEWAY")]
    gateway: ServerUrl,
    /// A file with your token, to which the kubeconfig refers. Without this option, the token is taken from the
    /// environment variable ADMITTANCE_TOKEN and written into the kubeconfig.
    #[arg(long, value_name = "FILE", env = "ADMITTANCE_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// The CAs of the gateway, as PEM [default: the CAs of the system where kubectl runs].
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The name that cluster, user and context get in the kubeconfig [default: the identifier].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> crate::Result<()> {
    Ok(output::write(&to_yaml(&arguments.kubeconfig()?))?)
}

impl Arguments {
    fn kubeconfig(&self) -> crate::Result<Json> {
        if !self.gateway.is_tls() {
            let message = format!(
                "{}: kubectl sends no token without TLS: write the https:// URL of the gateway, which `listen.tls` \
                 configures",
                self.gateway
            );
            return Err(message.into());
        }
        let name = self.name.as_ref().unwrap_or(&self.identifier);
        let server = format!("{}/tunnels/clusters/{}/", self.gateway, self.identifier);
        let mut cluster = json!({"server": server});
        if let (Some(path), Some(cluster)) = (&self.ca, cluster.as_object_mut()) {
            let pem = files::read(path)?;
            admittance_net::tls::certificates_in(pem.as_bytes()).map_err(files::error_at(path))?;
            let data = BASE64_STANDARD.encode(pem);
            cluster.insert("certificate-authority-data".to_owned(), data.into());
        }
        let user = match &self.token_file {
            Some(path) => json!({"tokenFile": fs::canonicalize(path).map_err(files::error_at(path))?}),
            None => json!({"token": env::var("ADMITTANCE_TOKEN").map_err(|_| {
                "no token: write `--token-file FILE`, or set ADMITTANCE_TOKEN"
            })?.trim()}),
        };
        Ok(json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }))
    }
}

fn identifier(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if text.is_empty() || !text.bytes().all(is_plain) {
        return Err("write the identifier as `admittance clusters` prints it".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_in_a_file_is_not_printed() {
        let directory = tempfile::tempdir().unwrap();
        let token_file = directory.path().join("token");
        fs::write(&token_file, "secret\n").unwrap();
        let arguments = Arguments {
            identifier: "plain-dev-x1".to_owned(),
            gateway: "https://gateway.example.com:8443".parse().unwrap(),
            token_file: Some(token_file.clone()),
            ca: None,
            name: Some("dev".to_owned()),
        };
        let text = to_yaml(&arguments.kubeconfig().unwrap());
        for part in [
            "https://gateway.example.com:8443/tunnels/clusters/plain-dev-x1/",
            "current-context: dev",
            token_file.file_name().unwrap().to_str().unwrap(),
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("secret"), "{text}");
        for gateway in ["http://127.0.0.1:8080", "http://gateway.example.com"] {
            let unencrypted = Arguments {
                gateway: gateway.parse().unwrap(),
                token_file: Some(token_file.clone()),
                name: None,
                ca: None,
                identifier: "plain-dev-x1".to_owned(),
            };
            let error = unencrypted.kubeconfig().unwrap_err().to_string();
            assert!(error.contains("kubectl sends no token without TLS"), "{error}");
        }
        let no_ca = Arguments {
            ca: Some(token_file),
            ..arguments
        };
        assert!(no_ca.kubeconfig().unwrap_err().to_string().contains("token"));
    }

    #[test]
    fn a_cluster_identifier_must_not_be_empty_or_contain_a_slash() {
        for (text, is_valid) in [("plain-dev-x1", true), ("", false), ("a/b", false), ("A", true)] {
            assert_eq!(identifier(text).is_ok(), is_valid, "{text}");
        }
    }
}
