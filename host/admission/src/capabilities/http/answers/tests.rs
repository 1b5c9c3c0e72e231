use std::time::Duration;

use serde_json::json;

use super::*;
use crate::HttpOrigin;

fn answer(value: Value) -> HttpAnswer {
    serde_json::from_value(value).unwrap()
}

#[tokio::test]
async fn requests_of_plugins_get_the_listed_responses() {
    let answers: HttpAnswers = [
        json!({"url": "https://a.example/x?y", "body": {"a": [1]}}),
        json!({"url": "https://a.example/x?y", "status": 404, "body": "gone"}),
        json!({"url": "https://a.example/x", "method": "POST", "headers": {"etag": "1"}}),
        json!({"url": "https://a.example/slow", "error": "timeout"}),
    ]
    .map(answer)
    .into_iter()
    .collect();
    let grant = HttpGrant::from("https://a.example".parse::<HttpOrigin>().unwrap());
    let send = async |method: &str, url: &str| {
        let request = HttpRequest::new(method, url.parse().unwrap());
        let deadline = Deadline::after(Duration::from_secs(1));
        let response = answers.send(&grant, request, deadline).await?;
        Ok::<_, HttpError>((response.status, String::from_utf8(response.body).unwrap()))
    };
    let answer_of = |status: u16, body: &str| Ok((status, body.to_owned()));
    assert_eq!(
        send("GET", "https://a.example/x?y").await,
        answer_of(200, r#"{"a":[1]}"#)
    );
    assert_eq!(send("GET", "https://a.example/x?y").await, answer_of(404, "gone"));
    assert_eq!(send("GET", "https://a.example/x?y").await, answer_of(404, "gone"));
    assert_eq!(send("POST", "https://a.example/x").await, answer_of(200, ""));
    assert_eq!(send("GET", "https://a.example/slow").await, Err(HttpError::Timeout));
    let unknown = send("GET", "https://a.example/x").await;
    assert!(
        matches!(&unknown, Err(HttpError::Unavailable(message)) if message.contains("`GET https://a.example/x`")),
        "{unknown:?}"
    );
}

#[test]
fn a_recorded_response_has_no_secret_headers() {
    let url: Url = "https://a.example/x".parse().unwrap();
    let mut response = HttpResponse::new(201, br#"{"b": 1.50, "a": 2}"#.to_vec());
    response.headers = [
        ("Content-Type", "application/json"),
        ("set-cookie", "secret"),
        ("x-token", "secret"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec();
    let recorded = HttpAnswer::record("PUT", &url, &Ok(response));
    assert_eq!(
        serde_json::to_value(&recorded).unwrap(),
        json!({"url": "https://a.example/x", "method": "PUT", "status": 201,
               "headers": {"content-type": "application/json"}, "body": {"b": 1.5, "a": 2}})
    );
    for (answer, expected) in [
        (Ok(HttpResponse::new(200, b"text".to_vec())), (json!("text"), None)),
        (Ok(HttpResponse::new(200, b"7".to_vec())), (json!("7"), None)),
        (Ok(HttpResponse::new(200, vec![0xff])), (Value::Null, None)),
        (Err(HttpError::Timeout), (Value::Null, Some(HttpAnswerError::Timeout))),
        (
            Err(HttpError::Unreachable("secret.internal".to_owned())),
            (Value::Null, Some(HttpAnswerError::Unreachable)),
        ),
    ] {
        let recorded = HttpAnswer::record("GET", &url, &answer);
        assert_eq!((recorded.body, recorded.error), expected, "{answer:?}");
    }
}

#[tokio::test]
async fn query_values_of_recorded_urls_are_redacted() {
    for (url, location, expected, count) in [
        ("https://a.example/x", "/y", ("https://a.example/x", "/y"), 0),
        (
            "https://a.example/x?token=s3cret&page=2",
            "/y?key=s3cret#s3cret",
            (
                "https://a.example/x?token=%5Bredacted%5D&page=%5Bredacted%5D",
                "https://a.example/y?key=%5Bredacted%5D",
            ),
            4,
        ),
        (
            "https://a.example/x?s3cret",
            "https://s3cret:443:1/",
            ("https://a.example/x?s3cret=%5Bredacted%5D", "[redacted]"),
            2,
        ),
    ] {
        let value = json!({"url": url, "status": 302, "headers": {"location": location}});
        let mut recorded = answer(value);
        assert_eq!(recorded.redact_queries(), count, "{url}");
        let actual = (recorded.url.as_str(), recorded.headers["location"].as_str());
        assert_eq!(actual, expected, "{url}");
        let (method, url) = (recorded.method.clone(), url.parse().unwrap());
        let answers: HttpAnswers = [recorded].into_iter().collect();
        assert_eq!(answers.answer_to(&(method, url)).unwrap().status, 302);
        let other = "https://a.example/x?other=1".parse().unwrap();
        assert_eq!(answers.answer_to(&("GET".to_owned(), other)), None);
    }
}

#[test]
fn a_listed_response_with_an_unknown_field_is_refused() {
    let parse = |value| serde_json::from_value::<HttpAnswer>(value).map_err(|error| error.to_string());
    for (value, expected) in [
        (json!({"url": "/x"}), "is not a URL"),
        (
            json!({"url": "https://a.example", "state": 200}),
            "unknown field `state`",
        ),
        (
            json!({"url": "https://a.example", "error": "slow"}),
            "unknown variant `slow`",
        ),
        (json!({"status": 200}), "missing field `url`"),
    ] {
        let error = parse(value).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
