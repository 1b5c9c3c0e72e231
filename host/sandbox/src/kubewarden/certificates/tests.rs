use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use serde_json::Value;

use super::*;

const DAY: Duration = Duration::from_secs(24 * 3600);

struct ChainAuthority {
    intermediate: CertifiedIssuer<'static, KeyPair>,
    root: String,
}

fn certificate_params(name: &str, now: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = (now - DAY).into();
    params.not_after = (now + DAY).into();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
    params
}

fn create_authority(now: SystemTime) -> ChainAuthority {
    let ca = |name: &str| {
        let mut params = certificate_params(name, now);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params
    };
    let root = CertifiedIssuer::self_signed(ca("root"), KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let intermediate = CertifiedIssuer::signed_by(ca("intermediate"), key, &root).unwrap();
    ChainAuthority {
        intermediate,
        root: root.pem(),
    }
}

fn pem_json(text: &str) -> Value {
    json!({"encoding": "Pem", "data": text.as_bytes()})
}

fn check_trust(question: &Value, now: SystemTime) -> Answer {
    answer_trust_question(question.to_string().as_bytes(), now, Deadline::after(DAY))
}

/// Creates a certificate with a chain of intermediates that all have the same name. A verifier that goes by the names
/// can put them in any order.
fn cross_signed_chain(now: SystemTime, intermediates: usize, is_rooted: bool) -> Value {
    let signing = |name: &str| {
        let mut params = certificate_params(name, now);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    };
    let key = || KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    let root = CertifiedIssuer::self_signed(signing(if is_rooted { "one" } else { "root" }), key()).unwrap();
    let mut chain = Vec::new();
    let mut last_intermediate = None;
    for _ in 0..intermediates {
        let intermediate = CertifiedIssuer::self_signed(signing("one"), key()).unwrap();
        chain.push(pem_json(&intermediate.pem()));
        last_intermediate = Some(intermediate);
    }
    let leaf = match (&last_intermediate, is_rooted) {
        (_, true) | (None, _) => certificate_params("leaf", now).signed_by(&key(), &root).unwrap(),
        (Some(last), false) => certificate_params("leaf", now).signed_by(&key(), last).unwrap(),
    };
    chain.push(pem_json(&root.pem()));
    json!({"cert": pem_json(&leaf.pem()), "cert_chain": chain})
}

/// If there were no limit on steps, webpki would check 200,000 certificates and 100 signatures of this chain.
#[test]
fn verification_of_any_chain_stops_after_a_limited_number_of_steps() {
    let now = SystemTime::now();
    for (case, question, expected) in [
        ("few with one name", cross_signed_chain(now, 3, true), Ok(true)),
        ("many paths", cross_signed_chain(now, 31, false), Err("too many paths")),
        (
            "many certificates",
            cross_signed_chain(now, 32, true),
            Err("the limit is 32"),
        ),
        (
            "large certificates",
            json!({"cert": cross_signed_chain(now, 0, true)["cert"], "cert_chain": [{"encoding": "Der", "data": vec![0; MAX_CHAIN_SIZE + 1]}]}),
            Err("of 262144 bytes"),
        ),
    ] {
        match (check_trust(&question, now), expected) {
            (Ok(answer), Ok(trusted)) => {
                let answer: Value = serde_json::from_slice(&answer).unwrap();
                assert_eq!(answer["trusted"], trusted, "{case}: {answer}");
            }
            (Err(error), Err(message)) => assert!(error.contains(message), "{case}: {error}"),
            (answer, expected) => panic!("{case}: {answer:?}, and not {expected:?}"),
        }
    }
    let late_answer = answer_trust_question(
        cross_signed_chain(now, 3, true).to_string().as_bytes(),
        now,
        Deadline::after(Duration::ZERO),
    );
    assert!(late_answer.unwrap_err().contains("in time"));
}

/// The cases are from the tests of Kubewarden's policy-evaluator, src/callback_handler/crypto.rs.
#[test]
fn certificates_are_trusted_under_the_same_conditions_as_in_kubewarden() {
    let now = SystemTime::now();
    let (own_authority, other_authority) = (create_authority(now), create_authority(now));
    let leaf = |change: &dyn Fn(&mut CertificateParams)| {
        let mut params = certificate_params("leaf", now);
        change(&mut params);
        params
            .signed_by(&KeyPair::generate().unwrap(), &own_authority.intermediate)
            .unwrap()
    };
    let chain_of = |issuer: &ChainAuthority| json!([pem_json(&issuer.intermediate.pem()), pem_json(&issuer.root)]);
    let valid_leaf = leaf(&|_| {});
    let expired_leaf = leaf(&|params| params.not_after = (now - DAY / 2).into());
    let early_leaf = leaf(&|params| params.not_before = (now + DAY / 2).into());
    let server_leaf = leaf(&|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    let now_text = OffsetDateTime::from(now).format(&Rfc3339).unwrap();
    let der = json!({"encoding": "Der", "data": valid_leaf.der().to_vec()});
    for (case, cert, chain, not_after, expected) in [
        (
            "trusted",
            pem_json(&valid_leaf.pem()),
            chain_of(&own_authority),
            json!(now_text),
            Ok(""),
        ),
        ("in DER", der, chain_of(&own_authority), json!(null), Ok("")),
        (
            "another authority",
            pem_json(&valid_leaf.pem()),
            chain_of(&other_authority),
            json!(null),
            Ok("does not lead"),
        ),
        (
            "an empty chain",
            pem_json(&valid_leaf.pem()),
            json!([]),
            json!(null),
            Ok("no authority"),
        ),
        (
            "no chain",
            pem_json(&valid_leaf.pem()),
            json!(null),
            json!(null),
            Ok(""),
        ),
        (
            "expired, not asked for",
            pem_json(&expired_leaf.pem()),
            json!(null),
            json!(null),
            Ok(""),
        ),
        (
            "expired",
            pem_json(&expired_leaf.pem()),
            chain_of(&own_authority),
            json!(now_text),
            Ok("expires before"),
        ),
        (
            "expired in a chain",
            pem_json(&expired_leaf.pem()),
            chain_of(&own_authority),
            json!(null),
            Ok("does not lead"),
        ),
        (
            "too early",
            pem_json(&early_leaf.pem()),
            json!(null),
            json!(null),
            Ok("not valid yet"),
        ),
        (
            "for servers",
            pem_json(&server_leaf.pem()),
            chain_of(&own_authority),
            json!(null),
            Ok("does not lead"),
        ),
        (
            "no time",
            pem_json(&valid_leaf.pem()),
            json!(null),
            json!("malformed"),
            Err("not a time in RFC 3339"),
        ),
        (
            "no certificate",
            pem_json("x"),
            json!(null),
            json!(null),
            Err("not valid PEM"),
        ),
        (
            "no root",
            pem_json(&valid_leaf.pem()),
            json!([{"encoding": "Der", "data": [1]}]),
            json!(null),
            Err("is not valid"),
        ),
    ] {
        let question = json!({"cert": cert, "cert_chain": chain, "not_after": not_after});
        match (check_trust(&question, now), expected) {
            (Ok(answer), Ok(reason)) => {
                let answer: Value = serde_json::from_slice(&answer).unwrap();
                assert_eq!(answer["trusted"], reason.is_empty(), "{case}: {answer}");
                assert!(answer["reason"].as_str().unwrap().contains(reason), "{case}: {answer}");
            }
            (Err(error), Err(message)) => assert!(error.contains(message), "{case}: {error}"),
            (answer, expected) => panic!("{case}: {answer:?}, and not {expected:?}"),
        }
    }
}
