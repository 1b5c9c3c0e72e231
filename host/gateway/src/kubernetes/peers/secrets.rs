//! The secret that gateways share, and the proofs by which they show each other that they have it.

use std::path::Path;

use admittance_watch::{FileValue, file};
use base64::{Engine, prelude::BASE64_STANDARD};
use ring::hmac::{self, HMAC_SHA256};

use crate::accounts::Secret;

/// The minimum length of a secret in bytes. A shorter secret could be guessed.
const SHORTEST_SECRET: usize = 32;
const LONGEST_FILE: u64 = 4096;

/// The secrets that gateways share, read from a file with one secret on each line. The file is reloaded when it
/// changes. Proofs are made with the first secret, and accepted with any of the secrets. Cheap to clone; lives as long
/// as the gateway.
#[derive(Clone, Debug)]
pub struct PeerSecrets(FileValue<Vec<PeerSecret>>);

/// A secret that gateways share. Only proofs of it are sent, never the secret itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PeerSecret(Secret);

/// The step in the opening of a tunnel at which one gateway proves that it has the secret.
#[derive(Clone, Copy, Debug)]
pub(super) enum HandshakeStep {
    /// The proof in the request that opens the tunnel. Somebody who has recorded such a request could send the same
    /// proof again, so the gateway must also send the proof `Answers`.
    Opens,
    /// The proof in the reply of the gateway that accepts the tunnel. It is valid only for the random key in the
    /// request of the opening gateway.
    Accepts,
    /// The proof in the first message that the opening gateway sends through the tunnel. It is valid only for the
    /// random challenge in the reply of the accepting gateway.
    Answers,
}

/// The properties of one connection between gateways. A proof is valid only for this connection.
#[derive(Clone, Debug)]
pub(super) struct ConnectionContext {
    pub(super) id: String,
    pub(super) key: String,
    /// The registered URL of the gateway that accepts the tunnel. Every proof contains this URL, so the gateway that
    /// receives a proof cannot present it to another gateway.
    pub(super) server: String,
    /// The random challenge of the gateway that accepts the tunnel; empty in the first proof, when it is not known yet.
    pub(super) challenge: String,
}

impl PeerSecret {
    fn key(&self) -> hmac::Key {
        hmac::Key::new(HMAC_SHA256, self.0.0.as_bytes())
    }

    pub(super) fn proof(&self, step: HandshakeStep, connection: &ConnectionContext) -> String {
        BASE64_STANDARD.encode(hmac::sign(&self.key(), proof_text(step, connection).as_bytes()))
    }

    pub(super) fn accepts(&self, proof: &str, step: HandshakeStep, connection: &ConnectionContext) -> bool {
        let proof = BASE64_STANDARD.decode(proof).unwrap_or_default();
        hmac::verify(&self.key(), proof_text(step, connection).as_bytes(), &proof).is_ok()
    }
}

fn proof_text(step: HandshakeStep, connection: &ConnectionContext) -> String {
    let step = match step {
        HandshakeStep::Opens => "opens",
        HandshakeStep::Accepts => "accepts",
        HandshakeStep::Answers => "answers",
    };
    let ConnectionContext {
        id,
        key,
        server,
        challenge,
    } = connection;
    format!("{step}\n{id}\n{key}\n{server}\n{challenge}")
}

impl PeerSecrets {
    /// Reads the file with the secrets. It is an error if the file cannot be read or contains no secret, if every user
    /// of the machine may read it, or if a secret is too short.
    pub fn read(path: &Path) -> Result<Self, String> {
        let path = path.to_owned();
        FileValue::load([path.clone()], move || read_secrets(&path)).map(Self)
    }

    pub(super) fn first_secret(&self) -> Option<PeerSecret> {
        self.0.current().first().cloned()
    }

    /// Checks a proof. Returns the secret with which the proof was made, or `None` if that secret is not in the file.
    pub(super) fn secret_of_proof(
        &self,
        proof: &str,
        step: HandshakeStep,
        connection: &ConnectionContext,
    ) -> Option<PeerSecret> {
        let secrets = self.0.current();
        let accepted_secret = secrets.iter().find(|secret| secret.accepts(proof, step, connection));
        accepted_secret.cloned()
    }

    pub(super) async fn wait_until_removed(&self, secret: &PeerSecret) {
        let mut changes = self.0.subscribe();
        if changes.wait_for(|secrets| !secrets.contains(secret)).await.is_err() {
            // This is not reached: `wait_for` fails only after its sender was dropped, and `self` owns the sender.
            std::future::pending().await
        }
    }

    /// Returns why the current content of the file is not in use; `None` if it is in use.
    pub(super) fn problem(&self) -> Option<String> {
        self.0.problem()
    }

    pub(super) async fn follow(&self) {
        let report = |loaded: Result<&Vec<PeerSecret>, &str>| match loaded {
            Ok(_) => tracing::info!("the changed secret of gateways is in use"),
            Err(reason) => {
                tracing::error!("the changed secret of gateways is invalid, so the previous one stays in use: {reason}")
            }
        };
        self.0.follow(report).await;
    }
}

fn read_secrets(path: &Path) -> Result<Vec<PeerSecret>, String> {
    let name = path.display();
    let text = file::read_secret_to_string(path, LONGEST_FILE).map_err(|error| error.describe(path, "the secret"))?;
    let secrets: Vec<_> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(|line| PeerSecret(Secret(line.to_owned())))
        .collect();
    if secrets.is_empty() || secrets.iter().any(|secret| secret.0.0.len() < SHORTEST_SECRET) {
        return Err(format!(
            "{name}: a secret has at least {SHORTEST_SECRET} characters: write one with `openssl rand -base64 32`"
        ));
    }
    Ok(secrets)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_gateway_proof_is_valid_for_one_challenge_only() {
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
        let connection = |change: fn(&mut ConnectionContext)| {
            let mut connection = ConnectionContext {
                id: "a".to_owned(),
                key: "k".to_owned(),
                server: "https://10.0.0.1:8443".to_owned(),
                challenge: "c".to_owned(),
            };
            change(&mut connection);
            connection
        };
        let this = connection(|_| {});
        let proof = before.first_secret().unwrap().proof(HandshakeStep::Answers, &this);
        assert!(both.secret_of_proof(&proof, HandshakeStep::Answers, &this).is_some());
        for (step, other) in [
            (HandshakeStep::Opens, this.clone()),
            (HandshakeStep::Accepts, this.clone()),
            (
                HandshakeStep::Answers,
                connection(|other| "b".clone_into(&mut other.id)),
            ),
            (
                HandshakeStep::Answers,
                connection(|other| "l".clone_into(&mut other.key)),
            ),
            (
                HandshakeStep::Answers,
                connection(|other| "https://10.0.0.2:8443".clone_into(&mut other.server)),
            ),
            (
                HandshakeStep::Answers,
                connection(|other| "d".clone_into(&mut other.challenge)),
            ),
        ] {
            assert!(
                both.secret_of_proof(&proof, step, &other).is_none(),
                "{step:?} {other:?}"
            );
        }
        let proof = both.first_secret().unwrap().proof(HandshakeStep::Answers, &this);
        assert!(before.secret_of_proof(&proof, HandshakeStep::Answers, &this).is_none());
        assert!(before.secret_of_proof("?", HandshakeStep::Answers, &this).is_none());
    }
}
