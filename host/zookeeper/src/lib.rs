//! A session with ZooKeeper that is made again when it is lost, who is registered there, and registering.
