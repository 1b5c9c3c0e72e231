//! Runs the threads on which replies of the admin port are made and decisions are written. Separate threads serve the
//! driver's port, accept connections, and reply to probes.

use std::sync::LazyLock;

use admittance_admission::{background_threads, poll_with_rescheduling, resume_panic_or_wait};
use axum::body::Body;
use futures_util::{StreamExt as _, stream};
use http::Response;
use http_body::Body as _;
use tokio::{
    runtime::{Handle, Runtime},
    sync::mpsc,
};
use tokio_util::task::AbortOnDropHandle;

/// The number of threads that make replies. While one of them makes a slow reply, the other makes all further replies.
const THREAD_COUNT: usize = 2;

static THREADS: LazyLock<Option<Runtime>> = LazyLock::new(|| background_threads("operators", THREAD_COUNT));

/// Returns the runtime of the threads that make replies. Must be called within a tokio runtime.
pub(crate) fn threads() -> Handle {
    THREADS
        .as_ref()
        .map_or_else(Handle::current, |threads| threads.handle().clone())
}

/// Makes a reply and its body on the threads for replies. The work ends when the future is dropped.
pub(crate) async fn reply_on_threads(making: impl Future<Output = Response<Body>> + Send + 'static) -> Response<Body> {
    let making = poll_with_rescheduling(async { making.await.map(forward_body) });
    match AbortOnDropHandle::new(threads().spawn(making)).await {
        Ok(response) => response,
        Err(error) => resume_panic_or_wait(error).await,
    }
}

/// Returns a body with the same content. If the body is streamed, a new task makes its parts. The task runs on the
/// threads for replies, not on the thread that sends the parts to the client.
fn forward_body(body: Body) -> Body {
    if body.size_hint().exact().is_some() {
        return body;
    }
    let (parts, waiting) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut body = body.into_data_stream();
        loop {
            let part = tokio::select! {
                part = poll_with_rescheduling(body.next()) => part,
                () = parts.closed() => None,
            };
            let Some(part) = part else { return };
            if parts.send(part).await.is_err() {
                return;
            }
        }
    });
    let parts = stream::unfold(waiting, async |mut waiting| Some((waiting.recv().await?, waiting)));
    Body::from_stream(parts)
}
