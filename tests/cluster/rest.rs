//! Accesses the Kubernetes API without kubectl, which is slower and hides details.

use admittance_tests::{Client, Error, Reply};
use http::{Method, Request};
use serde_json::Value;

#[derive(Clone, Debug)]
pub(crate) struct UserClient {
    client: Client,
    url: String,
    authorization: String,
}

impl UserClient {
    pub(crate) fn new(client: Client, url: String, token: &str) -> Self {
        Self {
            client,
            url,
            authorization: format!("Bearer {token}"),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Reply, Error> {
        self.send(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, object: &Value) -> Result<Reply, Error> {
        self.send(Method::POST, path, Some(object)).await
    }

    pub(crate) async fn send(&self, method: Method, path: &str, object: Option<&Value>) -> Result<Reply, Error> {
        let url = format!("{}{path}", self.url);
        let request = Request::builder()
            .method(method)
            .uri(&url)
            .header("authorization", &self.authorization)
            .header("content-type", "application/json")
            .body(object.map(Value::to_string).unwrap_or_default())
            .map_err(|error| Error::Invalid(format!("{url}: {error}")))?;
        self.client.send(request).await
    }
}
