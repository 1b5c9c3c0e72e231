use std::sync::LazyLock;

use admittance::{
    admission::{Patch, Request},
    dialect::{BodyReading, Class, Dialect, Inspection},
};
use admittance_bcs::{Bcs, NextBody, Relay, SchedulerForwarding, UpstreamKind, definitions_reply, forwarding, relay};
use bytes::Bytes;
use http::{StatusCode, header::CONTENT_TYPE, request::Parts};
use serde_json::Value;

use crate::parts;

/// The dialect is built once for all inputs, because building it takes longer than running an input.
static DIALECT: LazyLock<Bcs> = LazyLock::new(|| {
    Bcs::new("BCS-MESOS-10001".parse().expect("a cluster id")).with_upstream_kind(UpstreamKind::Scheduler)
});

/// Sends a request to a BCS driver. The input is `METHOD /path`, an empty line, and the body. Checks three properties:
/// No object is forwarded with a key in two spellings. An object that no hook changes is forwarded byte for byte. The
/// request to the scheduler is JSON.
pub fn bcs(input: &[u8]) {
    let [line, body] = parts(input);
    let body = Bytes::copy_from_slice(body);
    let dialect = &*DIALECT;
    if let Some(head) = parse_head(line) {
        if let Class::Inspect(inspection) = dialect.classify(&head) {
            check_inspection(dialect, &head, &inspection, &body);
        }
        let forwarding = forwarding(&head, None).or_else(|| forwarding(&head, Some(&body)));
        check_forwarding(&forwarding.expect("the body is there"));
    }
    // The input is also tested as the body of a reply: first with the status 200, as the scheduler sends it, and then
    // with the status 500, as kube-apiserver sends it.
    for status in [StatusCode::OK, StatusCode::INTERNAL_SERVER_ERROR] {
        if let Relay::Reply(reply) | Relay::NotProcessed(reply) = relay(status, &body) {
            assert_json(reply.body());
        }
    }
    definitions_reply(&body);
}

pub(crate) fn parse_head(line: &[u8]) -> Option<Parts> {
    let line = std::str::from_utf8(line).ok()?;
    let (method, path) = line.split_once(' ')?;
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("BCS-ClusterID", "BCS-MESOS-10001");
    Some(request.body(()).ok()?.into_parts().0)
}

/// Reads a request with this body, and then a request with the body that the driver would forward. Checks that both
/// requests are equal.
pub(crate) fn check_inspection(dialect: &impl Dialect, head: &Parts, inspection: &Inspection, body: &Bytes) {
    let Ok(BodyReading::Admit { request, canonical }) = dialect.read_body(head, inspection, body) else {
        return;
    };
    let body = canonical.as_ref().unwrap_or(body);
    let (again, other) = read_again(dialect, head, inspection, body);
    assert!(other.is_none(), "the one spelling has another: {body:?}");
    assert_same(&request, &again);
    if let Some(object) = &request.object {
        let result = dialect.changed_body(head, inspection, body, object, &Patch::default());
        let written_body = result.expect("a whole object can be written");
        let (again, _) = read_again(dialect, head, inspection, &written_body);
        assert_same(&request, &again);
    }
}

fn read_again(
    dialect: &impl Dialect,
    head: &Parts,
    inspection: &Inspection,
    body: &Bytes,
) -> (Box<Request>, Option<Bytes>) {
    match dialect.read_body(head, inspection, body) {
        Ok(BodyReading::Admit { request, canonical }) => (request, canonical),
        other => panic!("{body:?} was a request, and is {other:?}"),
    }
}

fn assert_same(before: &Request, after: &Request) {
    assert_eq!(before.object, after.object);
    assert_eq!(
        (&before.kind, &before.resource, &before.name, &before.namespace),
        (&after.kind, &after.resource, &after.name, &after.namespace)
    );
}

fn check_forwarding(forwarding: &SchedulerForwarding) {
    match forwarding {
        SchedulerForwarding::Rewritten(rewritten) => {
            if let NextBody::New(body) = &rewritten.body {
                assert_json(body);
            }
        }
        SchedulerForwarding::Reply(reply) => {
            if reply.headers()[CONTENT_TYPE] == "application/json" {
                assert_json(reply.body());
            } else {
                assert_eq!(reply.headers()[CONTENT_TYPE], "text/plain; charset=utf-8");
            }
        }
        SchedulerForwarding::OtherServer(_) => {}
    }
}

fn assert_json(body: &[u8]) {
    if !body.is_empty() {
        serde_json::from_slice::<Value>(body).expect("it is JSON");
    }
}
