use std::time::{Duration, SystemTime};

use admittance::{
    ExceptionStatus, Host, Moment,
    admission::{GroupVersionKind, Operation, Request, StageResult},
};

use crate::{
    memory_store::MemoryStore,
    scene::{ChangesScene, chain, change_options_by, live_summary},
    stores::{bcs_definition, builder},
};

/// Returns the definition of an exception because of which these stages are not called for requests of the user jane.
fn exception(name: &str, stages: &str, until: Moment) -> String {
    format!(
        "apiVersion: admittance.dev/v1alpha1
kind: AdmissionException
metadata: {{ name: {name} }}
spec:
  owner: team-web
  reason: ticket 4711
  expires: {until}
  stages: {stages}
  users: [jane]
"
    )
}

fn moment_after(milliseconds: u64) -> Moment {
    Moment(SystemTime::now() + Duration::from_millis(milliseconds))
}

/// Returns the exceptions because of which stages are skipped if the user jane creates a Pod, each with its chain.
async fn exceptions_used(host: &Host) -> Vec<String> {
    exceptions_used_for(host, "Pod").await
}

async fn exceptions_used_for(host: &Host, kind: &str) -> Vec<String> {
    let kind = GroupVersionKind::from_api_version("v1", kind);
    let resource = kind.guess_resource();
    let mut request = Request::new(Operation::Create, kind, resource);
    request.user.username = "jane".to_owned();
    let outcome = host.admit(request).await;
    let rows = outcome.trace.iter();
    rows.filter(|row| matches!(row.result, StageResult::Skipped(_)))
        .filter_map(|row| Some(format!("{} {}", row.chain, row.exception.as_ref()?)))
        .collect()
}

fn exception_statuses(host: &Host) -> Vec<ExceptionStatus> {
    host.status().exceptions
}

#[tokio::test]
async fn exceptions_go_live_with_their_chains() {
    let scene = ChangesScene::new();
    scene.write("a.yaml", &chain("a", "1"));
    scene.write("b.yaml", &chain("b", "1"));
    let host = scene.start().await.unwrap();
    assert_eq!(exceptions_used(&host).await, [""; 0]);
    let text = exception("legacy", "[a/hook]", moment_after(3_600_000));
    let applied = host.apply(&text, "new.yaml", &change_options_by("ci")).await.unwrap();
    assert_eq!((applied.revision, applied.warnings.len()), (2, 0));
    assert_eq!(scene.read("AdmissionException-legacy.yaml"), text);
    assert_eq!(exceptions_used(&host).await, ["a legacy"]);
    let status = exception_statuses(&host);
    assert_eq!(status[0].stages, ["Mutating:a/hook"]);
    assert_eq!((status[0].owner.as_str(), status[0].expired), ("team-web", false));

    scene.write("a.yaml", &chain("a", "2"));
    host.reload().await.unwrap();
    assert_eq!(exceptions_used(&host).await, ["a legacy"]);
    host.delete(&"AdmissionChain/a".parse().unwrap(), &change_options_by("ci"))
        .await
        .unwrap();
    let status = exception_statuses(&host);
    assert_eq!(status[0].stages, [""; 0]);
    assert!(
        status[0].unknown[0].contains(":8:12: spec.stages[0]: there is no stage a/hook"),
        "{status:?}"
    );
    host.apply(&chain("a", "3"), "new", &change_options_by("ci"))
        .await
        .unwrap();
    assert_eq!(exceptions_used(&host).await, ["a legacy"]);
    assert_eq!(exception_statuses(&host)[0].unknown, [""; 0]);

    host.rollback(1, None).await.unwrap();
    assert_eq!(
        (exceptions_used(&host).await, exception_statuses(&host)),
        (vec![], vec![])
    );
    host.rollback(2, None).await.unwrap();
    assert_eq!(exceptions_used(&host).await, ["a legacy"]);
    drop(host);
    let host = scene.start().await.unwrap();
    assert_eq!(exceptions_used(&host).await, ["a legacy"]);
    host.delete(&"AdmissionException/legacy".parse().unwrap(), &change_options_by("ci"))
        .await
        .unwrap();
    assert_eq!(
        (exceptions_used(&host).await, exception_statuses(&host)),
        (vec![], vec![])
    );
}

#[tokio::test]
async fn an_expired_exception_or_one_without_a_stage_causes_a_warning() {
    let scene = ChangesScene::new();
    scene.write("a.yaml", &chain("a", "1"));
    let host = scene.start().await.unwrap();
    let text = exception("old", "[a/hook, a/hooks]", Moment(SystemTime::UNIX_EPOCH));
    let applied = host.apply(&text, "new.yaml", &change_options_by("ci")).await.unwrap();
    let [expired, unknown] = &applied.warnings[..] else {
        panic!("{:?}", applied.warnings);
    };
    assert!(expired.contains("exception old expired at 1970-01-01"), "{expired}");
    assert!(unknown.contains("there is no stage a/hooks"), "{unknown}");
    assert_eq!(live_summary(&host), "2 a=1");
    assert!(exception_statuses(&host)[0].expired);
    assert_eq!(exceptions_used(&host).await, [""; 0]);
    let applied = host
        .apply(&chain("b", "1"), "new.yaml", &change_options_by("ci"))
        .await
        .unwrap();
    assert_eq!(applied.warnings, [""; 0]);
    let error = host
        .apply(&text.replace("owner", "ovner"), "new.yaml", &change_options_by("ci"))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("new.yaml:5:3: spec.ovner"), "{error}");
}

#[tokio::test]
async fn exceptions_in_files_apply_to_chains_in_shared_stores() {
    let (scene, memory) = (ChangesScene::new(), MemoryStore::new("a"));
    memory.put("n/x", &bcs_definition("x", "Application", "1"));
    scene.write("a.yaml", &exception("legacy", "[n/x/hook]", moment_after(3_600_000)));
    let host = builder(&scene, &memory).build().await.unwrap();
    assert_eq!(exceptions_used_for(&host, "Application").await, ["n/x legacy"]);
    memory.remove("n/x");
    host.reload().await.unwrap();
    assert_eq!(live_summary(&host), "2");
    assert_eq!(exception_statuses(&host)[0].unknown.len(), 1);
    memory.put("n/x", &bcs_definition("x", "Application", "2"));
    host.reload().await.unwrap();
    assert_eq!(
        (
            exceptions_used_for(&host, "Application").await,
            live_summary(&host).as_str()
        ),
        (vec!["n/x legacy".to_owned()], "3 n/x=2")
    );
}
