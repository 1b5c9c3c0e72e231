use std::{sync::Arc, time::Duration};

use admittance_admission::{Failure, FailureKind};
use admittance_net::{
    causes::{chain, find},
    informational::{LimitedStream, limit_informational},
    upstream::tcp_connector,
};
use http::Uri;
use hyper_rustls::{HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::{net::TcpStream, time::timeout};
use tower::{ServiceExt, service_fn, util::BoxCloneSyncService};

use crate::{AddressOverrides, tls};

pub(crate) type Connector = BoxCloneSyncService<Uri, LimitedStream<MaybeHttpsStream<TokioIo<TcpStream>>>, Failure>;

pub(crate) fn connector(tls: ClientConfig, resolve: Arc<AddressOverrides>, limit: Duration) -> Connector {
    let mut tcp = tcp_connector();
    // A host name may have several addresses, which share this timeout. Thus an unreachable address leaves time for the
    // next one.
    tcp.set_connect_timeout(Some(limit));
    let tcp = service_fn(move |uri: Uri| {
        let dialled = resolve.dial_uri(&uri);
        let address = match dialled.as_ref().and_then(Uri::authority) {
            Some(address) => format!("{} (at {address}, as configured)", authority_of(&uri)),
            None => authority_of(&uri).to_owned(),
        };
        let connecting = tcp.clone().oneshot(dialled.unwrap_or(uri));
        async move {
            connecting.await.map_err(|error| {
                find(&error).and_then(Failure::of_exhaustion).unwrap_or_else(|| {
                    let reason = chain(&error);
                    let message = format!("cannot connect to {address}: {reason}");
                    Failure::new(FailureKind::Unreachable, message)
                })
            })
        }
    });
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .enable_http2()
        .wrap_connector(tcp);
    BoxCloneSyncService::new(service_fn(move |uri: Uri| {
        let connecting = timeout(limit, https.clone().oneshot(uri.clone()));
        async move {
            match connecting.await {
                Ok(Ok(stream)) => Ok(limit_informational(stream)),
                Ok(Err(error)) => Err(match error.downcast::<Failure>() {
                    Ok(failure) => *failure,
                    Err(error) => tls::handshake_failure(&*error, authority_of(&uri), uri.host().unwrap_or_default()),
                }),
                Err(_) => Err(Failure::new(
                    FailureKind::Unreachable,
                    format!("no connection to {} within {limit:?}", authority_of(&uri)),
                )),
            }
        }
    }))
}

fn authority_of(uri: &Uri) -> &str {
    uri.authority().map_or("", |authority| authority.as_str())
}
