use admittance::{Applied, Origin, Status};
use admittance_admin::api::CandidateList;
use tempfile::TempDir;

use super::{
    guest::{Guest, GuestAnswer},
    steering::{call_ok, start_driver},
};
use crate::{harness::application, tls::wait_until};

const CHAIN: &str = "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata:
  name: applications
spec:
  rules:
    - operations: [CREATE]
      kinds: [application]
  stages:
    - name: judge
      plugin: { source: \"file:../allows.wasm\" }
      candidate: { source: \"file:../denies.wasm\", share: 100% }
";

#[tokio::test]
async fn a_candidate_is_compared_with_its_stage_and_promoted() {
    let directory = TempDir::new().unwrap();
    let denies = Guest::answering(&GuestAnswer::Deny {
        code: 403,
        reason: "Forbidden",
        message: "never",
    });
    for (name, guest) in [("allows.wasm", Guest::default()), ("denies.wasm", denies)] {
        std::fs::write(directory.path().join(name), guest.component()).unwrap();
    }
    let driver = start_driver(directory.path()).await;
    let _: Applied = call_ok(&driver, "POST", "/v1/definitions", CHAIN).await;
    assert_eq!(driver.post(application("good")).await.0, 200);
    wait_until("the difference", async || {
        let list: CandidateList = call_ok(&driver, "GET", "/v1/candidates", "").await;
        let [report] = &list.candidates[..] else {
            panic!("there is one candidate: {list:?}");
        };
        report.candidate.different == 1 && report.samples[0].candidate.message.as_deref() == Some("never")
    })
    .await;

    let stage = r#"{"stage":"applications/judge"}"#;
    let planned: Applied = call_ok(&driver, "POST", "/v1/promote?dryRun=true", stage).await;
    assert!(planned.dry_run);
    assert_eq!(driver.post(application("good")).await.0, 200);
    let promoted: Applied = call_ok(&driver, "POST", "/v1/promote", stage).await;
    assert_eq!(promoted.comparison.modules.len(), 2, "{promoted:?}");
    let (_, refusal) = driver.post(application("good")).await;
    assert!(refusal.contains("never"), "{refusal}");
    let status: Status = call_ok(&driver, "GET", "/v1/status", "").await;
    let expected = Origin::Promoted {
        stage: "applications/judge".to_owned(),
    };
    assert_eq!((status.revision, status.origin), (3, expected));
    let remaining_list: CandidateList = call_ok(&driver, "GET", "/v1/candidates", "").await;
    assert!(remaining_list.candidates.is_empty());
}
