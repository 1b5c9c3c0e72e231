use std::{path::PathBuf, sync::Arc};

use http::Uri;
use rustls::{
    ClientConfig,
    pki_types::{DnsName, InvalidDnsNameError, ServerName},
};

use super::{Identity, Live, TlsError};
use crate::api::CertificateStatus;

/// Whom a client trusts, what it shows, and which name servers must prove. Cheap to clone, and clones are the same
/// one; it lives as long as who uses it.
#[derive(Clone, Debug)]
pub struct ClientTls {
    material: Live<ClientConfig>,
    server_name: Option<ServerName<'static>>,
}

impl ClientTls {
    /// A client that trusts `ca`, or else the system's authorities, and shows this certificate. The
    /// system's authorities are read once.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or key and certificate do not belong together.
    pub fn of_files(ca: Option<PathBuf>, identity: Option<Identity>) -> Result<Self, TlsError> {
        Ok(Self {
            material: Live::client_of_files(ca, identity)?,
            server_name: None,
        })
    }

    /// A client to which every server must prove that it is this one, whatever the address that it is reached
    /// at: for servers that are known by addresses which their certificates do not name. Default: the host of
    /// the server's URL.
    ///
    /// # Errors
    ///
    /// When it is no DNS name.
    pub fn of_server(self, name: &str) -> Result<Self, InvalidDnsNameError> {
        let name = DnsName::try_from(name)?.to_owned();
        Ok(Self {
            server_name: Some(ServerName::DnsName(name)),
            ..self
        })
    }

    /// See [`Live::warning`].
    pub(crate) fn warning(&self) -> Option<String> {
        self.material.warning()
    }

    /// For the next connection: what was good last.
    pub fn current(&self) -> Arc<ClientConfig> {
        self.material.current()
    }

    /// The name that the server at this URL must prove.
    pub(crate) fn server_name(&self, server: &Uri) -> Result<ServerName<'static>, NoServerName> {
        if let Some(name) = &self.server_name {
            return Ok(name.clone());
        }
        let host = server.host().unwrap_or_default();
        // An IPv6 address stands in brackets.
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        ServerName::try_from(bare.unwrap_or(host).to_owned()).map_err(|_| NoServerName(host.to_owned()))
    }

    /// How its files are; none when it has none.
    pub(crate) fn status(&self) -> Option<CertificateStatus> {
        self.material.status()
    }

    /// Read the files again whenever they change, until this future is dropped.
    pub(crate) async fn keep_fresh(&self) {
        self.material.keep_fresh().await;
    }
}

/// A host that no certificate can be of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no host that a certificate can name")]
pub(crate) struct NoServerName(String);

impl From<ClientConfig> for ClientTls {
    /// Material that never changes.
    fn from(config: ClientConfig) -> Self {
        Self {
            material: config.into(),
            server_name: None,
        }
    }
}
