use serde_json::{Value, json};

use super::*;
use crate::zookeeper::{EnsembleConfig, ZooKeeperConfig};

const PORTS: Ports = Ports {
    address: SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 5)), 8090),
    is_tls: false,
    admin: 8091,
};

fn ensemble(server: &str) -> EnsembleConfig {
    EnsembleConfig::new(server.parse().unwrap())
}

fn registered_nodes(
    config: &RegistrationConfig,
    ports: Ports,
    zookeeper: &ZooKeeperConfig,
) -> Result<Vec<(&'static str, String, String, Value)>, String> {
    let ensembles = Ensembles::open(zookeeper);
    let registrar = Registrar::new(config, &"BCS-MESOS-1".parse().unwrap(), ports, &ensembles)
        .map_err(|error| error.to_string())?;
    let described = |entry: &RegistrationEntry| {
        let mut info: Value = serde_json::from_slice(&entry.registration.data).unwrap();
        assert_eq!(info["pid"], std::process::id());
        assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
        for key in ["pid", "version"] {
            info.as_object_mut().unwrap().remove(key);
        }
        let NodeRegistration { parent, name, .. } = entry.registration.clone();
        (entry.ensemble, parent, name, info)
    };
    Ok(registrar.0.iter().map(described).collect())
}

#[tokio::test]
async fn each_registration_has_the_node_and_data_that_bcs_uses() {
    let both = ZooKeeperConfig {
        cluster: Some(ensemble("127.0.0.1:1")),
        service: Some(ensemble("127.0.0.1:2")),
    };
    let config = RegistrationConfig {
        hostname: Some("h".into()),
        external: Some(ExternalAddress {
            ip: [192, 0, 2, 1].into(),
            port: 8443,
        }),
        ..RegistrationConfig::default()
    };
    let info = json!({
        "ip": "10.0.0.5", "ipv6": "", "port": 8090, "grpc_port": 0, "metric_port": 8091, "hostname": "h",
        "scheme": "http", "cluster": "BCS-MESOS-1",
        "external_ip": "192.0.2.1", "external_ipv6": "", "external_port": 8443,
    });
    let mut cluster_info = info.clone();
    cluster_info["external_ip"] = "".into();
    cluster_info["external_port"] = 0.into();
    let cluster_parent = "/bcs/services/endpoints/mesosdriver".to_owned();
    let service_parent = format!("{cluster_parent}/BCS-MESOS-1");
    let name = "10.0.0.5".to_owned();
    assert_eq!(
        registered_nodes(&config, PORTS, &both).unwrap(),
        [
            ("service", service_parent.clone(), name.clone(), info.clone()),
            ("cluster", cluster_parent.clone(), name.clone(), cluster_info.clone()),
        ]
    );
    for one in [
        ZooKeeperConfig {
            service: None,
            ..both.clone()
        },
        ZooKeeperConfig {
            service: both.cluster.clone(),
            ..both.clone()
        },
    ] {
        let registered = registered_nodes(&config, PORTS, &one).unwrap();
        assert_eq!(registered.len(), 2, "{one:?}");
        assert_eq!(Ensembles::open(&one).status().len(), 1, "{one:?}");
    }
    let service = ZooKeeperConfig {
        cluster: None,
        ..both.clone()
    };
    assert_eq!(
        registered_nodes(&config, PORTS, &service).unwrap(),
        [("service", service_parent, name, info)]
    );
    assert!(registered_nodes(&config, PORTS, &ZooKeeperConfig::default()).is_err());
}

#[tokio::test]
async fn registrations_have_the_same_defaults_as_in_bcs() {
    let service = ZooKeeperConfig {
        cluster: None,
        service: Some(ensemble("127.0.0.1:2")),
    };
    let registered_info = |config: RegistrationConfig, ports: Ports| {
        registered_nodes(&config, ports, &service).map(|mut registered| registered.remove(0).3)
    };
    let info = registered_info(
        RegistrationConfig::default(),
        Ports {
            is_tls: true,
            admin: 0,
            ..PORTS
        },
    )
    .unwrap();
    assert_eq!((&info["scheme"], &info["metric_port"]), (&json!("https"), &json!(0)));
    assert_ne!(info["hostname"], "");
    let explicit_config = RegistrationConfig {
        ip: Some("2001:db8::1".parse().unwrap()),
        port: Some(80),
        ..RegistrationConfig::default()
    };
    let info = registered_info(explicit_config, PORTS).unwrap();
    assert_eq!(
        [&info["ip"], &info["ipv6"], &info["port"]],
        [&json!(""), &json!("2001:db8::1"), &json!(80)]
    );
    let unspecified_ports = Ports {
        address: ([0, 0, 0, 0], 8090).into(),
        ..PORTS
    };
    let error = registered_info(RegistrationConfig::default(), unspecified_ports).unwrap_err();
    assert!(error.contains("registration.ip"), "{error}");
    let error = Registrar::new(
        &RegistrationConfig::default(),
        &"a/b".parse().unwrap(),
        PORTS,
        &Ensembles::open(&service),
    );
    assert!(matches!(error, Err(RegistrationError::Cluster(_))), "{error:?}");
}

#[tokio::test]
async fn gateways_register_where_bcs_api_does() {
    let service = ZooKeeperConfig {
        cluster: None,
        service: Some(ensemble("127.0.0.1:2")),
    };
    let tls = Ports { is_tls: true, ..PORTS };
    let config = RegistrationConfig::default();
    let registrar = Registrar::for_gateway(&config, tls, &Ensembles::open(&service)).unwrap();
    let [entry] = registrar.0.as_slice() else {
        panic!("{registrar:?}")
    };
    assert_eq!(entry.registration.parent, "/bcs/services/endpoints/apiserver");
    let info: Value = serde_json::from_slice(&entry.registration.data).unwrap();
    assert_eq!((&info["scheme"], &info["port"]), (&json!("https"), &json!(8090)));
    assert_eq!(config.gateway_url(tls).unwrap().to_string(), "https://10.0.0.5:8090");
}
