use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, uri::PathAndQuery};

/// How a request goes on to the control plane, once the chains have let it pass. Lives as long as the
/// request.
#[derive(Clone, Debug)]
pub enum Forwarding {
    /// As it is.
    AsIs,
    /// With another head, and perhaps another body.
    Rewritten(Rewritten),
    /// That depends on its body, which must be read whole: [`Dialect::translate`](crate::Dialect::translate)
    /// says how.
    Translate,
    /// To another server than the upstream.
    OtherServer(OtherServer),
    /// It ends here.
    Reply(Response<Bytes>),
}

/// A request as the upstream gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewritten {
    /// Its method.
    pub method: Method,
    /// Its path and query.
    pub path_and_query: PathAndQuery,
    /// All of its headers, but for `Host`, `Content-Length` and those of the connection: none of the
    /// client's goes on.
    pub headers: HeaderMap,
    /// Its body.
    pub body: NextBody,
}

/// The body of a request as the upstream gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextBody {
    /// None.
    Nothing,
    /// As it is, or as the chains left it.
    AsIs,
    /// This one.
    New(Bytes),
}

/// Another server than the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtherServer {
    /// A console on a host of the cluster, at the port that consoles have there. The request may be one for
    /// a WebSocket.
    Console {
        /// The host, as the client says it. Whoever may use consoles reaches any address by it, unless the front
        /// door allows only some.
        host: IpAddr,
        /// The path and query there.
        path_and_query: PathAndQuery,
    },
    /// The kube-apiserver's definitions of custom resources. Its reply goes through
    /// [`Bcs::definitions_reply`](crate::Bcs::definitions_reply).
    CustomResourceDefinitions {
        /// The path and query there.
        path_and_query: PathAndQuery,
        /// The body there.
        body: NextBody,
    },
    /// The kube-apiserver's custom resources. Before one is created in a namespace, the original creates the
    /// namespace there when there is none.
    CustomResources {
        /// The path and query there.
        path_and_query: PathAndQuery,
    },
}

/// What becomes of a reply of the upstream. Lives as long as the reply.
#[derive(Clone, Debug)]
pub enum Relay {
    /// It goes to the client as it is.
    AsIs,
    /// Its body goes to the client as it is, below this head.
    Head {
        /// The status.
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
