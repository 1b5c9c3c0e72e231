//! Request bodies: streamed up to a limit, or read and converted to JSON.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use admittance::BodyLimits;
use admittance_admission::offload_without_deadline;
use axum::body::Body;
use http::{
    HeaderValue,
    header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT, TRANSFER_ENCODING},
    request::Parts,
};
use http_body_util::{BodyExt, Limited};

use super::{error::GatewayError, yaml};

/// The content types of YAML bodies. bcs-api accepts only the first of them.
const YAML_TYPES: [&str; 2] = ["application/x-yaml", "application/yaml"];

pub(super) fn is_yaml(head: &Parts) -> bool {
    let Some(value) = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let essence = value.split(';').next().unwrap_or_default().trim();
    YAML_TYPES.iter().any(|yaml| essence.eq_ignore_ascii_case(yaml))
}

pub(super) async fn convert_yaml(head: &mut Parts, body: Body, limits: BodyLimits) -> Result<Body, GatewayError> {
    let bytes = limits
        .collect(head, body)
        .await
        .map_err(|error| GatewayError::from(&error.end_reason()))?;
    let work = if yaml::may_expand(&bytes) {
        limits.size
    } else {
        bytes.len()
    };
    let json = offload_without_deadline(work, move || yaml::to_json(&bytes, limits.size)).await?;
    let headers = &mut head.headers;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, json.len().into());
    headers.remove(TRANSFER_ENCODING);
    headers.remove(EXPECT);
    for name in ["digest", "content-digest", "content-md5"] {
        headers.remove(name);
    }
    Ok(Body::from(json))
}

/// Whether a request body was cut off because it reached the limit. Clones share the value.
#[derive(Clone, Debug, Default)]
pub(super) struct CutOff(Arc<AtomicBool>);

impl CutOff {
    pub(super) fn has_happened(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

pub(super) async fn stream_body(
    head: &mut Parts,
    body: Body,
    limits: BodyLimits,
) -> Result<(Body, CutOff), GatewayError> {
    let announced = http_body::Body::size_hint(&body).lower();
    if usize::try_from(announced).map_or(true, |announced| announced > limits.size) {
        // Some clients read the reply only after sending their whole body. So `collect` reads the body to the end. With
        // a header `Content-Encoding`, `collect` would refuse the body without reading it, so this header is removed.
        head.headers.remove(http::header::CONTENT_ENCODING);
        return match limits.collect(head, body).await {
            Err(error) => Err(GatewayError::from(&error.end_reason())),
            Ok(_) => Err(GatewayError::TooLarge { limit: limits.size }),
        };
    }
    let cut_off = CutOff::default();
    let flag = cut_off.clone();
    let limited = Limited::new(body, limits.size).map_err(move |error| match error.downcast::<axum::Error>() {
        Ok(error) => *error,
        Err(limit) => {
            flag.0.store(true, Ordering::Relaxed);
            axum::Error::new(limit)
        }
    });
    Ok((Body::new(limited), cut_off))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Request;

    use super::*;

    const LIMITS: BodyLimits = BodyLimits::new(10, Duration::from_secs(60));

    fn head(headers: &[(&str, &str)]) -> Parts {
        let request = headers.iter().fold(Request::post("/"), |request, (name, value)| {
            request.header(*name, *value)
        });
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn yaml_is_recognized_by_its_content_type() {
        for (value, expected) in [
            ("application/x-yaml", true),
            ("application/yaml", true),
            ("Application/X-YAML; charset=utf-8", true),
            ("application/json", false),
            ("application/x-yaml2", false),
            ("text/plain", false),
        ] {
            assert_eq!(is_yaml(&head(&[("content-type", value)])), expected, "{value}");
        }
        assert!(!is_yaml(&head(&[])));
    }

    #[tokio::test]
    async fn converting_yaml_updates_the_headers_of_the_body() {
        let mut head = head(&[
            ("content-type", "application/x-yaml"),
            ("content-length", "4"),
            ("content-md5", "x"),
            ("x-kept", "1"),
        ]);
        let body = convert_yaml(&mut head, Body::from("a: 1"), LIMITS).await.unwrap();
        assert_eq!(body.collect().await.unwrap().to_bytes(), r#"{"a":1}"#);
        assert_eq!(head.headers["content-type"], "application/json");
        assert_eq!(head.headers["content-length"], "7");
        assert_eq!(head.headers["x-kept"], "1");
        assert_eq!(head.headers.len(), 3);
    }

    #[tokio::test]
    async fn bodies_are_cut_off_at_the_size_limit() {
        let chunks = |sizes: &'static [usize]| {
            let stream = futures_util::stream::iter(sizes).map(|size| Ok::<_, std::io::Error>(vec![b'x'; *size]));
            Body::from_stream(stream)
        };
        use futures_util::StreamExt;
        for (sizes, is_whole) in [
            (&[][..], true),
            (&[10], true),
            (&[5, 5], true),
            (&[11], false),
            (&[5, 5, 1], false),
        ] {
            let (body, cut_off) = stream_body(&mut head(&[]), chunks(sizes), LIMITS).await.unwrap();
            assert_eq!(body.collect().await.is_ok(), is_whole, "{sizes:?}");
            assert_eq!(cut_off.has_happened(), !is_whole, "{sizes:?}");
        }
        let announced = stream_body(
            &mut head(&[("content-encoding", "gzip")]),
            Body::from("12345678901"),
            LIMITS,
        )
        .await;
        assert_eq!(announced.unwrap_err(), GatewayError::TooLarge { limit: 10 });
    }
}
