//! The test policy as a waPC module, which is built with Kubewarden's SDK.

mod policy;

use kubewarden_policy_sdk::{
    protocol_version_guest, validate_settings,
    wapc_guest::{CallResult, host_call, register_function},
};

/// The policy's metadata, which the command `kwctl annotate` would otherwise write into the module.
#[unsafe(link_section = "io.kubewarden.metadata")]
pub static METADATA: [u8; include_bytes!("metadata.json").len()] = *include_bytes!("metadata.json");

#[unsafe(no_mangle)]
pub extern "C" fn wapc_init() {
    register_function("validate", validate);
    register_function("validate_settings", validate_settings::<policy::Settings>);
    register_function("protocol_version", protocol_version_guest);
}

fn validate(payload: &[u8]) -> CallResult {
    let call = |namespace: &str, operation: &str, message: &[u8]| {
        host_call("kubewarden", namespace, operation, message).map_err(|error| error.to_string())
    };
    Ok(policy::validate(payload, &call)?.to_string().into_bytes())
}
