//! With the scheduler behind the driver: what it is asked, and what clients hear.

mod routes;
mod scheduler;
