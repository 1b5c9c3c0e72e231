//! Changes chains, modules and certificates while users create Pods. No creation may fail or see an older version.

use std::{fs, sync::Arc};

use admittance_tests::{Artifacts, Client, ClientTrust};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use crate::{
    cluster::TestCluster,
    kubectl::Kubectl,
    process::{TEST_TIMEOUT, wait_until},
    registration::Registration,
    rest::UserClient,
    scene::{GOOD_IMAGE, Scene, chain, core_rules, image_of_container, pod, replace, sidecar_stage},
};

/// Users who create one Pod after another until they are stopped: one with kubectl, and others with the faster API.
pub(super) struct PodCreators {
    creators: Vec<Creator>,
    stop: watch::Sender<bool>,
}

struct Creator {
    /// One entry for each Pod that this user has created, oldest Pod first: the mark of the version that changed the
    /// Pod.
    marks: watch::Receiver<Vec<String>>,
    /// The number of entries at the start of `marks` that are ignored.
    past_count: usize,
    task: JoinHandle<()>,
}

enum PodCreator {
    Kubectl(Kubectl),
    Rest(Box<UserClient>),
}

impl PodCreator {
    async fn create(&self, namespace: &str, pod: &Value) -> Value {
        match self {
            Self::Kubectl(kubectl) => {
                let arguments = ["create", "--namespace", namespace, "--output=json", "-f", "-"];
                let output = kubectl.run_with_input(&arguments, &pod.to_string()).await;
                output.unwrap().json()
            }
            Self::Rest(rest) => {
                let path = format!("/api/v1/namespaces/{namespace}/pods");
                let reply = rest.post(&path, pod).await.unwrap();
                assert_eq!(reply.status, 201, "{}", reply.text());
                reply.json().unwrap()
            }
        }
    }
}

/// A user has seen a change completely if the user creates this many Pods in a row that all have the mark of the new
/// version.
const MIN_MARKS: usize = 5;

impl PodCreators {
    pub(super) fn begin(scene: &Scene, mark: fn(&Value) -> String) -> Self {
        let (stop, stopped) = watch::channel(false);
        let clients = [
            ("kubectl", PodCreator::Kubectl(scene.kubectl.clone())),
            ("fast", PodCreator::Rest(Box::new(scene.rest.clone()))),
            ("fast-too", PodCreator::Rest(Box::new(scene.rest.clone()))),
        ];
        let creators = clients.map(|(name, client)| {
            let (sender, marks) = watch::channel(Vec::new());
            let (namespace, stopped) = (scene.namespace.clone(), stopped.clone());
            let task = tokio::spawn(async move {
                for number in 0_usize.. {
                    if *stopped.borrow() {
                        break;
                    }
                    let pod = pod(&format!("{name}-{number}"), GOOD_IMAGE);
                    let stored = client.create(&namespace, &pod).await;
                    sender.send_modify(|marks| marks.push(mark(&stored)));
                }
            });
            Creator {
                marks,
                past_count: 0,
                task,
            }
        });
        Self {
            creators: creators.into(),
            stop,
        }
    }

    async fn wait_for_marked_pods(&mut self, mark: &str) {
        for creator in &mut self.creators {
            let past = creator.past_count;
            let all = creator.marks.wait_for(|marks| {
                let last = marks.iter().skip(past).rev().take(MIN_MARKS);
                last.len() == MIN_MARKS && last.into_iter().all(|pod_mark| pod_mark == mark)
            });
            match timeout(TEST_TIMEOUT, all).await {
                Ok(Ok(_)) => {}
                // The channel is closed, because the task that creates Pods has reported an error.
                Ok(Err(_)) => unreachable!("a creation failed before Pods were marked {mark}"),
                Err(_) => unreachable!("no Pods marked {mark} within {TEST_TIMEOUT:?}"),
            }
        }
    }

    pub(super) async fn wait_for_new_marked_pods(&mut self, mark: &str) {
        for creator in &mut self.creators {
            // Ignore the Pods that this user has created so far. The user may already be creating the next Pod, so
            // ignore this Pod as well.
            creator.past_count = creator.marks.borrow().len() + 1;
        }
        self.wait_for_marked_pods(mark).await;
    }

    /// Stops the users. Checks that the Pods of each user have the marks in `expected`, in this order. Pods in a row
    /// with the same mark count as one.
    pub(super) async fn end(self, expected: &[&str]) {
        self.stop.send_replace(true);
        for creator in self.creators {
            creator.task.await.unwrap();
            let mut marks = creator.marks.borrow().clone();
            marks.dedup();
            assert_eq!(marks, expected);
        }
    }
}

const OLD_IMAGE: &str = "registry.example.com/log-agent:2.1";
const NEW_IMAGE: &str = "registry.example.com/log-agent:2.2";

fn injection_chain(stage: Value) -> Value {
    chain("injection", core_rules(&["CREATE"], &["pods"]), json!([stage]))
}

pub(super) fn sidecar_image(pod: &Value) -> String {
    image_of_container(pod, "log-agent").unwrap_or_else(|| "no sidecar".to_owned())
}

pub(crate) async fn a_changed_definition_takes_effect_between_two_creates(cluster: Arc<TestCluster>) {
    let scene = Scene::start(cluster, &[injection_chain(sidecar_stage("2.1"))]).await;
    scene.register(&Registration::mutating("/mutate/injection")).await;
    let mut creators = PodCreators::begin(&scene, sidecar_image);
    creators.wait_for_marked_pods(OLD_IMAGE).await;
    scene.define(&injection_chain(sidecar_stage("2.2")));
    creators.wait_for_marked_pods(NEW_IMAGE).await;
    creators.end(&[OLD_IMAGE, NEW_IMAGE]).await;
}

const STATUS_ANNOTATION: &str = "sidecar-injector.admittance.dev/status";
/// The annotation that the new version of the plugin writes. The old version writes [`STATUS_ANNOTATION`]. The test
/// makes the new version by replacing one name by the other in the bytes of the module, so both names have the same
/// length.
const SECOND_STATUS_ANNOTATION: &str = "sidecar-injector.admittance.dev/second";

fn status_annotation(pod: &Value) -> String {
    let annotations = pod["metadata"]["annotations"].as_object();
    let has_annotation = |key| annotations.is_some_and(|annotations| annotations.contains_key(key));
    match (
        has_annotation(STATUS_ANNOTATION),
        has_annotation(SECOND_STATUS_ANNOTATION),
    ) {
        (true, false) => STATUS_ANNOTATION,
        (false, true) => SECOND_STATUS_ANNOTATION,
        _ => "neither or both",
    }
    .to_owned()
}

pub(crate) async fn a_changed_module_takes_effect_between_two_creates(cluster: Arc<TestCluster>) {
    let component = Artifacts::find().unwrap().component("sidecar-injector").unwrap();
    let old = fs::read(component).unwrap();
    let new = replace_bytes(&old, STATUS_ANNOTATION.as_bytes(), SECOND_STATUS_ANNOTATION.as_bytes());
    let directory = tempfile::tempdir().unwrap();
    let module = directory.path().join("plugin.wasm");
    replace(&module, &old);
    let mut stage = sidecar_stage("2.1");
    stage["plugin"]["source"] = format!("file:{}", module.display()).into();
    let scene = Scene::start(cluster, &[injection_chain(stage)]).await;
    scene.register(&Registration::mutating("/mutate/injection")).await;
    let mut creators = PodCreators::begin(&scene, status_annotation);
    creators.wait_for_marked_pods(STATUS_ANNOTATION).await;
    replace(&module, &new);
    creators.wait_for_marked_pods(SECOND_STATUS_ANNOTATION).await;
    creators.end(&[STATUS_ANNOTATION, SECOND_STATUS_ANNOTATION]).await;
}

fn replace_bytes(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut result = bytes.to_vec();
    let mut occurrence_count = 0;
    for at in 0..=bytes.len().saturating_sub(from.len()) {
        if bytes[at..].starts_with(from) {
            result[at..at + to.len()].copy_from_slice(to);
            occurrence_count += 1;
        }
    }
    assert!(occurrence_count > 0, "the module does not contain the string");
    result
}

pub(crate) async fn a_broken_definition_leaves_the_last_good_one(cluster: Arc<TestCluster>) {
    let mut scene = Scene::start(cluster, &[injection_chain(sidecar_stage("2.1"))]).await;
    scene.register(&Registration::mutating("/mutate/injection")).await;
    let mut creators = PodCreators::begin(&scene, sidecar_image);
    creators.wait_for_marked_pods(OLD_IMAGE).await;
    let mut broken_chain = injection_chain(sidecar_stage("2.2"));
    broken_chain["spec"]["stages"][0]["plugin"]["settings"] = json!({"containers": "none"});
    scene.define(&broken_chain);
    scene
        .program_mut()
        .wait_for_log("that the definitions are broken", |line| {
            line.message().contains("the previous ones stay live")
        })
        .await
        .unwrap();
    creators.wait_for_new_marked_pods(OLD_IMAGE).await;
    scene.define(&injection_chain(sidecar_stage("2.2")));
    creators.wait_for_marked_pods(NEW_IMAGE).await;
    creators.end(&[OLD_IMAGE, NEW_IMAGE]).await;
}

/// The API server trusts the old and the new CA before the driver gets its new certificate, and only the new CA later.
pub(crate) async fn certificates_are_replaced_between_two_creates(cluster: Arc<TestCluster>) {
    let mut scene = Scene::start(cluster, &[injection_chain(sidecar_stage("2.1"))]).await;
    let registration = Registration::mutating("/mutate/injection");
    scene.register(&registration).await;
    let mut creators = PodCreators::begin(&scene, sidecar_image);
    creators.wait_for_marked_pods(OLD_IMAGE).await;

    for name in ["second", "third"] {
        scene.make_certificates(name).await;
    }
    let [first, third] = ["certs", "third"].map(|name| scene.authority(name));
    let both = [first.as_slice(), third.as_slice()].concat();
    scene.register_trusting(&registration, &both).await;
    // The certificate files change again while the server may still read the first change.
    scene.mount("second");
    scene.mount("third");
    wait_until_trusted(&scene, &third).await;
    scene.register_trusting(&registration, &third).await;
    creators.wait_for_new_marked_pods(OLD_IMAGE).await;

    // The key does not match this certificate, so the server keeps using the previous one.
    scene.mount_files("third", "second");
    scene
        .program_mut()
        .wait_for_log("that the certificate is broken", |line| {
            line.message().contains("the previous ones stay in use")
        })
        .await
        .unwrap();
    creators.wait_for_new_marked_pods(OLD_IMAGE).await;
    wait_until_trusted(&scene, &third).await;
    creators.end(&[OLD_IMAGE]).await;
}

pub(crate) async fn a_server_hands_over_to_another(cluster: Arc<TestCluster>) {
    let mut scene = Scene::start(cluster, &[injection_chain(sidecar_stage("2.1"))]).await;
    let registration = Registration::mutating("/mutate/injection");
    scene.register(&registration).await;
    let mut creators = PodCreators::begin(&scene, sidecar_image);
    creators.wait_for_marked_pods(OLD_IMAGE).await;
    scene.define(&injection_chain(sidecar_stage("2.2")));
    let mut old = scene.serve_elsewhere().await;
    scene.register(&registration).await;
    creators.wait_for_new_marked_pods(NEW_IMAGE).await;
    old.terminate().unwrap();
    let exit_status = old.wait_for_end().await.unwrap();
    assert_eq!(exit_status.code(), Some(0), "{exit_status}");
    creators.wait_for_new_marked_pods(NEW_IMAGE).await;
    creators.end(&[OLD_IMAGE, NEW_IMAGE]).await;
}

async fn wait_until_trusted(scene: &Scene, authority: &[u8]) {
    let authorities = String::from_utf8(authority.to_vec()).unwrap();
    wait_until("a certificate of the new authority", async || {
        // A new client has no open connection, so it gets the certificate that the server presents now.
        let client = Client::with_trust(ClientTrust {
            authorities: &authorities,
            identity: None,
        })
        .unwrap();
        client.get(&scene.url("/")).await.ok()
    })
    .await;
}
