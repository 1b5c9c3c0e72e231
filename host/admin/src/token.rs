//! Reads the tokens with which clients authenticate, and reloads files with tokens.

use std::path::{Path, PathBuf};

use admittance_net::bearer::TokenDigest;
use admittance_watch::{
    FileValue,
    file::{self, SecretError},
};
use futures_util::future::join_all;
use subtle::Choice;

use crate::config::AdminRole;

/// A token of a client, with its role. Cheap to clone; clones share the token file. Lives as long as the admin port.
#[derive(Clone, Debug)]
pub struct AdminToken {
    /// The name by which the log refers to the holder of the token.
    pub name: String,
    pub role: AdminRole,
    pub source: TokenSource,
}

#[derive(Clone, Debug)]
pub enum TokenSource {
    Digest(TokenDigest),
    File(TokenFile),
}

/// The reason why a token file does not contain a usable token.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    #[error("{0}")]
    Unreadable(String),
    #[error(
        "{path}: not a valid token: write one of {shortest} to {longest} letters, digits and signs, with no \
         spaces between them, as `openssl rand -hex 32` prints",
        path = path.display(), shortest = MIN_LENGTH, longest = MAX_LENGTH,
    )]
    NoToken { path: PathBuf },
}

/// The minimum length of a token in a file, as a shorter token could be guessed.
const MIN_LENGTH: usize = 16;
/// The maximum length of a token, so that it fits into a header.
const MAX_LENGTH: usize = 1024;

/// A token that is read from a file, and read again when the file changes. Clones share the token.
///
/// While the file is invalid or missing, no token is accepted.
#[derive(Clone, Debug)]
pub struct TokenFile(FileValue<Option<TokenDigest>>);

impl TokenFile {
    /// Reads the file. Whitespace around the token is ignored.
    pub fn read(path: &Path) -> Result<Self, TokenFileError> {
        // A file must be valid when the program starts. If the file becomes invalid later, only its token is refused.
        read(path)?;
        let owned = path.to_owned();
        let load = move || {
            let token = read(&owned).inspect_err(|error| {
                tracing::error!("a token file is invalid, so its token is refused: {error}");
            });
            Ok(token.ok())
        };
        FileValue::load([path.to_owned()], load).map(Self)
    }
}

fn read(path: &Path) -> Result<TokenDigest, TokenFileError> {
    // The token may be surrounded by whitespace, so the file may be longer than a token.
    let max_length = 2 * u64::try_from(MAX_LENGTH).unwrap_or(u64::MAX);
    let unreadable = |error: SecretError| TokenFileError::Unreadable(error.describe(path, "the token file"));
    let bytes = file::read_secret(path, max_length).map_err(unreadable)?;
    let token = bytes.trim_ascii();
    let is_token = (MIN_LENGTH..=MAX_LENGTH).contains(&token.len()) && token.iter().all(u8::is_ascii_graphic);
    if !is_token {
        return Err(TokenFileError::NoToken { path: path.to_owned() });
    }
    Ok(TokenDigest::of_token(token))
}

/// Returns the token with this digest. The digest is compared with the digest of every token, and each comparison takes
/// the same time, so that the duration tells a client nothing about the tokens.
pub(crate) fn find_token<'t>(tokens: &'t [AdminToken], presented: &TokenDigest) -> Option<&'t AdminToken> {
    let mut matching_token = None;
    for token in tokens {
        let is_match = match &token.source {
            TokenSource::Digest(digest) => digest.equals(presented),
            TokenSource::File(TokenFile(file)) => match &*file.current() {
                Some(digest) => digest.equals(presented),
                None => Choice::from(0),
            },
        };
        if is_match.into() {
            matching_token = matching_token.or(Some(token));
        }
    }
    matching_token
}

pub(crate) async fn follow(tokens: &[AdminToken]) {
    let files = tokens.iter().filter_map(|token| match &token.source {
        TokenSource::File(TokenFile(file)) => Some(file.follow(|loaded| {
            if let Ok(Some(_)) = loaded {
                tracing::info!(token = token.name, "reloaded a changed token");
            }
        })),
        TokenSource::Digest(_) => None,
    });
    join_all(files).await;
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use admittance_net::bearer::InvalidTokenDigest;

    use super::*;

    fn token(name: &str, source: TokenSource) -> AdminToken {
        AdminToken {
            name: name.to_owned(),
            role: AdminRole::Read,
            source,
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_token_file_must_be_private_and_contain_one_word() {
        use std::{fs::Permissions, os::unix::fs::PermissionsExt};
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let good = "0123456789abcdef";
        let longest = "a".repeat(MAX_LENGTH);
        // (text of the file, mode of the file, the accepted token or a part of the error)
        for (text, mode, expected) in [
            (good.to_owned(), 0o600, Ok(good)),
            (format!(" \n{good}\r\n"), 0o640, Ok(good)),
            (format!("{longest}\n"), 0o400, Ok(longest.as_str())),
            (good.to_owned(), 0o604, Err("the token file is world-readable")),
            (good[1..].to_owned(), 0o600, Err("16 to 1024")),
            (format!("{longest}a"), 0o600, Err("16 to 1024")),
            (format!("{good} {good}"), 0o600, Err("no spaces")),
            (format!("{good}é"), 0o600, Err("not a valid token")),
            (String::new(), 0o600, Err("not a valid token")),
        ] {
            std::fs::write(&path, &text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            match (TokenFile::read(&path), expected) {
                (Ok(file), Ok(expected)) => {
                    let tokens = [token("a", TokenSource::File(file))];
                    assert!(
                        find_token(&tokens, &TokenDigest::of_token(expected)).is_some(),
                        "{text:?}"
                    );
                    assert!(
                        find_token(&tokens, &TokenDigest::of_token("another one of many")).is_none(),
                        "{text:?}"
                    );
                }
                (Err(error), Err(expected)) => {
                    assert!(error.to_string().contains(expected), "{text:?}: {error}");
                }
                (outcome, _) => panic!("{text:?}: {outcome:?}"),
            }
            std::fs::remove_file(&path).unwrap();
        }
        assert!(matches!(TokenFile::read(&path), Err(TokenFileError::Unreadable(_))));
    }

    #[test]
    fn of_two_equal_tokens_the_first_is_used() {
        // The digest is the output of `printf %s 0123456789abcdef | sha256sum`.
        let digest = "9f9f5111f7b27a781f1f1ddde5ebc2dd2b796bfc7365c9c28b548e564176929f";
        let source = || TokenSource::Digest(digest.parse().unwrap());
        let tokens = [
            token("other", TokenSource::Digest(TokenDigest::of_token("other"))),
            token("first", source()),
            token("second", source()),
        ];
        let name = |presented: &str| find_token(&tokens, &TokenDigest::of_token(presented)).map(|token| &*token.name);
        assert_eq!(name("0123456789abcdef"), Some("first"));
        assert_eq!(name("0123456789abcdeF"), None);
        assert_eq!(name(""), None);
        for wrong in ["", "9f", &format!("sha256:{digest}"), &digest.replace('9', "x")] {
            assert_eq!(wrong.parse::<TokenDigest>().unwrap_err(), InvalidTokenDigest);
        }
    }
}
