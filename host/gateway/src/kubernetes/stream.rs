//! Ends long requests, such as watches and switched protocols, when their user loses the right to them.

use std::{
    any::Any,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use admittance_bcs::routes::Permission;
use admittance_net::upstream::TunnelGuard;
use axum::body::Body;
use bytes::Bytes;
use http::Extensions;
use http_body::{Frame, SizeHint};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::accounts::{AccessTarget, Accounts, TokenDenied, UserSession};

type DenialFuture = Pin<Box<dyn Future<Output = TokenDenied> + Send>>;

#[derive(Clone)]
pub(crate) struct WatchedRight {
    accounts: Accounts,
    session: UserSession,
    target: AccessTarget,
    required_permission: Permission,
    /// A value that must stay alive until the request has ended, such as the route to the cluster.
    _kept_alive: Arc<dyn Any + Send + Sync>,
}

impl WatchedRight {
    pub(crate) fn new(
        accounts: &Accounts,
        session: &UserSession,
        target: AccessTarget,
        required_permission: Permission,
        kept_alive: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self {
            accounts: accounts.clone(),
            session: session.clone(),
            target,
            required_permission,
            _kept_alive: kept_alive,
        }
    }

    fn wait_until_denied(&self) -> DenialFuture {
        let right = self.clone();
        Box::pin(async move {
            let Self {
                accounts,
                session,
                target,
                required_permission,
                ..
            } = &right;
            let denied = accounts.wait_until_denied(session, target, *required_permission).await;
            let (AccessTarget::Cluster(cluster) | AccessTarget::Drivers(cluster)) = target;
            tracing::info!(cluster, by = %session.user.name, "a request is ended: {denied}");
            denied
        })
    }

    /// Makes a switched protocol end when its user loses the permission for it.
    pub(crate) fn guard_tunnel(&self, extensions: &mut Extensions) {
        let guard = extensions.remove::<TunnelGuard>();
        let end_token = guard
            .as_ref()
            .map_or_else(CancellationToken::new, |guard| guard.connection_end_token.child_token());
        let (until_denied, end) = (self.wait_until_denied(), end_token.clone());
        let watching = AbortOnDropHandle::new(tokio::spawn(async move {
            until_denied.await;
            end.cancel();
        }));
        extensions.insert(TunnelGuard {
            permit: Arc::new((guard, watching)),
            connection_end_token: end_token,
        });
    }

    /// Returns a body that ends with an error when the user loses the permission for the request.
    pub(crate) fn watch_body(&self, body: Body) -> Body {
        if http_body::Body::is_end_stream(&body) {
            return body;
        }
        Body::new(WatchedBody {
            body,
            until_denied: Some(self.wait_until_denied()),
        })
    }
}

struct WatchedBody {
    body: Body,
    /// Waits until the user loses the permission for the request; `None` after the body has ended.
    until_denied: Option<DenialFuture>,
}

impl http_body::Body for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(until_denied) = &mut self.until_denied else {
            return Poll::Ready(None);
        };
        if let Poll::Ready(denied) = until_denied.as_mut().poll(cx) {
            self.until_denied = None;
            return Poll::Ready(Some(Err(axum::Error::new(denied))));
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
