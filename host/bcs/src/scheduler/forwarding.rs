use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, uri::PathAndQuery};

/// The way to forward a client's request, or the reply if it is not forwarded. Lives as long as the client's request.
#[derive(Clone, Debug)]
pub enum SchedulerForwarding {
    /// The scheduler gets a new request instead of the client's. Its head is new, and its body is new or the client's.
    Rewritten(RewrittenRequest),
    OtherServer(OtherServer),
    Reply(Response<Bytes>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RewrittenRequest {
    pub method: Method,
    pub path_and_query: PathAndQuery,
    /// All headers of the new request except `Host`, `Content-Length` and connection headers. None of them is taken
    /// from the client's request.
    pub headers: HeaderMap,
    pub body: NextBody,
}

/// The body of the request that is sent instead of the client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextBody {
    Nothing,
    /// The body of the client's request, including the changes that the chains have made to it.
    AsIs,
    New(Bytes),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtherServer {
    /// A console on a host of the cluster. The request may open a WebSocket to it.
    Console {
        /// The host that the client named. It may be any address, unless the configuration restricts the hosts.
        host: IpAddr,
        path_and_query: PathAndQuery,
    },
    /// The kube-apiserver, for definitions of custom resources. The reply is rewritten by
    /// [`definitions_reply`](super::definitions_reply).
    CustomResourceDefinitions {
        path_and_query: PathAndQuery,
        body: NextBody,
    },
    /// The request goes to the kube-apiserver, because it is for custom resources. If it creates a resource in a
    /// namespace that does not exist, the namespace is created first, as in bcs-mesos-driver.
    CustomResources { path_and_query: PathAndQuery },
}

/// The way to pass a reply of the scheduler on to the client. Lives as long as the reply.
#[derive(Clone, Debug)]
pub enum Relay {
    /// The client gets the scheduler's body unchanged, after a head with this status and these headers.
    Unchanged {
        status: StatusCode,
        /// All headers of the reply, except `Content-Length` and connection headers.
        headers: HeaderMap,
    },
    /// The client gets this reply instead of the scheduler's.
    Reply(Response<Bytes>),
    /// The server did not process the request, so it is sent to another server, or to this server again later. If no
    /// server processes the request, the client gets this reply.
    NotProcessed(Response<Bytes>),
}
