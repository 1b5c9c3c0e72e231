//! Kubewarden policies: core modules, written in text.

use std::{sync::Arc, time::Duration};

use admittance_admission::{
    Access, AccessAttributes, ClusterError, ClusterKind, ClusterPage, ClusterQuery, ClusterReader, Deadline,
    Digest, Failure, FailureKind, Grants, HttpGrant, HttpOrigin, ImageError, ImageManifest, ImageReader,
    OciReference, Response, Signers, UserInfo, Verdict,
};
use admittance_sandbox::{
    Capability, Configured, Error, Grant, Limits, Plugin, PluginConfig, Sandbox, SandboxConfig, Step,
};
use async_trait::async_trait;
use serde_json::value::RawValue;

use crate::harness::{call, config, log_lines, request, sandbox, sandbox_with};

const METADATA: &str = r#"{
    "protocolVersion": "v1", "mutating": true, "executionMode": "kubewarden-wapc",
    "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
    "contextAwareResources": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
    "annotations": {"io.kubewarden.policy.title": "t", "io.kubewarden.policy.version": "1.0.0",
        "io.kubewarden.policy.description": "d", "io.kubewarden.policy.author": "me"}}"#;

/// A waPC policy in pieces. Operations are told apart by the length of their names, the answers are at `ANSWER`,
/// `SETTINGS` and `VERSION`, and `TEXT` is for what the code needs.
#[derive(Clone)]
struct Policy {
    metadata: String,
    /// Imports and functions.
    items: String,
    /// Code before the answer to `validate`.
    validate: String,
    answer: String,
    settings: String,
    version: String,
    text: String,
}

const ANSWER: usize = 4096;
const SETTINGS: usize = 8192;
const VERSION: usize = 12_288;
const TEXT: usize = 16_384;
/// Where the messages of the host are written.
const MESSAGE: usize = 65_536;

impl Default for Policy {
    fn default() -> Self {
        Self {
            metadata: METADATA.to_owned(),
            items: String::new(),
            validate: String::new(),
            answer: r#"{"accepted":true}"#.to_owned(),
            settings: r#"{"valid":true}"#.to_owned(),
            version: r#""v1""#.to_owned(),
            text: String::new(),
        }
    }
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("\\{byte:02x}")).collect()
}

impl Policy {
    fn answering(answer: &str) -> Self {
        Self {
            answer: answer.to_owned(),
            ..Self::default()
        }
    }

    fn running(code: &str) -> Self {
        Self {
            validate: code.to_owned(),
            ..Self::default()
        }
    }

    /// Calls the host, and passes its answer on as the verdict, or its error as its own.
    fn asking(path: [&str; 3], payload: &str) -> Self {
        let mut at = TEXT;
        let mut arguments = String::new();
        for text in [path[0], path[1], path[2], payload] {
            arguments += &format!("(i32.const {at}) (i32.const {}) ", text.len());
            at += text.len();
        }
        Self {
            validate: format!(
                r#"(if (call $host_call {arguments})
                    (then
                        (call $host_response (i32.const {MESSAGE}))
                        (call $response (i32.const {MESSAGE}) (call $host_response_len)))
                    (else
                        (call $host_error (i32.const {MESSAGE}))
                        (call $error (i32.const {MESSAGE}) (call $host_error_len))
                        (return (i32.const 0))))
                (return (i32.const 1))"#
            ),
            text: path.concat() + payload,
            ..Self::default()
        }
    }

    fn module(&self) -> Vec<u8> {
        let Self {
            metadata,
            items,
            validate,
            answer,
            settings,
            version,
            text,
        } = self;
        let section = match metadata.as_str() {
            "" => String::new(),
            metadata => format!(r#"(@custom "io.kubewarden.metadata" "{}")"#, escaped(metadata)),
        };
        let answers = [
            (ANSWER, answer),
            (SETTINGS, settings),
            (VERSION, version),
            (TEXT, text),
        ];
        let data = answers.map(|(at, text)| format!(r#"(data (i32.const {at}) "{}")"#, escaped(text)));
        let say = |at: usize, text: &str| {
            format!(
                "(call $response (i32.const {at}) (i32.const {})) (return (i32.const 1))",
                text.len()
            )
        };
        let text = format!(
            r#"(module {section}
                (import "wapc" "__guest_request" (func $request (param i32 i32)))
                (import "wapc" "__guest_response" (func $response (param i32 i32)))
                (import "wapc" "__guest_error" (func $error (param i32 i32)))
                (import "wapc" "__console_log" (func $console (param i32 i32)))
                (import "wapc" "__host_call"
                    (func $host_call (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
                (import "wapc" "__host_response" (func $host_response (param i32)))
                (import "wapc" "__host_response_len" (func $host_response_len (result i32)))
                (import "wapc" "__host_error" (func $host_error (param i32)))
                (import "wapc" "__host_error_len" (func $host_error_len (result i32)))
                (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
                (import "wasi_snapshot_preview1" "path_open"
                    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
                {items}
                (memory (export "memory") 4)
                (table $table 1 funcref)
                (global $started (mut i32) (i32.const 0))
                (global $calls (mut i32) (i32.const 0))
                {data}
                (func (export "_start") (call $exit (i32.const 0)))
                (func (export "wapc_init")
                    (if (global.get $started) (then unreachable))
                    (global.set $started (i32.const 1)))
                (func (export "__guest_call") (param $operation i32) (param $length i32) (result i32)
                    (if (i32.eqz (global.get $started)) (then unreachable))
                    (call $request (i32.const 0) (i32.const {MESSAGE}))
                    (if (i32.eq (local.get $operation) (i32.const 17)) (then {say_settings}))
                    (if (i32.eq (local.get $operation) (i32.const 16)) (then {say_version}))
                    (if (i32.ne (local.get $operation) (i32.const 8)) (then unreachable))
                    ;; Nothing of another call is left.
                    (if (global.get $calls) (then unreachable))
                    (global.set $calls (i32.const 1))
                    {validate}
                    {say_answer}))"#,
            data = data.concat(),
            say_settings = say(SETTINGS, settings),
            say_version = say(VERSION, version),
            say_answer = say(ANSWER, answer),
        );
        wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    async fn load(&self) -> Result<Plugin, Error> {
        self.load_with(sandbox(), "{}", &config()).await
    }

    async fn load_with(
        &self,
        sandbox: &Sandbox,
        settings: &str,
        config: &PluginConfig,
    ) -> Result<Plugin, Error> {
        load_module(sandbox, self.module(), settings, config).await
    }

    async fn answer(&self) -> Result<Response, Failure> {
        call(&self.load().await.unwrap()).await
    }
}

async fn load_module(
    sandbox: &Sandbox,
    module: Vec<u8>,
    settings: &str,
    config: &PluginConfig,
) -> Result<Plugin, Error> {
    let prepared = sandbox.prepare(module, settings, config).await?;
    sandbox.load(&prepared, config)
}

#[tokio::test]
async fn a_policy_is_called_in_a_snapshot_of_its_start() {
    let plugin = Policy::default().load().await.unwrap();
    assert_eq!(*plugin.configured(), Configured::Snapshot);
    for _ in 0..2 {
        assert!(matches!(call(&plugin).await.unwrap().verdict, Verdict::Allow));
    }
    // Tables cannot be snapshotted.
    let items = r#"(func $change (table.set $table (i32.const 0) (ref.null func)))"#.to_owned();
    let plugin = Policy {
        items,
        ..Policy::default()
    }
    .load()
    .await
    .unwrap();
    assert!(matches!(plugin.configured(), Configured::PerCall { reason } if reason.contains("table.set")));
    for _ in 0..2 {
        assert!(matches!(call(&plugin).await.unwrap().verdict, Verdict::Allow));
    }
}

#[tokio::test]
async fn verdicts_and_failures() {
    let object = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"x":"y"}}}"#;
    let changing = Policy::answering(&format!(r#"{{"accepted":true,"mutated_object":{object}}}"#));
    match changing.answer().await.unwrap().verdict {
        Verdict::Replace(replaced) => assert_eq!(replaced.text(), object),
        verdict => panic!("{verdict:?}"),
    }
    let metadata = METADATA.replace("\"mutating\": true", "\"mutating\": false");
    let denial = Policy::answering(r#"{"accepted":false,"message":"no","code":422,"warnings":["w"]}"#);
    let response = denial.answer().await.unwrap();
    assert_eq!(response.warnings, ["w"]);
    assert!(
        matches!(&response.verdict, Verdict::Deny(denial) if denial.code() == 422 && denial.message == "no")
    );

    let not_allowed = Policy { metadata, ..changing };
    let fills = "(loop $again (drop (memory.grow (i32.const 16))) (br $again))";
    for (policy, kind, says) in [
        (
            not_allowed,
            FailureKind::InvalidResponse,
            "does not say `mutating: true`",
        ),
        (
            Policy::answering("{}"),
            FailureKind::InvalidResponse,
            "missing field `accepted`",
        ),
        (
            Policy::running("unreachable"),
            FailureKind::Trap,
            "panicked or aborted",
        ),
        (
            Policy::running("(call $exit (i32.const 3))"),
            FailureKind::Trap,
            "exit code 3",
        ),
        (Policy::running(fills), FailureKind::Memory, "bytes of memory"),
        (
            Policy::running("(call $response (i32.const 1000000) (i32.const 10))"),
            FailureKind::Trap,
            "out of bounds",
        ),
        (
            Policy::running("(call $response (i32.const 0) (i32.const 2000000))"),
            FailureKind::OutputTooLarge,
            "more than the limit",
        ),
        (
            Policy::running("(call $error (i32.const 16384) (i32.const 4)) (return (i32.const 0))"),
            FailureKind::Error,
            "the plugin returned an error: ",
        ),
        (
            Policy::running("(return (i32.const 0))"),
            FailureKind::Error,
            "`validate` failed without a message",
        ),
        (
            Policy::running(
                "(drop (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
                    (i64.const 0) (i64.const 0) (i32.const 0) (i32.const 0)))",
            ),
            FailureKind::CapabilityDenied,
            "wasi_snapshot_preview1.path_open",
        ),
    ] {
        let failure = policy.answer().await.unwrap_err();
        assert_eq!(failure.kind, kind, "{failure}");
        assert!(failure.message.contains(says), "{failure}");
    }
    let limits = Limits {
        time: Duration::from_millis(30),
        ..Limits::default()
    };
    let config = PluginConfig { limits, ..config() };
    let endless = Policy::running("(loop $again (br $again))");
    let endless = endless.load_with(sandbox(), "{}", &config).await.unwrap();
    assert_eq!(call(&endless).await.unwrap_err().kind, FailureKind::Timeout);
}

#[tokio::test]
async fn what_is_wrong_with_a_module() {
    let with_metadata = |from: &str, to: &str| Policy {
        metadata: METADATA.replace(from, to),
        ..Policy::default()
    };
    let items = |items: &str| Policy {
        items: items.to_owned(),
        ..Policy::default()
    };
    for (policy, says) in [
        (
            with_metadata("\"v1\",", "\"v2\","),
            "speaks version `v2` of Kubewarden's protocol",
        ),
        (with_metadata("kubewarden-wapc", "opa"), "Rego that was compiled"),
        (
            with_metadata("\"mutating\"", "\"policyType\": \"raw\", \"mutating\""),
            "says `policyType: raw`",
        ),
        (with_metadata("kubewarden-wapc", "other"), "does not know"),
        (with_metadata("true", "1"), "cannot be read"),
        (
            Policy {
                version: "\"v9\"".to_owned(),
                ..Policy::default()
            },
            "speaks version `v9`",
        ),
        (
            items(r#"(import "wapc" "__new" (func))"#),
            "imports `wapc.__new`, which this host does not have",
        ),
        (items(r#"(import "env" "abort" (func))"#), "imports `env.abort`"),
        (
            items(r#"(import "wapc" "__host_error" (func (param i64)))"#),
            "does not fit this host",
        ),
    ] {
        let error = policy.load().await.unwrap_err().to_string();
        assert!(error.contains(says), "{says}: {error}");
    }
    let lies = format!(
        r#"(module (@custom "io.kubewarden.metadata" "{}"))"#,
        escaped(METADATA)
    );
    let no_call = format!(
        r#"(module (@custom "io.kubewarden.metadata" "{}") (import "wapc" "__host_response" (func (param i32))))"#,
        escaped(METADATA)
    );
    for (text, says) in [
        (lies, "imports nothing of `wapc`"),
        (no_call, "does not export the function `__guest_call`"),
        (
            "(module)".to_owned(),
            "core module, but a plugin must be a component",
        ),
    ] {
        let module = wat::parse_str(&text).unwrap();
        let error = load_module(sandbox(), module, "{}", &config())
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{says}: {error}");
    }
}

#[tokio::test]
async fn settings_are_validated_when_it_is_loaded() {
    let settings = r#"{"valid":false,"message":"no label"}"#.to_owned();
    let invalid = Policy {
        settings,
        ..Policy::default()
    };
    match invalid.load().await.unwrap_err() {
        Error::Settings(mistakes) => assert_eq!(mistakes[0].to_string(), "no label"),
        error => panic!("{error}"),
    }
    let settings = "?".to_owned();
    let error = Policy {
        settings,
        ..Policy::default()
    }
    .load()
    .await
    .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("validation of its settings cannot be read"),
        "{error}"
    );
    // The settings are a part of each message.
    let expected = r#""settings":{"a":1}}"#;
    let policy = Policy::running(&format!(
        "(if (i32.ne (i32.load8_u (i32.sub (i32.add (i32.const {MESSAGE}) (local.get $length)) (i32.const {})))
            (i32.const {})) (then unreachable))",
        expected.len() - 1,
        b's'
    ));
    let plugin = policy
        .load_with(sandbox(), r#"{"a":1}"#, &config())
        .await
        .unwrap();
    call(&plugin).await.unwrap();
}

#[tokio::test]
async fn settings_of_one_policy_share_what_does_not_depend_on_them() {
    let sandbox = sandbox_with(|_| {});
    let module = Policy::default().module();
    let _shared = sandbox.share(Digest::of(&module));
    for settings in [r#"{"a":1}"#, r#"{"b":2}"#] {
        let prepared = sandbox.prepare(module.clone(), settings, &config()).await;
        assert_eq!(*prepared.unwrap().configured(), Configured::Snapshot);
    }
    assert_eq!(
        sandbox.compilations(),
        2,
        "the module, and the code of its snapshots"
    );
}

#[tokio::test]
async fn start_up_code_has_limits() {
    let sandbox = sandbox_with(|config| config.configure_timeout = Duration::from_millis(50));
    let items = r#"(func (export "_initialize") (loop $again (br $again)))"#.to_owned();
    let error = Policy {
        items,
        ..Policy::default()
    }
    .load_with(&sandbox, "{}", &config())
    .await
    .unwrap_err();
    assert!(
        matches!(&error, Error::Call { step: Step::Start, failure } if failure.kind == FailureKind::Timeout),
        "{error}"
    );
}

#[tokio::test]
async fn inspection_shows_the_metadata() {
    let inspection = sandbox().inspect(Policy::default().module()).await.unwrap();
    let description = &inspection.description;
    let texts = [&description.name, &description.version, &description.summary];
    assert_eq!(texts, ["t", "1.0.0", "d"]);
    assert!(description.mutates);
    assert_eq!(description.resources[0].resources, ["pods"]);
    assert_eq!(
        description.capabilities,
        [Capability::Cluster("apps/v1/Deployment".to_owned())]
    );
    assert_eq!(inspection.interface, "kubewarden:wapc");
    assert_eq!(inspection.contract.as_deref(), Some("v1"));
    assert_eq!(inspection.annotations["io.kubewarden.policy.author"], "me");
    let imports = inspection
        .imports
        .iter()
        .map(|import| (import.name.as_str(), import.grant));
    assert_eq!(
        imports.collect::<Vec<_>>(),
        [
            ("wapc", Grant::None),
            ("wasi_snapshot_preview1", Grant::None),
            ("wasi_snapshot_preview1/path_open", Grant::Never),
        ]
    );
}

/// A control plane with one object, whose answers are those of a policy.
#[derive(Debug)]
struct Objects;

#[async_trait]
impl ClusterReader for Objects {
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

    async fn access(
        &self,
        user: &UserInfo,
        action: &AccessAttributes,
        _deadline: Deadline,
    ) -> Result<Access, ClusterError> {
        let AccessAttributes::Resource { verb, resource, .. } = action else {
            panic!("{action:?}");
        };
        Err(ClusterError::Refused(format!(
            "{} {:?} {verb} {resource}",
            user.username, user.groups
        )))
    }
}

/// A registry in which every image has a manifest, and none is signed.
#[derive(Debug)]
struct Manifests;

#[async_trait]
impl ImageReader for Manifests {
    async fn manifest(&self, image: &OciReference) -> Result<ImageManifest, ImageError> {
        let text = format!(r#"{{"accepted":false,"message":"manifest of {image}"}}"#);
        Ok(ImageManifest {
            digest: Digest::of(&text),
            json: RawValue::from_string(text).unwrap().into(),
        })
    }

    async fn configuration(
        &self,
        image: &OciReference,
    ) -> Result<(ImageManifest, Arc<RawValue>), ImageError> {
        let configuration = RawValue::from_string("{}".to_owned()).unwrap();
        Ok((self.manifest(image).await?, configuration.into()))
    }

    async fn signed(&self, image: &OciReference, signers: &Signers) -> Result<Digest, ImageError> {
        Err(ImageError(format!("{image} is not signed by {:?}", signers.all)))
    }
}

#[tokio::test]
async fn calls_of_the_host_are_answered_within_the_grants() {
    let sandbox = sandbox_with(|config: &mut SandboxConfig| {
        config.cluster = Some(Arc::new(Objects));
        config.images = Some(Arc::new(Manifests));
    });
    let granted = PluginConfig {
        grants: Grants {
            cluster: [ClusterKind::new("v1", "Pod"), ClusterKind::any_access()].into(),
            images: vec!["ghcr.io/acme".parse().unwrap()],
            http: vec![HttpGrant::from(
                "https://localhost:8443".parse::<HttpOrigin>().unwrap(),
            )],
            ..Grants::default()
        },
        ..config()
    };
    let get = |kind: &str, name: &str| {
        let payload = format!(
            r#"{{"api_version":"v1","kind":"{kind}","name":"{name}","namespace":"n","disable_cache":false}}"#
        );
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
    let image = |operation: &str, image: &str| {
        Policy::asking(["kubewarden", "oci", operation], &format!("{image:?}"))
    };
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
    let set = Policy::asking(
        ["kubewarden", "cache", "set"],
        r#"{"key":"a","value":[1],"ttl":60}"#,
    );
    let unknown = Policy::asking(["kubewarden", "cache", "v1/set"], "{}");
    let look_up =
        |host: &str| Policy::asking(["kubewarden", "net", "v1/dns_lookup_host"], &format!("{host:?}"));
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
        // No verdict, but its text is in the message.
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
        // Its manifest is a verdict.
        (
            image("v1/oci_manifest", "ghcr.io/acme/a:1"),
            &granted,
            Ok("manifest of ghcr.io/acme/a:1"),
        ),
        // No verdicts, but well-formed.
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

/// Asks the cache for a key, and answers what the host answers; keeps a verdict under the key before it returns.
fn keeping(verdict: &str) -> Policy {
    let set = serde_json::json!({"key": "a", "value": verdict.as_bytes(), "ttl": 600}).to_string();
    let get = r#"{"key":"a"}"#;
    let mut arguments = Vec::new();
    let mut at = TEXT;
    for text in ["kubewarden", "cache", "get", "set", get, &set] {
        arguments.push(format!("(i32.const {at}) (i32.const {})", text.len()));
        at += text.len();
    }
    let call = |operation: usize, payload: usize| {
        let [binding, namespace] = [&arguments[0], &arguments[1]];
        format!(
            "(call $host_call {binding} {namespace} {} {})",
            arguments[operation], arguments[payload]
        )
    };
    Policy {
        // A miss is shorter than a hit.
        validate: format!(
            "(drop {get})
             (if (i32.gt_u (call $host_response_len) (i32.const 40))
                (then (call $response (i32.const {SETTINGS}) (i32.const 2)) (return (i32.const 1))))
             (if (i32.eqz {set}) (then unreachable))",
            get = call(2, 4),
            set = call(3, 5),
        ),
        text: ["kubewarden", "cache", "get", "set", get, &set].concat(),
        ..Policy::default()
    }
}

#[tokio::test]
async fn a_policy_keeps_what_no_other_plugin_reads() {
    let policy = keeping(r#"{"accepted":true,"message":"kept"}"#);
    let (first, second) = (policy.load().await.unwrap(), policy.load().await.unwrap());
    for plugin in [&first, &second] {
        assert!(matches!(call(plugin).await.unwrap().verdict, Verdict::Allow));
        // Found now, so that it answers `{"`, which is no verdict.
        let failure = call(plugin).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::InvalidResponse, "{failure}");
    }
}

#[tokio::test]
async fn the_log_of_a_policy_is_that_of_the_plugin() {
    let event = r#"{"level":"warning","message":"policy-log-line","policy":"p","line":7}"#;
    let policy = Policy::asking(["kubewarden", "tracing", "log"], event);
    // Its answer is empty, and no verdict.
    let failure = policy.answer().await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::InvalidResponse);
    let lines = log_lines();
    let line = lines
        .iter()
        .find(|line| line.contains("policy-log-line"))
        .unwrap();
    assert!(
        line.contains("WARN") && line.contains("plugin=\"guest\"") && line.contains(r#""policy":"p""#),
        "{line}"
    );
    let console = Policy {
        text: "console-line".to_owned(),
        ..Policy::running("(call $console (i32.const 16384) (i32.const 12))")
    };
    console.answer().await.unwrap();
    assert!(log_lines().iter().any(|line| line.contains("console-line")));
}

/// A WASI policy that writes this text to standard output; `validate-settings` has another length than `validate`.
fn program(code: &str, answer: &str) -> Vec<u8> {
    let metadata = METADATA.replace("kubewarden-wapc", "wasi");
    let settings = r#"{"valid":true}"#;
    let text = format!(
        r#"(module (@custom "io.kubewarden.metadata" "{metadata}")
            (import "wasi_snapshot_preview1" "args_sizes_get" (func $sizes (param i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
            (import "host" "call" (func $call (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 4)
            (data (i32.const {ANSWER}) "{answer}") (data (i32.const {SETTINGS}) "{settings}")
            (data (i32.const {TEXT}) "kubewardentracinglog{{}}kubernetesget_resource")
            (func $say (param $at i32) (param $length i32)
                (i32.store (i32.const 0) (local.get $at)) (i32.store (i32.const 4) (local.get $length))
                (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
            ;; Reads all of standard input, and leaves its length at 20.
            (func $input
                (i32.store (i32.const 0) (i32.const {MESSAGE})) (i32.store (i32.const 4) (i32.const 65536))
                (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 20))))
            (func (export "_start")
                (drop (call $sizes (i32.const 12) (i32.const 16)))
                ;; `policy.wasm`, `validate` and two zeros.
                (if (i32.ne (i32.load (i32.const 16)) (i32.const 21))
                    (then (call $say (i32.const {SETTINGS}) (i32.const {settings_length})) (return)))
                (call $input)
                (if (i32.eqz (i32.load (i32.const 20))) (then unreachable))
                {code}
                (call $say (i32.const {ANSWER}) (i32.const {answer_length}))
                (call $exit (i32.const 0))))"#,
        metadata = escaped(&metadata),
        answer = escaped(answer),
        answer_length = answer.len(),
        settings = escaped(settings),
        settings_length = settings.len(),
    );
    wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[tokio::test]
async fn a_wasi_policy_is_run_for_each_call() {
    let denial = r#"{"accepted":false,"message":"no"}"#;
    let plugin = load_module(sandbox(), program("", denial), "{}", &config())
        .await
        .unwrap();
    assert!(matches!(plugin.configured(), Configured::PerCall { .. }));
    let response = call(&plugin).await.unwrap();
    assert!(
        matches!(&response.verdict, Verdict::Deny(denial) if denial.code() == 400 && denial.message == "no")
    );
    // The answer of the host is the rest of standard input: nothing, of a line for the log.
    let log = format!(
        "(if (call $call (i32.const {TEXT}) (i32.const 10) (i32.const {}) (i32.const 7) (i32.const {})
            (i32.const 3) (i32.const {}) (i32.const 2)) (then unreachable))
         (call $input) (if (i32.load (i32.const 20)) (then unreachable))",
        TEXT + 10,
        TEXT + 17,
        TEXT + 20
    );
    for (code, kind) in [
        (log.as_str(), None),
        ("unreachable", Some(FailureKind::Trap)),
        ("(call $exit (i32.const 1))", Some(FailureKind::Trap)),
        (
            "(loop $again (call $say (i32.const 0) (i32.const 65536)) (br $again))",
            Some(FailureKind::OutputTooLarge),
        ),
    ] {
        let plugin = load_module(sandbox(), program(code, denial), "{}", &config())
            .await
            .unwrap();
        assert_eq!(
            call(&plugin).await.err().map(|failure| failure.kind),
            kind,
            "{code}"
        );
    }
    let inspection = sandbox().inspect(program("", denial)).await.unwrap();
    assert_eq!(inspection.interface, "kubewarden:wasi");
    assert!(request().object.is_some());
}

#[tokio::test]
async fn answers_that_a_wasi_policy_does_not_read_are_limited() {
    // A request that is a long string, which the error repeats. No answer is read.
    let code = format!(
        "(memory.fill (i32.const {MESSAGE}) (i32.const 97) (i32.const 65536))
         (i32.store8 (i32.const {MESSAGE}) (i32.const 34)) (i32.store8 (i32.const {}) (i32.const 34))
         (loop $again
            (drop (call $call (i32.const {TEXT}) (i32.const 10) (i32.const {}) (i32.const 10) (i32.const {})
                (i32.const 12) (i32.const {MESSAGE}) (i32.const 65536)))
            (br $again))",
        MESSAGE + 65_535,
        TEXT + 22,
        TEXT + 32
    );
    let mut config = config();
    config.limits.memory = 512 << 10;
    let plugin = load_module(sandbox(), program(&code, ""), "{}", &config)
        .await
        .unwrap();
    let failure = call(&plugin).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Memory, "{failure}");
    assert!(failure.message.contains("standard input unread"), "{failure}");
}
