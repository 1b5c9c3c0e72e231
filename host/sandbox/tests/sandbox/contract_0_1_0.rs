//! Tests a stored binary of a plugin that was built for version 0.1.0 of the contract.

use std::{sync::Arc, time::Duration};

use admittance_admission::{
    ClusterError, ClusterKind, ClusterPage, ClusterQuery, ClusterReader, Deadline, FailureKind, Grants,
    GroupVersionKind, GroupVersionResource, Hook, Object, Operation, Request, Verdict,
};
use admittance_sandbox::{ConfigurationTime, Error, PluginConfig};
use async_trait::async_trait;

use crate::harness::{config, sandbox_with};

/// The path of a compiled plugin that uses version 0.1.0 of the contract. The file `contract-0.1.0.md` in the same
/// directory describes the plugin.
const PLUGIN_0_1_0: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/guests/contract-0.1.0.wasm");

#[derive(Debug)]
struct UnansweredNodes;

#[async_trait]
impl ClusterReader for UnansweredNodes {
    async fn get(
        &self,
        kind: &ClusterKind,
        namespace: Option<&str>,
        name: &str,
        _deadline: Deadline,
    ) -> Result<Option<String>, ClusterError> {
        assert_eq!((kind.to_string().as_str(), namespace), ("v1/Node", None));
        let node = r#"{"metadata":{"name":"far"},"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}"#;
        Ok((name == "far").then(|| node.to_owned()))
    }

    async fn list(
        &self,
        _kind: &ClusterKind,
        _query: &ClusterQuery,
        _deadline: Deadline,
    ) -> Result<ClusterPage, ClusterError> {
        Ok(ClusterPage::default())
    }
}

fn endpoints_request(node: &str) -> Request {
    let kind = GroupVersionKind::from_api_version("v1", "Endpoints");
    let resource = GroupVersionResource {
        version: "v1".to_owned(),
        resource: "endpoints".to_owned(),
        ..GroupVersionResource::default()
    };
    let object = format!(
        r#"{{"apiVersion":"v1","kind":"Endpoints","metadata":{{"name":"web","namespace":"shop"}},
            "subsets":[{{"notReadyAddresses":[{{"ip":"10.0.0.1","nodeName":"{node}"}}]}}]}}"#
    );
    Request::new(Operation::Create, kind, resource).with_object(Object::parse(&object).unwrap())
}

#[tokio::test]
async fn a_plugin_of_the_contract_0_1_0_runs_unchanged() {
    let module = std::fs::read(PLUGIN_0_1_0).unwrap();
    let sandbox = sandbox_with(|config| config.cluster = Some(Arc::new(UnansweredNodes)));
    let inspected = sandbox.inspect(module.clone()).await.unwrap();
    assert_eq!(inspected.contract.as_deref(), Some("0.1.0"));
    assert_eq!(inspected.description.name, "edge-health");
    let names: Vec<_> = inspected.imports.iter().map(|import| import.name.as_str()).collect();
    assert!(names.contains(&"admittance:plugin/cluster@0.1.0"), "{names:?}");
    let wrong = r#"{"never":true}"#;
    let refused = sandbox.prepare(module.clone(), wrong, &config()).await.unwrap_err();
    assert!(
        matches!(&refused, Error::Settings(mistakes) if mistakes.len() == 1),
        "{refused}"
    );

    let prepared = sandbox.prepare(module, "{}", &config()).await.unwrap();
    assert_eq!(*prepared.configuration_time(), ConfigurationTime::Snapshot);
    let deadline = || Deadline::after(Duration::from_secs(60));
    let plugin = sandbox.load(&prepared, &config()).unwrap();
    let failure = plugin
        .admit(&Arc::new(endpoints_request("far")), deadline())
        .await
        .unwrap_err();
    assert_eq!(failure.kind, FailureKind::CapabilityDenied, "{failure}");

    let config = PluginConfig {
        grants: Grants {
            cluster: [ClusterKind::new("v1", "Node")].into(),
            ..Grants::default()
        },
        ..config()
    };
    let granted = plugin.with_config(&config).unwrap();
    for (node, is_patched) in [("far", true), ("gone", false)] {
        let response = granted
            .admit(&Arc::new(endpoints_request(node)), deadline())
            .await
            .unwrap();
        let patch = match &response.verdict {
            Verdict::Allow => false,
            Verdict::Patch(_) => true,
            other => panic!("{other:?}"),
        };
        assert_eq!(patch, is_patched, "{node}: {:?}", response.verdict);
    }
    let failure = plugin
        .admit(&Arc::new(endpoints_request("far")), deadline())
        .await
        .unwrap_err();
    assert_eq!(failure.kind, FailureKind::CapabilityDenied, "{failure}");
}
