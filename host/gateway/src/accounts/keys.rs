//! Encryption of secrets in the database, with AES-256-GCM.

use std::path::{Path, PathBuf};

use admittance_watch::file;
use arc_swap::ArcSwap;
use base64::{Engine, prelude::BASE64_STANDARD};
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    digest,
    rand::{SecureRandom, SystemRandom},
};

use super::types::Secret;

const KEY_LENGTH: usize = 32;
/// The largest size of a key file, in bytes. A file of this size has room for many old keys.
const LONGEST_FILE: u64 = 64 * 1024;

/// The keys in a file, one on each line. The first key encrypts new secrets; the other keys decrypt older secrets.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    keys: ArcSwap<Vec<AccountKey>>,
}

#[derive(derive_more::Debug)]
#[debug("AccountKey {{ name: {name:?}, .. }}")]
struct AccountKey {
    /// The first characters of the key's digest. They are stored with each secret that this key has encrypted, so that
    /// the key is found again for the decryption.
    name: String,
    key: LessSafeKey,
}

impl KeyFile {
    /// Reads the key file, which has to contain at least one key.
    pub fn read(path: &Path) -> Result<Self, String> {
        Ok(Self {
            path: path.to_owned(),
            keys: ArcSwap::from_pointee(read_keys(path)?),
        })
    }

    /// Writes a key file with one new key. Only the current user can read the file.
    pub fn create(path: &Path) -> Result<Self, String> {
        use std::io::Write;

        let write_error = |error: &dyn std::fmt::Display| format!("{} cannot be written: {error}", path.display());
        let mut key = [0; KEY_LENGTH];
        let random = SystemRandom::new();
        random.fill(&mut key).map_err(|error| write_error(&error))?;
        let text = BASE64_STANDARD.encode(key) + "\n";
        file::create_private(path)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            .map_err(|error| write_error(&error))?;
        Self::read(path)
    }

    /// Reads the key file again. If the file is invalid, the previous keys are kept.
    pub(super) fn reload(&self) -> Result<(), String> {
        self.keys.store(read_keys(&self.path)?.into());
        Ok(())
    }

    /// Encrypts a secret. Decryption needs the same `row_name`, so the encrypted secret is useless in another row.
    pub(super) fn seal(&self, secret: &Secret, row_name: &str) -> Result<String, String> {
        let keys = self.keys.load();
        let key = keys.first().ok_or("there is no key")?;
        let mut nonce = [0; NONCE_LEN];
        let random = SystemRandom::new();
        random.fill(&mut nonce).map_err(|_| "there are no random numbers")?;
        let mut sealed = secret.0.clone().into_bytes();
        key.key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(row_name), &mut sealed)
            .map_err(|_| "it cannot be encrypted")?;
        let bytes = [nonce.as_slice(), &sealed].concat();
        Ok(format!("{}:{}", key.name, BASE64_STANDARD.encode(bytes)))
    }

    /// Decrypts a secret. If no known key fits, reads the key file again, because another gateway may use a newer key.
    pub(super) fn reload_and_open(&self, sealed: &str, row_name: &str) -> Result<Secret, String> {
        self.open(sealed, row_name).or_else(|_| {
            self.reload()?;
            self.open(sealed, row_name)
        })
    }

    pub(super) fn reseal(&self, sealed: &str, row_name: &str) -> Result<String, String> {
        self.open(sealed, row_name)
            .and_then(|secret| self.seal(&secret, row_name))
    }

    pub(super) fn open(&self, sealed: &str, row_name: &str) -> Result<Secret, String> {
        let (name, text) = sealed.split_once(':').ok_or("it is not an encrypted value")?;
        let keys = self.keys.load();
        let key = keys.iter().find(|key| key.name == name).ok_or_else(|| {
            let file = self.path.display();
            format!("it is encrypted with the key {name}, which is not in {file}: add that key")
        })?;
        let broken = || "it was changed in the database: restore the row from a backup".to_owned();
        let bytes = BASE64_STANDARD.decode(text).map_err(|_| broken())?;
        let (nonce, rest) = bytes.split_first_chunk::<NONCE_LEN>().ok_or_else(broken)?;
        let mut rest = rest.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let text = key
            .key
            .open_in_place(nonce, Aad::from(row_name), &mut rest)
            .map_err(|_| broken())?;
        String::from_utf8(text.to_vec()).map(Secret).map_err(|_| broken())
    }
}

fn read_keys(path: &Path) -> Result<Vec<AccountKey>, String> {
    let name = path.display();
    let text = file::read_secret_to_string(path, LONGEST_FILE).map_err(|error| error.describe(path, "the key file"))?;
    let mut keys = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() {
            continue;
        }
        keys.push(parse_key(line.trim()).ok_or_else(|| {
            format!("{name}: line {number} is not a key: write 32 bytes in base64, as `openssl rand -base64 32` prints")
        })?);
    }
    if keys.is_empty() {
        return Err(format!(
            "{name}: it contains no key: write one, as `openssl rand -base64 32` prints"
        ));
    }
    Ok(keys)
}

fn parse_key(line: &str) -> Option<AccountKey> {
    let bytes = BASE64_STANDARD.decode(line).ok()?;
    let bytes: [u8; KEY_LENGTH] = bytes.try_into().ok()?;
    let digest = digest::digest(&digest::SHA256, &bytes);
    let name = hex::encode(digest.as_ref().get(..4)?);
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &bytes).ok()?);
    Some(AccountKey { name, key })
}

const ALPHANUMERIC: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// The number of digits and small letters, which are the first characters of `ALPHANUMERIC`. The random parts of IDs
/// consist of these characters only, because they contain no capital letters.
const LOWERCASE_ALPHANUMERIC_COUNT: usize = 36;

pub(super) fn random_token(length: usize) -> Result<Secret, String> {
    random_text(length, ALPHANUMERIC.len()).map(Secret)
}

pub(super) fn random_suffix(length: usize) -> Result<String, String> {
    random_text(length, LOWERCASE_ALPHANUMERIC_COUNT)
}

fn random_text(length: usize, letters: usize) -> Result<String, String> {
    let source = SystemRandom::new();
    let mut text = String::with_capacity(length);
    // A random byte has 256 values. If 256 is not a multiple of `letters`, some characters would be more probable than
    // others. So bytes that are not below `usable` are skipped.
    let usable = 256 / letters * letters;
    while text.len() < length {
        let mut bytes = [0; 64];
        source.fill(&mut bytes).map_err(|_| "there are no random numbers")?;
        let bytes = bytes.map(usize::from);
        let characters = bytes
            .iter()
            .filter(|byte| **byte < usable)
            .filter_map(|byte| ALPHANUMERIC.get(byte % letters));
        text.extend(characters.take(length - text.len()).map(|byte| char::from(*byte)));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    fn secret() -> Secret {
        Secret("a service account's token".to_owned())
    }

    #[test]
    fn an_encrypted_secret_can_be_decrypted_only_for_its_row() {
        let directory = tempfile::tempdir().unwrap();
        let keys = KeyFile::create(&directory.path().join("key")).unwrap();
        let sealed = keys.seal(&secret(), "a").unwrap();
        assert_ne!(sealed, keys.seal(&secret(), "a").unwrap());
        assert_eq!(keys.open(&sealed, "a").unwrap(), secret());
        assert!(keys.open(&sealed, "b").is_err());
        let changed = sealed.replacen(':', ":AAAA", 1);
        assert!(keys.open(&changed, "a").unwrap_err().contains("changed"));
    }

    #[test]
    fn secrets_encrypted_with_an_older_key_can_be_decrypted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let keys = KeyFile::create(&path).unwrap();
        let sealed = keys.seal(&secret(), "a").unwrap();
        let old = fs::read_to_string(&path).unwrap();
        let new = BASE64_STANDARD.encode([7; 32]);
        fs::write(&path, format!("{new}\n{old}")).unwrap();
        keys.reload().unwrap();
        assert_eq!(keys.open(&sealed, "a").unwrap(), secret());
        let renewed = keys.seal(&secret(), "a").unwrap();
        fs::write(&path, new).unwrap();
        keys.reload().unwrap();
        assert_eq!(keys.open(&renewed, "a").unwrap(), secret());
        assert!(keys.open(&sealed, "a").unwrap_err().contains("add that key"));
    }

    #[test]
    fn invalid_key_files_are_refused_with_a_reason() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        for (text, mode, expected) in [
            ("", 0o600, "contains no key"),
            ("short", 0o600, "line 1 is not a key"),
            ("\nAAAA", 0o600, "line 2 is not a key"),
            ("", 0o644, "chmod o-r"),
        ] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = KeyFile::read(&path).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert!(KeyFile::create(&path).is_err(), "it would overwrite a key");
    }

    #[test]
    fn random_text_contains_only_the_allowed_characters() {
        let token = random_token(128).unwrap();
        assert_eq!(token.0.len(), 128);
        assert!(token.0.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        assert_ne!(token, random_token(128).unwrap());
        let suffix = random_suffix(16).unwrap();
        assert!(
            suffix
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        );
    }
}
