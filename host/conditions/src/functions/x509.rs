//! Kyverno's `x509.decode`, which decodes certificates and certificate requests into the fields of Go's `crypto/x509`.

use std::net::IpAddr;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Map as Fields, Value as Json, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use x509_parser::{
    asn1_rs::{FromDer, Oid},
    certificate::X509Certificate,
    certification_request::X509CertificationRequest,
    cri_attributes::ParsedCriAttribute,
    extensions::{DistributionPointName, GeneralName, GeneralSubtree, NameConstraints, ParsedExtension, X509Extension},
    num_bigint::BigUint,
    oid_registry::{OID_PKCS1_RSAENCRYPTION, OID_X509_EXT_SUBJECT_ALT_NAME},
    pem::parse_x509_pem,
    public_key::PublicKey,
    time::ASN1Time,
    x509::{SubjectPublicKeyInfo, X509Name},
};

/// The number that Go's `crypto/x509` gives to the public key algorithm RSA.
const RSA_ALGORITHM: u64 = 1;

/// The maximum length of a key's modulus, in bytes. Converting it to decimal takes time that grows with its square.
const MAX_MODULUS_LENGTH: usize = 2048;

/// The fields that are read from the extensions of a certificate. They are null at first, and a field stays null if the
/// certificate lacks the extension for it.
const UNSET_FIELDS: [&str; 17] = [
    "ExtKeyUsage",
    "AuthorityKeyId",
    "OCSPServer",
    "IssuingCertificateURL",
    "DNSNames",
    "EmailAddresses",
    "IPAddresses",
    "PermittedDNSDomains",
    "ExcludedDNSDomains",
    "PermittedIPRanges",
    "ExcludedIPRanges",
    "PermittedEmailAddresses",
    "ExcludedEmailAddresses",
    "PermittedURIDomains",
    "ExcludedURIDomains",
    "CRLDistributionPoints",
    "PolicyIdentifiers",
];

/// The fields of a distinguished name that are lists. The number is the last part of the field's object identifier,
/// such as 6 for `Country`, whose object identifier is 2.5.4.6.
const NAME_PARTS: [(u64, &str); 7] = [
    (6, "Country"),
    (10, "Organization"),
    (11, "OrganizationalUnit"),
    (7, "Locality"),
    (8, "Province"),
    (9, "StreetAddress"),
    (17, "PostalCode"),
];

pub(super) fn decode(text: &str) -> Result<Json, String> {
    let block = parse_x509_pem(text.as_bytes());
    let (_, block) = block.map_err(|_| "failed to decode PEM block".to_owned())?;
    match block.label.as_str() {
        "CERTIFICATE" => certificate_fields(&block.contents),
        "CERTIFICATE REQUEST" => request_fields(&block.contents),
        _ => Err("PEM block neither contains a CERTIFICATE or CERTIFICATE REQUEST".to_owned()),
    }
}

fn certificate_fields(der: &[u8]) -> Result<Json, String> {
    let parsed = X509Certificate::from_der(der).map_err(|error| format!("x509: {error}"))?;
    let ([], certificate) = parsed else {
        return Err("x509: trailing data".to_owned());
    };
    let mut fields: Fields<String, Json> = UNSET_FIELDS
        .map(|name| (name.to_owned(), Json::Null))
        .into_iter()
        .collect();
    for (name, value) in [
        ("KeyUsage", json!(0)),
        ("BasicConstraintsValid", json!(false)),
        ("IsCA", json!(false)),
        ("MaxPathLen", json!(0)),
        ("MaxPathLenZero", json!(false)),
        ("PermittedDNSDomainsCritical", json!(false)),
    ] {
        fields.insert(name.to_owned(), value);
    }
    for extension in certificate.extensions() {
        add_extension(&mut fields, extension)?;
    }
    // The result has the lowest 64 bits of the serial number, as in Kyverno.
    let serial = certificate
        .raw_serial()
        .iter()
        .fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
        .cast_signed();
    let validity = certificate.validity();
    let key = certificate.public_key();
    for (name, value) in [
        ("Raw", base64(certificate.as_raw())),
        ("RawTBSCertificate", base64(certificate.tbs_certificate.as_ref())),
        ("RawSubjectPublicKeyInfo", base64(key.raw)),
        ("RawSubject", base64(certificate.subject().as_raw())),
        ("RawIssuer", base64(certificate.issuer().as_raw())),
        ("Signature", base64(&certificate.signature_value.data)),
        ("PublicKeyAlgorithm", json!(RSA_ALGORITHM)),
        ("PublicKey", public_key(key)?),
        ("SerialNumber", json!(serial)),
        ("Issuer", name_fields(certificate.issuer())?),
        ("NotBefore", date(validity.not_before)?),
        ("NotAfter", date(validity.not_after)?),
        ("Extensions", raw_extensions(certificate.extensions())),
        ("ExtraExtensions", Json::Null),
    ] {
        fields.insert(name.to_owned(), value);
    }
    Ok(Json::Object(fields))
}

fn request_fields(der: &[u8]) -> Result<Json, String> {
    let parsed = X509CertificationRequest::from_der(der).map_err(|error| format!("x509: {error}"))?;
    let ([], request) = parsed else {
        return Err("x509: trailing data".to_owned());
    };
    let info = &request.certification_request_info;
    let requested_extensions = info
        .iter_attributes()
        .find_map(|attribute| match attribute.parsed_attribute() {
            ParsedCriAttribute::ExtensionRequest(requested) => Some(requested.extensions.as_slice()),
            _ => None,
        })
        .unwrap_or_default();
    let mut fields = Fields::new();
    for name in ["DNSNames", "EmailAddresses", "IPAddresses"] {
        fields.insert(name.to_owned(), Json::Null);
    }
    let name_extensions = requested_extensions
        .iter()
        .filter(|extension| extension.oid == OID_X509_EXT_SUBJECT_ALT_NAME);
    for names in name_extensions {
        add_extension(&mut fields, names)?;
    }
    for (name, value) in [
        ("Raw", base64(request.as_raw())),
        ("RawTBSCertificateRequest", base64(info.raw)),
        ("RawSubjectPublicKeyInfo", base64(info.subject_pki.raw)),
        ("RawSubject", base64(info.subject.as_raw())),
        ("Version", json!(info.version.0)),
        ("Signature", base64(&request.signature_value.data)),
        ("PublicKeyAlgorithm", json!(RSA_ALGORITHM)),
        ("PublicKey", public_key(&info.subject_pki)?),
        ("Subject", name_fields(&info.subject)?),
        ("Extensions", raw_extensions(requested_extensions)),
        ("ExtraExtensions", Json::Null),
    ] {
        fields.insert(name.to_owned(), value);
    }
    Ok(Json::Object(fields))
}

fn base64(bytes: &[u8]) -> Json {
    BASE64_STANDARD.encode(bytes).into()
}

fn arcs(oid: &Oid<'_>) -> Vec<u64> {
    oid.iter().into_iter().flatten().collect()
}

fn date(date: ASN1Time) -> Result<Json, String> {
    let date = OffsetDateTime::from_unix_timestamp(date.timestamp()).ok();
    let text = date.and_then(|date| date.format(&Rfc3339).ok());
    text.map(Json::from)
        .ok_or_else(|| "x509: a date is out of range".to_owned())
}

fn public_key(key: &SubjectPublicKeyInfo<'_>) -> Result<Json, String> {
    if key.algorithm.algorithm != OID_PKCS1_RSAENCRYPTION {
        return Err("certificate should use rsa algorithm".to_owned());
    }
    let parsed = match key.parsed() {
        Ok(PublicKey::RSA(key)) => key.try_exponent().ok().map(|exponent| (key.modulus, exponent)),
        _ => None,
    };
    let (modulus, exponent) = parsed.ok_or("failed to parse subject public key info")?;
    // In DER, a positive number may begin with a zero byte, which is not part of the modulus.
    let modulus = modulus.strip_prefix(&[0]).unwrap_or(modulus);
    if modulus.len() > MAX_MODULUS_LENGTH {
        let bits = MAX_MODULUS_LENGTH * 8;
        return Err(format!("the RSA key has more than {bits} bits"));
    }
    Ok(json!({"N": BigUint::from_bytes_be(modulus).to_string(), "E": exponent}))
}

fn name_fields(name: &X509Name<'_>) -> Result<Json, String> {
    let mut fields: Fields<String, Json> = NAME_PARTS
        .map(|(_, name)| (name.to_owned(), Json::Null))
        .into_iter()
        .collect();
    for (name, value) in [
        ("SerialNumber", json!("")),
        ("CommonName", json!("")),
        ("Names", Json::Null),
        ("ExtraNames", Json::Null),
    ] {
        fields.insert(name.to_owned(), value);
    }
    for attribute in name.iter_attributes() {
        let kind = arcs(attribute.attr_type());
        let text = attribute
            .as_str()
            .map_err(|_| format!("x509: {} of a name is not text", attribute.attr_type()))?;
        push_to_list(&mut fields, "Names", json!({"Type": kind, "Value": text}));
        let [2, 5, 4, last] = kind.as_slice() else {
            continue;
        };
        match last {
            3 => fields.insert("CommonName".to_owned(), text.into()),
            5 => fields.insert("SerialNumber".to_owned(), text.into()),
            last => {
                if let Some((_, name)) = NAME_PARTS.iter().find(|(part, _)| part == last) {
                    push_to_list(&mut fields, name, text.into());
                }
                None
            }
        };
    }
    Ok(Json::Object(fields))
}

fn raw_extensions(extensions: &[X509Extension<'_>]) -> Json {
    let raw = extensions.iter().map(|extension| {
        json!({"Id": arcs(&extension.oid), "Critical": extension.critical, "Value": base64(extension.value)})
    });
    if extensions.is_empty() {
        Json::Null
    } else {
        raw.collect()
    }
}

fn push_to_list(fields: &mut Fields<String, Json>, list: &str, value: Json) {
    match fields.entry(list).or_insert(Json::Null) {
        Json::Array(items) => items.push(value),
        empty => *empty = json!([value]),
    }
}

fn add_extension(fields: &mut Fields<String, Json>, extension: &X509Extension<'_>) -> Result<(), String> {
    let mut set_field = |name: &str, value| fields.insert(name.to_owned(), value);
    match extension.parsed_extension() {
        ParsedExtension::ParseError { .. } => {
            return Err(format!("x509: the extension {} is invalid", extension.oid));
        }
        ParsedExtension::KeyUsage(usage) => {
            set_field("KeyUsage", json!(usage.flags));
        }
        ParsedExtension::BasicConstraints(constraints) => {
            set_field("BasicConstraintsValid", json!(true));
            set_field("IsCA", json!(constraints.ca));
            let path_length = constraints.path_len_constraint;
            set_field("MaxPathLen", path_length.map_or(json!(-1), Json::from));
            set_field("MaxPathLenZero", json!(path_length == Some(0)));
        }
        ParsedExtension::AuthorityKeyIdentifier(identifier) => {
            let key = identifier.key_identifier.as_ref();
            set_field("AuthorityKeyId", key.map_or(Json::Null, |key| base64(key.0)));
        }
        ParsedExtension::ExtendedKeyUsage(_) => {
            // The order of the usages matters, because Go keeps it. The parser of the crate loses the order, so the
            // bytes of the extension are parsed here again.
            let usages = <Vec<Oid<'_>>>::from_der(extension.value).map(|(_, usages)| usages);
            for usage in usages.unwrap_or_default().iter().filter_map(key_usage) {
                push_to_list(fields, "ExtKeyUsage", usage.into());
            }
        }
        ParsedExtension::SubjectAlternativeName(names) => {
            for name in &names.general_names {
                match name {
                    GeneralName::DNSName(name) => push_to_list(fields, "DNSNames", (*name).into()),
                    GeneralName::RFC822Name(name) => push_to_list(fields, "EmailAddresses", (*name).into()),
                    GeneralName::IPAddress(bytes) => push_to_list(fields, "IPAddresses", ip_address(bytes)?),
                    _ => {}
                }
            }
        }
        ParsedExtension::NameConstraints(constraints) => {
            set_field("PermittedDNSDomainsCritical", json!(extension.critical));
            add_constraints(fields, constraints)?;
        }
        ParsedExtension::AuthorityInfoAccess(access) => {
            for description in access.iter() {
                let list = match arcs(&description.access_method).as_slice() {
                    [1, 3, 6, 1, 5, 5, 7, 48, 1] => "OCSPServer",
                    [1, 3, 6, 1, 5, 5, 7, 48, 2] => "IssuingCertificateURL",
                    _ => continue,
                };
                if let GeneralName::URI(uri) = &description.access_location {
                    push_to_list(fields, list, (*uri).into());
                }
            }
        }
        ParsedExtension::CRLDistributionPoints(points) => {
            for point in points.iter() {
                let Some(DistributionPointName::FullName(names)) = &point.distribution_point else {
                    continue;
                };
                for name in names {
                    if let GeneralName::URI(uri) = name {
                        push_to_list(fields, "CRLDistributionPoints", (*uri).into());
                    }
                }
            }
        }
        ParsedExtension::CertificatePolicies(policies) => {
            for policy in policies {
                push_to_list(fields, "PolicyIdentifiers", arcs(&policy.policy_id).into());
            }
        }
        _ => {}
    }
    Ok(())
}

fn add_constraints(fields: &mut Fields<String, Json>, constraints: &NameConstraints<'_>) -> Result<(), String> {
    for (prefix, subtrees) in [
        ("Permitted", &constraints.permitted_subtrees),
        ("Excluded", &constraints.excluded_subtrees),
    ] {
        for GeneralSubtree { base } in subtrees.iter().flatten() {
            let (list, value) = match base {
                GeneralName::DNSName(name) => ("DNSDomains", (*name).into()),
                GeneralName::RFC822Name(name) => ("EmailAddresses", (*name).into()),
                GeneralName::URI(name) => ("URIDomains", (*name).into()),
                GeneralName::IPAddress(bytes) => {
                    if !matches!(bytes.len(), 8 | 32) {
                        return Err("failed to parse an address of the name constraints".to_owned());
                    }
                    let (address, mask) = bytes.split_at(bytes.len() / 2);
                    ("IPRanges", json!({"IP": ip_address(address)?, "Mask": base64(mask)}))
                }
                _ => continue,
            };
            push_to_list(fields, &format!("{prefix}{list}"), value);
        }
    }
    Ok(())
}

/// Returns the number that Go gives to an extended key usage; `None` if Go does not have the usage.
fn key_usage(usage: &Oid<'_>) -> Option<u64> {
    match arcs(usage).as_slice() {
        [2, 5, 29, 37, 0] => Some(0),
        [1, 3, 6, 1, 5, 5, 7, 3, number @ 1..=9] => Some(*number),
        [1, 3, 6, 1, 4, 1, 311, 10, 3, 3] => Some(10),
        [2, 16, 840, 1, 113_730, 4, 1] => Some(11),
        [1, 3, 6, 1, 4, 1, 311, 2, 1, 22] => Some(12),
        [1, 3, 6, 1, 4, 1, 311, 61, 1, 1] => Some(13),
        _ => None,
    }
}

fn ip_address(bytes: &[u8]) -> Result<Json, String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    match v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)) {
        Ok(address) => Ok(address.to_string().into()),
        Err(_) => Err(format!("x509: cannot parse IP address of length {}", bytes.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_certificates_do_not_panic() {
        let certificate = include_str!("../tests/x509/certificate.pem");
        let request = include_str!("../tests/x509/request.pem");
        for text in [certificate, request] {
            let (_, block) = parse_x509_pem(text.as_bytes()).unwrap();
            let (label, bytes) = (block.label, block.contents);
            for (place, _) in bytes.iter().enumerate() {
                for change in [0x01, 0x80, 0xff] {
                    let mut damaged = bytes.clone();
                    damaged[place] ^= change;
                    let encoded = BASE64_STANDARD.encode(&damaged);
                    let text = format!("-----BEGIN {label}-----\n{encoded}\n-----END {label}-----\n");
                    // For most damaged texts, `decode` returns an error. If the damage is in a signature or a name, it
                    // succeeds. The test accepts both, and fails only if there is a panic.
                    let _ = decode(&text);
                }
            }
        }
    }
}
