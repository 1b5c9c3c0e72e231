use std::time::Duration;

use admittance_bcs::routes::Permission;
use admittance_gateway::accounts::{
    Access, AccessTarget, AccountsError, ClusterName, ClusterType, TokenDenied, User, UserId, UserName,
};
use futures_util::future::join_all;

use crate::scene::{AccountsScene, DAY, prepend_key};

#[tokio::test]
async fn a_token_identifies_its_user_until_it_is_revoked() {
    for scene in AccountsScene::all().await {
        let accounts = &scene.accounts;
        let alice = scene.create_user("alice").await;
        assert_eq!(alice.name.as_str(), "plain:alice");
        let (first, second) = (scene.create_token(&alice).await, scene.create_token(&alice).await);
        let directory = accounts.directory().unwrap();
        let session = directory.authenticate(&first).unwrap();
        assert_eq!(session.user, alice);
        assert!(session.expires_at.0 > std::time::SystemTime::now() + DAY / 2);
        for wrong in [&b""[..], b"x", &first[1..], &first.to_ascii_lowercase()] {
            assert_eq!(directory.authenticate(wrong).unwrap_err(), TokenDenied::Unknown);
        }
        assert_eq!(directory.tokens_of(alice.id).count(), 2);

        accounts.revoke_token("test", &alice, session.token).await.unwrap();
        let directory = accounts.directory().unwrap();
        assert_eq!(directory.authenticate(&first).unwrap_err(), TokenDenied::Unknown);
        assert!(directory.authenticate(&second).is_ok());
        let again = accounts.revoke_token("test", &alice, session.token).await;
        assert!(matches!(again, Err(AccountsError::Unknown("token", _))), "{again:?}");

        accounts.delete_user("test", "plain:alice").await.unwrap();
        let directory = accounts.directory().unwrap();
        assert_eq!(directory.authenticate(&second).unwrap_err(), TokenDenied::Unknown);
        assert_ne!(scene.create_user("alice").await.id, alice.id);
    }
}

#[tokio::test]
async fn the_plain_token_of_a_user_is_returned_until_it_is_revoked() {
    for scene in AccountsScene::all().await {
        let accounts = &scene.accounts;
        let (alice, bob) = (scene.create_user("alice").await, scene.create_user("bob").await);
        // This ordinary token of alice is never returned below, because its value is shown only once.
        scene.create_token(&alice).await;
        let plain = async |user| {
            let token = accounts.get_or_create_token("test", user, DAY).await.unwrap();
            (token.id, token.value.0)
        };
        let first = plain(&alice).await;
        for _ in 0..40 {
            assert_eq!(plain(&alice).await, first);
        }
        assert_ne!(plain(&bob).await, first);
        let session = accounts.directory().unwrap().authenticate(first.1.as_bytes()).unwrap();
        assert_eq!((session.user.id, session.token), (alice.id, first.0));

        prepend_key(&scene.key_file());
        let outcome = accounts.reencrypt("test").await.unwrap();
        assert_eq!((outcome.user_tokens, outcome.skipped.len()), (2, 0), "{outcome:?}");
        let key = std::fs::read_to_string(scene.key_file()).unwrap();
        std::fs::write(scene.key_file(), key.lines().next().unwrap()).unwrap();
        let other = scene.another_gateway().await;
        let again = other.accounts.get_or_create_token("test", &alice, DAY).await;
        assert_eq!(again.unwrap().value.0, first.1);

        accounts.revoke_token("test", &alice, first.0).await.unwrap();
        let second = plain(&alice).await;
        assert_ne!(second.1, first.1);
        assert_eq!(plain(&alice).await, second);
    }
}

#[tokio::test]
async fn a_cluster_id_belongs_to_the_first_project_that_registers_it() {
    for scene in AccountsScene::all().await {
        let accounts = &scene.accounts;
        let create = async |id: &str, project: &str| {
            let name = ClusterName::new(id, Some((project, ClusterType::Kubernetes))).unwrap();
            accounts.create_cluster("test", None, &name).await
        };
        let first = create("BCS-K8S-1", "p1").await.unwrap();
        for id in ["BCS-K8S-1", "bcs-k8s-1"] {
            let refused = create(id, "p2").await.unwrap_err();
            assert_eq!(refused, AccountsError::ForeignClusterId(id.to_owned()));
            assert!(refused.to_string().contains("clusters delete"), "{refused}");
        }
        let directory = accounts.directory().unwrap();
        assert_eq!(directory.first_with_platform_id("bcs-k8s-1"), Some(&first));
        accounts.delete_cluster("test", &first.id).await.unwrap();
        create("BCS-K8S-1", "p2").await.unwrap();
    }
}

#[tokio::test]
async fn the_error_for_an_expired_token_names_its_user() {
    let scene = AccountsScene::sqlite().await;
    let alice = scene.create_user("alice").await;
    let token = scene
        .accounts
        .create_token("test", &alice, Duration::ZERO)
        .await
        .unwrap();
    let directory = scene.accounts.directory().unwrap();
    let denied = directory.authenticate(token.value.0.as_bytes()).unwrap_err();
    assert_eq!(denied.to_string(), "this token has expired for user: plain:alice");
}

#[tokio::test]
async fn permissions_are_granted_and_withdrawn() {
    for scene in AccountsScene::all().await {
        let accounts = &scene.accounts;
        let (alice, bob, root) = (
            scene.create_user("alice").await,
            scene.create_user("bob").await,
            accounts
                .create_user("test", &UserName::plain("root").unwrap(), true, &["ops".to_owned()])
                .await
                .unwrap(),
        );
        assert_eq!(root.groups, ["ops"]);
        let cluster = scene.create_cluster("dev", Some(&alice)).await;
        let permission_of = |user| {
            let directory = accounts.directory().unwrap();
            directory.permission(user, directory.cluster(&cluster.id).unwrap())
        };
        let access = |user| {
            let directory = accounts.directory().unwrap();
            directory.access(user, directory.cluster(&cluster.id).unwrap())
        };
        assert_eq!(permission_of(&alice), Some(Permission::Write));
        assert_eq!(permission_of(&bob), None);
        assert_eq!(permission_of(&root), Some(Permission::Hooks));
        for permission in [Permission::Hooks, Permission::Read] {
            accounts
                .set_access("test", &bob, &cluster, Some(Access::Permission(permission)))
                .await
                .unwrap();
            assert_eq!(permission_of(&bob), Some(permission));
        }
        accounts
            .set_access("test", &alice, &cluster, Some(Access::Permission(Permission::Read)))
            .await
            .unwrap();
        assert_eq!(permission_of(&alice), Some(Permission::Write));
        // With `Access::Cluster`, the gateway allows all requests to the cluster. Alice also keeps the right to manage
        // the cluster, because she has created it.
        for user in [&alice, &bob] {
            let granted = accounts.set_access("test", user, &cluster, Some(Access::Cluster)).await;
            granted.unwrap();
            assert_eq!(access(user), Some(Access::Cluster));
            let directory = accounts.directory().unwrap();
            let target = AccessTarget::Cluster(cluster.id.clone());
            assert!(directory.check_access(user, &target, Permission::Hooks).is_ok());
        }
        assert_eq!(permission_of(&alice), Some(Permission::Write));
        assert_eq!(permission_of(&bob), Some(Permission::Read));
        accounts.set_access("test", &bob, &cluster, None).await.unwrap();
        assert_eq!(permission_of(&bob), None);
        let again = accounts.set_access("test", &bob, &cluster, None).await;
        assert!(
            matches!(again, Err(AccountsError::Unknown("permission", _))),
            "{again:?}"
        );

        accounts.delete_user("test", "plain:bob").await.unwrap();
        let refusal = accounts
            .set_access("test", &bob, &cluster, Some(Access::Permission(Permission::Read)))
            .await;
        assert!(matches!(refusal, Err(AccountsError::Unknown(..))), "{refusal:?}");
        accounts.delete_user("test", "plain:alice").await.unwrap();
        assert_eq!(accounts.cluster(&cluster.id).unwrap().creator, UserId::UNASSIGNED);
        accounts.delete_cluster("test", &cluster.id).await.unwrap();
        assert!(
            accounts
                .directory()
                .unwrap()
                .cluster_by_identifier(&cluster.identifier)
                .is_none()
        );
    }
}

#[tokio::test]
async fn only_one_of_several_users_or_clusters_with_one_name_is_created() {
    for scene in AccountsScene::all().await {
        let accounts = &scene.accounts;
        let name = UserName::plain("alice").unwrap();
        let users = (0..10).map(|_| accounts.create_user("test", &name, false, &[]));
        let created = join_all(users).await;
        assert_eq!(created.iter().filter(|result| result.is_ok()).count(), 1, "{created:?}");
        let already_exists = |error: &AccountsError| matches!(error, AccountsError::Exists(..));
        assert!(
            created
                .iter()
                .filter_map(|result| result.as_ref().err())
                .all(already_exists)
        );

        let name = ClusterName::new("BCS-K8S-1", Some(("project", ClusterType::Kubernetes))).unwrap();
        let clusters = (0..10).map(|_| accounts.create_cluster("test", None, &name));
        let mut created: Vec<_> = join_all(clusters).await.into_iter().filter_map(Result::ok).collect();
        assert_eq!(created.len(), 1);
        let cluster = created.pop().unwrap();
        assert!(
            cluster.id.starts_with("bcs-bcs-k8s-1-") && cluster.id.len() == 22,
            "{}",
            cluster.id
        );
        assert_eq!(cluster.identifier.len(), cluster.id.len() + 17);

        let tokens = (0..10).map(|_| accounts.create_register_token("test", &cluster, false));
        let created: Vec<_> = join_all(tokens).await.into_iter().filter_map(Result::ok).collect();
        assert_eq!(created.len(), 1);
        let directory = accounts.directory().unwrap();
        assert!(
            directory
                .authenticate_agent(&cluster.id, created[0].value.0.as_bytes())
                .is_ok()
        );
    }
}

#[tokio::test]
async fn a_user_creates_a_limited_number_of_clusters() {
    for scene in AccountsScene::all().await {
        let alice = scene.create_user("alice").await;
        let create = async |creator: Option<&User>, id: String| {
            let name = ClusterName::new(&id, None).unwrap();
            scene.accounts.create_cluster("test", creator, &name).await
        };
        let created = join_all((0..10).map(|number| create(Some(&alice), format!("a{number}")))).await;
        assert_eq!(created.iter().filter(|result| result.is_ok()).count(), 3, "{created:?}");
        let refused = create(Some(&alice), "b".to_owned()).await.unwrap_err();
        assert!(matches!(refused, AccountsError::Quota(_)), "{refused:?}");
        let text = refused.to_string();
        for part in [
            "plain:alice has created 3 clusters",
            "`accounts.clustersPerUser`",
            "clusters delete",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let bob = scene.create_user("bob").await;
        create(Some(&bob), "c".to_owned()).await.unwrap();
        let root = UserName::plain("root").unwrap();
        let root = scene.accounts.create_user("test", &root, true, &[]).await.unwrap();
        for number in 0..5 {
            create(Some(&root), format!("r{number}")).await.unwrap();
            create(None, format!("n{number}")).await.unwrap();
        }
        let created_cluster = created.into_iter().find_map(Result::ok).unwrap();
        scene
            .accounts
            .delete_cluster("test", &created_cluster.id)
            .await
            .unwrap();
        create(Some(&alice), "d".to_owned()).await.unwrap();
    }
}

#[tokio::test]
async fn the_error_for_a_refused_change_says_why() {
    let scene = AccountsScene::sqlite().await;
    let name = UserName::plain("alice").unwrap();
    for (group, expected) in [
        ("system:masters", "cannot be a group"),
        ("", "not a valid group"),
        ("a b", "not a valid group"),
    ] {
        let outcome = scene
            .accounts
            .create_user("test", &name, false, &[group.to_owned()])
            .await;
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    for (id, project) in [("", None), ("a/b", None), ("a", Some("../x")), ("a", Some(""))] {
        let cluster_name = ClusterName::new(id, project.map(|project| (project, ClusterType::Mesos)));
        assert!(cluster_name.is_err(), "{id} {project:?}");
    }
    let alice = scene.create_user("alice").await;
    for _ in 0..32 {
        scene.create_token(&alice).await;
    }
    let error = scene.accounts.create_token("test", &alice, DAY).await.unwrap_err();
    assert!(
        error.to_string().contains("admittance tokens list plain:alice"),
        "{error}"
    );
}
