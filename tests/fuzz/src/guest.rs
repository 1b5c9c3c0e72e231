use std::time::Duration;

use admittance::admission::{Chain, GroupVersionKind, GroupVersionResource, Object, Operation, Request};
use admittance_sandbox::{CallLimits, PluginConfig, Sandbox, SandboxConfig};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::{
    block_on,
    verdict::{chain, judge},
};

/// The address in the guest's memory at which the guest builds its answer from the input. The address is always the
/// same, so that a pointer in the input can refer to another part of the input.
const ANSWER_ADDRESS: usize = 2048;
/// The maximum length of an input. A longer input is cut off, because in the guest's memory, it would overwrite data
/// that the host has written.
const MAX_INPUT_LENGTH: usize = 16 << 10;

/// Runs a guest whose answer consists of the bytes of the input. In such an answer, the pointers to lists and strings
/// are arbitrary. Checks that the host either reads the answer or reports a failure, and that the resulting object
/// obeys all rules.
pub fn guest(input: &[u8]) {
    thread_local! {
        static GUEST: (Chain, Request) = (block_on(plugin_chain()), request());
    }
    GUEST.with(|(chain, request)| {
        let mut request = request.clone();
        // The guest finds the input in its request, as the name. A name has to be a string, so the input is written in
        // hexadecimal digits.
        let cut = &input[..input.len().min(MAX_INPUT_LENGTH)];
        request.name = cut.iter().map(|byte| format!("{byte:02x}")).collect();
        judge(chain, &request);
    });
}

fn request() -> Request {
    let kind = GroupVersionKind::from_api_version("v1", "Pod");
    let resource = GroupVersionResource {
        group: String::new(),
        version: "v1".to_owned(),
        resource: "pods".to_owned(),
    };
    let object = Object::parse(
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"containers":[{"name":"a"}]}}"#,
    );
    Request::new(Operation::Create, kind, resource).with_object(object.expect("it is an object"))
}

async fn plugin_chain() -> Chain {
    let mut config = SandboxConfig::default();
    config.calls_in_flight = 1;
    let sandbox = Sandbox::new(config).expect("the sandbox starts");
    let config = PluginConfig {
        name: "fuzz".to_owned(),
        limits: CallLimits {
            time: Duration::from_secs(60),
            ..CallLimits::default()
        },
        ..PluginConfig::default()
    };
    let prepared = sandbox.prepare(component(), "{}", &config).await;
    let plugin = sandbox.load(&prepared.expect("the guest is right"), &config);
    chain(plugin.expect("the guest loads"))
}

fn component() -> Vec<u8> {
    // This component reads the name in the request from its memory: the pointer to the name is at offset 72, and the
    // length of the name at offset 76.
    let text = format!(
        r#"(module
            (memory (export "memory") 8)
            (global $heap (mut i32) (i32.const 131072))
            (func (export "cabi_realloc") (param i32 i32 i32) (param $size i32) (result i32)
                (local $at i32)
                (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
                (global.set $heap (i32.add (local.get $at) (local.get $size)))
                (local.get $at))
            (func $nibble (param $digit i32) (result i32)
                (select
                    (i32.sub (local.get $digit) (i32.const 48))
                    (i32.sub (local.get $digit) (i32.const 87))
                    (i32.lt_u (local.get $digit) (i32.const 97))))
            (func (export "describe") (result i32) (i32.const 1024))
            (func (export "configure") (param i32 i32) (result i32) (i32.const 1280))
            (func (export "admit") (param $request i32) (result i32)
                (local $from i32) (local $end i32) (local $to i32)
                (local.set $from (i32.load offset=72 (local.get $request)))
                (local.set $end (i32.add (local.get $from) (i32.load offset=76 (local.get $request))))
                (local.set $to (i32.const {ANSWER_ADDRESS}))
                (block $done
                    (loop $next
                        (br_if $done (i32.ge_u (local.get $from) (local.get $end)))
                        (i32.store8 (local.get $to)
                            (i32.or
                                (i32.shl (call $nibble (i32.load8_u (local.get $from))) (i32.const 4))
                                (call $nibble (i32.load8_u offset=1 (local.get $from)))))
                        (local.set $from (i32.add (local.get $from) (i32.const 2)))
                        (local.set $to (i32.add (local.get $to) (i32.const 1)))
                        (br $next)))
                (i32.const {ANSWER_ADDRESS})))"#
    );
    let mut module = wat::parse_str(&text).expect("it is WebAssembly");
    let mut resolve = Resolve::default();
    resolve
        .push_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit"))
        .expect("the contract can be read");
    let world = "package fuzz:guest; world guest { include admittance:plugin/plugin@0.1.1; }";
    let package = resolve.push_str("guest.wit", world).expect("the world is right");
    let world = resolve.select_world(&[package], Some("guest")).expect("it is there");
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).expect("it fits");
    ComponentEncoder::default()
        .module(&module)
        .expect("it is a module")
        .validate(true)
        .encode()
        .expect("it is a component")
}
