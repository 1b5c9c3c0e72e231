//! Tests the webhook configurations that the leader writes, and the certificate for their CA bundle.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use admittance_tests::{Admittance, Serve};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{
    resources::{CHAIN_PLURAL, NAMESPACED_PLURAL, chain, chain_in_namespace},
    server::{POD, ReviewedResource, certificates},
};
use crate::{
    scene::{store, write},
    setting::{Setting, TOKEN, wait_until},
};

const MUTATING: &str = "mutatingwebhookconfigurations";
const VALIDATING: &str = "validatingwebhookconfigurations";
const NAME: &str = "admittance";
const NAMESPACE: &str = "admittance-system";
const SECRET_NAME: &str = "admittance-tls";
const HOST: &str = "admittance.admittance-system.svc";

/// A configuration in which the leader writes the webhook configurations, and the Pods issue their own certificate.
const MANAGED_CONFIGURATIONS: &str = "
dialect:
  kubernetes:
    webhookConfigurations: { excludeNamespaces: [monitoring], certificate: { overlap: 1s } }
";
const CLUSTER_DEFINITIONS: &str = "definitions: [ { kubernetes: {} } ]";

fn setting_with_namespace() -> Setting {
    let setting = Setting::new();
    setting
        .server
        .put("namespaces", json!({"metadata": {"name": NAMESPACE}}));
    setting
}

struct RegisteringReplica {
    directory: TempDir,
    program: Admittance,
}

impl RegisteringReplica {
    async fn start(setting: &Setting, config: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), setting, config).await
    }

    async fn start_in(directory: TempDir, setting: &Setting, config: &str) -> Self {
        let program = program_builder(&directory, setting, config).start().await.unwrap();
        Self { directory, program }
    }

    fn address(&self) -> SocketAddr {
        let url: http::Uri = self.program.tls_url("/").parse().unwrap();
        SocketAddr::from(([127, 0, 0, 1], url.port_u16().unwrap()))
    }

    async fn denial_message(&self, bundle: &str, resource: ReviewedResource<'_>) -> String {
        self.denial_message_at("/validate", bundle, resource).await
    }

    /// Reviews this object at a path of the replica, trusting `bundle`, and returns the message of the denial.
    async fn denial_message_at(&self, path: &str, bundle: &str, resource: ReviewedResource<'_>) -> String {
        let review = resource.review("u1").to_string();
        let (stream, _) = connect(self.address(), bundle).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::post(path)
            .header("host", HOST)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(review)))
            .unwrap();
        let reply = sender.send_request(request).await.unwrap().into_body();
        let reply: Value = serde_json::from_slice(&reply.collect().await.unwrap().to_bytes()).unwrap();
        reply["response"]["status"]["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    async fn configurations_status(&self) -> Value {
        self.program.status().await.unwrap()["webhookConfigurations"].clone()
    }
}

fn program_builder(directory: &TempDir, setting: &Setting, config: &str) -> Serve {
    let kubeconfig = setting.kubeconfig_for_user(&format!("{{token: {TOKEN}}}"));
    let config = format!("{config}\ncluster: {{ kubeconfig: {} }}\n", kubeconfig.display());
    let config = write(directory, "admittance.yaml", config);
    Serve::new(config).unwrap().store(store())
}

/// Connects over TLS like the API server. Returns the connection, and the certificate that the server presented.
async fn connect(
    address: SocketAddr,
    bundle: &str,
) -> std::io::Result<(
    TokioIo<tokio_rustls::client::TlsStream<TcpStream>>,
    CertificateDer<'static>,
)> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let stream = TlsConnector::from(Arc::new(config))
        .connect(ServerName::try_from(HOST).unwrap(), stream)
        .await?;
    let certificate = stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned();
    Ok((TokioIo::new(stream), certificate))
}

fn stored_webhooks(setting: &Setting, plural: &str) -> Value {
    let mut configuration = setting.server.object(plural, "", NAME).unwrap_or_default();
    if let Some(webhook_list) = configuration["webhooks"].as_array_mut() {
        webhook_list.retain(|webhook| webhook["clientConfig"]["service"]["path"] != DEFINITIONS_PATH);
    }
    configuration["webhooks"].take()
}

/// Returns the CA bundle in the webhook configurations, as PEM.
fn ca_bundle(setting: &Setting) -> String {
    let encoded = stored_webhooks(setting, VALIDATING)[0]["clientConfig"]["caBundle"].clone();
    let decoded = BASE64_STANDARD.decode(encoded.as_str().unwrap_or_default()).unwrap();
    String::from_utf8(decoded).unwrap()
}

fn authority_count(bundle: &str) -> usize {
    bundle.matches("BEGIN CERTIFICATE").count()
}

async fn until_registered(setting: &Setting, resources: &[&str]) {
    let resources: BTreeSet<_> = resources.iter().map(|name| json!([name]).to_string()).collect();
    wait_until(&format!("rules for {resources:?}"), async || {
        let webhooks = stored_webhooks(setting, VALIDATING);
        let rules = webhooks[0]["rules"].as_array().into_iter().flatten();
        let registered_resources: BTreeSet<_> = rules.map(|rule| rule["resources"].to_string()).collect();
        registered_resources == resources
    })
    .await;
}

fn chain_for_resource(name: &str, resource: &str, message: &str) -> Value {
    let mut chain = chain(name, message);
    chain["spec"]["rules"][0]["resources"] = json!([resource]);
    chain
}

/// The path of the webhook that validates definitions before the API server stores them.
const DEFINITIONS_PATH: &str = "/definitions";

const SECRET_CREATION: ReviewedResource<'static> = ReviewedResource {
    operation: "CREATE",
    resource: "/v1/secrets",
    kind: "Secret",
};

#[tokio::test]
async fn webhook_configurations_follow_the_live_chains() {
    let setting = setting_with_namespace();
    setting.server.put(CHAIN_PLURAL, chain("pods", "first"));
    let foreign = json!({"metadata": {"name": "other"}, "webhooks": [{"name": "other.example.com"}]});
    setting.server.put(VALIDATING, foreign);
    let foreign = setting.server.object(VALIDATING, "", "other");
    let replica = RegisteringReplica::start(&setting, &[MANAGED_CONFIGURATIONS, CLUSTER_DEFINITIONS].concat()).await;
    until_registered(&setting, &["pods"]).await;
    let registered_webhooks = stored_webhooks(&setting, VALIDATING);
    assert_eq!(registered_webhooks.as_array().unwrap().len(), 1);
    assert_eq!(registered_webhooks[0]["failurePolicy"], "Fail");
    assert_eq!(registered_webhooks[0]["timeoutSeconds"], 2);
    let excluded = &registered_webhooks[0]["namespaceSelector"]["matchExpressions"][0]["values"];
    assert_eq!(
        *excluded,
        json!([NAMESPACE, "kube-system", "kube-node-lease", "monitoring"])
    );
    assert_eq!(setting.server.object(MUTATING, "", NAME), None);
    // The configuration has a second webhook, because the chains of this program are resources of the cluster. Before
    // the API server stores such a chain, it calls this webhook, which validates the chain.
    let all_webhooks = setting.server.object(VALIDATING, "", NAME).unwrap()["webhooks"].take();
    assert_eq!(all_webhooks[1]["clientConfig"]["service"]["path"], DEFINITIONS_PATH);
    assert_eq!(
        all_webhooks[1]["clientConfig"]["caBundle"],
        registered_webhooks[0]["clientConfig"]["caBundle"]
    );
    assert_eq!(all_webhooks[1]["failurePolicy"], "Ignore");
    assert!(
        replica
            .denial_message(&ca_bundle(&setting), POD)
            .await
            .contains("first")
    );

    // This chain has another failure policy, so it gets a webhook of its own.
    let mut ignoring_chain = chain_for_resource("secrets", "secrets", "second");
    ignoring_chain["spec"]["stages"][0]["failurePolicy"] = json!("Ignore");
    setting.server.put(CHAIN_PLURAL, ignoring_chain);
    until_registered(&setting, &["pods", "secrets"]).await;
    assert!(
        replica
            .denial_message(&ca_bundle(&setting), SECRET_CREATION)
            .await
            .contains("second")
    );

    let original_webhooks = stored_webhooks(&setting, VALIDATING);
    let mut changed_configuration = setting.server.object(VALIDATING, "", NAME).unwrap();
    changed_configuration["webhooks"][0]["failurePolicy"] = json!("Ignore");
    changed_configuration["webhooks"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "more.example.com"}));
    setting.server.put(VALIDATING, changed_configuration);
    let is_restored = async || stored_webhooks(&setting, VALIDATING) == original_webhooks;
    wait_until("the configuration as it was", is_restored).await;
    setting.server.delete(VALIDATING, "", NAME);
    wait_until("the configuration that was deleted", is_restored).await;

    let status = replica.configurations_status().await;
    assert_eq!((&status["isKeeper"], &status["problem"]), (&json!(true), &Value::Null));
    assert!(status["lastWrite"].is_string());
    setting.server.delete(CHAIN_PLURAL, "", "secrets");
    until_registered(&setting, &["pods"]).await;
    setting.server.delete(CHAIN_PLURAL, "", "pods");
    wait_until("no webhook", async || {
        stored_webhooks(&setting, VALIDATING) == json!([])
    })
    .await;
    assert_eq!(setting.server.count_requests("create", VALIDATING), 2);
    assert_eq!(setting.server.count_requests("replace", VALIDATING), 4);
    assert_eq!(setting.server.object(VALIDATING, "", "other"), foreign);
    let metrics = replica.program.metrics().await.unwrap();
    let labels = [("kind", "ValidatingWebhookConfiguration"), ("result", "ok")];
    let write_count = metrics.sum("admittance_webhook_configuration_writes_total", &labels);
    assert_eq!(write_count, Some(6.0));

    // The program lists and watches its own configurations and Secret by name, so it needs no rights to others.
    for verb in ["list", "watch"] {
        let count = |part: &str| setting.server.count_requests(verb, part);
        let plural_counts = [VALIDATING, MUTATING, "secrets"].map(|plural| count(&format!("/{plural}?")));
        assert!(
            plural_counts.iter().all(|count| *count > 0),
            "{verb}: {plural_counts:?}"
        );
        let name_counts = [NAME, SECRET_NAME].map(|name| count(&format!("fieldSelector=metadata.name%3D{name}")));
        // The name of the Secret begins with the name of the webhook configurations. So if requests are counted by the
        // name of the configurations, the requests for the Secret are counted as well.
        assert_eq!(name_counts, [plural_counts.iter().sum(), plural_counts[2]], "{verb}");
        assert_eq!(
            count(&format!("/namespaces/{NAMESPACE}/secrets?")),
            plural_counts[2],
            "{verb}"
        );
    }
}

/// If a webhook with the failure policy `Fail` were registered before a Pod is ready, the API server would refuse all
/// requests that match the webhook. So the leader registers webhooks only when a Pod is ready.
#[tokio::test]
async fn no_webhook_is_registered_before_a_pod_is_ready() {
    let setting = setting_with_namespace();
    let slice = |is_ready: bool| {
        json!({
            "metadata": {
                "name": "admittance-1",
                "namespace": NAMESPACE,
                "labels": {"kubernetes.io/service-name": NAME},
            },
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": is_ready}}],
        })
    };
    setting
        .server
        .define_kind("discovery.k8s.io/v1", "endpointslices", "EndpointSlice", true);
    setting.server.put("endpointslices", slice(false));
    setting.server.put(CHAIN_PLURAL, chain("pods", "first"));
    let mut replica =
        RegisteringReplica::start(&setting, &[MANAGED_CONFIGURATIONS, CLUSTER_DEFINITIONS].concat()).await;
    let reports_waiting =
        |line: &admittance_tests::ProgramLogLine| line.message().contains("when the Service has a ready Pod");
    replica
        .program
        .wait_for_log("that it waits", reports_waiting)
        .await
        .unwrap();
    for plural in [VALIDATING, MUTATING] {
        assert_eq!(setting.server.object(plural, "", NAME), None, "{plural}");
    }
    setting.server.put("endpointslices", slice(true));
    until_registered(&setting, &["pods"]).await;
}

/// A chain of a namespace is never called for another one, even if it matches all kinds. No chain is called twice.
#[tokio::test]
async fn chains_of_a_namespace_are_called_only_for_that_namespace() {
    let setting = setting_with_namespace();
    let mut namespace_chain = chain_in_namespace(chain("all", "of a team"), "test");
    namespace_chain["spec"]["rules"] = json!([{"operations": ["*"], "resources": ["*/*"]}]);
    setting.server.put(NAMESPACED_PLURAL, namespace_chain);
    let mut cluster_chain = chain("pods", "of the cluster");
    cluster_chain["spec"]["stages"][0]["failurePolicy"] = json!("Ignore");
    setting.server.put(CHAIN_PLURAL, cluster_chain);
    let replica = RegisteringReplica::start(&setting, &[MANAGED_CONFIGURATIONS, CLUSTER_DEFINITIONS].concat()).await;
    until_registered(&setting, &["pods"]).await;
    let list = stored_webhooks(&setting, VALIDATING);
    let registered_webhooks = list.as_array().unwrap();
    let summaries = registered_webhooks.iter().map(|webhook| {
        let expressions = webhook["namespaceSelector"]["matchExpressions"].as_array().unwrap();
        (
            webhook["clientConfig"]["service"]["path"].as_str().unwrap(),
            webhook["rules"][0]["resources"][0].as_str().unwrap(),
            webhook["rules"][0]["scope"].as_str().unwrap(),
            webhook["failurePolicy"].as_str().unwrap(),
            expressions.get(2).map(|expression| &expression["values"]),
        )
    });
    assert_eq!(
        summaries.collect::<Vec<_>>(),
        [
            ("/validate-cluster", "pods", "*", "Ignore", None),
            (
                "/validate-namespaced",
                "*/*",
                "Namespaced",
                "Fail",
                Some(&json!(["test"]))
            ),
        ]
    );
    let trusted_bundle = ca_bundle(&setting);
    for (path, of_team, of_cluster) in [
        ("/validate-cluster", false, true),
        ("/validate-namespaced", true, false),
    ] {
        let message = replica.denial_message_at(path, &trusted_bundle, POD).await;
        let mentions = [message.contains("of a team"), message.contains("of the cluster")];
        assert_eq!(mentions, [of_team, of_cluster], "{path}: {message}");
    }

    // Chains of a namespace need webhooks of their own. After the last such chain is deleted, there is a single webhook
    // again, whose path runs all chains.
    setting.server.delete(NAMESPACED_PLURAL, "test", "all");
    let path = || stored_webhooks(&setting, VALIDATING)[0]["clientConfig"]["service"]["path"].take();
    wait_until("one webhook for all chains", async || path() == "/validate").await;
    assert_eq!(stored_webhooks(&setting, VALIDATING).as_array().unwrap().len(), 1);
}

/// Returns a Secret with a certificate that is valid for 10 more days of its 90, and the CA of this certificate as PEM.
fn expiring_secret() -> (Value, String) {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let now = SystemTime::now();
    let params = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = (now - 80 * DAY).into();
        params.not_after = (now + 10 * DAY).into();
        params
    };
    let mut authority = params(&[]);
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let cluster_local = format!("{HOST}.cluster.local");
    let mut leaf = params(&[HOST.trim_end_matches(".svc"), HOST, &cluster_local]);
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let leaf = leaf.signed_by(&key, &authority).unwrap();
    let secret = json!({
        "metadata": {"namespace": NAMESPACE, "name": SECRET_NAME},
        "type": "kubernetes.io/tls",
        "data": {
            "tls.crt": BASE64_STANDARD.encode(leaf.pem()),
            "tls.key": BASE64_STANDARD.encode(key.serialize_pem()),
            "ca.crt": BASE64_STANDARD.encode(authority.pem()),
        },
    });
    (secret, authority.pem())
}

/// Connects to these replicas until all of them present a new certificate. No handshake may fail.
async fn until_certificates_replaced(setting: &Setting, replicas: &[&RegisteringReplica]) {
    wait_until("a configuration", async || !ca_bundle(setting).is_empty()).await;
    let mut trusted_bundle = ca_bundle(setting);
    let mut old_certificates = Vec::new();
    for replica in replicas {
        old_certificates.push(connect(replica.address(), &trusted_bundle).await.unwrap().1);
    }
    wait_until("another certificate", async || {
        let current_bundle = ca_bundle(setting);
        let mut replaced_count = 0;
        for (replica, old_certificate) in replicas.iter().zip(&old_certificates) {
            match connect(replica.address(), &trusted_bundle).await {
                Ok((_, certificate)) => replaced_count += usize::from(certificate != *old_certificate),
                Err(error) => panic!("a handshake failed: {error}"),
            }
        }
        trusted_bundle = current_bundle;
        replaced_count == replicas.len()
    })
    .await;
}

#[tokio::test]
async fn a_certificate_is_replaced_without_a_failed_handshake() {
    let setting = setting_with_namespace();
    setting.server.put(CHAIN_PLURAL, chain("pods", "first"));
    let (secret, old_bundle) = expiring_secret();
    setting.server.put("secrets", secret);
    let config = [MANAGED_CONFIGURATIONS, CLUSTER_DEFINITIONS].concat();
    let mut leader = RegisteringReplica::start(&setting, &config).await;
    let follower = RegisteringReplica::start(&setting, &config).await;
    until_certificates_replaced(&setting, &[&leader, &follower]).await;

    // The new CA was in the bundle before a replica presented the new certificate. The old CA is still there.
    assert_eq!(authority_count(&ca_bundle(&setting)), 2);
    assert!(connect(follower.address(), &old_bundle).await.is_err());
    let secret = setting.server.object("secrets", NAMESPACE, SECRET_NAME).unwrap();
    assert_eq!(secret["data"].as_object().unwrap().len(), 3);
    assert_eq!(setting.server.count_requests("replace", SECRET_NAME), 2);

    // When the leader stops, it leaves the webhook configurations. The next leader maintains them.
    assert_eq!(leader.configurations_status().await["isKeeper"], true);
    leader.program.terminate().unwrap();
    leader.program.wait_for_end().await.unwrap();
    let remaining_webhooks = stored_webhooks(&setting, VALIDATING);
    assert_eq!(remaining_webhooks.as_array().unwrap().len(), 1);
    wait_until("another leader", async || {
        follower.configurations_status().await["isKeeper"] == true
    })
    .await;
    setting
        .server
        .put(CHAIN_PLURAL, chain_for_resource("secrets", "secrets", "second"));
    until_registered(&setting, &["pods", "secrets"]).await;
    assert!(
        follower
            .denial_message(&ca_bundle(&setting), SECRET_CREATION)
            .await
            .contains("second")
    );
    assert_eq!(setting.server.count_requests("replace", SECRET_NAME), 2);
}

#[tokio::test]
async fn a_deleted_secret_is_replaced_by_one_with_a_new_certificate() {
    let setting = setting_with_namespace();
    setting.server.put(CHAIN_PLURAL, chain("pods", "first"));
    let replica = RegisteringReplica::start(&setting, &[MANAGED_CONFIGURATIONS, CLUSTER_DEFINITIONS].concat()).await;
    until_registered(&setting, &["pods"]).await;
    let before = setting.server.object("secrets", NAMESPACE, SECRET_NAME).unwrap();
    setting.server.delete("secrets", NAMESPACE, SECRET_NAME);
    until_certificates_replaced(&setting, &[&replica]).await;
    let after = setting.server.object("secrets", NAMESPACE, SECRET_NAME).unwrap();
    assert_ne!(after["data"]["tls.crt"], before["data"]["tls.crt"]);
    assert_eq!(authority_count(&ca_bundle(&setting)), 2);
}

#[tokio::test]
async fn webhook_fields_that_the_api_server_drops_are_written_only_once() {
    let setting = setting_with_namespace();
    setting.server.forget_field("matchConditions");
    let catch_all_chain = |message: &str| {
        let mut chain = chain("all", message);
        chain["spec"]["rules"] = json!([{"operations": ["CREATE"], "resources": ["*"]}]);
        chain
    };
    setting.server.put(CHAIN_PLURAL, catch_all_chain("first"));
    let replica = RegisteringReplica::start(&setting, &[MANAGED_CONFIGURATIONS, CLUSTER_DEFINITIONS].concat()).await;
    until_registered(&setting, &["*"]).await;
    assert_eq!(stored_webhooks(&setting, VALIDATING)[0].get("matchConditions"), None);
    let configuration_path = format!("{VALIDATING}/{NAME}");
    let get_count = || setting.server.count_requests("get", &configuration_path);
    // The two changes below affect only the messages of the chain. Its webhook stays the same, so the leader must not
    // write the webhook configuration again.
    for message in ["second", "third"] {
        let before = get_count();
        setting.server.put(CHAIN_PLURAL, catch_all_chain(message));
        let is_live = async || {
            replica
                .denial_message(&ca_bundle(&setting), POD)
                .await
                .contains(message)
        };
        wait_until(message, is_live).await;
        wait_until("another look", async || get_count() > before).await;
    }
    let writes = |verb: &str| setting.server.count_requests(verb, VALIDATING);
    assert_eq!((writes("create"), writes("replace")), (1, 0));

    let original_webhooks = stored_webhooks(&setting, VALIDATING);
    let mut changed_configuration = setting.server.object(VALIDATING, "", NAME).unwrap();
    changed_configuration["webhooks"][0]["failurePolicy"] = json!("Ignore");
    setting.server.put(VALIDATING, changed_configuration);
    let is_restored = async || stored_webhooks(&setting, VALIDATING) == original_webhooks;
    wait_until("the configuration as it was", is_restored).await;
}

#[tokio::test]
async fn changes_during_an_outage_of_the_api_server_are_written_later() {
    let setting = setting_with_namespace();
    let directory = tempfile::tempdir().unwrap();
    let chains = |chains: &[Value]| chains.iter().map(|chain| format!("---\n{chain}\n")).collect::<String>();
    let pods = chain("pods", "first");
    write(&directory, "chains.yaml", chains(std::slice::from_ref(&pods)));
    let config = format!("{MANAGED_CONFIGURATIONS}definitions: [chains.yaml]");
    let replica = RegisteringReplica::start_in(directory, &setting, &config).await;
    until_registered(&setting, &["pods"]).await;
    let trusted_bundle = ca_bundle(&setting);

    setting.server.become_unavailable();
    let both_chains = chains(&[pods, chain_for_resource("secrets", "secrets", "second")]);
    write(&replica.directory, "chains.yaml", both_chains);
    let is_live = |status: &Value| status["revision"] == 2;
    replica.program.wait_for_status("the change", is_live).await.unwrap();
    assert!(
        replica
            .denial_message(&trusted_bundle, SECRET_CREATION)
            .await
            .contains("second")
    );
    let is_problem_reported = |status: &Value| status["webhookConfigurations"]["problem"].is_string();
    replica
        .program
        .wait_for_status("the problem", is_problem_reported)
        .await
        .unwrap();
    setting.server.become_available();
    until_registered(&setting, &["pods", "secrets"]).await;
    assert_eq!(ca_bundle(&setting), trusted_bundle);
}

/// If a counter first appeared with the value 1, PromQL's `increase()` would miss the first failure.
#[tokio::test]
async fn failure_counters_start_at_zero() {
    let setting = setting_with_namespace();
    let config = "
dialect: { kubernetes: { webhookConfigurations: {}, audit: {} } }
";
    let replica = RegisteringReplica::start(&setting, &[config, CLUSTER_DEFINITIONS].concat()).await;
    let metrics = replica.program.metrics().await.unwrap();
    let configuration_writes = "admittance_webhook_configuration_writes_total";
    let cluster_requests = "admittance_cluster_requests_total";
    let table: [(&str, &[(&str, &str)]); 9] = [
        ("admittance_status_writes_total", &[("result", "failed")]),
        (
            configuration_writes,
            &[("kind", "MutatingWebhookConfiguration"), ("result", "failed")],
        ),
        (
            configuration_writes,
            &[("kind", "ValidatingWebhookConfiguration"), ("result", "failed")],
        ),
        (configuration_writes, &[("kind", "Secret"), ("result", "failed")]),
        ("admittance_audits_total", &[("result", "incomplete")]),
        ("admittance_audit_report_writes_total", &[("result", "failed")]),
        (cluster_requests, &[("verb", "get"), ("result", "unavailable")]),
        (cluster_requests, &[("verb", "watch"), ("result", "forbidden")]),
        (cluster_requests, &[("verb", "apply"), ("result", "timeout")]),
    ];
    for (name, labels) in table {
        assert_eq!(metrics.sum(name, labels), Some(0.0), "{name} {labels:?}");
    }
}

#[tokio::test]
async fn missing_rights_in_the_cluster_are_reported_by_name() {
    let setting = setting_with_namespace();
    setting.server.put(CHAIN_PLURAL, chain("pods", "first"));
    setting.server.forbid("get", "secrets");
    setting.server.forbid("create", VALIDATING);
    let directory = tempfile::tempdir().unwrap();
    let config = [MANAGED_CONFIGURATIONS, CLUSTER_DEFINITIONS].concat();
    let mut program = program_builder(&directory, &setting, &config).spawn().unwrap();
    let is_waiting = |line: &admittance_tests::ProgramLogLine| {
        line.message().contains("waiting for the certificate of this server")
            && line
                .message()
                .contains("give this program's account `get` on `secrets`")
    };
    program.wait_for_log("the wait", is_waiting).await.unwrap();
    setting.server.allow("get", "secrets");
    program.wait_until_serving().await.unwrap();

    // The program may not create one of its two webhook configurations, but it serves requests nevertheless. The status
    // says which configuration is missing.
    let is_right_named = |status: &Value| {
        let problem = status["webhookConfigurations"]["problem"].as_str().unwrap_or_default();
        problem.contains("`create` on `validatingwebhookconfigurations`")
    };
    program.wait_for_status("the problem", is_right_named).await.unwrap();
    let metrics = program.metrics().await.unwrap();
    let labels = [("kind", "ValidatingWebhookConfiguration"), ("result", "failed")];
    let failure_count = metrics.sum("admittance_webhook_configuration_writes_total", &labels);
    assert!(failure_count >= Some(1.0), "{failure_count:?}");
    setting.server.allow("create", VALIDATING);
    until_registered(&setting, &["pods"]).await;
    let is_problem_gone = |status: &Value| status["webhookConfigurations"]["problem"].is_null();
    program.wait_for_status("no problem", is_problem_gone).await.unwrap();
}

#[tokio::test]
async fn the_ca_bundle_can_come_from_a_file() {
    let setting = setting_with_namespace();
    setting.server.put(CHAIN_PLURAL, chain("pods", "first"));
    let directory = tempfile::tempdir().unwrap();
    certificates(&directory, &["--host", HOST]).await;
    let config = format!(
        "
dialect: {{ kubernetes: {{ webhookConfigurations: {{ service: hooks.hooks-system, caBundle: ca.pem }} }} }}
listen: {{ tls: {{ certificate: localhost.pem, key: localhost.key }} }}
{CLUSTER_DEFINITIONS}"
    );
    let program = program_builder(&directory, &setting, &config)
        .variable("ADMITTANCE_SERVICE", format!("{NAME}.{NAMESPACE}"))
        .start()
        .await
        .unwrap();
    let replica = RegisteringReplica { directory, program };
    until_registered(&setting, &["pods"]).await;
    assert!(
        replica
            .denial_message(&ca_bundle(&setting), POD)
            .await
            .contains("first")
    );
    assert_eq!(setting.server.object("secrets", NAMESPACE, SECRET_NAME), None);
    let out = replica.directory.path().to_str().unwrap();
    let renewal_output = Admittance::run(["certs", "--out", out, "--new-ca"]).await.unwrap();
    assert_eq!(renewal_output.code, Some(0), "{}", renewal_output.stderr);
    wait_until("both authorities", async || authority_count(&ca_bundle(&setting)) == 2).await;
    assert!(
        replica
            .denial_message(&ca_bundle(&setting), POD)
            .await
            .contains("first")
    );
}
