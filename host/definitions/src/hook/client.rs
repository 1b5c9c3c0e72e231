//! Reads the address of a webhook, and the CAs with which its certificate is verified.

use admittance_admission::{Protocol, ServiceNaming, WebhookTarget};
use base64::{Engine, prelude::BASE64_STANDARD};
use rustls_pki_types::{
    CertificateDer, ServerName,
    pem::{self, PemObject},
};
use url::Url;

use crate::{
    document::{Fields, Node, quoted},
    names,
};

const ENCODE_ADVICE: &str = "write the base64 of a PEM file, `base64 -w0 ca.pem`";

/// Reads the URL of a webhook. The rules are those of kube-apiserver for the protocol `AdmissionReview`, and those of
/// the BCS driver for `BcsResource`.
pub(crate) fn read_url(node: &Node<'_>, protocol: &Protocol) -> Option<WebhookTarget> {
    let text = node.text()?;
    let is_bcs = *protocol == Protocol::BcsResource;
    let mut url = match Url::parse(text) {
        Ok(url) => url,
        // The URL is not quoted in the message, because it may contain a password.
        Err(error) => {
            let message = format!("this is not a valid URL: {error}");
            return node.reject(message, "write https://host/path");
        }
    };
    let mistakes_before = node.mistake_count();
    match url.scheme() {
        "https" => {}
        "http" if is_bcs => {}
        "http" => {
            let message = "an AdmissionReview webhook must be called over https";
            node.add_mistake(message, "write https://");
        }
        scheme => {
            let message = format!("the scheme `{scheme}` is not supported");
            node.add_mistake(message, "write https://");
        }
    }
    let authority = find_authority(text);
    if !url.has_host() || authority.is_empty() {
        node.add_mistake("the URL has no host", "write https://host/path");
    }
    if authority.contains('@') {
        node.add_mistake("user and password are not allowed in the URL", "remove them");
    }
    // An empty query or fragment is dropped, because Kubernetes ignores it.
    if !is_bcs {
        if url.fragment() == Some("") {
            url.set_fragment(None);
        }
        if url.query() == Some("") {
            url.set_query(None);
        }
    }
    if url.fragment().is_some() {
        node.add_mistake("a fragment (`#...`) is not allowed in the URL", "remove it");
    }
    if url.query().is_some() && !is_bcs {
        node.add_mistake("a query (`?...`) is not allowed in the URL", "remove it");
    }
    (node.mistake_count() == mistakes_before).then_some(WebhookTarget::Url(url))
}

/// Returns the part of a URL between `//` and the path. In `https:///path`, this part is empty. The URL parser would
/// skip the third `/`, and take `path` for the host.
fn find_authority(text: &str) -> &str {
    text.split_once(':')
        .and_then(|(_, rest)| rest.strip_prefix("//"))
        .and_then(|rest| rest.split(['/', '\\', '?', '#']).next())
        .unwrap_or_default()
}

pub(crate) fn read_service_object(node: &Node<'_>, protocol: &Protocol) -> Option<WebhookTarget> {
    read_service(&mut node.object()?, protocol)
}

pub(crate) fn read_service(fields: &mut Fields<'_>, protocol: &Protocol) -> Option<WebhookTarget> {
    let is_bcs = *protocol == Protocol::BcsResource;
    let namespace = fields.get_required("namespace", "name the service's namespace", read_host_part);
    let name = fields.get_required("name", "name the service", read_host_part);
    let path = fields.optional("path");
    let path = match path.and_then(|node| node.string().map(|text| (node, text))) {
        None | Some((_, "")) => Some("/".to_owned()),
        Some((node, text)) => {
            let check = if is_bcs { check_bcs_path } else { check_kubernetes_path };
            match check(text) {
                Ok(()) => Some(text.to_owned()),
                Err(message) => node.reject(message, ""),
            }
        }
    };
    let port = match fields.optional("port") {
        None => Some(WebhookTarget::DEFAULT_PORT),
        // The BCS driver returns a definition with port 0 if its port is unset. So 0 stands for the default port here.
        Some(port) if is_bcs => match port.integer(0..=u16::MAX) {
            Some(0) => Some(WebhookTarget::DEFAULT_PORT),
            port => port,
        },
        Some(port) => port.integer(1..=u16::MAX),
    };
    Some(WebhookTarget::Service {
        namespace: namespace?,
        name: name?,
        port: port?,
        path: path?,
        naming: if is_bcs {
            ServiceNaming::Bcs
        } else {
            ServiceNaming::Kubernetes
        },
    })
}

/// Reads the CA certificates in a bundle: PEM in base64. As in Kubernetes, an empty bundle counts as missing.
pub(crate) fn read_ca_bundle(node: &Node<'_>) -> Option<Vec<CertificateDer<'static>>> {
    let text = node.string()?;
    if text.is_empty() {
        return None;
    }
    match parse_ca_bundle(text) {
        Ok(certificates) => Some(certificates),
        Err((message, fix)) => node.reject(message, fix),
    }
}

pub(crate) fn require_ca_bundle(fields: &mut Fields<'_>) {
    let fix = format!("a service is trusted by its CA: {ENCODE_ADVICE}");
    if let Some(node) = fields.required("caBundle", &fix) {
        node.add_mistake("empty", fix);
    }
}

pub(crate) fn parse_ca_bundle(text: &str) -> Result<Vec<CertificateDer<'static>>, (String, &'static str)> {
    if text.trim_start().starts_with("-----BEGIN") {
        return Err(("this is PEM itself".to_owned(), "write its base64, `base64 -w0 ca.pem`"));
    }
    // Base64 in a block scalar contains line breaks. Go's decoder ignores line breaks, so they are removed here.
    let compact: String = text.split_ascii_whitespace().collect();
    let pem = BASE64_STANDARD
        .decode(compact)
        .map_err(|error| (format!("this is not base64: {error}"), ENCODE_ADVICE))?;
    let mut certificates = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let number = certificates.len() + 1;
        let certificate = certificate.map_err(|error| {
            let flaw = match error {
                pem::Error::MissingSectionEnd { .. } => "has no END line",
                _ => "is not valid PEM",
            };
            (format!("certificate {number} in it {flaw}"), ENCODE_ADVICE)
        })?;
        // The TLS client would refuse an invalid certificate too, but it would not tell which certificate of the bundle
        // is invalid. Therefore each certificate is checked here.
        webpki::anchor_from_trusted_cert(&certificate).map_err(|_| {
            let message = format!("certificate {number} in it is not a valid X.509 certificate");
            (message, ENCODE_ADVICE)
        })?;
        certificates.push(certificate);
    }
    if certificates.is_empty() {
        return Err(("there is no certificate in it".to_owned(), ENCODE_ADVICE));
    }
    Ok(certificates)
}

/// Reads a part of a host name: one or more labels, separated by dots.
fn read_host_part(node: &Node<'_>) -> Option<String> {
    let text = node.text()?;
    // A name of digits alone would be parsed as an IP address. The suffix `.svc` prevents this.
    let host = format!("{text}.svc");
    if matches!(ServerName::try_from(host), Ok(ServerName::DnsName(_))) {
        return Some(text.to_owned());
    }
    let message = format!("{text} cannot be part of a host name", text = quoted(text));
    node.reject(message, "use letters, digits and `-`")
}

/// Checks a path by kube-apiserver's rules: each segment is a DNS-1123 subdomain, and the path may end in `/`.
fn check_kubernetes_path(path: &str) -> Result<(), String> {
    let rest = path
        .strip_prefix('/')
        .ok_or_else(|| format!("the path {path} does not begin with `/`", path = quoted(path)))?;
    if rest.is_empty() {
        return Ok(());
    }
    for segment in rest.strip_suffix('/').unwrap_or(rest).split('/') {
        if segment.is_empty() {
            return Err(format!(
                "the path {path} has an empty part: remove one of the `/`",
                path = quoted(path)
            ));
        }
        names::check_subdomain(segment).map_err(|error| format!("the path {path}: {error}", path = quoted(path)))?;
    }
    Ok(())
}

/// Checks the path of a webhook by the rules of the BCS driver. The driver puts the path into the URL after the port,
/// without escaping it, so the path may contain a query.
fn check_bcs_path(path: &str) -> Result<(), String> {
    if !path.starts_with('/') {
        return Err(format!("the path {path} does not begin with `/`", path = quoted(path)));
    }
    let odd =
        |c: char| !c.is_ascii_graphic() || matches!(c, '#' | '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}');
    match path.chars().find(|c| odd(*c)) {
        Some(c) => Err(format!(
            "the path {path} has {c:?} in it: percent-encode it",
            path = quoted(path)
        )),
        None => Ok(()),
    }
}
