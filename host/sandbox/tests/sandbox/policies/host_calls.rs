//! Tests of the host calls of waPC policies: for the cluster, registries, the cache and the log.

use std::sync::Arc;

use admittance_admission::{
    AccessAttributes, AccessCheckResult, ClusterError, ClusterKind, ClusterPage, ClusterQuery, ClusterReader, Deadline,
    Digest, FailureKind, Grants, HttpGrant, HttpOrigin, ImageError, ImageManifest, ImageReader, OciReference, Signers,
    UserInfo, Verdict,
};
use admittance_sandbox::{PluginConfig, SandboxConfig};
use async_trait::async_trait;
use serde_json::value::RawValue;

use super::{Policy, SETTINGS_ADDRESS, TEXT_ADDRESS};
use crate::harness::{call, config, log_lines, sandbox_with};

#[derive(Debug)]
struct LookupObjects;

#[async_trait]
impl ClusterReader for LookupObjects {
    async fn get(
        &self,
        kind: &ClusterKind,
        namespace: Option<&str>,
        name: &str,
        _deadline: Deadline,
    ) -> Result<Option<String>, ClusterError> {
        let message = format!("{kind} {namespace:?} {name}");
        Ok((name != "none").then(|| format!(r#"{{"accepted":false,"message":{message:?}}}"#)))
    }

    async fn list(
        &self,
        kind: &ClusterKind,
        query: &ClusterQuery,
        _deadline: Deadline,
    ) -> Result<ClusterPage, ClusterError> {
        Err(ClusterError::Refused(format!(
            "{kind} {:?} {}",
            query.namespace, query.label_selector
        )))
    }

    async fn check_access(
        &self,
        user: &UserInfo,
        action: &AccessAttributes,
        _deadline: Deadline,
    ) -> Result<AccessCheckResult, ClusterError> {
        let AccessAttributes::Resource { verb, resource, .. } = action else {
            panic!("{action:?}");
        };
        Err(ClusterError::Refused(format!(
            "{} {:?} {verb} {resource}",
            user.username, user.groups
        )))
    }
}

#[derive(Debug)]
struct UnsignedRegistry;

#[async_trait]
impl ImageReader for UnsignedRegistry {
    async fn manifest(&self, image: &OciReference) -> Result<ImageManifest, ImageError> {
        let text = format!(r#"{{"accepted":false,"message":"manifest of {image}"}}"#);
        Ok(ImageManifest {
            digest: Digest::of_bytes(&text),
            json: RawValue::from_string(text).unwrap().into(),
        })
    }

    async fn configuration(&self, image: &OciReference) -> Result<(ImageManifest, Arc<RawValue>), ImageError> {
        let configuration = RawValue::from_string("{}".to_owned()).unwrap();
        Ok((self.manifest(image).await?, configuration.into()))
    }

    async fn verify_signatures(&self, image: &OciReference, signers: &Signers) -> Result<Digest, ImageError> {
        Err(ImageError(format!("{image} is not signed by {:?}", signers.all)))
    }
}

#[tokio::test]
async fn host_calls_are_answered_only_if_granted() {
    let sandbox = sandbox_with(|config: &mut SandboxConfig| {
        config.cluster = Some(Arc::new(LookupObjects));
        config.images = Some(Arc::new(UnsignedRegistry));
    });
    let granted = PluginConfig {
        grants: Grants {
            cluster: [ClusterKind::new("v1", "Pod"), ClusterKind::any_access_review()].into(),
            images: vec!["ghcr.io/acme".parse().unwrap()],
            http: vec![HttpGrant::from("https://localhost:8443".parse::<HttpOrigin>().unwrap())],
            ..Grants::default()
        },
        ..config()
    };
    let get = |kind: &str, name: &str| {
        let payload =
            format!(r#"{{"api_version":"v1","kind":"{kind}","name":"{name}","namespace":"n","disable_cache":false}}"#);
        Policy::asking(["kubewarden", "kubernetes", "get_resource"], &payload)
    };
    let list = Policy::asking(
        ["kubewarden", "kubernetes", "list_resources_by_namespace"],
        r#"{"api_version":"v1","kind":"Pod","namespace":"n","label_selector":"a=b"}"#,
    );
    let can_i = Policy::asking(
        ["kubewarden", "kubernetes", "can_i"],
        r#"{"subject_access_review":{"user":"ann","groups":["dev"],"resource_attributes":{"verb":"create","resource":"pods"}},"disable_cache":false}"#,
    );
    let image = |operation: &str, image: &str| Policy::asking(["kubewarden", "oci", operation], &format!("{image:?}"));
    let verify = |image: &str| {
        let payload = format!(r#"{{"type":"SigstorePubKeyVerify","image":{image:?},"pub_keys":["k"]}}"#);
        Policy::asking(["kubewarden", "oci", "v2/verify"], &payload)
    };
    let certificate = Policy::asking(
        ["kubewarden", "crypto", "v1/is_certificate_trusted"],
        r#"{"cert":{"encoding":"Pem","data":[1]},"cert_chain":null,"not_after":null}"#,
    );
    let certified = Policy::asking(
        ["kubewarden", "oci", "v2/verify"],
        r#"{"type":"SigstoreCertificateVerify","image":"ghcr.io/acme/a","certificate":[99],"certificate_chain":null,"require_rekor_bundle":true}"#,
    );
    let set = Policy::asking(["kubewarden", "cache", "set"], r#"{"key":"a","value":[1],"ttl":60}"#);
    let unknown = Policy::asking(["kubewarden", "cache", "v1/set"], "{}");
    let look_up = |host: &str| Policy::asking(["kubewarden", "net", "v1/dns_lookup_host"], &format!("{host:?}"));
    let unreadable = Policy::asking(["kubewarden", "kubernetes", "get_resource"], "{}");
    for (policy, config, expected) in [
        (get("Pod", "a"), &granted, Ok(r#"v1/Pod Some("n") a"#)),
        (
            get("Pod", "none"),
            &granted,
            Err((FailureKind::Error, "`none` does not exist")),
        ),
        (
            get("Pod", "a"),
            &config(),
            Err((FailureKind::CapabilityDenied, "add `v1/Pod` to `allow.cluster`")),
        ),
        (
            get("Node", "a"),
            &granted,
            Err((FailureKind::CapabilityDenied, "`v1/Node`")),
        ),
        (
            list,
            &granted,
            Err((FailureKind::Error, r#"refused: v1/Pod Some("n") a=b"#)),
        ),
        (
            can_i.clone(),
            &granted,
            Err((FailureKind::Error, r#"refused: ann ["dev"] create pods"#)),
        ),
        (
            can_i,
            &config(),
            Err((
                FailureKind::CapabilityDenied,
                "add `authorization.k8s.io/v1/SubjectAccessReview` to `allow.cluster`",
            )),
        ),
        (
            unreadable,
            &granted,
            Err((FailureKind::Error, "the request cannot be read")),
        ),
        // This policy looks up a host name, and returns the host's answer as its verdict. The answer is not a valid
        // verdict, so the call of the policy fails.
        (
            look_up("localhost"),
            &granted,
            Err((FailureKind::InvalidResponse, "missing field `accepted`")),
        ),
        (
            look_up("example.com"),
            &granted,
            Err((
                FailureKind::CapabilityDenied,
                "add `https://example.com` to `allow.http`",
            )),
        ),
        // This policy reads a manifest, and returns it as its verdict. The simulated registry returns a manifest with
        // the fields of a verdict, so the call of the policy succeeds.
        (
            image("v1/oci_manifest", "ghcr.io/acme/a:1"),
            &granted,
            Ok("manifest of ghcr.io/acme/a:1"),
        ),
        // The next policies return the host's answers as their own responses. These answers are valid JSON, but not
        // verdicts, so the calls of the policies fail.
        (
            image("v1/manifest_digest", "ghcr.io/acme/a:1"),
            &granted,
            Err((FailureKind::InvalidResponse, "missing field `accepted`")),
        ),
        (
            image("v1/oci_manifest_config", "ghcr.io/acme/a:1"),
            &granted,
            Err((FailureKind::InvalidResponse, "missing field `accepted`")),
        ),
        (
            verify("ghcr.io/acme/a"),
            &granted,
            Err((FailureKind::Error, "ghcr.io/acme/a is not signed by [Key(\"k\")]")),
        ),
        (
            image("v1/oci_manifest", "a b"),
            &granted,
            Err((FailureKind::Error, "`a b` is not the name of an image")),
        ),
        (
            verify("nginx"),
            &granted,
            Err((
                FailureKind::CapabilityDenied,
                "reads the image `docker.io/library/nginx` without permission; add `docker.io` to `allow.images`",
            )),
        ),
        (
            image("v1/oci_manifest", "ghcr.io/acme/a:1"),
            &config(),
            Err((FailureKind::CapabilityDenied, "add `ghcr.io` to `allow.images`")),
        ),
        (
            certificate,
            &config(),
            Err((FailureKind::Error, "a certificate is not valid PEM")),
        ),
        (
            certified,
            &granted,
            Err((
                FailureKind::Error,
                "not signed by [Certificate { certificate: \"c\", chain: None, must_be_logged: true }]",
            )),
        ),
        (
            set,
            &config(),
            Err((FailureKind::InvalidResponse, "missing field `accepted`")),
        ),
        (
            unknown,
            &granted,
            Err((FailureKind::CapabilityDenied, "kubewarden/cache/v1/set")),
        ),
    ] {
        let plugin = policy.load_with(&sandbox, "{}", config).await.unwrap();
        match (call(&plugin).await, expected) {
            (Ok(response), Ok(message)) => assert!(
                matches!(&response.verdict, Verdict::Deny(denial) if denial.message == message),
                "{response:?}"
            ),
            (Err(failure), Err((kind, says))) => {
                assert_eq!(failure.kind, kind, "{failure}");
                assert!(failure.message.contains(says), "{failure}");
            }
            (result, expected) => panic!("{result:?} instead of {expected:?}"),
        }
    }
}

#[derive(Debug)]
struct ThreadNameReader;

#[async_trait]
impl ClusterReader for ThreadNameReader {
    async fn get(
        &self,
        _: &ClusterKind,
        _: Option<&str>,
        _: &str,
        _: Deadline,
    ) -> Result<Option<String>, ClusterError> {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or_default();
        Ok(Some(format!(r#"{{"accepted":false,"message":{name:?}}}"#)))
    }

    async fn list(&self, _: &ClusterKind, _: &ClusterQuery, _: Deadline) -> Result<ClusterPage, ClusterError> {
        Err(ClusterError::Timeout)
    }

    async fn check_access(
        &self,
        _: &UserInfo,
        _: &AccessAttributes,
        _: Deadline,
    ) -> Result<AccessCheckResult, ClusterError> {
        Err(ClusterError::Timeout)
    }
}

#[tokio::test]
async fn slow_host_calls_move_off_the_serving_threads() {
    let sandbox = sandbox_with(|config: &mut SandboxConfig| config.cluster = Some(Arc::new(ThreadNameReader)));
    let granted = PluginConfig {
        grants: Grants {
            cluster: [ClusterKind::new("v1", "Pod")].into(),
            ..Grants::default()
        },
        ..config()
    };
    let asking = |padding: usize| {
        let question = r#"{"api_version":"v1","kind":"Pod","name":"a"}"#;
        let payload = format!("{question}{}", " ".repeat(padding));
        Policy::asking(["kubewarden", "kubernetes", "get_resource"], &payload)
    };
    let verifying = {
        let mut policy = asking(0);
        let mut address = TEXT_ADDRESS + policy.text.len();
        let mut arguments = String::new();
        for text in ["kubewarden", "crypto", "v1/is_certificate_trusted", "{}"] {
            arguments += &format!("(i32.const {address}) (i32.const {}) ", text.len());
            policy.text += text;
            address += text.len();
        }
        policy.validate = format!("(drop (call $host_call {arguments})) {}", policy.validate);
        policy
    };
    let thread_name = std::thread::current().name().unwrap_or_default().to_owned();
    for (case, policy, expected) in [
        ("a short question", asking(0), thread_name.as_str()),
        ("a long question", asking(33 << 10), "long-work"),
        ("after a verification", verifying, "long-work"),
    ] {
        let plugin = policy.load_with(&sandbox, "{}", &granted).await.unwrap();
        let response = call(&plugin).await.unwrap();
        assert!(
            matches!(&response.verdict, Verdict::Deny(denial) if denial.message == expected),
            "{case}: {response:?}"
        );
    }
}

/// Writes a policy that stores `verdict` in the cache under a key. If the key has a value already, the policy responds
/// with text that is not a verdict.
fn caching_policy(verdict: &str) -> Policy {
    let set = serde_json::json!({"key": "a", "value": verdict.as_bytes(), "ttl": 600}).to_string();
    let get = r#"{"key":"a"}"#;
    let mut arguments = Vec::new();
    let mut address = TEXT_ADDRESS;
    for text in ["kubewarden", "cache", "get", "set", get, &set] {
        arguments.push(format!("(i32.const {address}) (i32.const {})", text.len()));
        address += text.len();
    }
    let call = |operation: usize, payload: usize| {
        let [binding, namespace] = [&arguments[0], &arguments[1]];
        format!(
            "(call $host_call {binding} {namespace} {} {})",
            arguments[operation], arguments[payload]
        )
    };
    Policy {
        // The policy finds out by the length of the answer to `cache/get` whether there is a value for the key. Only an
        // answer with a value has more than 40 bytes.
        validate: format!(
            "(drop {get})
             (if (i32.gt_u (call $host_response_len) (i32.const 40))
                (then (call $response (i32.const {SETTINGS_ADDRESS}) (i32.const 2)) (return (i32.const 1))))
             (if (i32.eqz {set}) (then unreachable))",
            get = call(2, 4),
            set = call(3, 5),
        ),
        text: ["kubewarden", "cache", "get", "set", get, &set].concat(),
        ..Policy::default()
    }
}

#[tokio::test]
async fn the_cache_of_a_policy_is_private() {
    let policy = caching_policy(r#"{"accepted":true,"message":"kept"}"#);
    let (first, second) = (policy.load().await.unwrap(), policy.load().await.unwrap());
    for plugin in [&first, &second] {
        assert!(matches!(call(plugin).await.unwrap().verdict, Verdict::Allow));
        // The first call has stored the value in the cache, so the second call finds it there. The policy then responds
        // with `{"`, which is not a verdict.
        let failure = call(plugin).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::InvalidResponse, "{failure}");
    }
}

#[tokio::test]
async fn a_policy_logs_like_a_plugin() {
    let event = r#"{"level":"warning","message":"policy-log-line","policy":"p","line":7}"#;
    let policy = Policy::asking(["kubewarden", "tracing", "log"], event);
    // The policy returns the host's answer to the log call as its own response. This answer is empty, so it is not a
    // verdict.
    let failure = policy.load_and_call().await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::InvalidResponse);
    let lines = log_lines();
    let line = lines.iter().find(|line| line.contains("policy-log-line")).unwrap();
    assert!(
        line.contains("WARN") && line.contains("plugin=\"guest\"") && line.contains(r#""policy":"p""#),
        "{line}"
    );
    let console = Policy {
        text: "console-line".to_owned(),
        ..Policy::running("(call $console (i32.const 16384) (i32.const 12))")
    };
    console.load_and_call().await.unwrap();
    assert!(log_lines().iter().any(|line| line.contains("console-line")));
}
