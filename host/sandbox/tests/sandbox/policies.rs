//! Tests of Kubewarden policies, which are written as core modules in text form.

mod calls;
mod host_calls;
mod loading;
mod wasi;

use admittance_admission::{Failure, Response};
use admittance_sandbox::{Error, Plugin, PluginConfig, Sandbox};

use crate::harness::{call, config, sandbox};

const METADATA: &str = r#"{
    "protocolVersion": "v1", "mutating": true, "executionMode": "kubewarden-wapc",
    "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
    "contextAwareResources": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
    "annotations": {"io.kubewarden.policy.title": "t", "io.kubewarden.policy.version": "1.0.0",
        "io.kubewarden.policy.description": "d", "io.kubewarden.policy.author": "me"}}"#;

/// A waPC policy, which distinguishes operations by the lengths of their names.
#[derive(Clone)]
pub(crate) struct Policy {
    metadata: String,
    pub(crate) items: String,
    /// The code that runs in the operation `validate` before the policy responds.
    validate: String,
    answer: String,
    settings: String,
    version: String,
    text: String,
}

const ANSWER_ADDRESS: usize = 4096;
const SETTINGS_ADDRESS: usize = 8192;
const VERSION_ADDRESS: usize = 12_288;
const TEXT_ADDRESS: usize = 16_384;
const MESSAGE_ADDRESS: usize = 65_536;

impl Default for Policy {
    fn default() -> Self {
        Self {
            metadata: METADATA.to_owned(),
            items: String::new(),
            validate: String::new(),
            answer: r#"{"accepted":true}"#.to_owned(),
            settings: r#"{"valid":true}"#.to_owned(),
            version: r#""v1""#.to_owned(),
            text: String::new(),
        }
    }
}

fn escape(text: &str) -> String {
    text.bytes().map(|byte| format!("\\{byte:02x}")).collect()
}

impl Policy {
    fn answering(answer: &str) -> Self {
        Self {
            answer: answer.to_owned(),
            ..Self::default()
        }
    }

    fn running(code: &str) -> Self {
        Self {
            validate: code.to_owned(),
            ..Self::default()
        }
    }

    fn asking(path: [&str; 3], payload: &str) -> Self {
        let mut at = TEXT_ADDRESS;
        let mut arguments = String::new();
        for text in [path[0], path[1], path[2], payload] {
            arguments += &format!("(i32.const {at}) (i32.const {}) ", text.len());
            at += text.len();
        }
        Self {
            validate: format!(
                r#"(if (call $host_call {arguments})
                    (then
                        (call $host_response (i32.const {MESSAGE_ADDRESS}))
                        (call $response (i32.const {MESSAGE_ADDRESS}) (call $host_response_len)))
                    (else
                        (call $host_error (i32.const {MESSAGE_ADDRESS}))
                        (call $error (i32.const {MESSAGE_ADDRESS}) (call $host_error_len))
                        (return (i32.const 0))))
                (return (i32.const 1))"#
            ),
            text: path.concat() + payload,
            ..Self::default()
        }
    }

    pub(crate) fn module(&self) -> Vec<u8> {
        let Self {
            metadata,
            items,
            validate,
            answer,
            settings,
            version,
            text,
        } = self;
        let section = match metadata.as_str() {
            "" => String::new(),
            metadata => format!(r#"(@custom "io.kubewarden.metadata" "{}")"#, escape(metadata)),
        };
        let answers = [
            (ANSWER_ADDRESS, answer),
            (SETTINGS_ADDRESS, settings),
            (VERSION_ADDRESS, version),
            (TEXT_ADDRESS, text),
        ];
        let data = answers.map(|(at, text)| format!(r#"(data (i32.const {at}) "{}")"#, escape(text)));
        let say = |at: usize, text: &str| {
            format!(
                "(call $response (i32.const {at}) (i32.const {})) (return (i32.const 1))",
                text.len()
            )
        };
        let text = format!(
            r#"(module {section}
                (import "wapc" "__guest_request" (func $request (param i32 i32)))
                (import "wapc" "__guest_response" (func $response (param i32 i32)))
                (import "wapc" "__guest_error" (func $error (param i32 i32)))
                (import "wapc" "__console_log" (func $console (param i32 i32)))
                (import "wapc" "__host_call"
                    (func $host_call (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
                (import "wapc" "__host_response" (func $host_response (param i32)))
                (import "wapc" "__host_response_len" (func $host_response_len (result i32)))
                (import "wapc" "__host_error" (func $host_error (param i32)))
                (import "wapc" "__host_error_len" (func $host_error_len (result i32)))
                (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
                (import "wasi_snapshot_preview1" "path_open"
                    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
                {items}
                (memory (export "memory") 4)
                (table $table 1 funcref)
                (global $started (mut i32) (i32.const 0))
                (global $calls (mut i32) (i32.const 0))
                {data}
                (func (export "_start") (call $exit (i32.const 0)))
                (func (export "wapc_init")
                    (if (global.get $started) (then unreachable))
                    (global.set $started (i32.const 1)))
                (func (export "__guest_call") (param $operation i32) (param $length i32) (result i32)
                    (if (i32.eqz (global.get $started)) (then unreachable))
                    (call $request (i32.const 0) (i32.const {MESSAGE_ADDRESS}))
                    (if (i32.eq (local.get $operation) (i32.const 17)) (then {say_settings}))
                    (if (i32.eq (local.get $operation) (i32.const 16)) (then {say_version}))
                    (if (i32.ne (local.get $operation) (i32.const 8)) (then unreachable))
                    ;; Nothing of another call is left.
                    (if (global.get $calls) (then unreachable))
                    (global.set $calls (i32.const 1))
                    {validate}
                    {say_answer}))"#,
            data = data.concat(),
            say_settings = say(SETTINGS_ADDRESS, settings),
            say_version = say(VERSION_ADDRESS, version),
            say_answer = say(ANSWER_ADDRESS, answer),
        );
        wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    async fn load(&self) -> Result<Plugin, Error> {
        self.load_with(sandbox(), "{}", &config()).await
    }

    async fn load_with(&self, sandbox: &Sandbox, settings: &str, config: &PluginConfig) -> Result<Plugin, Error> {
        load_module(sandbox, self.module(), settings, config).await
    }

    async fn load_and_call(&self) -> Result<Response, Failure> {
        call(&self.load().await.unwrap()).await
    }
}

async fn load_module(
    sandbox: &Sandbox,
    module: Vec<u8>,
    settings: &str,
    config: &PluginConfig,
) -> Result<Plugin, Error> {
    let prepared = sandbox.prepare(module, settings, config).await?;
    sandbox.load(&prepared, config)
}
