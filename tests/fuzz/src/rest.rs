use admittance::{
    admission::{GroupVersionResource, Operation},
    dialect::{BodyReading, Class, Dialect, KindSource, Rest, RestConfig, RestRoute, UnmatchedWrites, ValueSource},
};
use bytes::Bytes;
use http::Method;

use crate::{
    bcs::{check_inspection, parse_head},
    parts,
};

/// Sends a request to a driver in front of a JSON API, which calls hooks for some paths of the API. The input is
/// `METHOD /path`, an empty line, and the body. Checks that no other spelling of these paths bypasses the hooks, and
/// that the driver forwards an object as it was if no hook changes it.
pub fn rest(input: &[u8]) {
    let [line, body] = parts(input);
    let Some(head) = parse_head(line) else {
        return;
    };
    let dialect = dialect();
    let class = dialect.classify(&head);
    let names = if is_write(&head.method) {
        possible_names(head.uri.path())
    } else {
        Vec::new()
    };
    match class {
        Class::Pass => assert!(
            names.is_empty(),
            "{} {} passes the hooks of {names:?}",
            head.method,
            head.uri.path()
        ),
        Class::Inspect(inspection) => {
            let body = Bytes::copy_from_slice(body);
            check_inspection(&dialect, &head, &inspection, &body);
            let Ok(BodyReading::Admit { request, .. }) = dialect.read_body(&head, &inspection, &body) else {
                return;
            };
            for name in names {
                assert!(
                    name.eq_ignore_ascii_case(&request.name),
                    "{} is inspected as {:?}, and may be for {name:?}",
                    head.uri.path(),
                    request.name
                );
            }
        }
        _ => {}
    }
}

fn dialect() -> Rest {
    let jobs = GroupVersionResource {
        group: String::new(),
        version: "v1".to_owned(),
        resource: "jobs".to_owned(),
    };
    let pointer = |text: &str| text.parse().expect("a pointer");
    let mut by_name = RestRoute::new(
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
    let new = RestRoute::new(
        [Method::POST],
        "/v1/jobs",
        Operation::Create,
        jobs,
        KindSource::Pointer(pointer("/Job/Type")),
    );
    let mut config = RestConfig::new(vec![by_name, new]);
    config.unmatched_writes = UnmatchedWrites::Pass;
    Rest::new(config).expect("the routes are right")
}

fn is_write(method: &Method) -> bool {
    *method == Method::PUT
}

/// Returns all names of jobs that any server could read in this path, independently of the program's code.
fn possible_names(path: &str) -> Vec<String> {
    let mut names = Vec::new();
    for server in 0..1 << 6 {
        let has_bit = |bit: u32| server & 1 << bit != 0;
        let repeated = |text: &str, times: usize| (0..times).fold(text.to_owned(), |text, _| decode_percent(&text));
        for before in 0..3 {
            let mut path = path.to_owned();
            if has_bit(0) {
                path = without_parameters(&path);
            }
            path = repeated(&path, before);
            if has_bit(1) {
                path = path.replace('\\', "/");
            }
            if has_bit(2) {
                path = without_parameters(&path);
            }
            for after in usize::from(before == 0)..3 - before {
                let segments: Vec<String> = split_segments(&path, has_bit(3), has_bit(4))
                    .iter()
                    .map(|segment| repeated(segment, after))
                    .collect();
                let is_equal = |segment: &str, expected: &str| {
                    if has_bit(5) {
                        segment.eq_ignore_ascii_case(expected)
                    } else {
                        segment == expected
                    }
                };
                if let [version, jobs, name] = &segments[..]
                    && is_equal(version, "v1")
                    && is_equal(jobs, "jobs")
                {
                    names.push(name.clone());
                }
            }
        }
    }
    names
}

fn without_parameters(path: &str) -> String {
    let segments = path.split('/').filter_map(|segment| segment.split(';').next());
    segments.collect::<Vec<_>>().join("/")
}

/// Splits a path into segments, like one of several kinds of servers. If `merges` is set, the server first drops empty
/// segments. If `knows_dots` is set, the server then resolves the segments `.` and `..`.
fn split_segments(path: &str, merges: bool, knows_dots: bool) -> Vec<String> {
    let mut resolved: Vec<&str> = Vec::new();
    for segment in path.split('/').skip(1) {
        match segment {
            "" if merges => {}
            "." if knows_dots => {}
            ".." if knows_dots => {
                resolved.pop();
            }
            _ => resolved.push(segment),
        }
    }
    resolved.retain(|segment| !segment.is_empty());
    resolved.into_iter().map(str::to_owned).collect()
}

fn decode_percent(path: &str) -> String {
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
