use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, uri::PathAndQuery};

/// The request for the scheduler, or the reply to the client if nothing is sent. Lives as long as the client's request.
#[derive(Clone, Debug)]
pub enum Forwarding {
    /// The request is sent to the scheduler with another head, and perhaps another body.
    Rewritten(Rewritten),
    OtherServer(OtherServer),
    Reply(Response<Bytes>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewritten {
    pub method: Method,
    pub path_and_query: PathAndQuery,
    /// All headers of the new request except `Host`, `Content-Length` and connection headers. Headers of the client's
    /// request are not among them.
    pub headers: HeaderMap,
    pub body: NextBody,
}

/// The body of a forwarded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextBody {
    Nothing,
    /// The body of the request that has passed the chains.
    AsIs,
    New(Bytes),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtherServer {
    /// A console on a host of the cluster, at the port of consoles. The request may open a WebSocket.
    Console {
        /// The host that the client named: any address, unless the front door restricts the hosts.
        host: IpAddr,
        path_and_query: PathAndQuery,
    },
    /// Definitions of custom resources at the kube-apiserver. Its reply is rewritten by
    /// [`definitions_reply`](super::definitions_reply).
    CustomResourceDefinitions {
        path_and_query: PathAndQuery,
        body: NextBody,
    },
    /// Custom resources at the kube-apiserver. If the namespace of a new resource is missing, it is created, as in
    /// bcs-mesos-driver.
    CustomResources { path_and_query: PathAndQuery },
}

/// The form in which the client gets the scheduler's reply. Lives as long as the reply.
#[derive(Clone, Debug)]
pub enum Relay {
    /// The body is passed on unchanged, after this head.
    Unchanged {
        status: StatusCode,
        /// All headers of the reply, except `Content-Length` and connection headers.
        headers: HeaderMap,
    },
    /// The client gets this reply instead.
    Reply(Response<Bytes>),
    /// The server did not process the request, so another server can be tried, or the same one later. The client gets
    /// this reply if no server accepts the request.
    NotProcessed(Response<Bytes>),
}
