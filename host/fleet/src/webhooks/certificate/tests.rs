use time::Duration;

use super::*;

const DAYS: u16 = 90;

fn service() -> Service {
    Service::new("hooks", "hooks-system")
}

/// Returns the contents of the Secret after a renewal that takes place `days` days from now. `old_contents` is what the
/// Secret contains before the renewal; `None` if there is no Secret yet.
fn after(days: i64, old_contents: Option<&SecretContents>, is_trusted: bool, is_early: bool) -> SecretContents {
    let renewal = Renewal {
        service: &service(),
        days: DAYS,
        now: OffsetDateTime::now_utc() + Duration::days(days),
        is_trusted,
        is_early,
    };
    renewal.next_contents(old_contents).unwrap()
}

fn count(contents: &SecretContents) -> usize {
    certificates_in(contents.authorities.as_bytes()).unwrap().len()
}

#[test]
fn a_certificate_is_replaced_in_steps_before_it_expires() {
    let first = after(0, None, false, false);
    assert!(first.is_usable(&service(), OffsetDateTime::now_utc()));
    assert_eq!((first.next.as_ref(), count(&first)), (None, 1));
    assert_eq!(after(59, Some(&first), true, false), first);

    let announced = after(61, Some(&first), true, false);
    assert_eq!((&announced.served, count(&announced)), (&first.served, 2));
    let next = announced.next.clone().unwrap();
    assert_eq!(after(62, Some(&announced), false, false), announced);
    let replaced = after(62, Some(&announced), true, false);
    assert_eq!((&replaced.served, &replaced.next), (&next, &None));
    assert_eq!(replaced.authorities, announced.authorities);

    assert_eq!(after(89, Some(&replaced), true, false), replaced);
    let final_contents = after(91, Some(&replaced), true, false);
    assert_eq!((&final_contents.served, count(&final_contents)), (&next, 1));
}

#[test]
fn a_certificate_that_cannot_be_served_is_replaced_at_once() {
    let first = after(0, None, false, false);
    let other = after(0, None, false, false);
    let now = OffsetDateTime::now_utc();
    // None of these three certificates can be served: the first has a CA that is not trusted, the second has the key of
    // another certificate, and the third has expired.
    let untrusted_contents = SecretContents {
        authorities: other.authorities.clone(),
        ..first.clone()
    };
    let mut mismatched_contents = first.clone();
    mismatched_contents.served.key.clone_from(&other.served.key);
    for (days, unusable_contents) in [(0, &untrusted_contents), (0, &mismatched_contents), (91, &first)] {
        let later = now + Duration::days(days);
        assert!(!unusable_contents.is_usable(&service(), later));
        let renewed_contents = after(days, Some(unusable_contents), false, false);
        assert!(renewed_contents.is_usable(&service(), later));
        assert!(renewed_contents.served != unusable_contents.served && renewed_contents.next.is_none());
    }
    let announced = after(61, Some(&first), true, false);
    let next = announced.next.clone().unwrap();
    assert_eq!(after(91, Some(&announced), false, false).served, next);
    assert!(!first.is_usable(&Service::new("other", "hooks-system"), now));
}

#[test]
fn a_certificate_lost_from_the_secret_is_replaced() {
    let first = after(0, None, false, false);
    let announced = after(1, Some(&first), true, true);
    assert_eq!(announced.served, first.served);
    assert!(announced.next.is_some());
    let mut corrupt_contents = announced.clone();
    corrupt_contents.next.as_mut().unwrap().key.clear();
    let reissued_contents = after(1, Some(&corrupt_contents), false, true);
    assert!(reissued_contents.next.is_some() && reissued_contents.next != announced.next);
}

#[test]
fn the_certificate_survives_a_round_trip_through_the_secret() {
    let registration = WebhookRegistration::default();
    let first = after(0, None, false, false);
    let announced = after(61, Some(&first), true, false);
    let mut object = Map::new();
    for contents in [&announced, &first] {
        contents.set(&mut object, &registration);
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
