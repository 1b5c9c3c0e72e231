use std::io;

use tokio::sync::oneshot;

use super::activity::Activity;
use crate::turns::{StreamObserver, TurnTakingStream};

/// A stream that records when bytes are received and sent. When hyper or a tunnel drops it, the receiver that `track`
/// returned gets the inner stream.
pub(super) type TrackedStream<S> = TurnTakingStream<S, Tracker<S>>;

pub(super) struct Tracker<S> {
    activity: Activity,
    released: Option<oneshot::Sender<S>>,
}

impl<S> TrackedStream<S> {
    pub(super) fn track(stream: S, activity: Activity) -> (Self, oneshot::Receiver<S>) {
        let (sender, receiver) = oneshot::channel();
        let tracker = Tracker {
            activity,
            released: Some(sender),
        };
        (Self::new(stream, tracker), receiver)
    }
}

impl<S> StreamObserver<S> for Tracker<S> {
    fn observe_received(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !bytes.is_empty() {
            self.activity.record_received(bytes);
        }
        Ok(0)
    }

    fn observe_sent(&mut self, _slices: &[io::IoSlice<'_>], _written: usize) {
        self.activity.record_sent();
    }

    fn observe_release(&mut self, stream: S) {
        if let Some(released) = self.released.take() {
            // `send` fails if nobody waits for the stream. Then the stream is dropped, which closes the connection.
            let _ = released.send(stream);
        }
    }
}
