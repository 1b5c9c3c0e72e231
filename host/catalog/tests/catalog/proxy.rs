use admittance_catalog::Error;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use crate::{
    scene::{CatalogScene, component},
    site::{Site, read_request_head, send_response},
};

#[tokio::test]
async fn requests_go_through_the_configured_proxy() {
    let mut scene = CatalogScene::new();
    scene.config.network.attempts = 1;
    let site = Site::start(&scene.authority).await;
    site.put_file("/a.wasm", &component(1000, 1), None);
    for (status, expected) in [
        ("200 OK", None),
        (
            "407 Proxy Authentication Required",
            Some("proxy authorization required"),
        ),
        ("403 Forbidden", Some("unsuccessful")),
    ] {
        let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = proxy.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            let (mut client, _) = proxy.accept().await.unwrap();
            let request = read_request_head(&mut client).await.unwrap().unwrap();
            if status == "200 OK" {
                let mut server = TcpStream::connect(request.path.as_str()).await.unwrap();
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            } else {
                send_response(&mut client, status, &[], Some(0), b"").await.unwrap();
            }
            request.path
        });
        scene.config.network.proxy = Some(format!("http://{address}").parse().unwrap());
        scene.config.store = None;
        let obtained = scene.obtain(&scene.catalog(), &site.url("/a.wasm")).await;
        match (obtained, expected) {
            (Ok(_), None) => {}
            (Err(error), Some(expected)) => {
                assert!(matches!(error, Error::Proxy { .. }), "{error}");
                assert!(error.to_string().contains(expected), "{error}");
            }
            (obtained, _) => panic!("{status}: {obtained:?}"),
        }
        assert_eq!(serving.await.unwrap(), format!("localhost:{}", site.address.port()));
    }
}
