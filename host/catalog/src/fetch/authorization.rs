use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use docker_credential::DockerCredential;
use http_auth::ChallengeRef;
use reqwest::{
    Method, RequestBuilder, Response, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE},
};
use url::Url;

use super::{Network, failure};
use crate::{Error, OciReference};

/// The access that is requested from a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Access {
    Pull,
    Push,
}

/// Cached `Authorization` headers, by registry, repository and access. Requested again when a registry no
/// longer accepts one.
#[derive(Debug, Default)]
pub(super) struct Authorizations(Mutex<HashMap<(String, String, Access), HeaderValue>>);

/// The largest response of a token server.
const TOKEN_LIMIT: u64 = 256 << 10;

impl Network {
    /// Sends a request to a registry, with authorization as needed. Any status is returned as a response.
    pub(super) async fn send_to_registry(
        &self,
        artifact: &OciReference,
        access: Access,
        (method, url): (Method, &Url),
        place: &str,
        finish: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response, Error> {
        let home = self.registry_url(artifact, place).await?;
        let key = (
            artifact.registry().to_owned(),
            artifact.repository().to_owned(),
            access,
        );
        let send = async |authorization: Option<HeaderValue>| {
            let mut request = finish(self.client.request(method.clone(), url.clone()));
            // An upload may go to another server, which must not get the registry's credentials.
            if let Some(authorization) = authorization.filter(|_| url.origin() == home.origin()) {
                request = request.header(AUTHORIZATION, authorization);
            }
            self.send(request, place).await
        };
        let known = || {
            self.authorizations
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        let shown = known().get(&key).cloned();
        let response = send(shown).await?;
        // After a redirect another server may ask for credentials; it must not get the registry's.
        if response.status() != StatusCode::UNAUTHORIZED || response.url().origin() != home.origin() {
            return Ok(response);
        }
        match self.authorize(artifact, access, &response, place).await? {
            Some(authorization) => {
                known().insert(key, authorization.clone());
                send(Some(authorization)).await
            }
            None => Ok(response),
        }
    }

    /// The `Authorization` header that answers a registry's challenge.
    async fn authorize(
        &self,
        artifact: &OciReference,
        access: Access,
        response: &Response,
        place: &str,
    ) -> Result<Option<HeaderValue>, Error> {
        let texts: Vec<&str> = response
            .headers()
            .get_all(WWW_AUTHENTICATE)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .collect();
        let challenges: Vec<ChallengeRef<'_>> = texts
            .iter()
            .filter_map(|text| http_auth::parse_challenges(text).ok())
            .flatten()
            .collect();
        let of_scheme = |scheme: &str| {
            challenges
                .iter()
                .find(|challenge| challenge.scheme.eq_ignore_ascii_case(scheme))
        };
        let credential = self.credential(artifact.registry()).await?;
        if let Some(challenge) = of_scheme("bearer") {
            let challenge = Challenge::read(challenge, artifact, access, response.url())
                .map_err(|problem| bad_answer(place, problem))?;
            let token = self.token(artifact, &challenge, credential, place).await?;
            return header(&format!("Bearer {token}"), place).map(Some);
        }
        match (of_scheme("basic"), credential) {
            (Some(_), Some(DockerCredential::UsernamePassword(user, password))) => {
                use base64::{Engine as _, engine::general_purpose::STANDARD};
                let pair = STANDARD.encode(format!("{user}:{password}"));
                header(&format!("Basic {pair}"), place).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// A token from the token server that the registry names:
    /// <https://distribution.github.io/distribution/spec/auth/token/>.
    async fn token(
        &self,
        artifact: &OciReference,
        challenge: &Challenge,
        credential: Option<DockerCredential>,
        place: &str,
    ) -> Result<String, Error> {
        #[derive(serde::Deserialize)]
        struct Answer {
            token: Option<String>,
            access_token: Option<String>,
        }
        let request = match credential {
            Some(DockerCredential::IdentityToken(token)) => {
                let form = form_urlencoded::Serializer::new(String::new())
                    .append_pair("grant_type", "refresh_token")
                    .append_pair("client_id", "admittance")
                    .append_pair("service", &challenge.service)
                    .append_pair("scope", &challenge.scope)
                    .append_pair("refresh_token", &token)
                    .finish();
                self.client
                    .post(challenge.realm.clone())
                    .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                    .body(form)
            }
            credential => {
                let mut url = challenge.realm.clone();
                url.query_pairs_mut()
                    .append_pair("service", &challenge.service)
                    .append_pair("scope", &challenge.scope);
                match credential {
                    Some(DockerCredential::UsernamePassword(user, password)) => {
                        self.client.get(url).basic_auth(user, Some(password))
                    }
                    _ => self.client.get(url),
                }
            }
        };
        let response = self.send(request, place).await?;
        let response = match response.status() {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST => {
                return Err(self.refusal(artifact, response, place).await);
            }
            _ => failure::success(response, place).await?,
        };
        let body = self.body(response, place, TOKEN_LIMIT).await?;
        serde_json::from_slice::<Answer>(&body)
            .ok()
            .and_then(|answer| answer.token.or(answer.access_token))
            .ok_or_else(|| bad_answer(place, "the token server sent no token".to_owned()))
    }

    /// Turns a registry's refusal into an error.
    pub(super) async fn refusal(&self, artifact: &OciReference, response: Response, place: &str) -> Error {
        let registry = artifact.registry();
        let login = format!("log in with `docker login {registry}`");
        let (with, advice) = match self.credential(registry).await {
            Ok(Some(DockerCredential::UsernamePassword(user, _))) => (
                format!("as the user `{user}`"),
                "check the name, and the permissions of this user".to_owned(),
            ),
            Ok(Some(DockerCredential::IdentityToken(_))) => {
                ("with the token of the last login".to_owned(), login)
            }
            Ok(None) => (
                "without credentials".to_owned(),
                format!("check the name, or {login}"),
            ),
            Err(error) => return error,
        };
        Error::Unauthorized {
            place: place.to_owned(),
            with,
            message: failure::message(response).await,
            advice,
        }
    }
}

/// The challenge of a registry: token server, service and scope.
struct Challenge {
    realm: Url,
    service: String,
    scope: String,
}

impl Challenge {
    fn read(
        challenge: &ChallengeRef<'_>,
        artifact: &OciReference,
        access: Access,
        asked: &Url,
    ) -> Result<Self, String> {
        let parameter = |name: &str| {
            challenge
                .params
                .iter()
                .find(|(key, _)| key.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.to_unescaped())
        };
        let realm = parameter("realm")
            .and_then(|realm| Url::parse(&realm).ok())
            .ok_or("the registry names no token server")?;
        // The password is sent to this URL.
        if realm.scheme() != "https" && asked.scheme() == "https" {
            return Err(format!(
                "the registry asks for credentials to be sent without TLS, to {realm}"
            ));
        }
        // A push begins with an existence check, for which the registry asks for a smaller scope.
        let wanted = match access {
            Access::Pull => parameter("scope"),
            Access::Push => Some(format!("repository:{}:pull,push", artifact.repository())),
        };
        let scope = wanted.unwrap_or_else(|| format!("repository:{}:pull", artifact.repository()));
        Ok(Self {
            realm,
            service: parameter("service").unwrap_or_default(),
            scope,
        })
    }
}

fn header(text: &str, place: &str) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::from_str(text).map_err(|_| {
        bad_answer(
            place,
            "its token has characters that a header cannot hold".to_owned(),
        )
    })?;
    value.set_sensitive(true);
    Ok(value)
}

fn bad_answer(place: &str, problem: String) -> Error {
    Error::BadAnswer {
        place: place.to_owned(),
        problem,
    }
}
