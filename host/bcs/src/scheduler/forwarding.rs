use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, uri::PathAndQuery};

/// How a request goes on to the control plane, once the chains have let it pass. Lives as long as the
/// request.
#[derive(Clone, Debug)]
pub enum Forwarding {
    AsIs,
    /// With another head, and perhaps another body.
    Rewritten(Rewritten),
    /// That depends on its body, which must be read whole: [`Bcs::translate`](crate::Bcs::translate) says how.
    Translate,
    /// To another server than the scheduler.
    OtherServer(OtherServer),
    Reply(Response<Bytes>),
}

/// A request as the scheduler gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewritten {
    pub method: Method,
    pub path_and_query: PathAndQuery,
    /// All of its headers, but for `Host`, `Content-Length` and those of the connection: none of the client's goes
    /// on.
    pub headers: HeaderMap,
    pub body: NextBody,
}

/// The body of a request as the next server gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextBody {
    Nothing,
    /// As it is, or as the chains left it.
    AsIs,
    New(Bytes),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtherServer {
    /// A console on a host of the cluster, at the port that consoles have there. The request may be one for
    /// a WebSocket.
    Console {
        /// The host, as the client says it. Whoever may use consoles reaches any address by it, unless the front
        /// door allows only some.
        host: IpAddr,
        path_and_query: PathAndQuery,
    },
    /// The kube-apiserver's definitions of custom resources. Its reply goes through
    /// [`definitions_reply`](super::definitions_reply).
    CustomResourceDefinitions {
        path_and_query: PathAndQuery,
        body: NextBody,
    },
    /// The kube-apiserver's custom resources. Before one is created in a namespace, the original creates the
    /// namespace there when there is none.
    CustomResources { path_and_query: PathAndQuery },
}

/// What becomes of a reply of the scheduler. Lives as long as the reply.
#[derive(Clone, Debug)]
pub enum Relay {
    /// It goes to the client as it is.
    AsIs,
    /// Its body goes to the client as it is, below this head.
    Head {
        status: StatusCode,
        /// All of its headers, but for `Content-Length` and those of the connection.
        headers: HeaderMap,
    },
    /// The client gets this in its place.
    Reply(Response<Bytes>),
    /// The server that replied has done nothing with the request, which is for another one, or for itself later.
    /// The client gets this when none takes it.
    Idle(Response<Bytes>),
}
