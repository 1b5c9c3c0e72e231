use rustls_pki_types::CertificateDer;
use x509_parser::{extensions::GeneralName, parse_x509_certificate};

/// The names of whoever holds this certificate: its common names, and the DNS names and URIs among its
/// alternative names. None when it cannot be read.
pub(crate) fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = parse_x509_certificate(certificate) else {
        return Vec::new();
    };
    let common = parsed
        .subject()
        .iter_common_name()
        .filter_map(|name| name.as_str().ok());
    // More than one such extension is an error, and gives no names.
    let alternative = parsed.subject_alternative_name().ok().flatten();
    let alternative = alternative.iter().flat_map(|names| &names.value.general_names);
    let alternative = alternative.filter_map(|name| match name {
        GeneralName::DNSName(name) | GeneralName::URI(name) => Some(*name),
        _ => None,
    });
    common.chain(alternative).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    #[test]
    fn who_holds_it() {
        let mut params =
            CertificateParams::new(vec!["ci.example.com".to_owned(), "10.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "ci");
        params
            .distinguished_name
            .push(DnType::OrganizationName, "builders");
        let uri = "spiffe://example.com/ci";
        params
            .subject_alt_names
            .push(SanType::URI(uri.try_into().unwrap()));
        let mail = "ci@example.com".try_into().unwrap();
        params.subject_alt_names.push(SanType::Rfc822Name(mail));
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        assert_eq!(names(certificate.der()), ["ci", "ci.example.com", uri]);
        assert!(names(&CertificateDer::from(vec![1, 2, 3])).is_empty());
    }
}
