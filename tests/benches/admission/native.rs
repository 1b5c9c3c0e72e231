//! The plugin `sidecar-injector` as native code, with which the plugin in the sandbox is compared.

use std::sync::Arc;

use admittance::admission::{
    Chain, Deadline, Failure, FailureKind, Hook, Operation, Patch, Request, ResourcePattern, Response, Rule, Stage,
    Verdict, async_trait,
};
use admittance_sdk::{
    Configured,
    bindings::admittance::plugin::types::{self, GroupVersionKind, GroupVersionResource, UserInfo},
};
use sidecar_injector::SidecarInjector;

pub(crate) struct NativePlugin(Configured<SidecarInjector>);

impl NativePlugin {
    pub(crate) fn new(settings: &str) -> Self {
        let plugin = Configured::new();
        plugin.configure(settings).unwrap();
        Self(plugin)
    }

    pub(crate) fn admit(&self, object: &str) -> String {
        match self.0.admit(contract_request(object)).unwrap().verdict {
            types::Verdict::Patch(patch) => patch,
            other => panic!("{other:?}"),
        }
    }
}

fn contract_request(object: &str) -> types::Request {
    types::Request {
        uid: "6f1c2d3e".to_owned(),
        operation: types::Operation::Create,
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
        name: "web".to_owned(),
        namespace: Some("shop".to_owned()),
        user: UserInfo {
            username: String::new(),
            uid: String::new(),
            groups: Vec::new(),
            extra: Vec::new(),
        },
        object: Some(object.to_owned()),
        old_object: None,
        options: None,
        dry_run: false,
    }
}

#[async_trait]
impl Hook for NativePlugin {
    async fn admit(&self, request: &Arc<Request>, _: Deadline) -> Result<Response, Failure> {
        let object = request.object.as_ref().map_or("{}", |object| object.text());
        let patch = Patch::parse(self.admit(object))
            .map_err(|error| Failure::new(FailureKind::InvalidResponse, error.to_string()))?;
        Ok(Response::new(Verdict::Patch(patch)))
    }
}

pub(crate) fn chain(settings: &str) -> Chain {
    Chain::new(
        "native",
        vec![Rule::for_operations([Operation::Create])],
        vec![Stage::new("sidecar", NativePlugin::new(settings))],
    )
}

pub(crate) fn chain_for(settings: &str, resource: &str) -> Chain {
    let mut chain = chain(settings);
    chain.name = resource.into();
    for rule in &mut chain.rules {
        rule.resources = vec![ResourcePattern::parse(resource).unwrap()];
    }
    chain
}
