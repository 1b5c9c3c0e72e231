//! Modules that are small but expensive to compile, or that make the host do expensive work.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use serde_json::{Value, json};

use crate::{Artifacts, Error};

/// Returns nested components, each of which instantiates the inner one ten times: 401 bytes make a billion instances.
pub fn exploding_module() -> Result<Vec<u8>, Error> {
    let mut text = "(component $c)".to_owned();
    for _ in 0..9 {
        text = format!("(component $c {text} {})", "(instance (instantiate $c))".repeat(10));
    }
    compile_text(&text)
}

/// Returns a valid plugin that is slow to compile. Its additional core module of 28 KiB has blocks with a thousand
/// results.
pub fn slow_module() -> Result<Vec<u8>, Error> {
    let values = "i32 ".repeat(1_000);
    with_extra_core_module(&format!(
        "(module (type $t (func (param {values}) (result {values}))) (func {}))",
        "block (type $t) end ".repeat(3_000)
    ))
}

/// Returns a component that passes the structural checks, but compiles so slowly that a limit stops the compiler.
pub fn slow_module_within_limits() -> Result<Vec<u8>, Error> {
    // The host limits how many control-flow merges a function and a whole module may have. This module is just below
    // both limits.
    let function = format!("(func (local {}) {})", "i32 ".repeat(2_000), "loop end ".repeat(90));
    with_extra_core_module(&format!("(module {})", function.repeat(27)))
}

/// Returns a Kubewarden policy that makes the host verify a certificate with 31 intermediate certificates. Each of the
/// 31 could have signed any other, so a verifier can try a huge number of paths, but no path leads to the root.
pub fn verifying_module() -> Result<Vec<u8>, Error> {
    let question = trust_question()
        .map_err(|error| Error::Invalid(error.to_string()))?
        .to_string();
    let escaped = |text: &str| text.bytes().map(|byte| format!("\\{byte:02x}")).collect::<String>();
    let metadata = r#"{"protocolVersion": "v1", "mutating": false, "executionMode": "kubewarden-wapc", "rules": []}"#;
    let (operation, length) = ("v1/is_certificate_trusted", question.len());
    // Addresses in the policy's memory: the operation is at 0, the strings of the host call are at 64, and the policy's
    // responses are at 1024.
    compile_text(&format!(
        r#"(module (@custom "io.kubewarden.metadata" "{}")
            (import "wapc" "__guest_request" (func $request (param i32 i32)))
            (import "wapc" "__guest_response" (func $response (param i32 i32)))
            (import "wapc" "__host_call" (func $call (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 64)
            (data (i32.const 64) "kubewarden")
            (data (i32.const 80) "crypto")
            (data (i32.const 96) "{operation}")
            (data (i32.const 1024) "{}")
            (data (i32.const 1088) "{}")
            (data (i32.const 2048) "{}")
            (func (export "__guest_call") (param $operation i32) (param $length i32) (result i32)
                (call $request (i32.const 0) (i32.const 2097152))
                (if (i32.eq (local.get $operation) (i32.const 17))
                    (then (call $response (i32.const 1024) (i32.const 14)) (return (i32.const 1))))
                (if (i32.ne (local.get $operation) (i32.const 8)) (then (return (i32.const 0))))
                (drop (call $call (i32.const 64) (i32.const 10) (i32.const 80) (i32.const 6)
                    (i32.const 96) (i32.const {}) (i32.const 2048) (i32.const {length})))
                (call $response (i32.const 1088) (i32.const 17))
                (i32.const 1)))"#,
        escaped(metadata),
        escaped(r#"{"valid":true}"#),
        escaped(r#"{"accepted":true}"#),
        escaped(&question),
        operation.len(),
    ))
}

fn trust_question() -> Result<Value, rcgen::Error> {
    let params = |name: &str, is_authority: bool| {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
        if is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        params
    };
    let key = || KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384);
    let pem = |text: String| json!({"encoding": "Pem", "data": text.as_bytes()});
    let authority = |name: &str| CertifiedIssuer::self_signed(params(name, true), key()?);
    let root = authority("root")?;
    let mut chain = Vec::new();
    for _ in 0..30 {
        chain.push(pem(authority("authority")?.pem()));
    }
    let last = authority("authority")?;
    chain.extend([pem(last.pem()), pem(root.pem())]);
    let certificate = params("leaf", false).signed_by(&key()?, &last)?;
    Ok(json!({"cert": pem(certificate.pem()), "cert_chain": chain, "not_after": null}))
}

fn compile_text(text: &str) -> Result<Vec<u8>, Error> {
    wat::parse_str(text).map_err(|error| Error::Invalid(error.to_string()))
}

/// Appends a core module to a component. The component never instantiates this module, but the host compiles it all the
/// same.
fn with_extra_core_module(module: &str) -> Result<Vec<u8>, Error> {
    let plugin = Artifacts::find()?.component("guest-misbehaves")?;
    let mut bytes = std::fs::read(&plugin).map_err(Error::io(plugin.display().to_string()))?;
    let module = compile_text(module)?;
    bytes.push(1);
    let mut length = module.len();
    while length >= 0x80 {
        bytes.push(u8::try_from(length & 0x7f).unwrap_or_default() | 0x80);
        length >>= 7;
    }
    bytes.push(u8::try_from(length).unwrap_or_default());
    bytes.extend(module);
    Ok(bytes)
}
