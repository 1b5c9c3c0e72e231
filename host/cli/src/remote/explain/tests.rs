use serde_json::json;

use super::*;
use crate::table::strip_styles;

fn decision_detail(patch: Value, has_objects: bool) -> DecisionDetail {
    let stage = |name: &str, result: &str, start: u64, duration: u64| {
        json!({"chain": "pods", "phase": "Mutating", "stage": name, "round": 1, "mode": "Enforce",
               "result": result, "startMicroseconds": start, "microseconds": duration})
    };
    let mut sidecar = stage("sidecar", "patch", 0, 600);
    sidecar["log"] = json!([{"level": "warn", "context": "cache", "message": "stale\u{1b}[31m"}]);
    let mut images = stage("images", "deny", 600, 600);
    images["reason"] = "not signed".into();
    images["code"] = 403.into();
    let mut skipped = stage("labels", "not-reached", 0, 0);
    skipped["mode"] = "Audit".into();
    let mut detail = json!({
        "id": 1, "at": "2026-01-02T03:04:05Z", "uid": "u-1", "revision": 7, "user": "alice",
        "groups": ["dev", "ops"], "dialect": "kubernetes", "operation": "CREATE", "kind": "v1/Pod",
        "resource": "v1/pods", "namespace": "shop", "name": "web", "verdict": "denied", "code": 403,
        "message": "stage images of chain pods denied the request: not signed", "warnings": ["old"],
        "microseconds": 1200, "patch": patch, "stages": [sidecar, images, skipped],
    });
    if has_objects {
        detail["review"] = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {"object": {"a": 1}}, "response": {},
            "recording": {"at": "2026-01-02T03:04:05Z", "revision": 7, "redacted": 0}});
        detail["result"] = json!({"a": 2});
    }
    serde_json::from_value(detail).unwrap()
}

const HEAD: &str = "\
CREATE of v1/Pod shop/web by alice (dev, ops)
denied (403) at 2026-01-02T03:04:05.000Z in 1.20ms, revision 7, dialect kubernetes  uid u-1
";

#[test]
fn explain_shows_all_details_of_a_decision() {
    let patch = json!([{"op": "replace", "path": "/a", "value": 2}]);
    let body = "\
stage images of chain pods denied the request: not signed
warning: old
  pods/sidecar  |============            |  600.0µs  patch
                  warn cache: stale [31m
  pods/images   |            ============|  600.0µs  deny (403)
                  not signed
  pods/labels   |                        |        -  not-reached (audit)
";
    let of_objects = "    {\n  -   \"a\": 1\n  +   \"a\": 2\n    }\n";
    assert_eq!(
        strip_styles(&detail_text(&decision_detail(patch.clone(), true))),
        format!("{HEAD}{body}{of_objects}")
    );
    let of_patch = "  {\"op\":\"replace\",\"path\":\"/a\",\"value\":2}\n";
    assert_eq!(
        strip_styles(&detail_text(&decision_detail(patch, false))),
        format!("{HEAD}{body}{of_patch}")
    );
}

#[test]
fn a_replayed_decision_is_shown_with_its_differences() {
    let before = decision_detail(json!([]), true);
    let mut after = before.clone();
    after.decision.revision = 9;
    let same = DecisionReplay {
        before: before.clone(),
        after: after.clone(),
        differences: Vec::new(),
    };
    assert_eq!(
        strip_styles(&replay_text(&same)),
        format!("{HEAD}the same by revision 9\n")
    );
    after.decision.verdict = admittance::DecisionVerdict::Changed;
    after.decision.code = None;
    after.decision.message = None;
    after.result = serde_json::from_value(json!({"a": 3})).unwrap();
    let different = DecisionReplay {
        before,
        after,
        differences: vec![admittance_admin::api::Difference::Verdict],
    };
    let expected = "\
different by revision 9
- denied (403)
- stage images of chain pods denied the request: not signed
- warning: old
+ changed
+ warning: old
    {
  -   \"a\": 2
  +   \"a\": 3
    }
";
    assert_eq!(strip_styles(&replay_text(&different)), format!("{HEAD}{expected}"));
}
