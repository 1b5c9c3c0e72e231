//! Tests that a failure with a temporary cause is retried without a change of the definitions.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
};

use admittance_tests::{Admittance, ModuleServer, ServerIdentity, replace};
use http::Method;
use serde_json::json;
use tokio::{io::copy_bidirectional, net::TcpStream, task::JoinHandle};

use super::scene::{Hot, chain, end, mistakes};
use crate::operator::registry::{Registry, RegistryLogin};

fn free_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

#[tokio::test]
async fn a_download_is_retried_until_its_server_is_up() {
    let hot = Hot::configured("modules: { ca: ca.pem, attempts: 1 }\n").await;
    let identity = ServerIdentity::new().unwrap();
    fs::write(hot.path("ca.pem"), identity.authority()).unwrap();
    let program = hot.start().await;
    let address = free_port();
    let source = format!("https://localhost:{}/versioned.wasm", address.port());
    let plugin = format!("{{ source: \"{source}\", settings: {{ name: stage }} }}");
    replace(&hot.chain_file(), chain("versioned", &plugin)).unwrap();
    let unreachable = program
        .until_status("the server is not there", |status| mistakes(status).contains(&source))
        .await
        .unwrap();
    assert!(unreachable["problem"].get("nextAttempt").is_some(), "{unreachable:#}");
    assert_eq!(hot.version(&program).await, Some(1));

    let server = ModuleServer::start_at(address, identity).await.unwrap();
    server.put("versioned.wasm", hot.bytes(2));
    hot.until_version(&program, "the server came up", 2).await;
    let status = program
        .until_status("the problem is gone", |status| status.get("problem").is_none())
        .await
        .unwrap();
    assert_eq!(status["chains"][0]["stages"][0]["hook"]["source"], source, "{status:#}");
    assert_eq!(server.download_count(), 1, "it was fetched once");

    // The store has the module that was fetched, so the program can start again without the module server.
    drop(server);
    end(program).await;
    let program = hot.start().await;
    assert_eq!(hot.version(&program).await, Some(2));
}

async fn lead(from: SocketAddr, to: String) {
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
    let hot = Hot::configured("modules: { attempts: 1 }\n").await;
    let registry = Registry::start(RegistryLogin::Open, None).await;
    let module = hot.path("pushed.wasm");
    fs::write(&module, hot.bytes(2)).unwrap();
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
        .until_status("the registry is not there", |status| {
            mistakes(status).contains(&address.to_string())
        })
        .await
        .unwrap();
    assert!(unreachable["problem"].get("nextAttempt").is_some(), "{unreachable:#}");
    assert_eq!(hot.version(&program).await, Some(1));

    lead(address, registry.name.clone()).await;
    hot.until_version(&program, "the registry came up", 2).await;
    program
        .until_status("the problem is gone", |status| status.get("problem").is_none())
        .await
        .unwrap();
}

fn remote_chain(source: &str, policy: &str) -> String {
    let plugin = format!("{{ source: \"{source}\", settings: {{ name: stage }} }}");
    let chain = chain("remote", &plugin).replace("kinds: [application]", "kinds: [deployment]");
    format!("{chain}      failurePolicy: {policy}\n")
}

/// Creates a deployment, which only the chain with the remote module matches. Returns the reply's status and body.
async fn deployment(hot: &Hot, program: &Admittance) -> (u16, String) {
    let object = json!({
        "apiVersion": "v4",
        "kind": "deployment",
        "metadata": {"name": "web", "namespace": "shop"},
    });
    let url = program.url("/mesosdriver/v4/namespaces/shop/deployments");
    let reply = hot.client.bcs(Method::POST, &url, object.to_string()).await.unwrap();
    (reply.status.as_u16(), reply.text())
}

/// The module server accepts connections but never answers, so fetching a module takes minutes to fail.
#[tokio::test]
async fn a_module_server_that_is_down_delays_no_other_change() {
    let hot = Hot::new().await;
    let program = hot.start().await;
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let source = format!("https://localhost:{port}/versioned.wasm");
    fs::write(hot.path("definitions/remote.yaml"), remote_chain(&source, "Fail")).unwrap();
    hot.put(2);
    hot.until_version(&program, "a file that was changed beside", 2).await;
    let status = program.status().await.unwrap();
    assert_eq!(status["chains"].as_array().unwrap().len(), 1, "{status:#}");
    assert_eq!(deployment(&hot, &program).await.0, 200);

    let applied = chain("versioned", &hot.plugin("{ name: applied }"));
    let reply = hot.post(&program, "/v1/definitions", &applied).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let annotations = hot.annotations(&program).await;
    assert!(
        annotations.contains_key("version.admittance.dev/applied"),
        "{annotations:?}"
    );
    hot.roll_back(&program, 1).await;
    assert_eq!(hot.version(&program).await, Some(1));
}

/// If a file's new module cannot be fetched, the file's previous version stays live. Other files can change.
#[tokio::test]
async fn a_file_whose_module_cannot_be_fetched_keeps_its_last_version() {
    let hot = Hot::configured("modules: { attempts: 1 }\n").await;
    let local = chain("remote", &hot.plugin("{ name: stage }")).replace("[application]", "[deployment]");
    fs::write(hot.path("definitions/remote.yaml"), &local).unwrap();
    let program = hot.start().await;
    let source = format!("https://{}/versioned.wasm", free_port());
    replace(&hot.path("definitions/remote.yaml"), remote_chain(&source, "Fail")).unwrap();
    let status = program
        .until_status("the server is not there", |status| mistakes(status).contains(&source))
        .await
        .unwrap();
    let bad = &status["problem"]["badDefinitions"][0];
    assert_eq!(bad["served"], "lastVersion", "{status:#}");
    assert!(bad["location"].as_str().unwrap().ends_with("remote.yaml"), "{status:#}");
    hot.put(2);
    hot.until_version(&program, "the module of both", 2).await;
    assert_eq!(deployment(&hot, &program).await.0, 200);

    // The chain moves from `remote.yaml` to another file, but that file cannot be used, because the chain's module
    // cannot be fetched. So the move does not go live, and the chain stays live as it was.
    fs::remove_file(hot.path("definitions/remote.yaml")).unwrap();
    let both = format!("{}---\n{}", hot.usual_chain(), remote_chain(&source, "Fail"));
    replace(&hot.chain_file(), both).unwrap();
    program
        .until_status("nothing of the move goes live", |status| {
            mistakes(status).contains(&source) && status["problem"].get("badDefinitions").is_none()
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
        let hot = Hot::configured("modules: { ca: ca.pem, attempts: 1 }\n").await;
        let identity = ServerIdentity::new().unwrap();
        fs::write(hot.path("ca.pem"), identity.authority()).unwrap();
        let address = free_port();
        let source = format!("https://localhost:{}/versioned.wasm", address.port());
        fs::write(hot.path("definitions/remote.yaml"), remote_chain(&source, policy)).unwrap();
        let program = hot.start().await;
        assert_eq!(hot.version(&program).await, Some(1));
        let status = program.status().await.unwrap();
        assert!(mistakes(&status).contains(&source), "{status:#}");
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
        let (code, text) = deployment(&hot, &program).await;
        match expected {
            Some(expected) => assert_eq!(code, expected, "{text}"),
            None => assert!(
                text.contains(&source) && text.contains("is not loaded"),
                "{code}: {text}"
            ),
        }

        hot.put(2);
        hot.until_version(&program, "a change beside", 2).await;

        let server = ModuleServer::start_at(address, identity).await.unwrap();
        server.put("versioned.wasm", hot.bytes(3));
        let status = program
            .until_status("the module is there", |status| status.get("problem").is_none())
            .await
            .unwrap();
        assert_eq!(status["chains"][0]["stages"][0]["hook"]["type"], "plugin", "{status:#}");
        assert_eq!(deployment(&hot, &program).await.0, 200);
        end(program).await;
    }
}

/// Listens on a port and closes every connection that arrives, until the returned task is aborted.
fn closes_connections(address: SocketAddr) -> JoinHandle<()> {
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
    let hot = Hot::configured("modules: { ca: ca.pem, attempts: 1 }\n").await;
    let identity = ServerIdentity::new().unwrap();
    fs::write(hot.path("ca.pem"), identity.authority()).unwrap();
    let address = free_port();
    let server = ModuleServer::start_at(address, identity.clone()).await.unwrap();
    server.put("versioned.wasm", hot.bytes(2));
    let source = server.url("versioned.wasm");
    let plugin = format!("{{ source: \"{source}\", refresh: 10s, settings: {{ name: stage }} }}");
    replace(&hot.chain_file(), chain("versioned", &plugin)).unwrap();
    let program = hot.start().await;
    assert_eq!(hot.version(&program).await, Some(2));

    drop(server);
    let down = closes_connections(address);
    let status = program
        .until_status("the server is down", |status| mistakes(status).contains(&source))
        .await
        .unwrap();
    let bad = &status["problem"]["badDefinitions"][0];
    assert_eq!(bad["served"], "lastModules", "{status:#}");
    assert_eq!(hot.version(&program).await, Some(2));
    let beside = chain("beside", &hot.plugin("{ name: beside }")).replace("[application]", "[deployment]");
    fs::write(hot.path("definitions/beside.yaml"), beside).unwrap();
    program
        .until_status("a change beside", |status| {
            status["chains"].as_array().map(Vec::len) == Some(2)
        })
        .await
        .unwrap();

    down.abort();
    assert!(down.await.unwrap_err().is_cancelled());
    let server = ModuleServer::start_at(address, identity).await.unwrap();
    server.put("versioned.wasm", hot.bytes(3));
    hot.until_version(&program, "the server is back", 3).await;
    program
        .until_status("the problem is gone", |status| status.get("problem").is_none())
        .await
        .unwrap();
}
