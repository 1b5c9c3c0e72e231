//! The sample request with which a plugin is warmed up.

use crate::Request;
use crate::bindings::admittance::plugin::types::{
    GroupVersionKind, GroupVersionResource, Operation, Request as Contract, UserInfo,
};

/// A typical Pod of about 1 kB, with two containers, labels, annotations and volumes.
const POD: &str = include_str!("sample.json");

pub(crate) fn request() -> Request {
    Request::from_contract(Contract {
        uid: "00000000-0000-4000-8000-000000000000".to_owned(),
        operation: Operation::Create,
        kind: GroupVersionKind {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "Pod".to_owned(),
        },
        resource: GroupVersionResource {
            group: String::new(),
            version: "v1".to_owned(),
            resource: "pods".to_owned(),
        },
        subresource: None,
        name: "sample".to_owned(),
        namespace: Some("default".to_owned()),
        user: UserInfo {
            username: "sample".to_owned(),
            uid: String::new(),
            groups: vec!["system:authenticated".to_owned()],
            extra: Vec::new(),
        },
        object: Some(POD.to_owned()),
        old_object: None,
        options: None,
        dry_run: true,
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_warm_up_sample_is_a_pod() {
        let pod = super::request()
            .object_value()
            .expect("it is JSON")
            .expect("a CREATE has an object");
        assert_eq!(pod.pointer("/kind").and_then(|kind| kind.as_str()), Some("Pod"));
        assert!((800..1400).contains(&super::POD.len()), "{}", super::POD.len());
    }
}
