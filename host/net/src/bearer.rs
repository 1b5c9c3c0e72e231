//! Bearer tokens: as a header carries them, and as digests that are compared in constant time.

use std::str::FromStr;

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// The SHA-256 digest of a token. As text: 64 hexadecimal digits.
#[derive(Clone, Copy, Debug)]
pub struct TokenDigest([u8; 32]);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is not a valid SHA-256 digest: write 64 hexadecimal digits, as `printf %s \"$TOKEN\" | sha256sum` prints"
)]
pub struct InvalidTokenDigest;

impl TokenDigest {
    pub fn of(token: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(token).into())
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Takes the same time whatever is in them.
    pub fn is(&self, other: &Self) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

impl FromStr for TokenDigest {
    type Err = InvalidTokenDigest;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| InvalidTokenDigest)?;
        Ok(Self(bytes))
    }
}

/// The token in the value of an `Authorization` header. RFC 6750, section 2.1; the scheme's case does not matter.
pub fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bearers() {
        for (value, expected) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Bearer ", Some("")),
            ("Bearer", None),
            ("Basic YWJjOg==", None),
            ("abc", None),
        ] {
            let found = bearer(value.as_bytes());
            assert_eq!(found, expected.map(str::as_bytes), "{value:?}");
        }
    }
}
