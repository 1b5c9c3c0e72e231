use admittance::{
    admission::{GroupVersionResource, Operation},
    dialect::{Class, Dialect, KindSource, Rest, RestConfig, Route, Unmatched, ValueSource},
};
use bytes::Bytes;
use http::Method;

use crate::{
    bcs::{head, inspect},
    parts,
};

/// A request to a JSON API with hooks for a collection: `METHOD /path`, an empty line, the body. No spelling of the path
/// bypasses the hooks, and an object that they did not change comes out unchanged.
pub fn rest(input: &[u8]) {
    let [line, body] = parts(input);
    let Some(head) = head(line) else {
        return;
    };
    let dialect = dialect();
    let class = dialect.classify(&head);
    if is_write(&head.method) && is_hooked(head.uri.path()) {
        assert!(
            !matches!(class, Class::Pass),
            "{} {} passes the hooks",
            head.method,
            head.uri.path()
        );
    }
    if let Class::Inspect(inspection) = class {
        inspect(&dialect, &head, &inspection, &Bytes::copy_from_slice(body));
    }
}

fn dialect() -> Rest {
    let jobs = GroupVersionResource {
        group: String::new(),
        version: "v1".to_owned(),
        resource: "jobs".to_owned(),
    };
    let pointer = |text: &str| text.parse().expect("a pointer");
    let mut by_name = Route::new(
        [Method::PUT],
        "/v1/jobs/{id}",
        Operation::Update,
        jobs.clone(),
        KindSource::Fixed("Job".to_owned()),
    );
    by_name.name = vec![ValueSource::Path("id".to_owned())];
    by_name.namespace = vec![
        ValueSource::Query("namespace".to_owned()),
        ValueSource::Pointer(pointer("/Job/Namespace")),
    ];
    by_name.object = pointer("/Job");
    let new = Route::new(
        [Method::POST],
        "/v1/jobs",
        Operation::Create,
        jobs,
        KindSource::Pointer(pointer("/Job/Type")),
    );
    let mut config = RestConfig::new(vec![by_name, new]);
    config.unmatched = Unmatched::Pass;
    Rest::new(config).expect("the routes are right")
}

/// The methods of the routes.
fn is_write(method: &Method) -> bool {
    *method == Method::PUT
}

/// Whether a server may read the path as that of a job: an independent implementation, different from the
/// program's.
fn is_hooked(path: &str) -> bool {
    let segments = |path: &str| {
        let mut kept: Vec<String> = Vec::new();
        for segment in path
            .split('/')
            .filter(|segment| !segment.is_empty() && *segment != ".")
        {
            if segment == ".." {
                kept.pop();
            } else {
                kept.push(segment.to_owned());
            }
        }
        kept
    };
    let is_job =
        |segments: &[String]| matches!(segments, [version, jobs, _] if version == "v1" && jobs == "jobs");
    is_job(&segments(path)) || is_job(&segments(&decoded(path)))
}

fn decoded(path: &str) -> String {
    let bytes = path.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let mut text = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                text.push(u8::try_from(high * 16 + low).expect("two digits are a byte"));
                at += 3;
            }
            (byte, ..) => {
                text.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}
