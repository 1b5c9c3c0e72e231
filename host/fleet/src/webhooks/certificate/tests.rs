use time::Duration;

use super::*;

const DAYS: u16 = 90;

fn service() -> Service {
    Service::new("hooks", "hooks-system")
}

/// Returns the contents of the Secret after a renewal that takes place `days` days from now. `old_contents` is what the
/// Secret contains before the renewal; `None` for a missing Secret.
fn contents_after_days(
    days: i64,
    old_contents: Option<&SecretContents>,
    is_trusted: bool,
    is_early: bool,
) -> SecretContents {
    let renewal = Renewal {
        service: &service(),
        days: DAYS,
        now: OffsetDateTime::now_utc() + Duration::days(days),
        is_trusted,
        is_early,
    };
    renewal.next_contents(old_contents).unwrap()
}

fn authority_count(contents: &SecretContents) -> usize {
    certificates_in(contents.authorities.as_bytes()).unwrap().len()
}

#[test]
fn a_certificate_is_replaced_in_steps_before_it_expires() {
    let first = contents_after_days(0, None, false, false);
    assert!(first.is_usable(&service(), OffsetDateTime::now_utc()));
    assert_eq!((first.next_identity.as_ref(), authority_count(&first)), (None, 1));
    assert_eq!(contents_after_days(59, Some(&first), true, false), first);

    let announced = contents_after_days(61, Some(&first), true, false);
    assert_eq!(
        (&announced.served_identity, authority_count(&announced)),
        (&first.served_identity, 2)
    );
    let next = announced.next_identity.clone().unwrap();
    assert_eq!(contents_after_days(62, Some(&announced), false, false), announced);
    let replaced = contents_after_days(62, Some(&announced), true, false);
    assert_eq!((&replaced.served_identity, &replaced.next_identity), (&next, &None));
    assert_eq!(replaced.authorities, announced.authorities);

    assert_eq!(contents_after_days(89, Some(&replaced), true, false), replaced);
    let final_contents = contents_after_days(91, Some(&replaced), true, false);
    assert_eq!(
        (&final_contents.served_identity, authority_count(&final_contents)),
        (&next, 1)
    );
}

#[test]
fn a_certificate_that_cannot_be_served_is_replaced_at_once() {
    let first = contents_after_days(0, None, false, false);
    let other = contents_after_days(0, None, false, false);
    let now = OffsetDateTime::now_utc();
    // None of these three certificates can be served: the first has a CA that is not trusted, the second has the key of
    // another certificate, and the third has expired.
    let untrusted_contents = SecretContents {
        authorities: other.authorities.clone(),
        ..first.clone()
    };
    let mut mismatched_contents = first.clone();
    mismatched_contents
        .served_identity
        .key
        .clone_from(&other.served_identity.key);
    for (days, unusable_contents) in [(0, &untrusted_contents), (0, &mismatched_contents), (91, &first)] {
        let later = now + Duration::days(days);
        assert!(!unusable_contents.is_usable(&service(), later));
        let renewed_contents = contents_after_days(days, Some(unusable_contents), false, false);
        assert!(renewed_contents.is_usable(&service(), later));
        assert!(
            renewed_contents.served_identity != unusable_contents.served_identity
                && renewed_contents.next_identity.is_none()
        );
    }
    let announced = contents_after_days(61, Some(&first), true, false);
    let next = announced.next_identity.clone().unwrap();
    assert_eq!(
        contents_after_days(91, Some(&announced), false, false).served_identity,
        next
    );
    assert!(!first.is_usable(&Service::new("other", "hooks-system"), now));
}

#[test]
fn a_certificate_lost_from_the_secret_is_replaced() {
    let first = contents_after_days(0, None, false, false);
    let announced = contents_after_days(1, Some(&first), true, true);
    assert_eq!(announced.served_identity, first.served_identity);
    assert!(announced.next_identity.is_some());
    let mut corrupt_contents = announced.clone();
    corrupt_contents.next_identity.as_mut().unwrap().key.clear();
    let reissued_contents = contents_after_days(1, Some(&corrupt_contents), false, true);
    assert!(reissued_contents.next_identity.is_some() && reissued_contents.next_identity != announced.next_identity);
}

#[test]
fn the_certificate_survives_a_round_trip_through_the_secret() {
    let registration = WebhookRegistration::default();
    let first = contents_after_days(0, None, false, false);
    let announced = contents_after_days(61, Some(&first), true, false);
    let mut object = Map::new();
    for contents in [&announced, &first] {
        contents.write_to_secret(&mut object, &registration);
        assert_eq!(object["type"], "kubernetes.io/tls");
        let resource = Resource {
            namespace: "hooks-system".to_owned(),
            name: "hooks-tls".to_owned(),
            object: object.clone(),
        };
        assert_eq!(SecretContents::read(&resource).as_ref(), Some(contents));
    }
    object.insert("data".to_owned(), json!({"tls.crt": "***"}));
    let resource = Resource {
        namespace: String::new(),
        name: String::new(),
        object,
    };
    assert_eq!(SecretContents::read(&resource), None);
}
