//! Tests that a request needs no more memory allocations and system calls than allowed.
//!
//! Unlike times, these counts do not depend on the machine's speed. Each count has an upper bound here. If you lower a
//! count, lower its upper bound as well, so that the count stays low. If you have to raise an upper bound, give the
//! reason in the commit.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod allocations;
mod exchange;
mod system_calls;

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use admittance_tests::{Artifacts, review_of_pod};
use serde_json::json;

/// The number of requests before the counted ones. They bring connections, buffers and pools to their final size.
const WARM_UP: usize = 200;
/// The number of requests that are counted. They are enough to average out rare work in the background.
const COUNTED: usize = 500;

/// All tests run in one process, and the allocations of the whole process are counted. So each test waits here until no
/// other test is counting.
fn count_alone() -> MutexGuard<'static, ()> {
    static COUNTING: Mutex<()> = Mutex::new(());
    COUNTING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pod() -> serde_json::Value {
    let container = |index: usize| {
        json!({
            "name": format!("container-{index}"),
            "image": format!("registry.example.com/shop/web:1.{index}"),
            "env": [{"name": "LEVEL", "value": "info"}],
            "resources": {"limits": {"cpu": "2", "memory": "256Mi"}},
        })
    };
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {"containers": [container(0), container(1), container(2), container(3)]},
    })
}

fn review() -> Vec<u8> {
    exchange::post("/admit", &review_of_pod(&pod()))
}

fn creation() -> Vec<u8> {
    exchange::post("/api/v1/pods", &pod().to_string())
}

fn configure_webhook(directory: &Path) -> std::path::PathBuf {
    let module = Artifacts::find().unwrap().component("image-policy").unwrap();
    let chain = json!({
        "apiVersion": "admittance.dev/v1alpha1",
        "kind": "AdmissionChain",
        "metadata": {"name": "images"},
        "spec": {
            "rules": [{"operations": ["CREATE"], "resources": ["pods"]}],
            "stages": [{
                "name": "images",
                "plugin": {
                    "source": format!("file:{}", module.display()),
                    "settings": {"allowedRegistries": ["registry.example.com"]},
                },
            }],
        },
    });
    fs::write(directory.join("chain.yaml"), chain.to_string()).unwrap();
    let path = directory.join("webhook.yaml");
    let config = "listen: { address: '127.0.0.1:0' }\ndialect: { kubernetes: {} }\ndefinitions: [chain.yaml]\n";
    fs::write(&path, config).unwrap();
    path
}

fn configure_proxy(directory: &Path, upstream: SocketAddr) -> std::path::PathBuf {
    let path = directory.join("proxy.yaml");
    let config = format!(
        "listen: {{ address: '127.0.0.1:0' }}
dialect:
  rest:
    routes:
      - method: [POST]
        path: /api/v1/pods
        operation: CREATE
        resource: pods
        kind: {{ pointer: /kind }}
        name: {{ pointer: /metadata/name }}
upstream: {{ servers: ['http://{upstream}'] }}
"
    );
    fs::write(&path, config).unwrap();
    path
}
