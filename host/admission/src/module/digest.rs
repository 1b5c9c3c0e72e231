use std::{
    io::{self, BufRead as _, BufReader},
    str::FromStr,
};

use sha2::{Digest as _, Sha256};

/// A SHA-256 digest. Its text is `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Display, derive_more::Debug)]
#[debug("{}", self)]
#[display("sha256:{}", self.to_hex())]
pub struct Digest([u8; 32]);

/// The error for a text that is not a digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a valid digest: write `sha256:` and 64 hexadecimal digits")]
pub struct InvalidDigest(pub String);

impl Digest {
    /// Computes the digest of these bytes.
    pub fn of_bytes(bytes: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Computes the digest of all bytes of a reader.
    ///
    /// # Errors
    ///
    /// Fails when the reader fails.
    pub fn of_reader(reader: impl io::Read) -> io::Result<Self> {
        let mut reader = BufReader::with_capacity(64 << 10, reader);
        let mut hasher = Sha256::new();
        loop {
            let bytes = reader.fill_buf()?;
            if bytes.is_empty() {
                return Ok(Self(hasher.finalize().into()));
            }
            hasher.update(bytes);
            let chunk_size = bytes.len();
            reader.consume(chunk_size);
        }
    }

    /// Computes one digest of several texts with their lengths: the digests of `["a", "b"]` and `["ab"]` differ.
    pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    /// Returns the 32 bytes of the digest.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the first 12 hexadecimal digits of the digest, for display.
    pub fn to_short_hex(self) -> String {
        let mut digits = self.to_hex();
        digits.truncate(12);
        digits
    }

    /// Returns the digest as 64 hexadecimal digits, without `sha256:`.
    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }
}

impl From<[u8; 32]> for Digest {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        text.strip_prefix("sha256:")
            .and_then(|digits| hex::decode_to_slice(digits, &mut bytes).ok())
            .map(|()| Self(bytes))
            .ok_or_else(|| InvalidDigest(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_round_trips_through_text() {
        // The test vector for "abc" in FIPS 180-2.
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest::of_bytes("abc").to_string(), text);
        assert_eq!(text.parse(), Ok(Digest::of_bytes("abc")));
        for wrong in ["", "sha256:", "sha256:ab", "md5:00", &text[7..], &format!("{text}0")] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn parts_with_equal_concatenations_have_different_digests() {
        let digest_of = |parts: [&[u8]; 2]| Digest::of_parts(parts);
        assert_ne!(digest_of([b"ab", b"c"]), digest_of([b"a", b"bc"]));
    }
}
