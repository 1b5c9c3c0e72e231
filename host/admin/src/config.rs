use std::net::SocketAddr;

use admittance_admission::words;
use admittance_net::{listener::is_loopback, tls::ServerTls};

use crate::token::Token;

/// The configuration of the admin port. Lives until the driver is bound.
#[derive(Clone, Debug)]
pub struct AdminConfig {
    address: SocketAddr,
    tls: Option<AdminTls>,
    tokens: Vec<Token>,
}

#[derive(Clone, Debug)]
pub struct AdminTls {
    /// The certificate of the port. The port must request certificates of clients if there are
    /// [`clients`](Self::clients).
    pub server: ServerTls,
    /// The clients that authenticate with a certificate. The first client with a name in the certificate is used.
    pub clients: Vec<CertificateHolder>,
}

/// A client that authenticates with a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateHolder {
    /// The common name of the certificate, or a DNS name or URI among its alternative names.
    pub name: String,
    pub role: Role,
}

/// The permissions of a client of the admin port. Each role includes the lesser one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The client may read status, definitions and history.
    Read,
    /// The client may also change the live table, and record requests.
    Admin,
}

words!(Role, "role": Read = "Read", Admin = "Admin");

/// The error for tokens that would be sent unencrypted to this address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tokens would be sent over the network in the clear, to {0}")]
pub struct TokensInTheClear(pub SocketAddr);

impl AdminConfig {
    /// Returns a configuration without authentication, with which the API is only available on a loopback address.
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

    /// Sets the tokens of clients, after [TLS](Self::with_tls).
    pub fn with_tokens(mut self, tokens: Vec<Token>) -> Result<Self, TokensInTheClear> {
        self.tokens = tokens;
        self.checked()
    }

    pub fn at(mut self, address: SocketAddr) -> Result<Self, TokensInTheClear> {
        self.address = address;
        self.checked()
    }

    fn checked(self) -> Result<Self, TokensInTheClear> {
        if self.tls.is_none() && !self.tokens.is_empty() && !is_loopback(self.address) {
            return Err(TokensInTheClear(self.address));
        }
        Ok(self)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the certificate; `None` for plain HTTP.
    pub fn tls(&self) -> Option<&AdminTls> {
        self.tls.as_ref()
    }

    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }
}
