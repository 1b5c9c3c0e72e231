//! Tests of access reviews.

use std::time::Duration;

use admittance_admission::{
    AccessAttributes, AccessCheckResult, Authorizer, ClusterError, ClusterReader, Deadline, UserInfo,
};
use serde_json::json;

use crate::setting::Setting;

fn user() -> UserInfo {
    UserInfo {
        username: "jo".into(),
        uid: "7".into(),
        groups: vec!["dev".into(), "system:authenticated".into()],
        extra: [("scopes".into(), vec!["a".into(), "b".into()])].into(),
    }
}

fn path_attributes() -> AccessAttributes {
    AccessAttributes::Path {
        verb: "get".into(),
        path: "/healthz".into(),
    }
}

#[tokio::test]
async fn every_access_review_is_sent_to_the_server() {
    let setting = Setting::new();
    let cluster = setting.cluster().await;
    let resource = AccessAttributes::Resource {
        verb: "update".into(),
        group: "apps".into(),
        version: "*".into(),
        resource: "deployments".into(),
        subresource: "scale".into(),
        namespace: "prod".into(),
        name: "web".into(),
        field_selector: String::new(),
        label_selector: "app=web".into(),
    };
    for allowed in [true, false] {
        setting
            .server
            .set_access(json!({"allowed": allowed, "reason": "said so"}));
        let answer = cluster.authorize(&user(), &resource).await;
        let reason = "said so".to_owned();
        assert_eq!(answer, Ok(AccessCheckResult { allowed, reason }));
    }
    cluster.authorize(&user(), &path_attributes()).await.unwrap();
    let subject = json!({"user": "jo", "uid": "7", "groups": ["dev", "system:authenticated"],
                     "extra": {"scopes": ["a", "b"]}});
    let spec_with = |field: &str, value: serde_json::Value| {
        let mut spec = subject.clone();
        spec[field] = value;
        spec
    };
    let update = json!({"verb": "update", "group": "apps", "version": "*", "resource": "deployments",
                        "subresource": "scale", "namespace": "prod", "name": "web",
                        "labelSelector": {"rawSelector": "app=web"}});
    assert_eq!(
        setting.server.reviews(),
        [
            spec_with("resourceAttributes", update.clone()),
            spec_with("resourceAttributes", update),
            spec_with("nonResourceAttributes", json!({"verb": "get", "path": "/healthz"})),
        ]
    );
}

#[tokio::test]
async fn an_access_review_without_an_answer_is_an_error() {
    let setting = Setting::new();
    let cluster = setting.cluster().await;
    let error = cluster
        .authorize(&UserInfo::default(), &path_attributes())
        .await
        .unwrap_err();
    assert!(error.0.contains("neither a user nor groups"), "{error}");
    assert!(setting.server.reviews().is_empty());

    setting.server.forbid("create", "subjectaccessreviews");
    let deadline = Deadline::after(Duration::from_secs(60));
    let plugin_answer = cluster.check_access(&user(), &path_attributes(), deadline).await;
    let expected = "subjectaccessreviews is forbidden; give this program's account `create` on \
                    `subjectaccessreviews` of the API group `authorization.k8s.io`";
    assert_eq!(plugin_answer, Err(ClusterError::Refused(expected.to_owned())));
    let error = cluster.authorize(&user(), &path_attributes()).await.unwrap_err();
    let url = format!("https://{}", setting.server.address);
    assert_eq!(
        error.0,
        format!(
            "{url} did not answer the SubjectAccessReview: subjectaccessreviews is forbidden; give this program's \
             account `create` on `subjectaccessreviews` of the API group `authorization.k8s.io`"
        )
    );

    setting.server.become_unavailable();
    let error = cluster.authorize(&user(), &path_attributes()).await.unwrap_err();
    assert!(error.0.starts_with(&format!("{url} did not answer")), "{error}");
}
