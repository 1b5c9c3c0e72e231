use std::{fmt, net::SocketAddr};

use admittance_admission::keywords;
use admittance_net::{listener::is_loopback, tls::ServerTls};

use crate::{access::AccessDenied, token::AdminToken};

/// The configuration of the admin port.
#[derive(Clone, Debug)]
pub struct AdminConfig {
    address: SocketAddr,
    tls: Option<AdminTls>,
    tokens: Vec<AdminToken>,
}

#[derive(Clone, Debug)]
pub struct AdminTls {
    /// The TLS settings of the port. They must request client certificates if [`clients`](Self::clients) is not empty.
    pub server: ServerTls,
    /// The clients that authenticate with a certificate. If a certificate matches several of them, the first is used.
    pub clients: Vec<CertificateHolder>,
}

/// A client that authenticates with a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateHolder {
    /// The name in the client's certificate: its common name, or a DNS name or URI among its alternative names.
    pub name: String,
    pub role: AdminRole,
}

/// The permissions of a client of the admin port. [`Admin`](Self::Admin) includes [`Read`](Self::Read).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdminRole {
    /// The client may read status, definitions and history.
    Read,
    /// The client may read everything, change the live table of chains, and record requests.
    Admin,
}

keywords!(AdminRole, "role": Read = "Read", Admin = "Admin");

/// The error for tokens on an address that is not on loopback and has no TLS, because they would be sent unencrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tokens would be sent over the network in the clear, to {0}")]
pub struct TokensInTheClear(pub SocketAddr);

impl AdminConfig {
    /// Returns a configuration without authentication, with which the API is served only if the address is on loopback.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            tls: None,
            tokens: Vec::new(),
        }
    }

    pub fn with_tls(mut self, tls: AdminTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets the tokens of clients. If the address is not on loopback, [TLS](Self::with_tls) must be set first.
    pub fn with_tokens(mut self, tokens: Vec<AdminToken>) -> Result<Self, TokensInTheClear> {
        self.tokens = tokens;
        self.check()
    }

    pub fn with_address(mut self, address: SocketAddr) -> Result<Self, TokensInTheClear> {
        self.address = address;
        self.check()
    }

    fn check(self) -> Result<Self, TokensInTheClear> {
        if self.tls.is_none() && !self.tokens.is_empty() && !is_loopback(self.address) {
            return Err(TokensInTheClear(self.address));
        }
        Ok(self)
    }

    /// Returns the reason why the API and the console refuse every client: the address is public, and no authentication
    /// is configured. Returns `None` if clients are not refused in this way.
    pub fn refusal(&self) -> Option<impl fmt::Display + use<>> {
        let has_clients = self.tls.as_ref().is_some_and(|tls| !tls.clients.is_empty());
        let is_closed = self.tokens.is_empty() && !has_clients && !is_loopback(self.address);
        is_closed.then_some(AccessDenied::Closed)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the TLS settings; `None` for plain HTTP.
    pub fn tls(&self) -> Option<&AdminTls> {
        self.tls.as_ref()
    }

    pub fn tokens(&self) -> &[AdminToken] {
        &self.tokens
    }
}
