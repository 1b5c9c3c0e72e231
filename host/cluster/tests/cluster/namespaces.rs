//! Tests of the labels of namespaces.

use admittance_admission::{Labels, NamespaceSource};
use admittance_cluster::{Cluster, WatchState};
use serde_json::json;

use crate::setting::{Setting, TEST_TIMEOUT, wait_until};

fn put_namespace(setting: &Setting, name: &str, tier: &str) {
    setting.server.put(
        "namespaces",
        json!({"metadata": {"name": name, "labels": {"tier": tier}}, "spec": {"finalizers": ["kubernetes"]}}),
    );
}

fn tier_labels(value: &str) -> Labels {
    [("tier".to_owned(), value.to_owned())].into()
}

async fn wait_until_watching(cluster: &Cluster) {
    wait_until("namespaces are watched", async || {
        cluster.status().namespaces.state == WatchState::Watching
    })
    .await;
}

#[tokio::test]
async fn lookups_before_the_first_list_are_sent_to_the_server() {
    let setting = Setting::new();
    put_namespace(&setting, "prod", "web");
    setting.server.hold("list", "namespaces");
    let cluster = setting.cluster().await;
    assert_eq!(cluster.status().namespaces.state, WatchState::Idle);
    assert_eq!(cluster.labels("prod").await, Ok(tier_labels("web")));
    assert_eq!(setting.server.count_requests("get", "/api/v1/namespaces/prod"), 1);
    let status = cluster.status().namespaces;
    assert_eq!((status.state, status.objects), (WatchState::Starting, 0));

    setting.server.release("list", "namespaces");
    wait_until_watching(&cluster).await;
    assert_eq!(cluster.labels("prod").await, Ok(tier_labels("web")));
    assert_eq!(
        setting.server.count_requests("get", "/api/v1/namespaces/prod"),
        1,
        "from the cache"
    );
    assert_eq!(cluster.status().namespaces.objects, 1);
    assert!(cluster.status().server.starts_with("https://127.0.0.1:"));
}

#[tokio::test]
async fn a_changed_label_arrives_through_the_watch() {
    let setting = Setting::new();
    put_namespace(&setting, "prod", "web");
    let cluster = setting.cluster().await;
    cluster.watch_namespaces();
    wait_until_watching(&cluster).await;
    put_namespace(&setting, "prod", "db");
    wait_until("the new label is seen", async || {
        cluster.labels("prod").await == Ok(tier_labels("db"))
    })
    .await;
    assert_eq!(setting.server.count_requests("get", ""), 0);

    put_namespace(&setting, "new", "web");
    assert_eq!(
        cluster.labels("new").await,
        Ok(tier_labels("web")),
        "from the watch or from the server"
    );
    setting.server.delete("namespaces", "", "prod");
    wait_until("the namespace is gone", async || cluster.labels("prod").await.is_err()).await;
    let error = cluster.labels("prod").await.unwrap_err();
    assert_eq!(error.to_string(), "namespace \"prod\" not found");
}

#[tokio::test]
async fn an_invalid_namespace_name_is_not_looked_up() {
    let setting = Setting::new();
    setting.server.hold("list", "namespaces");
    let cluster = setting.cluster().await;
    for name in [
        "",
        "..",
        "../pods",
        "prod/status",
        "Prod",
        "a.b",
        "a?b",
        &"a".repeat(64),
    ] {
        let error = cluster.labels(name).await.unwrap_err();
        assert_eq!(error.to_string(), format!("namespace {name:?} not found"));
    }
    assert_eq!(setting.server.count_requests("get", ""), 0);
    let error = cluster.labels("absent").await.unwrap_err();
    assert_eq!(error.to_string(), "namespace \"absent\" not found");
    assert_eq!(setting.server.count_requests("get", "/namespaces/absent"), 1);
}

#[tokio::test]
async fn lookups_succeed_after_a_late_start_of_the_server() {
    let setting = Setting::new();
    put_namespace(&setting, "prod", "web");
    setting.server.become_unavailable();
    let cluster = setting.cluster().await;
    let error = cluster.labels("prod").await.unwrap_err().to_string();
    let start = format!(
        "the labels of namespace \"prod\" cannot be read from https://{}: ",
        setting.server.address
    );
    assert!(error.starts_with(&start), "{error}");
    wait_until("the watch is down", async || {
        cluster.status().namespaces.state == WatchState::Down
    })
    .await;
    assert!(cluster.status().namespaces.problem.is_some());

    setting.server.become_available();
    assert_eq!(
        cluster.labels("prod").await,
        Ok(tier_labels("web")),
        "the server is asked"
    );
    wait_until_watching(&cluster).await;
    assert_eq!(cluster.status().namespaces.problem, None);
}

#[tokio::test]
async fn a_watch_that_breaks_resumes_where_it_was() {
    let setting = Setting::new();
    put_namespace(&setting, "prod", "web");
    let cluster = setting.cluster().await;
    cluster.watch_namespaces();
    wait_until_watching(&cluster).await;
    setting.server.become_unavailable();
    wait_until("the watch is down", async || {
        cluster.status().namespaces.state == WatchState::Down
    })
    .await;
    assert_eq!(
        cluster.labels("prod").await,
        Ok(tier_labels("web")),
        "what is known is used for a while"
    );

    put_namespace(&setting, "prod", "db");
    setting.server.become_available();
    wait_until("the label of meanwhile is seen", async || {
        cluster.labels("prod").await == Ok(tier_labels("db"))
    })
    .await;
    wait_until_watching(&cluster).await;
    assert_eq!(
        setting.server.count_requests("list", "/namespaces"),
        1,
        "it was not listed anew"
    );
}

#[tokio::test]
async fn a_broken_watch_is_up_again_before_any_object_changes() {
    let setting = Setting::new();
    let cluster = setting.cluster().await;
    cluster.watch_namespaces();
    wait_until_watching(&cluster).await;
    setting.server.become_unavailable();
    wait_until("the watch is down", async || {
        cluster.status().namespaces.state == WatchState::Down
    })
    .await;
    setting.server.become_available();
    wait_until_watching(&cluster).await;
}

#[tokio::test]
async fn an_expired_watch_lists_the_objects_again() {
    let setting = Setting::new();
    put_namespace(&setting, "prod", "web");
    put_namespace(&setting, "old", "web");
    let cluster = setting.cluster().await;
    cluster.watch_namespaces();
    wait_until_watching(&cluster).await;
    setting.server.become_unavailable();
    put_namespace(&setting, "prod", "db");
    setting.server.delete("namespaces", "", "old");
    setting.server.compact();
    setting.server.become_available();
    wait_until("the list is there", async || {
        cluster.labels("prod").await == Ok(tier_labels("db")) && cluster.labels("old").await.is_err()
    })
    .await;
    wait_until_watching(&cluster).await;
    assert_eq!(setting.server.count_requests("list", "/namespaces"), 2);
}

#[tokio::test]
async fn an_expired_watch_is_up_only_after_the_objects_are_listed() {
    let setting = Setting::new();
    put_namespace(&setting, "prod", "web");
    let cluster = setting.cluster().await;
    cluster.watch_namespaces();
    wait_until_watching(&cluster).await;
    setting.server.become_unavailable();
    put_namespace(&setting, "prod", "db");
    setting.server.compact();
    setting.server.hold("list", "namespaces");
    setting.server.become_available();
    wait_until("it is listed again", async || {
        setting.server.count_requests("list", "/namespaces") == 2
    })
    .await;
    assert_eq!(cluster.status().namespaces.state, WatchState::Starting);
    assert_eq!(cluster.labels("prod").await, Ok(tier_labels("web")));
    assert_eq!(setting.server.count_requests("get", ""), 0);
    put_namespace(&setting, "new", "web");
    assert_eq!(cluster.labels("new").await, Ok(tier_labels("web")));
    assert_eq!(setting.server.count_requests("get", "/namespaces/new"), 1);
    setting.server.release("list", "namespaces");
    wait_until_watching(&cluster).await;
    assert_eq!(cluster.labels("prod").await, Ok(tier_labels("db")));
}

/// An API server that has just started refuses all requests until it has read its roles. When it has read them, a watch
/// that was refused before must soon succeed.
#[tokio::test]
async fn a_watch_starts_soon_after_a_temporary_refusal() {
    let setting = Setting::new();
    let cluster = setting.cluster().await;
    cluster.watch_namespaces();
    let rounds = async {
        for _ in 0..4 {
            wait_until_watching(&cluster).await;
            setting.server.become_unavailable();
            setting.server.forbid("list", "namespaces");
            setting.server.forbid("watch", "namespaces");
            setting.server.become_available();
            wait_until("it is refused", async || {
                cluster.status().namespaces.state == WatchState::Refused
            })
            .await;
            setting.server.allow("list", "namespaces");
            setting.server.allow("watch", "namespaces");
        }
        wait_until_watching(&cluster).await;
    };
    assert!(tokio::time::timeout(TEST_TIMEOUT, rounds).await.is_ok());
}

/// Each time the watch expires, the next list succeeds, so the pause before a list must not grow with every expiry. If
/// it did, this test would exceed its timeout.
#[tokio::test]
async fn a_watch_that_expires_repeatedly_still_lists_at_once() {
    let setting = Setting::new();
    let cluster = setting.cluster().await;
    cluster.watch_namespaces();
    for round in 1..=12 {
        wait_until_watching(&cluster).await;
        setting.server.compact();
        wait_until("it is listed again", async || {
            setting.server.count_requests("list", "/namespaces") > round
        })
        .await;
    }
}

#[tokio::test]
async fn without_the_right_to_watch_every_lookup_is_sent_to_the_server() {
    for verb in ["list", "watch"] {
        let setting = Setting::new();
        put_namespace(&setting, "prod", "web");
        setting.server.forbid(verb, "namespaces");
        let cluster = setting.cluster().await;
        cluster.watch_namespaces();
        wait_until("the watch is refused", async || {
            cluster.status().namespaces.state == WatchState::Refused
        })
        .await;
        let reason = cluster.status().namespaces.problem.unwrap();
        assert_eq!(
            reason,
            format!(
                "namespaces is forbidden: User \"tester\" cannot {verb} resource \"namespaces\"; give this \
                 program's account `list` and `watch` on `namespaces` of the core API group"
            )
        );
        assert_eq!(cluster.labels("prod").await, Ok(tier_labels("web")));
        put_namespace(&setting, "prod", "db");
        assert_eq!(
            cluster.labels("prod").await,
            Ok(tier_labels("db")),
            "nothing old is served"
        );
        assert_eq!(setting.server.count_requests("get", "/namespaces/prod"), 2);

        setting.server.forbid("get", "namespaces");
        let error = cluster.labels("prod").await.unwrap_err().to_string();
        assert!(error.contains("cannot get resource"), "{error}");
        assert!(
            error.ends_with("`get`, `list` and `watch` on `namespaces` of the core API group"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_lookup_ends_at_its_deadline_without_an_answer() {
    let setting = Setting::new();
    setting.server.hold("list", "namespaces");
    setting.server.hold("get", "namespaces");
    let cluster = setting.cluster().await;
    let error = cluster.labels("prod").await.unwrap_err().to_string();
    assert!(error.ends_with(": no answer within 2s"), "{error}");
}

#[tokio::test]
async fn dropping_the_last_clone_ends_the_watch() {
    let setting = Setting::new();
    let cluster = setting.cluster().await;
    let clone = cluster.clone();
    cluster.watch_namespaces();
    wait_until_watching(&cluster).await;
    drop(cluster);
    assert_eq!(clone.status().namespaces.state, WatchState::Watching);
    assert_eq!(setting.server.open_watches(), 1);
    drop(clone);
    wait_until("the watch is closed", async || setting.server.open_watches() == 0).await;
}
