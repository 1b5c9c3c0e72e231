use std::net::SocketAddr;

use admittance_net::tls::ServerTls;

use crate::admin::token::Token;

/// The operator's port, and who may do what there. Lives until the driver is bound.
#[derive(Clone, Debug)]
pub struct AdminConfig {
    address: SocketAddr,
    tls: Option<AdminTls>,
    tokens: Vec<Token>,
}

/// TLS at the operator's port.
#[derive(Clone, Debug)]
pub struct AdminTls {
    /// The certificate of the port. It must request certificates of clients for [`clients`](Self::clients) to be
    /// known.
    pub server: ServerTls,
    /// Who is known by a certificate. The first that has a name of the certificate counts.
    pub clients: Vec<CertificateHolder>,
}

/// A client that is known by its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateHolder {
    /// The common name of the certificate, or a DNS name or URI among its alternative names.
    pub name: String,
    /// What it may do.
    pub role: Role,
}

/// What somebody may do at the operator's port. The greater one may do what the lesser may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// See what is live and what was.
    Read,
    /// And change it, and see what passes.
    Admin,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 2] = [Self::Read, Self::Admin];

    /// As the configuration writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "Read",
            Self::Admin => "Admin",
        }
    }
}

/// Everybody on the way could read the tokens, and use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tokens would be sent over the network in the clear, to {0}")]
pub struct TokensInTheClear(pub SocketAddr);

impl AdminConfig {
    /// Whoever reaches this address is not asked who they are. The API is only open when it is a loopback
    /// address.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            tls: None,
            tokens: Vec::new(),
        }
    }

    /// With TLS.
    pub fn with_tls(mut self, tls: AdminTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Who has one of these may use the API. Give it [TLS](Self::with_tls) first.
    pub fn with_tokens(mut self, tokens: Vec<Token>) -> Result<Self, TokensInTheClear> {
        self.tokens = tokens;
        self.checked()
    }

    /// The same at another address.
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

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// None: plain HTTP.
    pub fn tls(&self) -> Option<&AdminTls> {
        self.tls.as_ref()
    }

    /// Whose tokens count.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }
}

/// Whether only programs of this machine reach it.
pub(crate) fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}
