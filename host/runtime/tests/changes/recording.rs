use std::{sync::Arc, time::Duration};

use admittance::{
    Host, RecordingConfig,
    admission::{
        Chain, Deadline, Failure, GroupVersionKind, Hook, Object, Operation, Patch, Request, Response, Rule, Stage,
        Verdict, async_trait,
    },
};
use futures_util::StreamExt;

struct LabelHook;

#[async_trait]
impl Hook for LabelHook {
    async fn admit(&self, _: &Arc<Request>, _: Deadline) -> Result<Response, Failure> {
        let patch = Patch::parse(r#"[{"op":"add","path":"/metadata/labels","value":{"secret":"s3cret"}}]"#);
        Ok(Response::new(Verdict::Patch(patch.unwrap())))
    }
}

fn pod(name: &str) -> Request {
    let text = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","annotations":{{"token":"s3cret"}}}}}}"#
    );
    let kind = GroupVersionKind::from_api_version("v1", "Pod");
    let resource = kind.guess_resource();
    Request::new(Operation::Create, kind, resource).with_object(Object::parse(text).unwrap())
}

async fn new_host() -> Host {
    let rules = vec![Rule::for_operations([Operation::Create])];
    let chain = Chain::new("labels", rules, vec![Stage::new("labels", LabelHook)]);
    Host::builder().chain(chain).build().await.unwrap()
}

#[tokio::test]
async fn a_recording_contains_a_share_of_the_requests_with_their_outcomes() {
    let host = new_host().await;
    host.admit(pod("before")).await;
    let redact = ["/metadata/annotations/token", "/metadata/labels/*"].map(|text| text.parse().unwrap());
    let mut config = RecordingConfig::default();
    config.share = "50%".parse().unwrap();
    config.redact = redact.into();
    let mut recording = host.record(config);
    for name in ["a", "b", "c"] {
        host.admit(pod(name)).await;
    }
    for name in ["a", "c"] {
        let recorded = recording.next().await.unwrap();
        let text = serde_json::to_string(&recorded).unwrap();
        assert!(!text.contains("s3cret"), "{text}");
        assert_eq!(recorded.request["name"], name);
        assert_eq!(recorded.response["allowed"], true);
        assert_eq!(recorded.response["patchType"], "JSONPatch");
        assert_eq!((recorded.recording.revision, recorded.recording.redacted), (1, 2));
        let review = admittance::admission::read_review(text.to_owned()).unwrap();
        assert_eq!(review.request.name, name);
    }
    let none = tokio::time::timeout(Duration::ZERO, recording.next()).await;
    assert!(none.is_err(), "b is not in the share");
}

#[tokio::test]
async fn a_slow_reader_of_a_recording_misses_requests_but_delays_none() {
    let host = new_host().await;
    let recording = host.record(RecordingConfig::default());
    for _ in 0..300 {
        host.admit(pod("a")).await;
    }
    assert_eq!(recording.missed(), 300 - 256);
}
