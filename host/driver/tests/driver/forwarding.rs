//! With the scheduler behind the driver: what it is asked, and what clients hear.

mod bodies;
mod consoles;
mod kubernetes;
mod masters;
mod replies;
mod requests;
mod routes;
mod scheduler;
