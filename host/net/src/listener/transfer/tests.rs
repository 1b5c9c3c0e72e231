use http_body_util::BodyExt;
use tokio::sync::mpsc;

use super::*;
use crate::listener::{
    ConnectionLimits,
    activity::{Activity, ConnectionExpiry},
};

const SECOND: Duration = Duration::from_secs(1);
const LIMITS: TransferLimits = TransferLimits {
    client_timeout: Duration::from_secs(60),
    minimum_rate: 512,
    upstream_timeout: Duration::from_secs(30),
    stream_timeout: Duration::from_secs(3600),
};

fn new_activity() -> Activity {
    Activity::new(ConnectionLimits {
        max_connections: 1,
        header_timeout: 10 * SECOND,
        transfer: LIMITS,
    })
}

fn begin_transfer(activity: &Activity) -> BodyTransfer {
    activity.begin_request(([127, 0, 0, 1], 1).into(), false, CancellationToken::new())
}

fn channel_body() -> (mpsc::Sender<Bytes>, Body) {
    let (sender, receiver) = mpsc::channel::<Bytes>(1);
    let stream = futures_util::stream::unfold(receiver, async |mut receiver| {
        let part = receiver.recv().await?;
        Some((Ok::<_, std::io::Error>(part), receiver))
    });
    (sender, Body::from_stream(stream))
}

async fn drip(sender: mpsc::Sender<Bytes>, bytes: usize, pause: Duration) {
    while sender.send(vec![b'x'; bytes].into()).await.is_ok() {
        tokio::time::sleep(pause).await;
    }
    std::future::pending().await
}

async fn read_body(mut body: Body, pause: Duration) -> Result<usize, String> {
    let mut byte_count = 0;
    while let Some(frame) = body.frame().await {
        byte_count += frame.map_err(|error| error.to_string())?.into_data().unwrap().len();
        tokio::time::sleep(pause).await;
    }
    Ok(byte_count)
}

async fn run_until_end(
    activity: &Activity,
    taking: impl Future<Output = Result<usize, String>>,
) -> Option<Result<usize, String>> {
    let watching = async {
        while activity.wait_until_expired().await == ConnectionExpiry::Stalled {}
        std::future::pending::<()>().await
    };
    tokio::select! {
        ended = taking => Some(ended),
        () = watching => None,
        () = tokio::time::sleep(Duration::from_secs(24 * 3600)) => None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_body_is_aborted_when_one_side_stalls() {
    // (case, bytes per part, pause of the client, pause of the upstream, expected error)
    // The client sends the body in parts, and both sides pause after each part.
    for (case, bytes, pause, upstream, expected) in [
        (
            "nothing comes",
            1,
            7200 * SECOND,
            Duration::ZERO,
            Some("the client was idle for 60s"),
        ),
        (
            "it drips",
            1,
            SECOND,
            Duration::ZERO,
            Some("the client was slower than 512 bytes per second"),
        ),
        ("as slow as may be", 600, SECOND, Duration::ZERO, None),
        ("in bursts", 40_000, 59 * SECOND, Duration::ZERO, None),
        ("a slow upstream", 1, Duration::ZERO, 25 * SECOND, None),
        (
            "the upstream takes nothing",
            1,
            Duration::ZERO,
            40 * SECOND,
            Some("the upstream was idle for 30s"),
        ),
    ] {
        let activity = new_activity();
        let transfer = begin_transfer(&activity);
        let (sender, body) = channel_body();
        let body = transfer.limit_request_body(body);
        let taking = async {
            tokio::select! {
                taken = read_body(body, upstream) => taken,
                () = drip(sender, bytes, pause) => unreachable!("it drips for ever"),
            }
        };
        let outcome = run_until_end(&activity, taking).await;
        assert_eq!(outcome, expected.map(|text| Err(text.to_owned())), "{case}");
        if let Some(expected) = expected {
            assert_eq!(transfer.wait_until_stalled().await.to_string(), expected, "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_is_aborted_when_one_side_stalls() {
    // (case, bytes per part, pause of the upstream, pause of the client, is it an event stream, expected error)
    // The upstream sends the reply in parts, and both sides pause after each part.
    for (case, bytes, pause, client, is_stream, expected) in [
        (
            "nothing comes",
            1,
            7200 * SECOND,
            Duration::ZERO,
            false,
            Some("the upstream was idle for 30s"),
        ),
        (
            "nothing comes to a watch",
            1,
            7200 * SECOND,
            Duration::ZERO,
            true,
            Some("the upstream was idle for 3600s"),
        ),
        ("a watch", 1, 3000 * SECOND, Duration::ZERO, true, None),
        ("events", 1, 20 * SECOND, Duration::ZERO, false, None),
        (
            "nothing is taken",
            1,
            Duration::ZERO,
            7200 * SECOND,
            false,
            Some("the client was idle for 60s"),
        ),
        (
            "it is taken in drops",
            1,
            Duration::ZERO,
            SECOND,
            false,
            Some("the client was slower than 512 bytes per second"),
        ),
        ("a slow client", 1_000_000, Duration::ZERO, 20 * SECOND, false, None),
    ] {
        let activity = new_activity();
        let transfer = begin_transfer(&activity);
        if is_stream {
            transfer.mark_as_stream();
        }
        let (sender, body) = channel_body();
        let body = transfer.limit_reply_body(body);
        let taking = async {
            tokio::select! {
                taken = read_body(body, client) => taken,
                () = drip(sender, bytes, pause) => unreachable!("it drips for ever"),
            }
        };
        let outcome = run_until_end(&activity, taking).await;
        assert_eq!(outcome, expected.map(|text| Err(text.to_owned())), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_the_client_does_not_read_is_dropped() {
    let activity = new_activity();
    let (sender, body) = channel_body();
    let _untaken = begin_transfer(&activity).limit_reply_body(body);
    let started = Instant::now();
    assert_eq!(activity.wait_until_expired().await, ConnectionExpiry::Stalled);
    let after = started.elapsed();
    assert!(
        (LIMITS.client_timeout..LIMITS.client_timeout + 10 * SECOND).contains(&after),
        "{after:?}"
    );
    assert!(sender.is_closed());
}

#[tokio::test]
async fn transfer_limits_do_not_change_the_content_of_a_body() {
    let activity = new_activity();
    let data: Vec<u8> = (0..100_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let request = begin_transfer(&activity);
    let body = request.limit_request_body(Body::from(data.clone()));
    assert_eq!(http_body::Body::size_hint(&body).exact(), Some(100_000));
    assert_eq!(body.collect().await.unwrap().to_bytes(), data);
    let mut body = request.limit_reply_body(Body::from(data.clone()));
    assert_eq!(http_body::Body::size_hint(&body).exact(), Some(100_000));
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first.len(), LARGEST_CHUNK);
    assert_eq!(
        http_body::Body::size_hint(&body).exact(),
        Some(100_000 - length(&first))
    );
    let rest = body.collect().await.unwrap().to_bytes();
    assert_eq!([first, rest].concat(), data);
    assert!(http_body::Body::is_end_stream(
        &begin_transfer(&activity).limit_reply_body(Body::empty())
    ));
}
