use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, uri::PathAndQuery};

/// The destination of a request in front of the scheduler, or its answer. Lives as long as the request.
#[derive(Clone, Debug)]
pub enum Forwarding {
    /// The request is sent with another head, and perhaps another body.
    Rewritten(Rewritten),
    /// The request is sent to a server other than the scheduler.
    OtherServer(OtherServer),
    Reply(Response<Bytes>),
}

/// A request to the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewritten {
    pub method: Method,
    pub path_and_query: PathAndQuery,
    /// All headers of the request, except `Host`, `Content-Length` and connection headers. No header of the client is
    /// forwarded.
    pub headers: HeaderMap,
    pub body: NextBody,
}

/// The body of a forwarded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextBody {
    Nothing,
    /// The body as the chains left it.
    AsIs,
    New(Bytes),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtherServer {
    /// A console on a host of the cluster, at the port of consoles. The request may open a WebSocket.
    Console {
        /// The host named by the client. Clients that may use consoles can reach any address with it, unless the front
        /// door restricts the hosts.
        host: IpAddr,
        path_and_query: PathAndQuery,
    },
    /// The kube-apiserver's definitions of custom resources. Its reply goes through
    /// [`definitions_reply`](super::definitions_reply).
    CustomResourceDefinitions {
        path_and_query: PathAndQuery,
        body: NextBody,
    },
    /// The kube-apiserver's custom resources. As in the original, the namespace of a new one is created if it is
    /// missing.
    CustomResources { path_and_query: PathAndQuery },
}

/// The translation of a scheduler's reply for the client. Lives as long as the reply.
#[derive(Clone, Debug)]
pub enum Relay {
    /// The body is passed on unchanged, with this head.
    Head {
        status: StatusCode,
        /// All headers of the reply, except `Content-Length` and connection headers.
        headers: HeaderMap,
    },
    /// The reply is replaced by this one.
    Reply(Response<Bytes>),
    /// The server did not process the request, which can be retried with another server, or later. The client gets this
    /// reply if no server accepts the request.
    Idle(Response<Bytes>),
}
