use admittance_cluster::{ClusterEvent, EventObject, ResourceError};
use serde_json::json;

use crate::setting::Setting;

fn event(name: &str, note: &str) -> ClusterEvent {
    ClusterEvent {
        regarding: EventObject {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: name.to_owned(),
            ..EventObject::default()
        },
        related: None,
        is_warning: false,
        reason: "Tested",
        action: "Test",
        note: note.to_owned(),
    }
}

#[tokio::test]
async fn a_repeated_event_is_counted_instead_of_written_again() {
    let setting = Setting::new();
    let events = setting.cluster().await.events();
    for note in ["first", "second", "third"] {
        events.publish(event("a", note)).await.unwrap();
    }
    events.publish(event("b", &"x".repeat(5000))).await.unwrap();
    let mut stored_events = setting.server.objects("events");
    stored_events.sort_by_key(|event| event["regarding"]["name"].to_string());
    assert_eq!(stored_events.len(), 2);
    assert_eq!(
        (&stored_events[0]["note"], &stored_events[0]["series"]["count"]),
        (&json!("first"), &json!(3))
    );
    assert_eq!(stored_events[0]["metadata"]["namespace"], "default");
    assert_eq!(stored_events[1]["note"].as_str().unwrap().len(), 1024);
    setting.server.forbid("create", "events");
    match events.publish(event("c", "refused")).await {
        Err(ResourceError::Refused(error)) => {
            assert!(
                error.contains("`create` and `patch` on `events` of the API group `events.k8s.io`"),
                "{error}"
            );
        }
        result => panic!("{result:?}"),
    }
}
