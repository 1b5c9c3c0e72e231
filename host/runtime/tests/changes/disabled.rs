//! Tests of stages that are disabled while definitions change.

use std::time::Duration;

use admittance::{
    DisableOptions, Host,
    admission::{GroupVersionKind, Operation, Request, SkipReason, StageResult},
};

use crate::scene::{ChangesScene, chain, change_options_by, live_summary};

async fn disable(host: &Host, stage: &str) {
    let options = DisableOptions {
        audit: false,
        duration: Duration::from_secs(3600),
        reason: "the server is down".to_owned(),
        by: Some("ops".to_owned()),
    };
    host.disable(&stage.parse().unwrap(), options).await.unwrap();
}

async fn skipped_stages(host: &Host) -> Vec<String> {
    let kind = GroupVersionKind::from_api_version("v1", "Pod");
    let resource = kind.guess_resource();
    let outcome = host.admit(Request::new(Operation::Create, kind, resource)).await;
    let rows = outcome.trace.iter();
    rows.filter(|row| row.result == StageResult::Skipped(SkipReason::Disabled))
        .map(|row| row.chain.to_string())
        .collect()
}

fn missing_stages(host: &Host) -> Vec<String> {
    let missing = host.status().disabled_missing;
    missing.into_iter().map(|disabled| disabled.stage).collect()
}

#[tokio::test]
async fn a_stage_stays_disabled_when_definitions_change() {
    let scene = ChangesScene::new();
    scene.write("a.yaml", &chain("a", "1"));
    scene.write("b.yaml", &chain("b", "1"));
    let host = scene.start().await.unwrap();
    disable(&host, "a/hook").await;
    assert_eq!(skipped_stages(&host).await, ["a"]);
    assert_eq!(live_summary(&host), "1 a=1 b=1");

    scene.write("a.yaml", &chain("a", "2"));
    host.reload().await.unwrap();
    assert_eq!(
        (skipped_stages(&host).await, live_summary(&host).as_str()),
        (vec!["a".to_owned()], "2 a=2 b=1")
    );
    host.rollback(1, None).await.unwrap();
    assert_eq!(skipped_stages(&host).await, ["a"]);

    host.delete(&"AdmissionChain/a".parse().unwrap(), &change_options_by("ci"))
        .await
        .unwrap();
    assert_eq!(missing_stages(&host), ["Mutating:a/hook"]);
    disable(&host, "b/hook").await;
    host.apply(&chain("a", "3"), "new", &change_options_by("ci"))
        .await
        .unwrap();
    assert_eq!(missing_stages(&host), [""; 0]);
    assert_eq!(skipped_stages(&host).await, ["a", "b"]);

    host.enable(&"b/hook".parse().unwrap(), None).await.unwrap();
    assert_eq!(skipped_stages(&host).await, ["a"]);
    assert_eq!(host.history().len(), 5, "it is not a revision");
}

#[tokio::test]
async fn a_stage_can_be_disabled_while_definitions_are_invalid() {
    let scene = ChangesScene::new();
    scene.write("a.yaml", &chain("a", "1"));
    let host = scene.start().await.unwrap();
    scene.write("a.yaml", "kind: [");
    host.reload().await.unwrap_err();
    disable(&host, "a/hook").await;
    assert_eq!(
        (skipped_stages(&host).await, live_summary(&host).as_str()),
        (vec!["a".to_owned()], "1 a=1 !")
    );
    drop(host);
    // The host is started again while the definitions are still invalid. So it restores the table `1 a=1` from the
    // history, and the stage `a` must still be disabled in it.
    let host = scene.start().await.unwrap();
    assert_eq!(
        (skipped_stages(&host).await, live_summary(&host).as_str()),
        (vec!["a".to_owned()], "1 a=1 !")
    );
}
