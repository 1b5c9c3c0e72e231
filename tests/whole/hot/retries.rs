//! What may help itself is tried again without a change.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
};

use admittance_tests::{Admittance, Identity, ModuleServer, replace};
use tokio::{io::copy_bidirectional, net::TcpStream};

use super::scene::{Hot, chain, end, mistakes};
use crate::operator::registry::{Access, Registry};

/// A port at which nobody listens for now.
fn free_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

#[tokio::test]
async fn a_server_that_comes_up_later_is_asked_again() {
    let hot = Hot::configured("modules: { ca: ca.pem, attempts: 1 }\n").await;
    let identity = Identity::new().unwrap();
    fs::write(hot.path("ca.pem"), identity.authority()).unwrap();
    let program = hot.start().await;
    let address = free_port();
    let source = format!("https://localhost:{}/versioned.wasm", address.port());
    let plugin = format!("{{ source: \"{source}\", settings: {{ name: stage }} }}");
    replace(&hot.chain_file(), chain("versioned", &plugin)).unwrap();
    let unreachable = program
        .until_status("the server is not there", |status| {
            mistakes(status).contains(&source)
        })
        .await
        .unwrap();
    assert!(
        unreachable["problem"].get("nextAttempt").is_some(),
        "{unreachable:#}"
    );
    assert_eq!(hot.version(&program).await, Some(1));

    let server = ModuleServer::start_at(address, identity).await.unwrap();
    server.put("versioned.wasm", hot.bytes(2));
    hot.until_version(&program, "the server came up", 2).await;
    let status = program
        .until_status("the problem is gone", |status| status.get("problem").is_none())
        .await
        .unwrap();
    assert_eq!(
        status["chains"][0]["stages"][0]["hook"]["source"], source,
        "{status:#}"
    );
    assert_eq!(server.begun(), 1, "it was fetched once");

    // From now on the store has it: neither the server nor the network is needed to start.
    drop(server);
    end(program).await;
    let program = hot.start().await;
    assert_eq!(hot.version(&program).await, Some(2));
}

/// Connect whoever comes here with another port.
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
async fn a_registry_that_comes_up_later_is_asked_again() {
    let hot = Hot::configured("modules: { attempts: 1 }\n").await;
    let registry = Registry::start(Access::Open, None).await;
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
    assert!(
        unreachable["problem"].get("nextAttempt").is_some(),
        "{unreachable:#}"
    );
    assert_eq!(hot.version(&program).await, Some(1));

    lead(address, registry.name.clone()).await;
    hot.until_version(&program, "the registry came up", 2).await;
    program
        .until_status("the problem is gone", |status| status.get("problem").is_none())
        .await
        .unwrap();
}

/// Nothing was ever live, so there is nothing to serve; but a restart may succeed, and the exit code says so.
#[tokio::test]
async fn a_first_start_without_the_registry_is_worth_another() {
    let hot = Hot::configured("modules: { attempts: 1 }\n").await;
    let source = format!("oci://{}/plugins/versioned:1", free_port());
    let plugin = format!("{{ source: \"{source}\", settings: {{ name: stage }} }}");
    replace(&hot.chain_file(), chain("versioned", &plugin)).unwrap();
    let ended = hot.serve().finish().await.unwrap();
    assert_eq!(ended.code, Some(75), "{}", ended.stderr);
    assert!(ended.stderr.contains(&source), "{}", ended.stderr);
}
