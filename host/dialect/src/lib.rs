//! How a front door reads requests and writes replies: the BCS Mesos driver's way and rules from configuration.
