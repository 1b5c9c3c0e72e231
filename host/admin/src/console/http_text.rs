//! Reads and writes requests as HTTP text, which users of the playground may enter instead of an AdmissionReview.

use admittance::admission::{Object, Request};
use admittance_dialect::Dialect;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Uri, header::CONTENT_TYPE};
use serde::de::IgnoredAny;

use crate::error::ApiError;

/// Returns whether a text begins with a method and a path, as HTTP text does and a JSON or YAML object does not.
pub(super) fn is_http(text: &str) -> bool {
    start_line(text).is_some()
}

fn start_line(text: &str) -> Option<(Method, Uri)> {
    let mut words = text.lines().next()?.split_whitespace();
    let (method, path) = (words.next()?, words.next()?);
    let is_method = method.bytes().all(|byte| byte.is_ascii_uppercase());
    (is_method && path.starts_with('/')).then_some(())?;
    Some((method.parse().ok()?, path.parse().ok()?))
}

/// Reads a request from HTTP text as the front end reads it from a client, but does not fetch the stored object.
pub(super) fn read(dialect: &dyn Dialect, text: &str) -> Result<Request, ApiError> {
    let at = |line: usize, message: &str| mistake(format!("object:{line}:1: {message}"));
    let (method, uri) = start_line(text).ok_or_else(|| at(1, "write a method and a path: `PUT /v1/job/web`"))?;
    let mut head = http::Request::builder()
        .method(method)
        .uri(uri)
        .body(())
        .map_err(|error| at(1, &error.to_string()))?;
    let (mut lines, mut begin) = (text.split('\n').enumerate(), 0);
    for (index, line) in lines.by_ref() {
        begin += line.len() + 1;
        let line = line.trim();
        if line.is_empty() {
            break;
        }
        if index == 0 {
            continue;
        }
        let header = line.split_once(':').and_then(|(name, value)| {
            Some((
                name.trim().parse::<HeaderName>().ok()?,
                value.trim().parse::<HeaderValue>().ok()?,
            ))
        });
        let (name, value) = header.ok_or_else(|| {
            at(
                index + 1,
                "not a header; write `name: value`, and an empty line before the body",
            )
        })?;
        head.headers_mut().append(name, value);
    }
    let json = HeaderValue::from_static("application/json");
    head.headers_mut().entry(CONTENT_TYPE).or_insert(json);
    let body = text.get(begin..).unwrap_or_default().trim_end();
    if let Err(error) = serde_json::from_str::<IgnoredAny>(body)
        && !body.is_empty()
    {
        let line = text.get(..begin).unwrap_or_default().matches('\n').count() + error.line();
        let (column, reason) = (error.column(), error.to_string());
        // The parser's message ends with a line number, which counts from the beginning of the body. The user sees the
        // line within the whole text instead, so the end of the message is cut off.
        let reason = reason.split(" at line ").next().unwrap_or_default();
        return Err(mistake(format!(
            "object:{line}:{column}: the body is not JSON: {reason}"
        )));
    }
    let body = Bytes::copy_from_slice(body.as_bytes());
    let (head, ()) = head.into_parts();
    let request = dialect
        .admission_request(&head, &body)
        .map_err(|rejection| mistake(format!("object: {}", rejection.message)))?;
    request.ok_or_else(|| {
        mistake("object: no route of the configuration is for this request, so it passes unchanged".to_owned())
    })
}

/// Writes a request as HTTP text. If `request` is `None`, writes an example. Returns `None` if the dialect cannot write
/// the request as HTTP.
pub(super) fn write(dialect: &dyn Dialect, request: Option<&Request>) -> Option<String> {
    let http_request = dialect.http_request(request)?;
    let object = Object::parse(http_request.body().as_str()).ok();
    let body = object.and_then(|object| serde_json::to_string_pretty(object.value()).ok());
    let headers: String = http_request
        .headers()
        .iter()
        .filter_map(|(name, value)| Some(format!("{name}: {}\n", value.to_str().ok()?)))
        .collect();
    Some(format!(
        "{} {}\n{headers}\n{}\n",
        http_request.method(),
        http_request.uri(),
        body.unwrap_or_default()
    ))
}

fn mistake(text: String) -> ApiError {
    ApiError::CannotEvaluate(vec![text])
}

#[cfg(test)]
mod tests {
    use admittance::admission::{GroupVersionResource, Operation};
    use admittance_dialect::{KindSource, Rest, RestConfig, RestRoute, ValueSource};

    use super::*;

    fn services() -> Rest {
        let mut route = RestRoute::new(
            [Method::PUT],
            "/v1/services/{name}",
            Operation::Update,
            GroupVersionResource {
                resource: "services".to_owned(),
                ..GroupVersionResource::default()
            },
            KindSource::Fixed("Service".into()),
        );
        route.name = vec![ValueSource::Path("name".into())];
        Rest::new(RestConfig::new(vec![route])).unwrap()
    }

    #[test]
    fn a_request_written_as_http_text_can_be_read_again() {
        let text = "PUT /v1/services/a%20b\ncontent-type: application/json\n\n{\n  \"replicas\": 2\n}\n";
        let request = read(&services(), text).unwrap();
        assert_eq!((request.name.as_str(), request.operation), ("a b", Operation::Update));
        assert_eq!(write(&services(), Some(&request)).unwrap(), text);
        let example = write(&services(), None).unwrap();
        assert!(example.starts_with("PUT /v1/services/example\n"), "{example}");
        assert_eq!(read(&services(), &example).unwrap().name, "example");
    }

    #[test]
    fn messages_about_mistakes_in_http_text_name_the_line() {
        for (text, expected) in [
            ("PUT /v1/services/web\nnonsense\n\n{}", "object:2:1: not a header"),
            (
                "PUT /v1/services/web\n\n{\n  \"a\": x\n}",
                "object:4:8: the body is not JSON",
            ),
            ("PUT /v1/others/web\n\n{}", "no route matches"),
            ("PUT /v1/services/web\n\n", "it is empty"),
        ] {
            let Err(ApiError::CannotEvaluate(mistakes)) = read(&services(), text) else {
                panic!("{text}");
            };
            assert!(mistakes[0].contains(expected), "{text}: {mistakes:?}");
        }
        for text in ["kind: Pod", "{}", "put /v1", "PUT v1"] {
            assert!(!is_http(text), "{text}");
        }
    }
}
