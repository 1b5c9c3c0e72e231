use tokio::net::TcpListener;

use super::*;
use crate::accounts::{AccountsConfig, DatabaseConfig};

#[tokio::test]
async fn connections_to_host_names_use_only_allowed_addresses() {
    let directory = tempfile::tempdir().unwrap();
    let accounts = async |local_servers: &[&str]| {
        let config = AccountsConfig {
            database: DatabaseConfig::Sqlite(directory.path().join("accounts.db")),
            key_file: directory.path().join("accounts.key"),
            creates_key: true,
            register_token_lifetime: AccountsConfig::DEFAULT_REGISTER_TOKEN_LIFETIME,
            clusters_per_user: AccountsConfig::DEFAULT_CLUSTERS_PER_USER,
            local_servers: local_servers.iter().map(|text| text.parse().unwrap()).collect(),
        };
        Accounts::new(config).await.unwrap()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server: Uri = format!("https://localhost:{port}").parse().unwrap();
    let refused = direct_dial(accounts(&[]).await)
        .oneshot(server.clone())
        .await
        .unwrap_err();
    let why = admittance_net::causes::chain(&*refused);
    assert!(why.contains("the gateway's own machine"), "{why}");
    assert!(
        direct_dial(accounts(&["127.0.0.0/8"]).await)
            .oneshot(server)
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn only_the_servers_of_the_newest_tunnel_are_checked() {
    let routes = Arc::new(Routes::default());
    let credentials = test_credentials();
    let tunnel = || {
        let session = TunnelSession::new(Budget::new(1 << 20)).0;
        Arc::new(ClusterRoute::new("a", credentials.clone(), ConnectVia::Tunnel(session)).unwrap())
    };
    let (first, second) = (tunnel(), tunnel());
    let are_newest = || [&first, &second].map(|route| *route.is_newest.borrow());
    let older = routes.add_tunnel("a", first.clone()).unwrap();
    assert_eq!(are_newest(), [true, false]);
    let newer = routes.add_tunnel("a", second.clone()).unwrap();
    assert_eq!(are_newest(), [false, true]);
    drop(newer);
    assert_eq!(are_newest(), [true, false]);
    drop(older);
}

#[tokio::test]
async fn a_tunnel_that_ends_late_leaves_newer_tunnels_open() {
    let routes = Arc::new(Routes::default());
    let credentials = test_credentials();
    let route = |via: ConnectVia| Arc::new(ClusterRoute::new("a", credentials.clone(), via).unwrap());
    let budget = Budget::new(1 << 20);
    let session = || TunnelSession::new(budget.clone()).0;
    let tunnel_count = |routes: &Routes| routes.state("a").tunnels;
    let first = routes.add_tunnel("a", route(ConnectVia::Tunnel(session()))).unwrap();
    let second = route(ConnectVia::Tunnel(session()));
    let newer = routes.add_tunnel("a", second.clone()).unwrap();
    drop(first);
    assert_eq!(tunnel_count(&routes), 1);
    assert!(Arc::ptr_eq(&routes.routes_of_agents()["a"], &second));
    // A tunnel through another gateway is used only if the agent has no tunnel to this gateway.
    let through = routes
        .add_tunnel("a", route(ConnectVia::Gateway(session(), budget.clone())))
        .unwrap();
    let newest = |routes: &Routes| routes.tunnel_routes.lock().newest_route("a").cloned();
    assert!(newest(&routes).is_some_and(|newest| Arc::ptr_eq(&newest, &second)));
    assert!(routes.tunnel_of_agent("a").is_some());
    drop(newer);
    assert!(newest(&routes).is_some() && routes.tunnel_of_agent("a").is_none());
    routes.wait_until_agents_are_gone().await;
    drop(through);
    assert!(newest(&routes).is_none());
}
