//! Whole-program tests: real sockets, real TLS, hostile guests.
