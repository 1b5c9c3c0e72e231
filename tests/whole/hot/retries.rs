//! Tests that a failure with a temporary cause is retried without a change of the definitions.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
};

use admittance_tests::{Admittance, ModuleServer, ServerIdentity, replace};
use http::Method;
use serde_json::json;
use tokio::{io::copy_bidirectional, net::TcpStream, task::JoinHandle};

use super::scene::{HotScene, chain, kill_program, mistakes_text};
use crate::operator::registry::{Registry, RegistryLogin};

fn free_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

#[tokio::test]
async fn a_download_is_retried_until_its_server_is_up() {
    let hot = HotScene::new_with_additions("modules: { ca: ca.pem, attempts: 1 }\n").await;
    let identity = ServerIdentity::new().unwrap();
    fs::write(hot.path("ca.pem"), identity.authority()).unwrap();
    let program = hot.start().await;
    let address = free_port();
    let source = format!("https://localhost:{}/versioned.wasm", address.port());
    let plugin = format!("{{ source: \"{source}\", settings: {{ name: stage }} }}");
    replace(&hot.chain_file(), chain("versioned", &plugin)).unwrap();
    let unreachable = program
        .wait_for_status("the server is not there", |status| {
            mistakes_text(status).contains(&source)
        })
        .await
        .unwrap();
    assert!(unreachable["problem"].get("nextAttempt").is_some(), "{unreachable:#}");
    assert_eq!(hot.fetch_version(&program).await, Some(1));

    let server = ModuleServer::start_at(address, identity).await.unwrap();
    server.put("versioned.wasm", hot.module_bytes(2));
    hot.until_version(&program, "the server came up", 2).await;
    let status = program
        .wait_for_status("the problem is gone", |status| status.get("problem").is_none())
        .await
        .unwrap();
    assert_eq!(status["chains"][0]["stages"][0]["hook"]["source"], source, "{status:#}");
    assert_eq!(server.download_count(), 1, "it was fetched once");

    // The store has the module that was fetched, so the program can start again without the module server.
    drop(server);
    kill_program(program).await;
    let program = hot.start().await;
    assert_eq!(hot.fetch_version(&program).await, Some(2));
}

async fn forward_connections(from: SocketAddr, to: String) {
    let listener = tokio::net::TcpListener::bind(from).await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            let mut to = TcpStream::connect(&to).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut from, &mut to).await });
        }
    });
}

#[tokio::test]
async fn a_pull_is_retried_until_its_registry_is_up() {
    let hot = HotScene::new_with_additions("modules: { attempts: 1 }\n").await;
    let registry = Registry::start(RegistryLogin::Open, None).await;
    let module = hot.path("pushed.wasm");
    fs::write(&module, hot.module_bytes(2)).unwrap();
    let reference = format!("oci://{}/plugins/versioned:1", registry.name);
    let pushed = Admittance::run(["push", module.to_str().unwrap(), &reference])
        .await
        .unwrap();
    assert_eq!(pushed.code, Some(0), "{}", pushed.stderr);

    let program = hot.start().await;
    let address = free_port();
    let source = format!("oci://{address}/plugins/versioned:1");
    let plugin = format!("{{ source: \"{source}\", settings: {{ name: stage }} }}");
    replace(&hot.chain_file(), chain("versioned", &plugin)).unwrap();
    let unreachable = program
        .wait_for_status("the registry is not there", |status| {
            mistakes_text(status).contains(&address.to_string())
        })
        .await
        .unwrap();
    assert!(unreachable["problem"].get("nextAttempt").is_some(), "{unreachable:#}");
    assert_eq!(hot.fetch_version(&program).await, Some(1));

    forward_connections(address, registry.name.clone()).await;
    hot.until_version(&program, "the registry came up", 2).await;
    program
        .wait_for_status("the problem is gone", |status| status.get("problem").is_none())
        .await
        .unwrap();
}

fn remote_chain(source: &str, policy: &str) -> String {
    let plugin = format!("{{ source: \"{source}\", settings: {{ name: stage }} }}");
    let chain = chain("remote", &plugin).replace("kinds: [application]", "kinds: [deployment]");
    format!("{chain}      failurePolicy: {policy}\n")
}

/// Creates a deployment, which only the chain with the remote module matches. Returns the reply's status and body.
async fn create_deployment(hot: &HotScene, program: &Admittance) -> (u16, String) {
    let object = json!({
        "apiVersion": "v4",
        "kind": "deployment",
        "metadata": {"name": "web", "namespace": "shop"},
    });
    let url = program.url("/mesosdriver/v4/namespaces/shop/deployments");
    let reply = hot
        .client
        .send_bcs(Method::POST, &url, object.to_string())
        .await
        .unwrap();
    (reply.status.as_u16(), reply.text())
}

/// The module server accepts connections but never answers, so fetching a module takes minutes to fail.
#[tokio::test]
async fn a_module_server_that_is_down_delays_no_other_change() {
    let hot = HotScene::new().await;
    let program = hot.start().await;
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let source = format!("https://localhost:{port}/versioned.wasm");
    fs::write(hot.path("definitions/remote.yaml"), remote_chain(&source, "Fail")).unwrap();
    hot.write_module(2);
    hot.until_version(&program, "a file that was changed beside", 2).await;
    let status = program.status().await.unwrap();
    assert_eq!(status["chains"].as_array().unwrap().len(), 1, "{status:#}");
    assert_eq!(create_deployment(&hot, &program).await.0, 200);

    let applied = chain("versioned", &hot.plugin_fields("{ name: applied }"));
    let reply = hot.post(&program, "/v1/definitions", &applied).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let annotations = hot.fetch_annotations(&program).await;
    assert!(
        annotations.contains_key("version.admittance.dev/applied"),
        "{annotations:?}"
    );
    hot.roll_back(&program, 1).await;
    assert_eq!(hot.fetch_version(&program).await, Some(1));
}

/// If a file's new module cannot be fetched, the file's previous version stays live. Other files can change.
#[tokio::test]
async fn a_file_whose_module_cannot_be_fetched_keeps_its_last_version() {
    let hot = HotScene::new_with_additions("modules: { attempts: 1 }\n").await;
    let local = chain("remote", &hot.plugin_fields("{ name: stage }")).replace("[application]", "[deployment]");
    fs::write(hot.path("definitions/remote.yaml"), &local).unwrap();
    let program = hot.start().await;
    let source = format!("https://{}/versioned.wasm", free_port());
    replace(&hot.path("definitions/remote.yaml"), remote_chain(&source, "Fail")).unwrap();
    let status = program
        .wait_for_status("the server is not there", |status| {
            mistakes_text(status).contains(&source)
        })
        .await
        .unwrap();
    let bad = &status["problem"]["badDefinitions"][0];
    assert_eq!(bad["served"], "lastVersion", "{status:#}");
    assert!(bad["location"].as_str().unwrap().ends_with("remote.yaml"), "{status:#}");
    hot.write_module(2);
    hot.until_version(&program, "the module of both", 2).await;
    assert_eq!(create_deployment(&hot, &program).await.0, 200);

    // The chain moves from `remote.yaml` to another file, but that file cannot be used, because the chain's module
    // cannot be fetched. So the move does not go live, and the chain stays live as it was.
    fs::remove_file(hot.path("definitions/remote.yaml")).unwrap();
    let both = format!("{}---\n{}", hot.usual_chain(), remote_chain(&source, "Fail"));
    replace(&hot.chain_file(), both).unwrap();
    program
        .wait_for_status("nothing of the move goes live", |status| {
            mistakes_text(status).contains(&source) && status["problem"].get("badDefinitions").is_none()
        })
        .await
        .unwrap();
    let status = program.status().await.unwrap();
    assert_eq!(status["chains"].as_array().unwrap().len(), 2, "{status:#}");
}

/// At the first start, the module server is unreachable, so one chain has no module. The failure policy of this chain
/// decides about the requests that need the module.
#[tokio::test]
async fn a_first_start_without_the_module_server_serves_the_other_chains() {
    for (policy, expected) in [("Fail", None), ("Ignore", Some(200))] {
        let hot = HotScene::new_with_additions("modules: { ca: ca.pem, attempts: 1 }\n").await;
        let identity = ServerIdentity::new().unwrap();
        fs::write(hot.path("ca.pem"), identity.authority()).unwrap();
        let address = free_port();
        let source = format!("https://localhost:{}/versioned.wasm", address.port());
        fs::write(hot.path("definitions/remote.yaml"), remote_chain(&source, policy)).unwrap();
        let program = hot.start().await;
        assert_eq!(hot.fetch_version(&program).await, Some(1));
        let status = program.status().await.unwrap();
        assert!(mistakes_text(&status).contains(&source), "{status:#}");
        assert!(status["problem"].get("nextAttempt").is_some(), "{status:#}");
        assert_eq!(
            status["problem"]["badDefinitions"][0]["served"], "failingStages",
            "{status:#}"
        );
        let hook = &status["chains"][0]["stages"][0]["hook"];
        assert_eq!(
            (&hook["type"], &hook["source"]),
            (&"unavailable".into(), &source.clone().into()),
            "{status:#}"
        );
        let (code, text) = create_deployment(&hot, &program).await;
        match expected {
            Some(expected) => assert_eq!(code, expected, "{text}"),
            None => assert!(
                text.contains(&source) && text.contains("is not loaded"),
                "{code}: {text}"
            ),
        }

        hot.write_module(2);
        hot.until_version(&program, "a change beside", 2).await;

        let server = ModuleServer::start_at(address, identity).await.unwrap();
        server.put("versioned.wasm", hot.module_bytes(3));
        let status = program
            .wait_for_status("the module is there", |status| status.get("problem").is_none())
            .await
            .unwrap();
        assert_eq!(status["chains"][0]["stages"][0]["hook"]["type"], "plugin", "{status:#}");
        assert_eq!(create_deployment(&hot, &program).await.0, 200);
        kill_program(program).await;
    }
}

/// Listens on a port and closes every connection that arrives, until the returned task is aborted.
fn start_closing_connections(address: SocketAddr) -> JoinHandle<()> {
    tokio::spawn(async move {
        // The server that used the port before may not have released it yet, so binding the port is repeated.
        let listener = loop {
            match tokio::net::TcpListener::bind(address).await {
                Ok(listener) => break listener,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        while listener.accept().await.is_ok() {}
    })
}

/// While the module's server is down, the module stays live and other changes go live.
#[tokio::test]
async fn a_module_with_refresh_stays_live_while_its_server_is_down() {
    let hot = HotScene::new_with_additions("modules: { ca: ca.pem, attempts: 1 }\n").await;
    let identity = ServerIdentity::new().unwrap();
    fs::write(hot.path("ca.pem"), identity.authority()).unwrap();
    let address = free_port();
    let server = ModuleServer::start_at(address, identity.clone()).await.unwrap();
    server.put("versioned.wasm", hot.module_bytes(2));
    let source = server.url("versioned.wasm");
    let plugin = format!("{{ source: \"{source}\", refresh: 10s, settings: {{ name: stage }} }}");
    replace(&hot.chain_file(), chain("versioned", &plugin)).unwrap();
    let program = hot.start().await;
    assert_eq!(hot.fetch_version(&program).await, Some(2));

    drop(server);
    let down = start_closing_connections(address);
    let status = program
        .wait_for_status("the server is down", |status| mistakes_text(status).contains(&source))
        .await
        .unwrap();
    let bad = &status["problem"]["badDefinitions"][0];
    assert_eq!(bad["served"], "lastModules", "{status:#}");
    assert_eq!(hot.fetch_version(&program).await, Some(2));
    let beside = chain("beside", &hot.plugin_fields("{ name: beside }")).replace("[application]", "[deployment]");
    fs::write(hot.path("definitions/beside.yaml"), beside).unwrap();
    program
        .wait_for_status("a change beside", |status| {
            status["chains"].as_array().map(Vec::len) == Some(2)
        })
        .await
        .unwrap();

    down.abort();
    assert!(down.await.unwrap_err().is_cancelled());
    let server = ModuleServer::start_at(address, identity).await.unwrap();
    server.put("versioned.wasm", hot.module_bytes(3));
    hot.until_version(&program, "the server is back", 3).await;
    program
        .wait_for_status("the problem is gone", |status| status.get("problem").is_none())
        .await
        .unwrap();
}
