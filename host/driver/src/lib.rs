//! The front doors: an intercepting proxy, its upstreams, and the operator's endpoints.
