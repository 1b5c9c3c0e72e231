//! Determines the address of a driver, and the credentials that are sent to it.

use std::{env, net::IpAddr, path::PathBuf, str::FromStr};

use admittance_net::tls::{self, Identity, TlsError, Trust};
use clap::Args;
use http::HeaderValue;
use url::{Host, Url};

use super::error::RemoteError;
use crate::files;

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct DriverConnection {
    /// The admin port of the driver (`admin.address` in its configuration).
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:9090",
        env = "ADMITTANCE_SERVER"
    )]
    pub(super) server: ServerUrl,
    /// A file with the token that is sent to the driver; the environment variable ADMITTANCE_TOKEN may contain the
    /// token itself.
    #[arg(long, value_name = "FILE", env = "ADMITTANCE_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Trust the CAs in this PEM file, in addition to the CAs of the system.
    #[arg(long, value_name = "FILE", env = "ADMITTANCE_CA")]
    ca: Option<PathBuf>,
    /// Present this client certificate (PEM) to the driver; --key must name its key.
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// The key of --certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
}

/// The URL of a driver's admin port or of a gateway: scheme, host and port, without a path.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{}", _0.as_str().trim_end_matches('/'))]
pub(crate) struct ServerUrl(Url);

impl FromStr for ServerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fix = "write http:// or https://, host and port, http://127.0.0.1:9090";
        let url: Url = text
            .parse()
            .map_err(|error| format!("not a valid URL ({error}); {fix}"))?;
        let is_bare = matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
            && url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none();
        if is_bare { Ok(Self(url)) } else { Err(fix.to_owned()) }
    }
}

impl ServerUrl {
    /// Returns the URL with a path that consists of these segments, each percent-encoded.
    pub(super) fn url<'a>(&self, segments: impl IntoIterator<Item = &'a str>) -> Url {
        let mut url = self.0.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.clear().extend(segments);
        }
        url
    }

    pub(super) fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// Returns an error if a token for this server would be sent over the network without TLS.
    pub(crate) fn check_may_get_token(&self) -> Result<(), RemoteError> {
        if self.is_tls() || self.is_loopback() {
            return Ok(());
        }
        Err(RemoteError::TokenInTheClear(self.to_string()))
    }

    pub(super) fn is_loopback(&self) -> bool {
        match self.0.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => IpAddr::V6(address).to_canonical().is_loopback(),
            None => false,
        }
    }
}

/// The value of the header that contains the token. It is never printed, because the token is secret.
#[derive(Clone, derive_more::Debug)]
#[debug("TokenHeader(...)")]
pub(super) struct TokenHeader(pub(super) HeaderValue);

impl TokenHeader {
    fn parse(text: &str, origin: &str) -> Result<Self, RemoteError> {
        let token = text.trim();
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok();
        if let Some(value) = &mut value {
            value.set_sensitive(true);
        }
        value
            .filter(|_| !token.is_empty() && !token.contains(char::is_whitespace))
            .map(Self)
            .ok_or_else(|| RemoteError::NoToken(origin.to_owned()))
    }
}

impl DriverConnection {
    pub(super) fn read_token(&self) -> Result<Option<TokenHeader>, RemoteError> {
        let token = match &self.token_file {
            Some(path) => {
                let text = files::read(path).map_err(RemoteError::File)?;
                Some(TokenHeader::parse(&text, &path.display().to_string())?)
            }
            None => match env::var("ADMITTANCE_TOKEN") {
                Ok(text) => Some(TokenHeader::parse(&text, "ADMITTANCE_TOKEN")?),
                Err(env::VarError::NotPresent) => None,
                Err(env::VarError::NotUnicode(_)) => {
                    return Err(RemoteError::NoToken("ADMITTANCE_TOKEN".to_owned()));
                }
            },
        };
        if token.is_some() {
            self.server.check_may_get_token()?;
        }
        Ok(token)
    }

    pub(super) fn tls_config(&self) -> Result<rustls::ClientConfig, TlsError> {
        let files = self.certificate.as_ref().zip(self.key.as_ref());
        let identity = files.map(|(certificate, key)| Identity {
            certificate: certificate.clone(),
            key: key.clone(),
        });
        tls::client_config(Trust::SystemAnd(self.ca.as_deref()), identity.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct RemoteCommand {
        #[command(flatten)]
        connection: DriverConnection,
    }

    fn parse_connection(line: &str) -> DriverConnection {
        RemoteCommand::try_parse_from(["admittance"].into_iter().chain(line.split_whitespace()))
            .unwrap()
            .connection
    }

    #[test]
    fn a_server_url_must_have_no_path() {
        for (text, is_tls, is_loopback) in [
            ("http://127.0.0.1:9090", false, true),
            ("http://localhost:9090/", false, true),
            ("http://[::1]:9090", false, true),
            ("https://driver.example.com", true, false),
            ("http://10.0.0.1:9090", false, false),
        ] {
            let server: ServerUrl = text.parse().unwrap();
            assert_eq!(server.to_string(), text.trim_end_matches('/'));
            assert_eq!((server.is_tls(), server.is_loopback()), (is_tls, is_loopback), "{text}");
        }
        for text in [
            "127.0.0.1:9090",
            "localhost:9090",
            "ftp://a",
            "http://a/v1",
            "http://user@a",
            "http://a?b",
            "",
        ] {
            let error = text.parse::<ServerUrl>().unwrap_err();
            assert!(error.contains("http://127.0.0.1:9090"), "{text}: {error}");
        }
    }

    #[test]
    fn segments_of_url_paths_are_encoded() {
        let server: ServerUrl = "http://127.0.0.1:9090".parse().unwrap();
        let url = server.url(["v1", "definitions", "AdmissionChain", "a b/../c?d"]);
        assert_eq!(
            url.as_str(),
            "http://127.0.0.1:9090/v1/definitions/AdmissionChain/a%20b%2F..%2Fc%3Fd"
        );
    }

    #[test]
    fn invalid_arguments_of_driver_connections_are_refused() {
        crate::assert_acceptance(&[
            ("status", true),
            ("status --server https://driver:9090 --ca ca.pem", true),
            ("status --server driver:9090", false),
            ("status --certificate a.pem", false),
            ("status --key a.key", false),
            ("status --certificate a.pem --key a.key", true),
        ]);
    }

    #[test]
    fn a_token_is_not_sent_over_the_network_without_tls() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "secret\n").unwrap();
        let file = format!("--token-file {}", path.display());
        for (server, is_sent) in [
            ("http://127.0.0.1:9090", true),
            ("https://driver.example.com:9090", true),
            ("http://driver.example.com:9090", false),
        ] {
            let outcome = parse_connection(&format!("{file} --server {server}")).read_token();
            match outcome {
                Ok(Some(token)) => {
                    assert!(is_sent, "{server}");
                    assert_eq!(token.0, "Bearer secret");
                    assert!(!format!("{token:?}").contains("secret"));
                }
                Ok(None) => panic!("{server}: no token"),
                Err(error) => {
                    assert!(!is_sent && error.to_string().contains("https"), "{server}: {error}");
                }
            }
        }
        for text in ["", "\n", "two words", "two\nlines", "\u{1}"] {
            fs::write(&path, text).unwrap();
            let error = parse_connection(&file).read_token().unwrap_err();
            assert!(error.to_string().contains("token"), "{text:?}: {error}");
        }
    }

    #[test]
    fn an_error_names_the_file_that_contains_no_pem() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        for text in [None, Some("text")] {
            if let Some(text) = text {
                fs::write(&path, text).unwrap();
            }
            let error = parse_connection(&format!("--ca {}", path.display()))
                .tls_config()
                .unwrap_err();
            assert!(error.to_string().contains("ca.pem"), "{error}");
        }
    }
}
