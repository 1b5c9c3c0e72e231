use std::time::SystemTime;

use super::*;

fn query(text: &str) -> DecisionQuery {
    serde_html_form::from_str(text).unwrap()
}

#[test]
fn query_parameters_become_a_decision_filter() {
    let filter = query("chain=pods&verdict=denied&verdict=changed&namespace=&since=2026-01-02T03:04:05Z")
        .filter()
        .unwrap();
    assert_eq!(filter.chain.as_deref(), Some("pods"));
    assert_eq!(filter.namespace.as_deref(), Some(""));
    assert_eq!(filter.verdict, [DecisionVerdict::Changed, DecisionVerdict::Denied]);
    assert_eq!(filter.since.unwrap().to_string(), "2026-01-02T03:04:05.000Z");
    let refused = query("verdict=refused").filter().unwrap();
    assert_eq!(refused.verdict.len(), 4);
    assert!(!refused.verdict.contains(&DecisionVerdict::Allowed));
    let recent = query("since=10m").filter().unwrap().since.unwrap();
    let age = SystemTime::now().duration_since(recent.0).unwrap().as_secs();
    assert!((600..660).contains(&age), "{age}");
}

#[test]
fn invalid_queries_for_decisions_are_reported_with_a_fix() {
    for (text, expected) in [
        (
            "verdict=no",
            "write allowed, changed, denied, failed, deadline or dry-run",
        ),
        ("since=yesterday", "write 2026-01-02T03:04:05Z or 10m"),
    ] {
        let error = query(text).filter().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(serde_html_form::from_str::<DecisionQuery>("color=red").is_err());
    assert!(serde_html_form::from_str::<DecisionQuery>("before=x").is_err());
}
