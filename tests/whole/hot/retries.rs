//! What may help itself is tried again without a change.

use std::{fs, net::SocketAddr, net::TcpListener};

use admittance_tests::{Identity, ModuleServer, replace};

use super::scene::{Hot, chain, end, mistakes};

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
