//! Tests of list pages and access checks, which version 0.1.1 of the contract added.

use std::sync::{Arc, Mutex};

use admittance_admission::{
    AccessAttributes, AccessCheckResult, ClusterError, ClusterKind, ClusterPage, ClusterQuery, ClusterReader, Deadline,
    FailureKind, Grants, Hook, UserInfo, Verdict,
};
use admittance_sandbox::{PluginConfig, Sandbox};
use async_trait::async_trait;

use crate::{
    guest::{Guest, RESPONSE_ADDRESS, SCRATCH_ADDRESS, TEXT_ADDRESS},
    harness::{config, load_with, request, sandbox_with},
};

/// A control plane that records queries. The user `jo` may do everything in it.
#[derive(Debug, Default)]
struct RecordingControlPlane {
    queries: Mutex<Vec<String>>,
}

#[async_trait]
impl ClusterReader for RecordingControlPlane {
    async fn get(
        &self,
        kind: &ClusterKind,
        namespace: Option<&str>,
        name: &str,
        _deadline: Deadline,
    ) -> Result<Option<String>, ClusterError> {
        let query_text = format!("{kind} {namespace:?} {name}");
        self.queries.lock().unwrap().push(query_text);
        Ok(Some("{}".to_owned()))
    }

    async fn list(
        &self,
        kind: &ClusterKind,
        query: &ClusterQuery,
        _deadline: Deadline,
    ) -> Result<ClusterPage, ClusterError> {
        let ClusterQuery {
            namespace,
            label_selector,
            limit,
            from,
            ..
        } = query;
        let query_text = format!("{kind} {namespace:?} {label_selector:?} {limit:?} {from:?}");
        self.queries.lock().unwrap().push(query_text);
        let object = r#"{"metadata":{"name":"a","uid":"u"},"spec":{"nodeName":"n","x":1}}"#;
        Ok(ClusterPage {
            objects: vec![object.into()],
            rest: Some("there".to_owned()),
        })
    }

    async fn check_access(
        &self,
        user: &UserInfo,
        action: &AccessAttributes,
        _deadline: Deadline,
    ) -> Result<AccessCheckResult, ClusterError> {
        self.queries.lock().unwrap().push(format!("{action:?}"));
        Ok(AccessCheckResult {
            allowed: user.username == "jo",
            reason: format!("asked for {}", user.username),
        })
    }
}

fn deny_code(address: &str, length: &str) -> String {
    format!(
        "(i32.store8 (i32.const {}) (i32.const 3))
         (i32.store (i32.const {}) {address})
         (i32.store (i32.const {}) {length})",
        RESPONSE_ADDRESS + 4,
        RESPONSE_ADDRESS + 20,
        RESPONSE_ADDRESS + 24
    )
}

fn load_code(address: u32) -> String {
    format!("(i32.load (i32.const {address}))")
}

async fn denial_message(sandbox: &Sandbox, guest: &Guest, grant: &ClusterKind, user: &str) -> Result<String, String> {
    let grants = Grants {
        cluster: [grant.clone()].into(),
        ..Grants::default()
    };
    denial_message_with_grants(sandbox, guest, grants, user).await
}

async fn denial_message_with_grants(
    sandbox: &Sandbox,
    guest: &Guest,
    grants: Grants,
    user: &str,
) -> Result<String, String> {
    let config = PluginConfig { grants, ..config() };
    let plugin = load_with(sandbox, guest, "{}", &config).await.unwrap();
    let mut request = request();
    request.user.username = user.to_owned();
    let deadline = Deadline::after(std::time::Duration::from_secs(60));
    match plugin.admit(&Arc::new(request), deadline).await {
        Ok(response) => match response.verdict {
            Verdict::Deny(denial) => Ok(denial.message),
            other => panic!("{other:?}"),
        },
        Err(failure) => {
            assert_eq!(failure.kind, FailureKind::CapabilityDenied, "{failure}");
            Err(failure.message)
        }
    }
}

fn listing_guest(limit: u32, field: &str) -> Guest {
    namespace_listing_guest(None, limit, field)
}

fn namespace_listing_guest(namespace: Option<&str>, limit: u32, field: &str) -> Guest {
    // The argument of the call is a list of fields, which has one element. The address and the length of this element
    // are stored here, after the strings.
    let list = TEXT_ADDRESS + 64;
    let call = format!(
        "(call $page (i32.const {TEXT_ADDRESS}) (i32.const 2) (i32.const {}) (i32.const 4)
            {} (i32.const {}) (i32.const 1)
            (i32.const {list}) (i32.const 1) (i32.const {limit})
            (i32.const 1) (i32.const {}) (i32.const 4) (i32.const {SCRATCH_ADDRESS}))",
        TEXT_ADDRESS + 2,
        namespace_arguments(namespace),
        TEXT_ADDRESS + 6,
        TEXT_ADDRESS + 7
    );
    let first = format!("(i32.load (i32.load (i32.const {})))", SCRATCH_ADDRESS + 4);
    let length = format!("(i32.load offset=4 (i32.load (i32.const {})))", SCRATCH_ADDRESS + 4);
    let code = format!(
        "{call} (if (i32.load8_u (i32.const {SCRATCH_ADDRESS})) (then {}) (else {}))",
        deny_code(&load_code(SCRATCH_ADDRESS + 8), &load_code(SCRATCH_ADDRESS + 12)),
        deny_code(&first, &length)
    );
    let field_at = TEXT_ADDRESS + 128;
    let element: Vec<u8> = [field_at, u32::try_from(field.len()).unwrap()]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    Guest::running(&code)
        .with_items(
            r#"(import "admittance:plugin/cluster@0.1.1" "list-page" (func $page
                (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))"#,
        )
        .with_data(TEXT_ADDRESS, b"v1Nodelhere")
        .with_data(list, &element)
        .with_data(field_at, field.as_bytes())
        .with_data(NAMESPACE_ADDRESS, namespace.unwrap_or_default().as_bytes())
}

const NAMESPACE_ADDRESS: u32 = TEXT_ADDRESS + 192;

/// Returns the three arguments that encode the namespace as an `option<string>`: the tag, the address and the length.
fn namespace_arguments(namespace: Option<&str>) -> String {
    let (is_some, length) = (u32::from(namespace.is_some()), namespace.map_or(0, str::len));
    format!("(i32.const {is_some}) (i32.const {NAMESPACE_ADDRESS}) (i32.const {length})")
}

fn namespace_reading_guest(namespace: Option<&str>) -> Guest {
    let call = format!(
        "(call $get (i32.const {TEXT_ADDRESS}) (i32.const 2) (i32.const {}) (i32.const 4) {}
            (i32.const {}) (i32.const 1) (i32.const {SCRATCH_ADDRESS}))",
        TEXT_ADDRESS + 2,
        namespace_arguments(namespace),
        TEXT_ADDRESS + 6
    );
    // The result is `ok(some(object))`, so the text of the object comes after the tags of `ok` and `some`.
    let deny = deny_code(&load_code(SCRATCH_ADDRESS + 8), &load_code(SCRATCH_ADDRESS + 12));
    Guest::running(&format!("{call} {deny}"))
        .with_items(
            r#"(import "admittance:plugin/cluster@0.1.1" "get"
                (func $get (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))"#,
        )
        .with_data(TEXT_ADDRESS, b"v1Nodel")
        .with_data(NAMESPACE_ADDRESS, namespace.unwrap_or_default().as_bytes())
}

#[tokio::test]
async fn a_plugin_of_a_namespace_reads_only_that_namespace() {
    let reader = Arc::new(RecordingControlPlane::default());
    let cluster: Arc<dyn ClusterReader> = reader.clone();
    let sandbox = sandbox_with(|config| config.cluster = Some(cluster));
    let list_query = r#"v1/Node Some("shop") "l" Some(7) Some("here")"#;
    for (guest, expected) in [
        (listing_guest(7, ""), Ok(list_query)),
        (namespace_listing_guest(Some("shop"), 7, ""), Ok(list_query)),
        (
            namespace_listing_guest(Some("web"), 7, ""),
            Err("`v1/Node` in namespace web"),
        ),
        (namespace_reading_guest(Some("shop")), Ok(r#"v1/Node Some("shop") l"#)),
        (namespace_reading_guest(Some("web")), Err("`v1/Node` in namespace web")),
        (namespace_reading_guest(None), Err("`v1/Node` in no namespace")),
    ] {
        let grants = Grants {
            cluster: [ClusterKind::new("v1", "Node")].into(),
            namespace: Some("shop".into()),
            ..Grants::default()
        };
        let answer = denial_message_with_grants(&sandbox, &guest, grants, "").await;
        let queries = std::mem::take(&mut *reader.queries.lock().unwrap());
        match (&answer, expected) {
            (Ok(_), Ok(expected)) => assert_eq!(queries, [expected]),
            (Err(error), Err(refused_read)) => {
                let words = format!("reads {refused_read}; its chain may read only what is in the namespace shop");
                assert!(error.contains(&words), "{error}");
                assert!(queries.is_empty(), "{queries:?}");
            }
            _ => panic!("{expected:?}: {answer:?}"),
        }
    }
}

#[tokio::test]
async fn a_page_of_a_list_contains_only_the_requested_fields() {
    let reader = Arc::new(RecordingControlPlane::default());
    let cluster: Arc<dyn ClusterReader> = reader.clone();
    let sandbox = sandbox_with(|config| config.cluster = Some(cluster));
    let nodes = ClusterKind::new("v1", "Node");
    for (limit, field, expected) in [
        (
            7,
            "/spec/nodeName",
            r#"{"metadata":{"name":"a"},"spec":{"nodeName":"n"}}"#,
        ),
        (0, "/metadata/uid", r#"{"metadata":{"name":"a","uid":"u"}}"#),
        (
            9000,
            "",
            r#"{"metadata":{"name":"a","uid":"u"},"spec":{"nodeName":"n","x":1}}"#,
        ),
        (
            7,
            "nodeName",
            "`nodeName` is not a JSON Pointer: write `/Job/Name`, with `~0` for `~` and `~1` for `/` in a key",
        ),
    ] {
        let answer = denial_message(&sandbox, &listing_guest(limit, field), &nodes, "").await;
        assert_eq!(answer.as_deref(), Ok(expected), "{field}");
    }
    let list_query = |limit: u32| format!("v1/Node None \"l\" Some({limit}) Some(\"here\")");
    assert_eq!(
        *reader.queries.lock().unwrap(),
        [list_query(7), list_query(500), list_query(500)]
    );
    let pods = ClusterKind::new("v1", "Pod");
    let error = denial_message(&sandbox, &listing_guest(7, ""), &pods, "")
        .await
        .unwrap_err();
    assert!(error.contains("add `v1/Node` to `allow.cluster`"), "{error}");
}

/// Returns a guest that asks whether the user `al` or the request's user may `get /x`.
fn asking_guest(other: bool) -> Guest {
    let (action, option) = (TEXT_ADDRESS + 64, TEXT_ADDRESS + 128);
    let words = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_le_bytes()).collect() };
    // The arguments of `can-i` in memory. The action is the variant `path` with two strings: the verb and the path. The
    // user is an optional record, and its first string is the name of the user.
    let path = words(&[1, TEXT_ADDRESS, 3, TEXT_ADDRESS + 3, 2]);
    let user = words(&[u32::from(other), TEXT_ADDRESS + 5, 2]);
    let call = format!("(call $can (i32.const {action}) (i32.const {SCRATCH_ADDRESS}))");
    let deny = deny_code(&load_code(SCRATCH_ADDRESS + 8), &load_code(SCRATCH_ADDRESS + 12));
    Guest::running(&format!("{call} {deny}"))
        .with_items(r#"(import "admittance:plugin/cluster@0.1.1" "can-i" (func $can (param i32 i32)))"#)
        .with_data(TEXT_ADDRESS, b"get/xal")
        .with_data(action, &path)
        .with_data(option, &user)
}

#[tokio::test]
async fn access_checks_need_a_grant() {
    let reader = Arc::new(RecordingControlPlane::default());
    let cluster: Arc<dyn ClusterReader> = reader.clone();
    let sandbox = sandbox_with(|config| config.cluster = Some(cluster));
    let (own_access, any_access) = (ClusterKind::own_access_review(), ClusterKind::any_access_review());
    for (other, grant, expected) in [
        (false, &own_access, Ok("asked for jo")),
        (false, &any_access, Ok("asked for jo")),
        (true, &any_access, Ok("asked for al")),
        (
            true,
            &own_access,
            Err(
                "other users may do without permission; add `authorization.k8s.io/v1/SubjectAccessReview` to \
                 `allow.cluster`",
            ),
        ),
        (
            false,
            &ClusterKind::new("v1", "Node"),
            Err("the user of the request may do without permission; add \
                 `authorization.k8s.io/v1/SelfSubjectAccessReview` to `allow.cluster`"),
        ),
    ] {
        let answer = denial_message(&sandbox, &asking_guest(other), grant, "jo").await;
        match (&answer, expected) {
            (Ok(answer), Ok(expected)) => assert_eq!(answer, expected),
            (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
            _ => panic!("{other} {grant}: {answer:?}"),
        }
    }
    let queries = reader.queries.lock().unwrap();
    assert_eq!(queries.len(), 3);
    assert!(
        queries
            .iter()
            .all(|query| query == r#"Path { verb: "get", path: "/x" }"#),
        "{queries:?}"
    );
}
