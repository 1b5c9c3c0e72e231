use std::{sync::Arc, time::Duration};

use admittance_driver::ShutdownResult;
use axum::{Router, body::Body};
use http::{Request, Response};
use tokio::{net::TcpStream, sync::Notify};

use crate::harness::*;

async fn start_with_request_in_flight(setup: impl FnOnce(Setup) -> Setup) -> (Arc<RunningDriver>, HeldRequest) {
    let (upstream, release, mut arrivals) = held_upstream().await;
    let driver = Arc::new(setup(Setup::new(&[upstream])).start().await);
    let reply = {
        let driver = driver.clone();
        tokio::spawn(async move { client_reply(&driver).await })
    };
    within_timeout(arrivals.recv()).await.unwrap();
    (driver, HeldRequest { release, reply })
}

struct HeldRequest {
    release: Arc<Notify>,
    reply: tokio::task::JoinHandle<String>,
}

async fn client_reply(driver: &RunningDriver) -> String {
    let mut stream = driver.connect().await;
    let body = application("good");
    let head = format!(
        "POST {APPLICATIONS} HTTP/1.1\r\nhost: x\r\nbcs-clusterid: {CLUSTER}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    write(&mut stream, &head).await;
    read_rest(&mut stream).await
}

async fn wait_until_refused(driver: &RunningDriver) {
    while TcpStream::connect(driver.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

fn into_sole_owner(driver: Arc<RunningDriver>) -> RunningDriver {
    Arc::into_inner(driver).expect("nobody else has the driver")
}

#[tokio::test]
async fn requests_in_flight_are_finished_before_the_driver_stops() {
    let (driver, flight) = start_with_request_in_flight(|setup| setup).await;
    // A refused request leaves its connection open and idle. The driver must close such a connection when it stops.
    let mut idle = driver.connect().await;
    write(&mut idle, "GET /mesosdriver/v4/x HTTP/1.1\r\nhost: x\r\n\r\n").await;
    read_until(&mut idle, "\n}").await;
    driver.shutdown.signal();
    within_timeout(wait_until_refused(&driver)).await;
    let (status, detail) = driver.get_from_admin("/readyz").await;
    assert!(status == 503 && detail.starts_with(r#"{"ready":false,"#), "{detail}");
    assert_eq!(driver.status().await["stopping"], true);
    assert_eq!(read_rest(&mut idle).await, "", "an idle connection is closed");
    flight.release.notify_one();
    let reply = within_timeout(flight.reply).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 ") && reply.ends_with("done"), "{reply}");
    assert!(reply.contains("connection: close\r\n"), "{reply}");
    assert_eq!(
        into_sole_owner(driver).wait_until_stopped().await,
        ShutdownResult::Cleanly
    );
}

#[tokio::test]
async fn a_second_signal_aborts_requests_in_flight() {
    let (driver, flight) = start_with_request_in_flight(|setup| setup).await;
    driver.shutdown.signal();
    driver.shutdown.signal();
    assert_eq!(within_timeout(flight.reply).await.unwrap(), "");
    assert_eq!(into_sole_owner(driver).wait_until_stopped().await, ShutdownResult::Cut);
}

#[tokio::test]
async fn requests_in_flight_are_aborted_at_the_shutdown_timeout() {
    let (driver, flight) = start_with_request_in_flight(|setup| {
        setup.limits(|limits| limits.shutdown_timeout = Duration::from_millis(20))
    })
    .await;
    driver.shutdown.signal();
    assert_eq!(within_timeout(flight.reply).await.unwrap(), "");
    assert_eq!(into_sole_owner(driver).wait_until_stopped().await, ShutdownResult::Cut);
}

#[tokio::test]
async fn tunnels_are_aborted_at_the_shutdown_timeout() {
    let routes = Router::new().fallback(async |mut request: Request<Body>| {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let _open = upgrade.await.unwrap();
            std::future::pending::<()>().await;
        });
        Response::builder()
            .status(101)
            .header("connection", "upgrade")
            .header("upgrade", "x")
            .body(Body::empty())
            .unwrap()
    });
    let driver = Setup::new(&[serve(routes).await])
        .limits(|limits| limits.shutdown_timeout = Duration::from_millis(50))
        .start()
        .await;
    let mut stream = driver.connect().await;
    write(
        &mut stream,
        "GET /x HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
    )
    .await;
    read_until(&mut stream, "\r\n\r\n").await;
    driver.shutdown.signal();
    assert_eq!(driver.wait_until_stopped().await, ShutdownResult::Cut);
    assert_eq!(read_rest(&mut stream).await, "");
}
