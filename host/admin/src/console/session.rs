//! Identifies the users of the console. Signing in exchanges a token for a session, whose id is in a cookie.
//!
//! The API does not accept the cookie, so pages of other sites cannot use it there.

use std::{collections::HashMap, sync::Arc, time::Duration};

use admittance_admission::Digest;
use admittance_net::{bearer::TokenDigest, listener::ConnectedClient};
use axum::{
    extract::FromRequestParts,
    response::{IntoResponse, Response},
};
use http::{
    HeaderValue,
    header::{COOKIE, SET_COOKIE},
    request::Parts,
};
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::time::Instant;

use super::sign_in::{self, SignInReason};
use crate::{
    AdminSources, Api,
    access::{self, AccessDenied, Caller},
    config::AdminRole,
    error::ApiError,
};

pub(super) const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);
/// The maximum number of sessions of one token. A session beyond it ends the token's oldest session.
const MAX_SESSIONS: usize = 128;

/// The user who sent a request. As an extractor, it replies to unauthenticated clients with the sign-in page.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(super) caller: Caller,
    pub(super) role: AdminRole,
    /// A secret that the console writes into each form, and expects back when the form is sent. Pages of other sites
    /// cannot read the secret, so the console does not accept forms from them.
    pub(super) form_key: Arc<str>,
    pub(super) sources: Arc<AdminSources>,
    /// The id in the session's cookie; `None` for a user who did not sign in with a token.
    pub(super) id: Option<SessionId>,
}

impl Session {
    pub(super) fn may_change(&self) -> bool {
        self.role >= AdminRole::Admin
    }

    pub(super) fn read_only_error(&self) -> ApiError {
        let caller = self.caller.clone();
        AccessDenied::OnlyReads { caller }.into()
    }

    /// Returns whether the session has not ended. A reply that streams events checks this repeatedly.
    pub(super) fn is_current(&self, api: &Api) -> bool {
        let Some(id) = &self.id else {
            return true;
        };
        let session = api.sessions.find(id);
        session.is_some_and(|session| api.access.caller_of_token(&session.token).is_some())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SessionId(String);

#[derive(Debug)]
pub(crate) struct Sessions {
    /// The sessions by the digests of their ids. The time of a lookup depends on the digest, so it tells an attacker
    /// nothing about the id itself.
    sessions_by_id: Mutex<HashMap<Digest, StoredSession>>,
    form_key: Arc<str>,
}

#[derive(Clone, Debug)]
struct StoredSession {
    /// The digest of the token. Every request looks it up again, so the session ends when the token is revoked.
    token: TokenDigest,
    holder: Caller,
    form_key: Arc<str>,
    expires_at: Instant,
}

impl Sessions {
    pub(crate) fn new() -> Self {
        Self {
            sessions_by_id: Mutex::default(),
            // If there are no random numbers, the key is empty, and the console then accepts no forms.
            form_key: random_key().unwrap_or_default().into(),
        }
    }

    pub(super) fn begin(&self, token: TokenDigest, holder: Caller) -> Result<SessionId, ApiError> {
        let no_random = || ApiError::Unavailable("there are no random numbers".to_owned());
        let id = SessionId(random_key().ok_or_else(no_random)?);
        let now = Instant::now();
        let session = StoredSession {
            token,
            holder,
            form_key: random_key().ok_or_else(no_random)?.into(),
            expires_at: now + SESSION_LIFETIME,
        };
        let mut sessions = self.sessions_by_id.lock();
        sessions.retain(|_, session| session.expires_at > now);
        let holder_sessions = || sessions.iter().filter(|(_, other)| other.holder == session.holder);
        if holder_sessions().count() >= MAX_SESSIONS
            && let Some(oldest) = holder_sessions()
                .min_by_key(|(_, other)| other.expires_at)
                .map(|(id, _)| *id)
        {
            sessions.remove(&oldest);
        }
        sessions.insert(id.digest(), session);
        Ok(id)
    }

    pub(super) fn end(&self, id: &SessionId) {
        self.sessions_by_id.lock().remove(&id.digest());
    }

    fn find(&self, id: &SessionId) -> Option<StoredSession> {
        let session = self.sessions_by_id.lock().get(&id.digest()).cloned()?;
        (session.expires_at > Instant::now()).then_some(session)
    }
}

impl SessionId {
    fn digest(&self) -> Digest {
        Digest::of_bytes(&self.0)
    }

    fn from_cookie(head: &Parts) -> Option<Self> {
        let name = cookie_name(is_tls(head));
        let cookies = head.headers.get_all(COOKIE).into_iter();
        let mut pairs = cookies
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='));
        let (_, id) = pairs.find(|(key, _)| *key == name)?;
        Some(Self(id.to_owned()))
    }

    /// Scripts cannot read the cookie, and browsers send it only with requests of this site's pages.
    pub(super) fn cookie(&self, head: &Parts) -> (http::HeaderName, HeaderValue) {
        cookie(head, &self.0, SESSION_LIFETIME)
    }
}

pub(super) fn expired_cookie(head: &Parts) -> (http::HeaderName, HeaderValue) {
    cookie(head, "", Duration::ZERO)
}

fn cookie(head: &Parts, value: &str, life: Duration) -> (http::HeaderName, HeaderValue) {
    let is_tls = is_tls(head);
    let (name, secure) = (cookie_name(is_tls), if is_tls { "; Secure" } else { "" });
    let life = life.as_secs();
    let text = format!("{name}={value}; Path=/; Max-Age={life}; HttpOnly; SameSite=Strict{secure}");
    let value = HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""));
    (SET_COOKIE, value)
}

/// Returns the name of the session's cookie. If the name begins with `__Host-`, browsers accept the cookie only from
/// this host, but they allow such a name only over TLS.
fn cookie_name(is_tls: bool) -> &'static str {
    if is_tls { "__Host-admittance" } else { "admittance" }
}

fn is_tls(head: &Parts) -> bool {
    head.extensions
        .get::<ConnectedClient>()
        .is_some_and(|client| client.is_tls)
}

/// Returns 256 random bits as text; `None` if the operating system provides none.
fn random_key() -> Option<String> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(hex::encode(bytes))
}

impl FromRequestParts<Api> for Session {
    type Rejection = Response;

    async fn from_request_parts(head: &mut Parts, api: &Api) -> Result<Self, Response> {
        if let Err(denied) = access::check_own_page(head, false) {
            return Err(sign_in::refuse(head, &denied));
        }
        require_session(head, api).map_err(|response| *response)
    }
}

/// Returns the user of a request, or else the reply that refuses it. The caller has checked the request's origin.
pub(super) fn require_session(head: &Parts, api: &Api) -> Result<Session, Box<Response>> {
    let id = SessionId::from_cookie(head);
    if let Some(id) = &id
        && let Some(session) = api.sessions.find(id)
    {
        let Some((caller, role)) = api.access.caller_of_token(&session.token) else {
            return Err(Box::new(sign_in::require_sign_in(head, SignInReason::Revoked)));
        };
        return Ok(Session {
            caller,
            role,
            form_key: session.form_key,
            sources: api.sources.clone(),
            id: Some(id.clone()),
        });
    }
    match api.access.identify_without_sign_in(head) {
        Ok((caller, role)) => Ok(Session {
            caller,
            role,
            form_key: api.sessions.form_key.clone(),
            sources: api.sources.clone(),
            id: None,
        }),
        Err(AccessDenied::NoToken) => Err(Box::new(match id {
            Some(_) => sign_in::require_sign_in(head, SignInReason::Ended),
            None if access::is_link_from_other_site(head) => sign_in::sign_in_again(head).into_response(),
            None => sign_in::require_sign_in(head, SignInReason::First),
        })),
        Err(denied) => Err(Box::new(sign_in::refuse(head, &denied))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(sessions: &Sessions, holder: &str) -> SessionId {
        let caller = Caller::Token(holder.into());
        sessions.begin(TokenDigest::of_token(holder), caller).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_after_its_lifetime() {
        let sessions = Sessions::new();
        let id = begin(&sessions, "a");
        tokio::time::advance(SESSION_LIFETIME - Duration::from_secs(1)).await;
        assert!(sessions.find(&id).is_some());
        let later = begin(&sessions, "a");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(sessions.find(&id).is_none());
        assert!(sessions.find(&later).is_some());
        sessions.end(&later);
        assert!(sessions.find(&later).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn each_token_has_its_own_limit_of_sessions() {
        let sessions = Sessions::new();
        let other = begin(&sessions, "b");
        let mut ids = Vec::new();
        for _ in 0..=MAX_SESSIONS {
            ids.push(begin(&sessions, "a"));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(sessions.find(&other).is_some());
        assert!(sessions.find(&ids[0]).is_none());
        assert!(sessions.find(&ids[1]).is_some());
        assert_eq!(sessions.sessions_by_id.lock().len(), MAX_SESSIONS + 1);
        assert_ne!(ids[1], ids[2]);
    }

    #[test]
    fn with_tls_a_session_cookie_is_valid_only_for_this_host() {
        let head = |cookies: &[&str], is_tls| {
            let mut request = http::Request::builder();
            for cookie in cookies {
                request = request.header(COOKIE, *cookie);
            }
            let client = ConnectedClient {
                address: ([127, 0, 0, 1], 1).into(),
                is_tls,
            };
            request.extension(client).body(()).unwrap().into_parts().0
        };
        for (cookies, is_tls, expected) in [
            (&["admittance=a"][..], false, Some("a")),
            (&["x=1; admittance=a;y=2"], false, Some("a")),
            (&["x=1", "y=2; admittance=a"], false, Some("a")),
            (&["admittances=a"], false, None),
            (&["admittance"], false, None),
            (&[], false, None),
            // With TLS, a cookie without the prefix `__Host-` is ignored, because another site could have set it.
            (&["admittance=a"], true, None),
            (&["__Host-admittance=a"], true, Some("a")),
        ] {
            let session_id = SessionId::from_cookie(&head(cookies, is_tls));
            let expected = expected.map(|id| SessionId(id.to_owned()));
            assert_eq!(session_id, expected, "{cookies:?} {is_tls}");
        }
        let id = SessionId("a".to_owned());
        let common = "Path=/; Max-Age=43200; HttpOnly; SameSite=Strict";
        assert_eq!(id.cookie(&head(&[], false)).1, format!("admittance=a; {common}"));
        assert_eq!(
            id.cookie(&head(&[], true)).1,
            format!("__Host-admittance=a; {common}; Secure")
        );
        assert!(
            expired_cookie(&head(&[], false))
                .1
                .to_str()
                .unwrap()
                .contains("Max-Age=0")
        );
    }
}
