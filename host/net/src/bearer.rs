//! Bearer tokens in headers and files, and digests of tokens that are compared in constant time.

use std::{path::Path, str::FromStr};

use admittance_watch::file::{SecretError, read_secret_to_string};
use http::HeaderValue;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// The SHA-256 digest of a token. As text, it has 64 hexadecimal digits.
#[derive(Clone, Copy, Debug)]
pub struct TokenDigest([u8; 32]);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is not a valid SHA-256 digest: write 64 hexadecimal digits, as `printf %s \"$TOKEN\" | sha256sum` prints"
)]
pub struct InvalidTokenDigest;

impl TokenDigest {
    pub fn of_token(token: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(token).into())
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns whether two digests are equal. The comparison takes the same time for all digests.
    pub fn equals(&self, other: &Self) -> Choice {
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

/// Returns the token in the value of an `Authorization` header (RFC 6750, section 2.1), ignoring the case of `Bearer`.
pub fn bearer_token(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// Reads a secret of at most `most` bytes from a file that is not world-readable. Returns the secret as the value of a
/// header, after `scheme`, such as `Bearer `.
///
/// # Errors
///
/// Returns the mistake in the file as a sentence.
pub fn read_header(file: &Path, most: usize, scheme: &str) -> Result<HeaderValue, String> {
    let text = read_secret_to_string(file, most as u64 + 1).map_err(|error| match error {
        SecretError::Unreadable(error) => error.to_string(),
        SecretError::WorldReadable => "every user may read it; `chmod o-r` it".to_owned(),
    })?;
    if text.len() > most {
        return Err(format!("it has more than {most} bytes"));
    }
    if text.trim().is_empty() {
        return Err("it is empty".to_owned());
    }
    let mut value = HeaderValue::try_from(format!("{scheme}{}", text.trim()))
        .map_err(|_| "it is not one line that a header can hold".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn bearer_tokens_are_read_from_headers() {
        for (value, expected) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Bearer ", Some("")),
            ("Bearer", None),
            ("Basic YWJjOg==", None),
            ("abc", None),
        ] {
            let found = bearer_token(value.as_bytes());
            assert_eq!(found, expected.map(str::as_bytes), "{value:?}");
        }
    }

    #[test]
    fn a_header_is_read_from_a_private_file_of_one_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        for (text, mode, expected) in [
            ("abc\n", 0o600, Ok("Bearer abc")),
            ("abc", 0o604, Err("every user may read it; `chmod o-r` it")),
            (" \n", 0o600, Err("it is empty")),
            ("a\nb", 0o600, Err("it is not one line that a header can hold")),
            ("123456789", 0o600, Err("it has more than 8 bytes")),
        ] {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let value = read_header(&path, 8, "Bearer ");
            let found = value.as_ref().map(|value| value.to_str().unwrap());
            assert_eq!(found.map_err(String::as_str), expected);
            assert!(value.is_ok_and(|value| value.is_sensitive()) == expected.is_ok());
        }
    }
}
