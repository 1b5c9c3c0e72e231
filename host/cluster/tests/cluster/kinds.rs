//! Tests of lookups of objects.

use std::{num::NonZeroU32, time::Duration};

use admittance_admission::{ClusterError, ClusterKind, ClusterPage, ClusterQuery, ClusterReader, Deadline, FieldMask};
use admittance_cluster::{Cluster, WatchState};
use serde_json::{Value, json};

use crate::setting::{Setting, wait_until};

fn parse_kind(text: &str) -> ClusterKind {
    text.parse().unwrap()
}

fn deadline() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn selector_query(namespace: Option<&str>, selector: &str) -> ClusterQuery {
    let mut query = ClusterQuery::default();
    query.namespace = namespace.map(str::to_owned);
    query.label_selector = selector.to_owned();
    query
}

async fn list(
    cluster: &Cluster,
    kind: &ClusterKind,
    namespace: Option<&str>,
    selector: &str,
) -> Result<Vec<String>, ClusterError> {
    let page = cluster
        .list(kind, &selector_query(namespace, selector), deadline())
        .await?;
    assert_eq!(page.rest, None, "there is no limit");
    Ok(page.objects.iter().map(|object| object.to_string()).collect())
}

fn watch_state(cluster: &Cluster, name: &str) -> Option<WatchState> {
    let status = cluster.status();
    let watch = status.kinds.iter().find(|watch| watch.kind == name)?;
    Some(watch.state)
}

async fn wait_until_watch_state(cluster: &Cluster, name: &str, expected: WatchState) {
    wait_until("the state of the watch", async || {
        watch_state(cluster, name) == Some(expected)
    })
    .await;
}

fn put_nodes(setting: &Setting) {
    setting.server.put(
        "nodes",
        json!({"metadata": {"name": "a", "labels": {"zone": "x"}}, "status": {"capacity": {"cpu": "4"}}}),
    );
    setting
        .server
        .put("nodes", json!({"metadata": {"name": "b", "labels": {"zone": "y"}}}));
    setting.server.put("nodes", json!({"metadata": {"name": "c"}}));
}

fn object_names(objects: &[String]) -> Vec<String> {
    objects
        .iter()
        .map(|object| {
            let object: Value = serde_json::from_str(object).unwrap();
            assert!(
                object["kind"].is_string() && object["apiVersion"].is_string(),
                "{object}"
            );
            let metadata = &object["metadata"];
            assert!(metadata.get("managedFields").is_none(), "{object}");
            match metadata["namespace"].as_str() {
                Some(namespace) => format!("{namespace}/{}", metadata["name"].as_str().unwrap()),
                None => metadata["name"].as_str().unwrap().to_owned(),
            }
        })
        .collect()
}

#[tokio::test]
async fn lookups_give_the_same_answers_before_and_after_the_first_list() {
    let setting = Setting::new();
    put_nodes(&setting);
    setting.server.set_page_size(2);
    setting.server.hold("watch", "nodes");
    let cluster = setting.cluster().await;
    // A list of Pods is refused, so the cache of Pods stays empty, and every lookup of a Pod goes to the API server.
    setting.server.forbid("list", "pods");
    let node = parse_kind("v1/Node");
    let expected = r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"a","labels":{"zone":"x"},"resourceVersion":"1"},"status":{"capacity":{"cpu":"4"}}}"#;
    let live = cluster.get(&node, None, "a", deadline()).await.unwrap().unwrap();
    let sort = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(sort(&live), sort(expected));

    setting.server.release("watch", "nodes");
    wait_until_watch_state(&cluster, "v1/Node", WatchState::Watching).await;
    let gets = setting.server.count_requests("get", "");
    let cached_node = cluster.get(&node, None, "a", deadline()).await.unwrap().unwrap();
    assert_eq!(sort(&cached_node), sort(expected));
    assert_eq!(cluster.get(&node, None, "absent", deadline()).await, Ok(None));
    assert_eq!(setting.server.count_requests("get", ""), gets, "from the cache");
    assert_eq!(
        setting.server.count_requests("discover", "/api/v1"),
        1,
        "the kind is looked up once"
    );

    setting
        .server
        .put("nodes", json!({"metadata": {"name": "d", "labels": {"zone": "x"}}}));
    setting.server.delete("nodes", "", "b");
    wait_until("the changes are seen", async || {
        object_names(&list(&cluster, &node, None, "").await.unwrap()) == ["a", "c", "d"]
    })
    .await;
}

#[tokio::test]
async fn lists_are_limited_to_a_namespace_and_labels() {
    let setting = Setting::new();
    for (namespace, name, tier) in [("x", "one", "web"), ("x", "two", "db"), ("y", "one", "web")] {
        setting.server.put(
            "pods",
            json!({"metadata": {"namespace": namespace, "name": name, "labels": {"tier": tier}}}),
        );
    }
    setting.server.set_page_size(1);
    let pod = parse_kind("v1/Pod");
    let table: [(Option<&str>, &str, &[&str]); 4] = [
        (None, "", &["x/one", "x/two", "y/one"]),
        (Some("x"), "", &["x/one", "x/two"]),
        (None, "tier=web", &["x/one", "y/one"]),
        (Some("absent"), "", &[]),
    ];

    setting.server.forbid("watch", "pods");
    let live = setting.cluster().await;
    live.watch_kinds([&pod]);
    wait_until_watch_state(&live, "v1/Pod", WatchState::Refused).await;
    let before = setting.server.count_requests("list", "");
    for (namespace, selector, expected) in table {
        let objects = list(&live, &pod, namespace, selector).await.unwrap();
        assert_eq!(object_names(&objects), expected, "live: {namespace:?} {selector:?}");
    }
    assert!(
        setting.server.count_requests("list", "") > before,
        "the server is asked"
    );
    assert!(setting.server.count_requests("list", "labelSelector=tier%3Dweb") > 0);

    let setting = Setting::new();
    for (namespace, name, tier) in [("x", "one", "web"), ("x", "two", "db"), ("y", "one", "web")] {
        setting.server.put(
            "pods",
            json!({"metadata": {"namespace": namespace, "name": name, "labels": {"tier": tier}}}),
        );
    }
    let cached_cluster = setting.cluster().await;
    cached_cluster.watch_kinds([&pod]);
    wait_until_watch_state(&cached_cluster, "v1/Pod", WatchState::Watching).await;
    let before = setting.server.count_requests("list", "");
    for (namespace, selector, expected) in table {
        let objects = list(&cached_cluster, &pod, namespace, selector).await.unwrap();
        assert_eq!(object_names(&objects), expected, "cached: {namespace:?} {selector:?}");
    }
    let objects = list(&cached_cluster, &pod, None, "tier in (db, cache)").await.unwrap();
    assert_eq!(object_names(&objects), ["x/two"]);
    assert_eq!(setting.server.count_requests("list", ""), before, "from the cache");
    let pod = cached_cluster
        .get(&pod, Some("y"), "one", deadline())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(object_names(&[pod]), ["y/one"]);
}

async fn list_pages(cluster: &Cluster, kind: &ClusterKind, limit: u32, fields: &FieldMask) -> Vec<Vec<String>> {
    let mut query = selector_query(None, "tier=web");
    query.limit = NonZeroU32::new(limit);
    query.fields = fields.clone();
    let mut pages = Vec::new();
    loop {
        let ClusterPage { objects, rest } = cluster.list(kind, &query, deadline()).await.unwrap();
        let objects = objects.iter().map(|object| fields.apply(object).unwrap());
        pages.push(objects.collect());
        if rest.is_none() {
            return pages;
        }
        query.from = rest;
    }
}

fn put_four_pods(setting: &Setting) {
    for (namespace, name, tier) in [
        ("x", "a", "web"),
        ("x", "b", "db"),
        ("x", "c", "web"),
        ("y", "a", "web"),
    ] {
        setting.server.put(
            "pods",
            json!({"metadata": {"namespace": namespace, "name": name, "labels": {"tier": tier}},
                   "spec": {"nodeName": "n", "hostNetwork": true}}),
        );
    }
}

#[tokio::test]
async fn a_long_list_is_returned_in_pages() {
    let setting = Setting::new();
    put_four_pods(&setting);
    let pod = parse_kind("v1/Pod");
    let cluster = setting.cluster().await;
    let labels = FieldMask::new(["/metadata/labels"]).unwrap();
    let node = FieldMask::new(["/spec/nodeName"]).unwrap();
    let with_labels = |namespace: &str, name: &str| json!({"metadata": {"name": name, "namespace": namespace, "labels": {"tier": "web"}}});
    let with_node = |namespace: &str, name: &str| json!({"metadata": {"name": name, "namespace": namespace}, "spec": {"nodeName": "n"}});
    let parse_pages = |pages: Vec<Vec<String>>| {
        let page = |page: Vec<String>| page.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
        pages.into_iter().map(page).collect::<Vec<Vec<Value>>>()
    };
    let expected =
        |object: &dyn Fn(&str, &str) -> Value| [vec![object("x", "a"), object("x", "c")], vec![object("y", "a")]];
    setting.server.forbid("watch", "pods");
    cluster.watch_kinds([&pod]);
    wait_until_watch_state(&cluster, "v1/Pod", WatchState::Refused).await;
    assert_eq!(
        parse_pages(list_pages(&cluster, &pod, 2, &labels).await),
        expected(&with_labels)
    );
    assert_eq!(
        parse_pages(list_pages(&cluster, &pod, 2, &node).await),
        expected(&with_node)
    );
    assert_eq!(setting.server.count_requests("list", "limit=2"), 4, "two pages each");
    let mut query = selector_query(None, "tier=web");
    query.fields = labels.clone();
    let listed_page = cluster.list(&pod, &query, deadline()).await.unwrap();
    assert!(
        listed_page
            .objects
            .iter()
            .all(|object| !object.contains("spec") && !object.contains("managedFields"))
    );
    query.limit = NonZeroU32::new(1);
    query.from = Some("cx/a".to_owned());
    let answer = cluster.list(&pod, &query, deadline()).await;
    assert!(
        matches!(&answer, Err(ClusterError::Refused(why)) if why.contains("first page")),
        "{answer:?}"
    );

    let setting = Setting::new();
    put_four_pods(&setting);
    let cluster = setting.cluster().await;
    cluster.watch_kinds([&pod]);
    wait_until_watch_state(&cluster, "v1/Pod", WatchState::Watching).await;
    assert_eq!(
        parse_pages(list_pages(&cluster, &pod, 2, &node).await),
        expected(&with_node)
    );
    assert_eq!(setting.server.count_requests("list", "limit=2"), 0, "from the cache");
    query.from = Some("nonsense".to_owned());
    assert!(cluster.list(&pod, &query, deadline()).await.is_err());
}

#[tokio::test]
async fn kinds_of_other_api_groups_are_found() {
    let setting = Setting::new();
    setting
        .server
        .put("deployments", json!({"metadata": {"namespace": "x", "name": "web"}}));
    let cluster = setting.cluster().await;
    let deployment_text = cluster
        .get(&parse_kind("apps/v1/Deployment"), Some("x"), "web", deadline())
        .await
        .unwrap()
        .unwrap();
    let deployment: Value = serde_json::from_str(&deployment_text).unwrap();
    assert_eq!(deployment["apiVersion"], "apps/v1");
    assert_eq!(deployment["kind"], "Deployment");
}

#[tokio::test]
async fn invalid_lookups_are_refused() {
    let setting = Setting::new();
    setting.server.forbid("list", "nodes");
    setting.server.forbid("get", "nodes");
    setting.server.forbid("list", "secrets");
    let cluster = setting.cluster().await;
    let get = async |name: &str, namespace: Option<&str>, object: &str| {
        cluster
            .get(&parse_kind(name), namespace, object, deadline())
            .await
            .map(|_| ())
    };
    let list_of = async |name: &str, namespace: Option<&str>, selector: &str| {
        list(&cluster, &parse_kind(name), namespace, selector).await.map(|_| ())
    };
    for (answer, expected) in [
        (
            get("v1/Widget", None, "a").await,
            "the API server has no kind `v1/Widget`: correct it, or install its CustomResourceDefinition",
        ),
        (
            get("example.com/v1/Widget", None, "a").await,
            "the API server has no kind `example.com/v1/Widget`: correct it, or install its \
             CustomResourceDefinition",
        ),
        (
            get("v1/Node", Some("x"), "a").await,
            "`v1/Node` is not namespaced: leave the namespace out",
        ),
        (
            get("v1/Pod", None, "a").await,
            "`v1/Pod` is namespaced: give the namespace",
        ),
        (
            get("v1/Pod", Some("x"), "../secrets/key").await,
            "\"../secrets/key\" is not a valid object name",
        ),
        (get("v1/Pod", Some(".."), "a").await, "\"..\" is not a valid namespace"),
        (
            list_of("v1/Pod", Some("a/b"), "").await,
            "\"a/b\" is not a valid namespace",
        ),
        (
            list_of("v1/Pod", None, "tier in web").await,
            "the label selector `tier in web` is invalid: `in` needs values in parentheses",
        ),
        (
            get("v1/Node", None, "a").await,
            "nodes is forbidden: User \"tester\" cannot get resource \"nodes\"; give this program's account \
             `get`, `list` and `watch` on `nodes` of the core API group",
        ),
        (
            list_of("v1/Node", None, "").await,
            "nodes is forbidden: User \"tester\" cannot list resource \"nodes\"; give this program's account \
             `list` and `watch` on `nodes` of the core API group",
        ),
    ] {
        assert_eq!(answer, Err(ClusterError::Refused(expected.to_owned())));
    }
}

#[tokio::test]
async fn each_lookup_of_an_unwatchable_kind_is_sent_to_the_server() {
    let setting = Setting::new();
    setting
        .server
        .put("secrets", json!({"metadata": {"namespace": "x", "name": "key"}}));
    let cluster = setting.cluster().await;
    let secret = parse_kind("v1/Secret");
    for count in 1..3 {
        assert!(
            cluster
                .get(&secret, Some("x"), "key", deadline())
                .await
                .unwrap()
                .is_some()
        );
        assert_eq!(setting.server.count_requests("get", "/secrets/key"), count);
    }
    wait_until_watch_state(&cluster, "v1/Secret", WatchState::Refused).await;
}

#[tokio::test]
async fn a_lookup_beyond_its_deadline_fails_as_a_timeout() {
    let setting = Setting::new();
    setting.server.hold("list", "nodes");
    setting.server.hold("get", "nodes");
    let cluster = setting.cluster().await;
    let short_deadline = || Deadline::after(Duration::from_millis(20));
    let node = parse_kind("v1/Node");
    assert_eq!(
        cluster.get(&node, None, "a", short_deadline()).await,
        Err(ClusterError::Timeout)
    );
    assert_eq!(
        cluster.list(&node, &ClusterQuery::default(), short_deadline()).await,
        Err(ClusterError::Timeout)
    );
}

#[tokio::test]
async fn lookups_at_an_unreachable_server_fail_as_unavailable() {
    let setting = Setting::new();
    put_nodes(&setting);
    setting.server.become_unavailable();
    let cluster = setting.cluster().await;
    let node = parse_kind("v1/Node");
    let answer = cluster.get(&node, None, "a", deadline()).await;
    assert!(matches!(answer, Err(ClusterError::Unavailable(_))), "{answer:?}");
    setting.server.become_available();
    assert!(cluster.get(&node, None, "a", deadline()).await.unwrap().is_some());
    wait_until_watch_state(&cluster, "v1/Node", WatchState::Watching).await;
    drop(cluster);
    wait_until("the watch is closed", async || setting.server.open_watches() == 0).await;
}
