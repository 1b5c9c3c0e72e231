use super::*;

#[test]
fn a_share_is_parsed_and_written() {
    for (text, parts) in [
        ("100%", 10_000),
        ("10%", 1000),
        ("12.5%", 1250),
        ("0.01%", 1),
        ("0.1%", 10),
        ("99.99%", 9999),
        ("1.05%", 105),
    ] {
        let share: Share = text.parse().unwrap();
        assert_eq!(share.parts_of_ten_thousand(), parts, "{text}");
        assert_eq!(share.to_string(), text);
        let json = serde_json::to_string(&share).unwrap();
        assert_eq!(serde_json::from_str::<Share>(&json).unwrap(), share);
    }
    assert_eq!("07.50%".parse::<Share>().unwrap().to_string(), "7.5%");
    assert_eq!(Share::WHOLE.to_string(), "100%");
    assert_eq!(Share::of_ten_thousand(0), None);
    assert_eq!(Share::of_ten_thousand(10_001), None);
}

#[test]
fn a_text_that_is_not_a_share_is_refused_with_a_fix() {
    let range = "0.01% to 100%, with at most two digits after the point";
    for (text, fix) in [
        ("10", "10%"),
        ("0.5", "0.5%"),
        ("0%", range),
        ("100.01%", range),
        ("1000%", range),
        ("70000%", range),
        ("0.001%", range),
        ("-1%", range),
        ("+1%", range),
        ("1e1%", range),
        (".5%", range),
        ("1.%", range),
        ("%", range),
        ("", range),
        ("10 %", range),
        ("ten", range),
    ] {
        let error = text.parse::<Share>().unwrap_err();
        assert_eq!(error.to_string(), format!("`{text}` is not a valid share; write {fix}"));
    }
}

#[test]
fn the_requests_of_a_share_are_distributed_evenly() {
    for parts in [1, 3, 10, 100, 333, 1000, 2500, 5000, 6667, 9999, 10_000] {
        let share = Share::of_ten_thousand(parts).unwrap();
        assert!(share.is_due(0), "{share}");
        let due: Vec<u64> = (0..20_000).filter(|counter| share.is_due(*counter)).collect();
        assert_eq!(due.len(), 2 * usize::from(parts), "{share}");
        let distances: Vec<u64> = due.iter().zip(&due[1..]).map(|(a, b)| b - a).collect();
        let min_distance = 10_000 / u64::from(parts);
        assert!(
            distances
                .iter()
                .all(|distance| (min_distance..=min_distance + 1).contains(distance)),
            "{share}"
        );
        assert_eq!(share.is_due(u64::MAX), share.is_due(u64::MAX % 10_000));
    }
    let tenth: Share = "10%".parse().unwrap();
    let due: Vec<u64> = (0..40).filter(|counter| tenth.is_due(*counter)).collect();
    assert_eq!(due, [0, 10, 20, 30]);
}
