//! The tokens of users, and the encryption of the tokens of users and clusters in the database.

use std::time::Duration;

use admittance::Moment;
use admittance_net::bearer::TokenDigest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlx::{query, query_as, query_scalar};

use super::{
    Accounts, AccountsError, Secret, TokenId, User,
    changes::{moment_after, unavailable},
    database::{DatabaseTransaction, moment, now, seconds},
    error::violation_error,
    keys::random_token,
    rows::{UserTokenRow, digest_text, insert_token, token_row_name},
};

const USER_TOKEN_LENGTH: usize = 32;
/// The maximum number of tokens of a user. The limit is needed because some scripts create a token each time they run.
const MAX_TOKENS: i64 = 32;

/// A new token of a user. Its value is shown only in this reply.
#[derive(Clone, Debug)]
pub struct CreatedToken {
    pub id: TokenId,
    pub value: Secret,
    pub created_at: Moment,
    pub expires_at: Moment,
}

/// The number of tokens that were encrypted again, and the tokens that were skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reencrypted {
    /// The number of clusters whose token was encrypted again, with the first key of the key file.
    pub tokens: usize,
    /// The number of user tokens that were encrypted again, with the first key of the key file.
    #[serde(default, rename = "userTokens")]
    pub user_tokens: usize,
    /// The tokens that could not be decrypted, each with the reason and what to do. They stay as they are.
    pub skipped: Vec<String>,
}

impl Accounts {
    /// Creates a token of a user, in addition to the user's existing tokens. The value of the token is not stored.
    pub async fn create_token(
        &self,
        actor: &str,
        user: &User,
        lifetime: Duration,
    ) -> Result<CreatedToken, AccountsError> {
        let change = self.0.database.begin_change().await?;
        self.insert_new_token(change, actor, user, lifetime, false).await
    }

    /// Returns the token that an earlier call created for the user, or that was imported as the user's plain token.
    /// Creates a token if there is none, or if the token has expired, was revoked, or cannot be decrypted.
    pub async fn get_or_create_token(
        &self,
        actor: &str,
        user: &User,
        lifetime: Duration,
    ) -> Result<CreatedToken, AccountsError> {
        let mut change = self.0.database.begin_change().await?;
        let rows: Vec<(i64, String, String, i64, i64)> = query_as(
            "SELECT id, digest, sealed_value, created_at, expires_at FROM admittance_user_tokens \
             WHERE user_id = ? AND sealed_value IS NOT NULL AND expires_at > ? ORDER BY id DESC",
        )
        .bind(user.id.0)
        .bind(seconds(now()))
        .fetch_all(&mut *change)
        .await?;
        for (id, digest, sealed, created_at, expires_at) in rows {
            match self.0.keys.reload_and_open(&sealed, &token_row_name(&digest)) {
                Ok(value) => {
                    return Ok(CreatedToken {
                        id: TokenId(id),
                        value,
                        created_at: moment(created_at),
                        expires_at: moment(expires_at),
                    });
                }
                Err(reason) => {
                    tracing::warn!("the token {id} of {} cannot be shown again: {reason}", user.name);
                }
            }
        }
        self.insert_new_token(change, actor, user, lifetime, true).await
    }

    async fn insert_new_token(
        &self,
        mut change: DatabaseTransaction,
        actor: &str,
        user: &User,
        lifetime: Duration,
        can_be_shown_again: bool,
    ) -> Result<CreatedToken, AccountsError> {
        let count: i64 = query_scalar("SELECT COUNT(*) FROM admittance_user_tokens WHERE user_id = ?")
            .bind(user.id.0)
            .fetch_one(&mut *change)
            .await?;
        if count >= MAX_TOKENS {
            return Err(AccountsError::Quota(format!(
                "{} has {count} tokens already, the most that a user may have: revoke some, as \
                 `admittance tokens list {}` lists them",
                user.name, user.name
            )));
        }
        let value = random_token(USER_TOKEN_LENGTH).map_err(unavailable)?;
        let digest = digest_text(TokenDigest::of_token(&value.0));
        let created_at = now();
        let expires_at = moment_after(created_at, lifetime);
        let sealed_value = can_be_shown_again.then(|| self.0.keys.seal(&value, &token_row_name(&digest)));
        let token = UserTokenRow {
            id: None,
            user: user.id,
            digest: digest.clone(),
            created_at,
            expires_at,
            sealed_value: sealed_value.transpose().map_err(unavailable)?,
        };
        insert_token(&mut change, token)
            .await
            .map_err(violation_error("token", "user", &user.name))?;
        let id = query_scalar("SELECT id FROM admittance_user_tokens WHERE digest = ?").bind(digest);
        let id = TokenId(id.fetch_one(&mut *change).await?);
        let subject = format!("{} {}", user.name, id.0);
        self.commit(change, actor, "create token", &subject).await?;
        Ok(CreatedToken {
            id,
            value,
            created_at,
            expires_at,
        })
    }

    pub async fn revoke_token(&self, actor: &str, user: &User, id: TokenId) -> Result<(), AccountsError> {
        let mut change = self.0.database.begin_change().await?;
        let deleted = query("DELETE FROM admittance_user_tokens WHERE id = ? AND user_id = ?")
            .bind(id.0)
            .bind(user.id.0);
        let subject = format!("{} {}", user.name, id.0);
        if deleted.execute(&mut *change).await?.rows_affected() == 0 {
            return Err(AccountsError::Unknown("token", subject));
        }
        self.commit(change, actor, "revoke token", &subject).await
    }

    /// Decrypts all encrypted tokens, and encrypts them with the file's first key. Leaves tokens it cannot decrypt.
    pub async fn reencrypt(&self, actor: &str) -> Result<Reencrypted, AccountsError> {
        self.0.keys.reload().map_err(AccountsError::Invalid)?;
        let mut change = self.0.database.begin_change().await?;
        let mut outcome = Reencrypted::default();
        let rows: Vec<(String, String)> =
            query_as("SELECT cluster_id, sealed_token FROM admittance_credentials ORDER BY cluster_id")
                .fetch_all(&mut *change)
                .await?;
        for (cluster, sealed) in rows {
            let update = "UPDATE admittance_credentials SET sealed_token = ? WHERE cluster_id = ?";
            match self.reseal(&mut change, &sealed, &cluster, (update, &cluster)).await? {
                Ok(()) => outcome.tokens += 1,
                Err(reason) => outcome.skipped.push(format!(
                    "the token of the cluster {cluster}: {reason}, or have its agent report again"
                )),
            }
        }
        let rows: Vec<(i64, String, String)> = query_as(
            "SELECT id, digest, sealed_value FROM admittance_user_tokens \
             WHERE sealed_value IS NOT NULL ORDER BY id",
        )
        .fetch_all(&mut *change)
        .await?;
        for (id, digest, sealed) in rows {
            let update = "UPDATE admittance_user_tokens SET sealed_value = ? WHERE digest = ?";
            let row_name = token_row_name(&digest);
            match self.reseal(&mut change, &sealed, &row_name, (update, &digest)).await? {
                Ok(()) => outcome.user_tokens += 1,
                Err(reason) => outcome.skipped.push(format!(
                    "the token {id} of a user: {reason}, or revoke it so that another is created"
                )),
            }
        }
        let subject = format!(
            "{} tokens of clusters, {} of users",
            outcome.tokens, outcome.user_tokens
        );
        self.commit(change, actor, "encrypt again", &subject).await?;
        Ok(outcome)
    }

    /// Decrypts a token, encrypts it with the first key, and stores the result. If the token cannot be decrypted,
    /// nothing is stored, and the inner `Result` contains the reason.
    async fn reseal(
        &self,
        change: &mut DatabaseTransaction,
        sealed: &str,
        row_name: &str,
        (update, key): (&'static str, &str),
    ) -> Result<Result<(), String>, AccountsError> {
        let sealed = match self.0.keys.reseal(sealed, row_name) {
            Ok(sealed) => sealed,
            Err(reason) => return Ok(Err(reason)),
        };
        let update = query(update).bind(sealed).bind(key.to_owned());
        update.execute(&mut **change).await?;
        Ok(Ok(()))
    }
}
