//! The metrics of BCS's driver and of ZooKeeper, recorded through the `metrics` facade.

admittance_net::metric_table! {
    pub(crate) DISCOVERED = Gauge "admittance_discovered_servers" [path]
        "Servers registered in ZooKeeper, by parent node (path)";
    pub(crate) MASTER_CHANGES = Counter "admittance_master_changes_total" [path]
        "Changes of the master scheduler, including the first one, by the parent node of the schedulers \
         (path)";
    pub(crate) DEFINITIONS = Counter "admittance_definition_requests_total" [action, code]
        "Requests to the API for definitions, by action and by the code of the reply (code), 0 on success";
    pub(crate) REGISTERED = Gauge "admittance_registered" [ensemble, path]
        "Whether this driver is registered, by ensemble and parent node (path)";
    pub(crate) ZOOKEEPER_CONNECTED = Gauge "admittance_zookeeper_connected" [ensemble]
        "Whether there is a connected session with ZooKeeper, by ensemble: cluster, service";
    pub(crate) ZOOKEEPER_SESSIONS = Counter "admittance_zookeeper_sessions_total" [ensemble]
        "Sessions with ZooKeeper that were opened, including the first one, by ensemble";
}
