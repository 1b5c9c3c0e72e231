use admittance_net::client::{ClientRequest, ClientResponse};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use docker_credential::DockerCredential;
use http::{
    HeaderValue, Method, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE},
};
use http_auth::ChallengeRef;
use url::Url;

use super::{RegistryAccess, Repository, failure};
use crate::Error;

const TOKEN_LIMIT: u64 = 256 << 10;

impl Repository<'_> {
    pub(super) async fn authorize(
        &self,
        response: &ClientResponse,
        location: &str,
    ) -> Result<Option<HeaderValue>, Error> {
        let texts: Vec<&str> = response
            .headers
            .get_all(WWW_AUTHENTICATE)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .collect();
        let challenges: Vec<ChallengeRef<'_>> = texts
            .iter()
            .filter_map(|text| http_auth::parse_challenges(text).ok())
            .flatten()
            .collect();
        let find_challenge = |scheme: &str| {
            challenges
                .iter()
                .find(|challenge| challenge.scheme.eq_ignore_ascii_case(scheme))
        };
        let credential = self.network.find_credential(self.artifact).await?;
        if let Some(challenge) = find_challenge("bearer") {
            let challenge = self
                .parse_challenge(challenge, &response.url)
                .map_err(|problem| Error::bad_answer(location, problem))?;
            let token = self.request_token(challenge, credential, location).await?;
            return sensitive_header(&format!("Bearer {token}"), location).map(Some);
        }
        match (find_challenge("basic"), credential) {
            (Some(_), Some(DockerCredential::UsernamePassword(user, password))) => {
                basic_authorization(&user, &password, location).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn parse_challenge(&self, challenge: &ChallengeRef<'_>, requested: &Url) -> Result<Challenge, String> {
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
        // The password will be sent to the realm's URL, which must therefore not be less secure than the requested URL.
        if realm.scheme() != "https" && requested.scheme() == "https" {
            return Err(format!(
                "the registry asks for credentials to be sent without TLS, to {realm}"
            ));
        }
        let repository = self.artifact.repository();
        // The first request of a push only asks whether a blob exists, so the registry's challenge names only the right
        // to pull. A push also needs the right to push, so this program adds it to the scope.
        let scope = match self.access {
            RegistryAccess::Pull => parameter("scope").unwrap_or_else(|| format!("repository:{repository}:pull")),
            RegistryAccess::Push => format!("repository:{repository}:pull,push"),
        };
        Ok(Challenge {
            realm,
            service: parameter("service").unwrap_or_default(),
            scope,
        })
    }

    /// Requests a token from the token server that the registry names:
    /// <https://distribution.github.io/distribution/spec/auth/token/>.
    async fn request_token(
        &self,
        challenge: Challenge,
        credential: Option<DockerCredential>,
        location: &str,
    ) -> Result<String, Error> {
        #[derive(serde::Deserialize)]
        struct TokenAnswer {
            token: Option<String>,
            access_token: Option<String>,
        }
        let mut url = challenge.realm;
        let request = match credential {
            Some(DockerCredential::IdentityToken(token)) => {
                let form = form_urlencoded::Serializer::new(String::new())
                    .append_pair("grant_type", "refresh_token")
                    .append_pair("client_id", "admittance")
                    .append_pair("service", &challenge.service)
                    .append_pair("scope", &challenge.scope)
                    .append_pair("refresh_token", &token)
                    .finish();
                let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
                ClientRequest::new(Method::POST, url)
                    .header(CONTENT_TYPE, form_type)
                    .body(form)
            }
            credential => {
                url.query_pairs_mut()
                    .append_pair("service", &challenge.service)
                    .append_pair("scope", &challenge.scope);
                let request = ClientRequest::new(Method::GET, url);
                match credential {
                    Some(DockerCredential::UsernamePassword(user, password)) => {
                        request.header(AUTHORIZATION, basic_authorization(&user, &password, location)?)
                    }
                    _ => request,
                }
            }
        };
        let response = self.network.send(request, location).await?;
        if response.status == StatusCode::BAD_REQUEST {
            return Err(self.refusal_error(response, location).await);
        }
        let response = self.check_response(response, location).await?;
        serde_json::from_slice::<TokenAnswer>(&self.network.read_body(response, location, TOKEN_LIMIT).await?)
            .ok()
            .and_then(|answer| answer.token.or(answer.access_token))
            .ok_or_else(|| Error::bad_answer(location, "the token server sent no token"))
    }

    pub(super) async fn refusal_error(&self, response: ClientResponse, location: &str) -> Error {
        let registry = self.artifact.registry();
        let login = format!("log in with `docker login {registry}`");
        let (credentials, advice) = match self.network.find_credential(self.artifact).await {
            Ok(Some(DockerCredential::UsernamePassword(user, _))) => (
                format!("as the user `{user}`"),
                "check the name, and the permissions of this user".to_owned(),
            ),
            Ok(Some(DockerCredential::IdentityToken(_))) => ("with the token of the last login".to_owned(), login),
            Ok(None) => ("without credentials".to_owned(), format!("check the name, or {login}")),
            Err(error) => return error,
        };
        Error::Unauthorized {
            location: location.to_owned(),
            credentials,
            message: failure::error_message(response).await,
            advice,
        }
    }
}

struct Challenge {
    realm: Url,
    service: String,
    scope: String,
}

fn basic_authorization(user: &str, password: &str, location: &str) -> Result<HeaderValue, Error> {
    let pair = STANDARD.encode(format!("{user}:{password}"));
    sensitive_header(&format!("Basic {pair}"), location)
}

fn sensitive_header(text: &str, location: &str) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| Error::bad_answer(location, "its token has characters that a header cannot hold"))?;
    value.set_sensitive(true);
    Ok(value)
}
