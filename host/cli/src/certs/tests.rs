//! Tests that rustls accepts the certificates, and that files are kept or replaced as documented.

mod authority;
mod certificates;
mod files;
mod renewal;

use std::{path::Path, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::Parser;
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    server::WebPkiClientVerifier,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject};
use tempfile::TempDir;

use super::*;

#[derive(Parser)]
struct CertsCommand {
    #[command(flatten)]
    arguments: Arguments,
}

fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

fn arguments(directory: &TempDir, line: &str) -> Arguments {
    let out = ["certs", "--out", directory.path().to_str().unwrap()];
    CertsCommand::try_parse_from(out.into_iter().chain(line.split_whitespace()))
        .unwrap()
        .arguments
}

fn make_certs(directory: &TempDir, line: &str) -> crate::Result<CertificateReport> {
    make_certificates(&arguments(directory, line), now())
}

fn report_json(report: &CertificateReport) -> serde_json::Value {
    serde_json::to_value(report).unwrap()
}

fn read_der(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).unwrap()
}

fn root_store(ca_bundle: &str) -> Arc<RootCertStore> {
    let pem = BASE64_STANDARD.decode(ca_bundle).unwrap();
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        roots.add(certificate.unwrap()).unwrap();
    }
    Arc::new(roots)
}

fn is_valid_server(report: &CertificateReport, certificate: &Path, name: &str) -> bool {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(root_store(&report.ca_bundle), provider)
        .build()
        .unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    verifier
        .verify_server_cert(&read_der(certificate), &[], &name, &[], UnixTime::now())
        .is_ok()
}

fn is_valid_client(report: &CertificateReport, certificate: &Path) -> bool {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(root_store(&report.ca_bundle), provider)
        .build()
        .unwrap();
    verifier
        .verify_client_cert(&read_der(certificate), &[], UnixTime::now())
        .is_ok()
}

#[test]
fn invalid_arguments_of_certs_are_refused() {
    for (line, ok) in [
        ("--service hook.ns", true),
        ("--service hook", false),
        ("--service hook.ns.svc", false),
        ("--service hook.", false),
        ("--service ../x.ns", false),
        ("--host hooks.example.com", true),
        ("--host hooks.example.com:443", false),
        ("--host https://hooks.example.com", false),
        ("--host a/../b", false),
        ("--client driver_1.a-b", true),
        ("--client a/b", false),
        ("--renew", true),
        ("--renew --force", false),
        ("--new-ca", true),
        ("--new-ca --renew", false),
        ("--new-ca --force", false),
        ("--new-ca --ca ca.pem", false),
        ("--days 0", false),
        ("--days 3651", false),
    ] {
        let parsed = CertsCommand::try_parse_from(["certs"].into_iter().chain(line.split_whitespace()));
        assert_eq!(parsed.is_ok(), ok, "{line}");
    }
}

#[test]
fn certs_prints_the_ca_bundle_on_one_line() {
    let directory = TempDir::new().unwrap();
    let report = make_certs(&directory, "--service hook.ns --client driver").unwrap();
    let text = report.to_string();
    let line = text.lines().find_map(|line| line.strip_prefix("caBundle: ")).unwrap();
    let pem = std::fs::read(directory.path().join("ca.pem")).unwrap();
    assert_eq!(BASE64_STANDARD.decode(line).unwrap(), pem);
    for part in ["hook.ns.pem", "driver.key", "under `webhook:`", "`clientConfig:`"] {
        assert!(text.contains(part), "{part} in {text}");
    }

    let json = report_json(&report);
    assert_eq!(json["caBundle"], line);
    assert_eq!(json["ca"]["new"], true);
    assert_eq!(json["certificates"][0]["kind"], "server");
    assert_eq!(json["certificates"][0]["names"][1], "hook.ns.svc");
    assert_eq!(json["certificates"][1]["names"][0], "driver");
    let ends = json["certificates"][0]["notAfter"].as_str().unwrap();
    assert!(humantime::parse_rfc3339(ends).is_ok(), "{ends}");
}
