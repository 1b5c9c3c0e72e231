//! The secret that gateways share, and proofs of knowing it.

use std::path::Path;

use admittance_watch::{Reloaded, file};
use base64::{Engine, prelude::BASE64_STANDARD};
use ring::hmac::{self, HMAC_SHA256};

use crate::accounts::Secret;

/// The fewest characters of a secret. Fewer can be guessed.
const SHORTEST: usize = 32;
const LONGEST_FILE: u64 = 4096;

/// The secrets in a file, one on each line, which is reloaded when it changes. Proofs are made with the first one, and
/// accepted from all of them. Cheap to clone; lives as long as the gateway.
#[derive(Clone, Debug)]
pub struct PeerSecrets(Reloaded<Vec<PeerSecret>>);

/// A secret, which is never sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PeerSecret(Secret);

/// Who proves that it knows the secret.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    Opens,
    Accepts,
}

/// What a proof is for: one connection, to one gateway.
#[derive(Clone, Copy, Debug)]
pub(super) struct Occasion<'a> {
    /// The ID of the gateway that opens the tunnel.
    pub(super) id: &'a str,
    /// The random key of its WebSocket.
    pub(super) key: &'a str,
    /// The registered URL of the gateway that accepts the tunnel, which therefore cannot use the proof at another one.
    pub(super) server: &'a str,
}

impl PeerSecret {
    fn key(&self) -> hmac::Key {
        hmac::Key::new(HMAC_SHA256, self.0.0.as_bytes())
    }

    pub(super) fn proof(&self, role: Role, occasion: Occasion<'_>) -> String {
        BASE64_STANDARD.encode(hmac::sign(&self.key(), text(role, occasion).as_bytes()))
    }

    pub(super) fn accepts(&self, proof: &str, role: Role, occasion: Occasion<'_>) -> bool {
        let proof = BASE64_STANDARD.decode(proof).unwrap_or_default();
        hmac::verify(&self.key(), text(role, occasion).as_bytes(), &proof).is_ok()
    }
}

fn text(role: Role, Occasion { id, key, server }: Occasion<'_>) -> String {
    let role = match role {
        Role::Opens => "opens",
        Role::Accepts => "accepts",
    };
    format!("{role}\n{id}\n{key}\n{server}")
}

impl PeerSecrets {
    /// Reads a file that has to have a secret.
    ///
    /// # Errors
    ///
    /// When it cannot be read, every user of the machine may read it, or a secret is too short.
    pub fn read(path: &Path) -> Result<Self, String> {
        let path = path.to_owned();
        Reloaded::load([path.clone()], move || read(&path)).map(Self)
    }

    pub(super) fn first(&self) -> Option<PeerSecret> {
        self.0.current().first().cloned()
    }

    /// The secret with which this proof was made.
    pub(super) fn accept(&self, proof: &str, role: Role, occasion: Occasion<'_>) -> Option<PeerSecret> {
        let secrets = self.0.current();
        let known = secrets
            .iter()
            .find(|secret| secret.accepts(proof, role, occasion));
        known.cloned()
    }

    /// Waits until a secret is no longer in the file.
    pub(super) async fn until_removed(&self, secret: &PeerSecret) {
        let mut changes = self.0.subscribe();
        if changes
            .wait_for(|secrets| !secrets.contains(secret))
            .await
            .is_err()
        {
            // The sender lives as long as `self`.
            std::future::pending().await
        }
    }

    /// Why the current content of the file is not in use.
    pub(super) fn problem(&self) -> Option<String> {
        self.0.problem()
    }

    /// Reloads the file when it changes. Never returns.
    pub(super) async fn follow(&self) {
        let report = |loaded: Result<&Vec<PeerSecret>, &str>| match loaded {
            Ok(_) => tracing::info!("the changed secret of gateways is in use"),
            Err(why) => tracing::error!(
                "the changed secret of gateways is invalid, so the previous one stays in use: {why}"
            ),
        };
        self.0.follow(report).await;
    }
}

fn read(path: &Path) -> Result<Vec<PeerSecret>, String> {
    let name = path.display();
    let text = file::read_secret_to_string(path, LONGEST_FILE)
        .map_err(|error| error.describe(path, "the secret"))?;
    let secrets: Vec<_> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(|line| PeerSecret(Secret(line.to_owned())))
        .collect();
    if secrets.is_empty() || secrets.iter().any(|secret| secret.0.0.len() < SHORTEST) {
        return Err(format!(
            "{name}: a secret has at least {SHORTEST} characters: write one with `openssl rand -base64 32`"
        ));
    }
    Ok(secrets)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn proofs_are_for_one_occasion() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let write = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            PeerSecrets::read(&path)
        };
        let (old, new) = ("o".repeat(32), "n".repeat(32));
        for (text, mode, expected) in [
            (format!("{old}\n"), 0o644, "world-readable"),
            (format!("{old}\nshort\n"), 0o600, "at least 32"),
            ("\n".to_owned(), 0o600, "at least 32"),
        ] {
            let error = write(&text, mode).unwrap_err();
            assert!(error.contains(expected) && !error.contains(&old), "{error}");
        }
        let before = write(&format!("{old}\n"), 0o600).unwrap();
        let both = write(&format!("{new}\n{old}\n"), 0o600).unwrap();
        let occasion = Occasion {
            id: "a",
            key: "k",
            server: "https://10.0.0.1:8443",
        };
        let proof = before.first().unwrap().proof(Role::Opens, occasion);
        assert!(both.accept(&proof, Role::Opens, occasion).is_some());
        for (role, other) in [
            (Role::Accepts, occasion),
            (Role::Opens, Occasion { id: "b", ..occasion }),
            (Role::Opens, Occasion { key: "l", ..occasion }),
            (
                Role::Opens,
                Occasion {
                    server: "https://10.0.0.2:8443",
                    ..occasion
                },
            ),
        ] {
            assert!(both.accept(&proof, role, other).is_none(), "{role:?} {other:?}");
        }
        let proof = both.first().unwrap().proof(Role::Opens, occasion);
        assert!(before.accept(&proof, Role::Opens, occasion).is_none());
        assert!(before.accept("?", Role::Opens, occasion).is_none());
    }
}
