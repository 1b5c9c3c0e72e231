//! Tests a driver in front of a scheduler: the requests that the scheduler receives, and the replies that clients
//! receive.

mod bodies;
mod consoles;
mod kubernetes;
mod masters;
mod replies;
mod requests;
mod routes;
mod scheduler;
