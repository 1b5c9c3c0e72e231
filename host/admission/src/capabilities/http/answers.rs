//! Prepared responses to HTTP requests of plugins, for tests and replays.

use std::collections::{BTreeMap, HashMap, VecDeque};

use async_trait::async_trait;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use url::Url;

use crate::{Deadline, HttpError, HttpGrant, HttpRequest, HttpResponse, HttpSender, ResponseRecorder};

/// The answer of a server to a plugin's request, as listed in a test or recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpAnswer {
    /// The absolute URL of the request, with its query.
    #[serde(serialize_with = "write_url", deserialize_with = "read_url")]
    #[schemars(with = "String")]
    pub url: Url,
    /// The method of the request. Default: `GET`.
    #[serde(default = "get")]
    pub method: String,
    /// The status of the response. Default: 200.
    #[serde(default = "ok")]
    #[schemars(range(min = 100, max = 599))]
    pub status: u16,
    /// The names and values of the headers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The body: a string is sent as text, any other value as JSON. Default: empty.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub body: Value,
    /// The error that the plugin gets instead of a response. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<HttpAnswerError>,
}

/// The reason why a request gets no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum HttpAnswerError {
    /// The host cannot send the request.
    Unavailable,
    /// The connection failed.
    Unreachable,
    /// The server did not respond by the deadline.
    Timeout,
    /// The response is too large.
    TooLarge,
}

fn write_url<S: Serializer>(url: &Url, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(url.as_str())
}

fn read_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Url, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse()
        .map_err(|error| de::Error::custom(format!("{text:?} is not a URL: {error}; write `https://host/path`")))
}

fn get() -> String {
    "GET".to_owned()
}

fn ok() -> u16 {
    200
}

/// The text that replaces a redacted value.
pub const REDACTED: &str = "[redacted]";

/// The response headers that are recorded. Other headers, such as `set-cookie`, may hold secrets.
const RECORDED_HEADERS: [&str; 10] = [
    "age",
    "cache-control",
    "content-language",
    "content-type",
    "date",
    "etag",
    "expires",
    "last-modified",
    "location",
    "retry-after",
];

impl HttpAnswer {
    /// Records a response, without the headers that may be secret. If the body is not UTF-8, an empty body is recorded.
    pub fn record(method: &str, url: &Url, answer: &Result<HttpResponse, HttpError>) -> Self {
        let mut recorded = Self {
            url: url.clone(),
            method: method.to_owned(),
            status: ok(),
            headers: BTreeMap::new(),
            body: Value::Null,
            error: None,
        };
        match answer {
            Ok(response) => {
                recorded.status = response.status;
                for (name, value) in &response.headers {
                    let name = name.to_ascii_lowercase();
                    if RECORDED_HEADERS.contains(&name.as_str()) {
                        recorded.headers.insert(name, value.clone());
                    }
                }
                recorded.body = read_body(&response.body);
            }
            Err(error) => {
                recorded.error = Some(match error {
                    HttpError::Unavailable(_) | HttpError::Invalid(_) | HttpError::Denied(_) => {
                        HttpAnswerError::Unavailable
                    }
                    HttpError::Unreachable(_) | HttpError::Exhausted(_) => HttpAnswerError::Unreachable,
                    HttpError::Timeout => HttpAnswerError::Timeout,
                    HttpError::TooLarge(_) => HttpAnswerError::TooLarge,
                });
            }
        }
        recorded
    }

    /// Redacts the query values of the URL and of the header `location`, because they may be secret. Returns the number
    /// of redacted values.
    pub fn redact_queries(&mut self) -> usize {
        let mut count = redact_query(&mut self.url);
        if let Some(location) = self.headers.get_mut("location") {
            match self.url.join(location) {
                Ok(mut target) => {
                    let redacted_count = redact_query(&mut target);
                    if redacted_count > 0 {
                        *location = target.into();
                    }
                    count += redacted_count;
                }
                Err(_) => {
                    *location = REDACTED.to_owned();
                    count += 1;
                }
            }
        }
        count
    }

    fn to_response(&self) -> Result<HttpResponse, HttpError> {
        let message = || format!("the listed answer to `{} {}` is this error", self.method, self.url);
        match self.error {
            None => {
                let body = match &self.body {
                    Value::Null => Vec::new(),
                    Value::String(text) => text.clone().into_bytes(),
                    value => value.to_string().into_bytes(),
                };
                let mut response = HttpResponse::new(self.status, body);
                response.headers = self.headers.clone().into_iter().collect();
                Ok(response)
            }
            Some(HttpAnswerError::Unavailable) => Err(HttpError::Unavailable(message())),
            Some(HttpAnswerError::Unreachable) => Err(HttpError::Unreachable(message())),
            Some(HttpAnswerError::Timeout) => Err(HttpError::Timeout),
            Some(HttpAnswerError::TooLarge) => Err(HttpError::TooLarge(0)),
        }
    }
}

impl ResponseRecorder {
    /// Records the response to an HTTP request.
    pub fn record_http(&self, answer: HttpAnswer) {
        let size = answer.url.as_str().len() + answer.body.to_string().len();
        let mut recorded = self.lock();
        if recorded.make_room(size) {
            recorded.http.push(answer);
        }
    }
}

fn redact_query(url: &mut Url) -> usize {
    let mut count = usize::from(url.fragment().is_some());
    url.set_fragment(None);
    let names: Vec<_> = url.query_pairs().map(|(name, _)| name.into_owned()).collect();
    if names.is_empty() {
        return count;
    }
    count += names.len();
    url.query_pairs_mut()
        .clear()
        .extend_pairs(names.iter().map(|name| (name, REDACTED)));
    count
}

/// Parses the body if it is an object or a list, so that values in it can be redacted.
fn read_body(body: &[u8]) -> Value {
    match serde_json::from_slice::<Value>(body) {
        Ok(value) if value.is_object() || value.is_array() => value,
        _ => match std::str::from_utf8(body) {
            Ok("") | Err(_) => Value::Null,
            Ok(text) => Value::String(text.to_owned()),
        },
    }
}

/// A sender that takes the responses to the HTTP requests of plugins from a list. If the list has several responses to
/// the same method and URL, they are returned in order, and the last one is repeated. If the query values of a URL in
/// the list are redacted, the URL matches every request whose query has the same parameter names.
#[derive(Debug, Default)]
pub struct HttpAnswers(Mutex<HashMap<(String, Url), VecDeque<HttpAnswer>>>);

impl FromIterator<HttpAnswer> for HttpAnswers {
    fn from_iter<T: IntoIterator<Item = HttpAnswer>>(answers: T) -> Self {
        let mut answers_by_key: HashMap<_, VecDeque<_>> = HashMap::new();
        for answer in answers {
            let key = (answer.method.clone(), answer.url.clone());
            answers_by_key.entry(key).or_default().push_back(answer);
        }
        Self(Mutex::new(answers_by_key))
    }
}

impl HttpAnswers {
    fn answer_to(&self, request: &(String, Url)) -> Option<HttpAnswer> {
        let mut answers = self.0.lock();
        let redacted_request = || {
            let (method, mut url) = request.clone();
            redact_query(&mut url);
            (method, url)
        };
        let remaining_answers = if answers.contains_key(request) {
            answers.get_mut(request)?
        } else {
            answers.get_mut(&redacted_request())?
        };
        match remaining_answers.len() {
            0 | 1 => remaining_answers.front().cloned(),
            _ => remaining_answers.pop_front(),
        }
    }
}

#[async_trait]
impl HttpSender for HttpAnswers {
    async fn send(&self, _: &HttpGrant, request: HttpRequest, _: Deadline) -> Result<HttpResponse, HttpError> {
        let request = (request.method, request.url);
        let answer = self.answer_to(&request).ok_or_else(|| {
            let (method, url) = &request;
            HttpError::Unavailable(format!(
                "there is no answer to `{method} {url}`; list one under `http` of the case, or in a file for `--http`"
            ))
        })?;
        answer.to_response()
    }
}

#[cfg(test)]
mod tests;
