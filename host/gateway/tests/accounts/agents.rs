use std::{fs, sync::Arc, time::Duration};

use admittance_gateway::accounts::{Accounts, AccountsError, DatabaseConfig, KeyFile, TokenDenied};

use crate::scene::{AccountsScene, DAY, agent_report, prepend_key};

#[tokio::test]
async fn an_agent_can_report_only_with_its_register_token() {
    for scene in AccountsScene::all().await {
        let accounts = &scene.accounts;
        let cluster = scene.create_cluster("dev", None).await;
        let token = scene.create_register_token(&cluster).await;
        let other = scene.create_cluster("other", None).await;
        let other_token = scene.create_register_token(&other).await;
        for (id, wrong) in [
            (&cluster.id, &b"guessed"[..]),
            (&cluster.id, &other_token),
            (&other.id, &token),
        ] {
            let refused = accounts.report(id, wrong, agent_report("one")).await;
            assert_eq!(refused, Err(AccountsError::Denied(TokenDenied::RegisterToken)));
        }
        let unknown = accounts.report("plain-none", &token, agent_report("one")).await;
        assert_eq!(unknown, Err(AccountsError::Denied(TokenDenied::NoRegisterToken)));
        // As in bcs-api's database, the case of letters in the ID of a cluster does not matter.
        accounts.report("PLAIN-dev", &token, agent_report("one")).await.unwrap();
        let current = accounts.cluster(&cluster.id).unwrap();
        let credentials = current.credentials.clone().unwrap();
        assert_eq!(credentials.user_token.0, "one");
        assert_eq!(credentials.server_addresses.len(), 2);
        assert!(current.register_token.as_ref().unwrap().used_at.is_some());

        // The agent reports the same credentials again. This changes nothing, so the directory keeps the `Arc` of the
        // credentials.
        let before = accounts.changes();
        accounts.report(&cluster.id, &token, agent_report("one")).await.unwrap();
        assert!(!before.has_changed().unwrap());
        scene.create_user("alice").await;
        let same = accounts.cluster(&cluster.id).unwrap();
        assert!(Arc::ptr_eq(&credentials, same.credentials.as_ref().unwrap()));

        let too_soon = accounts.report(&cluster.id, &token, agent_report("two")).await;
        assert!(matches!(too_soon, Err(AccountsError::TooSoon(_))), "{too_soon:?}");

        let rotated = scene.create_register_token(&cluster).await;
        let refused = accounts.report(&cluster.id, &token, agent_report("one")).await;
        assert_eq!(refused, Err(AccountsError::Denied(TokenDenied::RegisterToken)));
        accounts
            .report(&cluster.id, &rotated, agent_report("one"))
            .await
            .unwrap();
        accounts.revoke_register_token("test", &cluster).await.unwrap();
        let refused = accounts.use_register_token(&cluster.id, &rotated).await;
        assert_eq!(refused, Err(AccountsError::Denied(TokenDenied::NoRegisterToken)));
    }
}

#[tokio::test]
async fn a_register_token_has_to_be_used_in_time() {
    let directory = Arc::new(tempfile::tempdir().unwrap());
    let database = DatabaseConfig::Sqlite(directory.path().join("db"));
    let scene = AccountsScene::start(directory, database, Duration::ZERO).await;
    let cluster = scene.create_cluster("dev", None).await;
    let token = scene.create_register_token(&cluster).await;
    let refused = scene.accounts.report(&cluster.id, &token, agent_report("one")).await;
    assert_eq!(refused, Err(AccountsError::Denied(TokenDenied::RegisterToken)));
}

#[tokio::test]
async fn an_invalid_report_is_refused_with_the_reason() {
    let scene = AccountsScene::sqlite().await;
    let cluster = scene.create_cluster("dev", None).await;
    let token = scene.create_register_token(&cluster).await;
    for (field, expected) in [
        ("local", "accounts.localServers"),
        ("none", "server_addresses is empty"),
        ("long", "at most 2048 are allowed"),
        ("many", "has 17 addresses, and at most 16 are allowed"),
        ("ca", "no certificate as PEM"),
        ("token", "not the token of a service account"),
    ] {
        let mut invalid = agent_report("one");
        match field {
            "local" => invalid.server_addresses = "https://10.0.0.1:6443;https://127.0.0.1:6443".to_owned(),
            "none" => invalid.server_addresses = ";".to_owned(),
            "many" => {
                let servers: Vec<_> = (0..17).map(|last| format!("https://10.0.0.{last}")).collect();
                invalid.server_addresses = servers.join(";");
            }
            "long" => invalid.server_addresses = "https://10.0.0.1:6443;".repeat(100),
            "ca" => invalid.ca = "none".to_owned(),
            _ => invalid.user_token.0 = "two\r\nlines".to_owned(),
        }
        let refused = scene.accounts.report(&cluster.id, &token, invalid).await.unwrap_err();
        assert!(refused.to_string().contains(expected), "{refused}");
    }
    let current = scene.accounts.cluster(&cluster.id).unwrap();
    assert!(current.register_token.as_ref().unwrap().used_at.is_none());
}

#[tokio::test]
async fn no_secret_is_stored_as_plain_text() {
    let scene = AccountsScene::sqlite().await;
    let alice = scene.create_user("alice").await;
    let cluster = scene.create_cluster("dev", None).await;
    let secrets = [
        scene.create_token(&alice).await,
        scene.create_register_token(&cluster).await,
        b"tokenOfTheServiceAccount".to_vec(),
    ];
    let service_account = agent_report("tokenOfTheServiceAccount");
    scene
        .accounts
        .report(&cluster.id, &secrets[1], service_account)
        .await
        .unwrap();
    let mut looked = 0;
    for entry in fs::read_dir(scene.directory.path()).unwrap() {
        let content = fs::read(entry.unwrap().path()).unwrap();
        looked += content.len();
        for secret in &secrets {
            let is_there = content.windows(secret.len()).any(|window| window == secret.as_slice());
            assert!(!is_there, "{}", String::from_utf8_lossy(secret));
        }
        assert!(!format!("{:?}", scene.accounts).contains("tokenOfTheServiceAccount"));
    }
    assert!(looked > 10_000, "{looked}");
}

#[tokio::test]
async fn keys_are_rotated_while_other_gateways_serve() {
    let scene = AccountsScene::mysql().await;
    let cluster = scene.create_cluster("dev", None).await;
    let token = scene.create_register_token(&cluster).await;
    scene
        .accounts
        .report(&cluster.id, &token, agent_report("one"))
        .await
        .unwrap();
    let another = scene.another_gateway().await;
    let new = prepend_key(&scene.key_file());
    assert_eq!(scene.accounts.reencrypt("test").await.unwrap().tokens, 1);
    fs::write(scene.key_file(), new).unwrap();
    // The other gateway has read the key file before the new key was added to the file. So it has to read the file
    // again to decrypt the token of the cluster.
    scene.create_user("alice").await;
    let directory = another
        .wait_until("the user of the other gateway", |directory| {
            directory.users().count() == 1
        })
        .await;
    let credentials = directory.cluster(&cluster.id).unwrap().credentials.clone().unwrap();
    assert_eq!(credentials.user_token.0, "one");

    // The key file now gets a new key and loses all others. So the third gateway cannot decrypt the token of the
    // cluster, which was encrypted with another key.
    prepend_key(&scene.key_file());
    let text = fs::read_to_string(scene.key_file()).unwrap();
    fs::write(scene.key_file(), text.lines().next().unwrap()).unwrap();
    let third = scene.another_gateway().await;
    let directory = third.accounts.directory().unwrap();
    assert!(directory.cluster(&cluster.id).unwrap().credentials.is_none());
}

#[tokio::test]
async fn a_token_that_cannot_be_decrypted_does_not_affect_other_tokens() {
    for scene in AccountsScene::all().await {
        let report_of = async |name: &str| {
            let cluster = scene.create_cluster(name, None).await;
            let token = scene.create_register_token(&cluster).await;
            scene
                .accounts
                .report(&cluster.id, &token, agent_report(name))
                .await
                .unwrap();
        };
        report_of("lost").await;
        let key = |text: &str| text.lines().next().unwrap().to_owned();
        let new = key(&prepend_key(&scene.key_file()));
        fs::write(scene.key_file(), &new).unwrap();
        scene.accounts.reencrypt("test").await.unwrap();
        report_of("kept").await;
        report_of("zebra").await;
        let newest = key(&prepend_key(&scene.key_file()));
        let outcome = scene.accounts.reencrypt("test").await.unwrap();
        assert_eq!((outcome.tokens, outcome.skipped.len()), (2, 1), "{outcome:?}");
        let skipped = &outcome.skipped[0];
        for part in ["plain-lost", "add that key", "report again"] {
            assert!(skipped.contains(part), "{skipped}");
        }
        // The file now contains only the newest key. Only the token of `plain-lost` is still encrypted with an older
        // key.
        fs::write(scene.key_file(), newest).unwrap();
        let another = scene.another_gateway().await;
        let directory = another.accounts.directory().unwrap();
        for (id, is_known) in [("plain-lost", false), ("plain-kept", true), ("plain-zebra", true)] {
            let credentials = &directory.cluster(id).unwrap().credentials;
            assert_eq!(credentials.is_some(), is_known, "{id}");
        }
    }
}

#[tokio::test]
async fn a_missing_key_is_not_replaced_while_it_is_needed() {
    let scene = AccountsScene::sqlite().await;
    // The key file is removed while the database contains no secret. Nothing needs the old key, so the gateway creates
    // a new one and does not fail.
    fs::remove_file(scene.key_file()).unwrap();
    Accounts::new(scene.config(DAY)).await.unwrap();
    let key = fs::read_to_string(scene.key_file()).unwrap();
    let scene = scene.another_gateway().await;
    let cluster = scene.create_cluster("dev", None).await;
    let token = scene.create_register_token(&cluster).await;
    scene
        .accounts
        .report(&cluster.id, &token, agent_report("one"))
        .await
        .unwrap();
    fs::remove_file(scene.key_file()).unwrap();
    let refused = Accounts::new(scene.config(DAY)).await.unwrap_err().to_string();
    for part in ["keys does not exist", "(1)", "restore", "openssl rand -base64 32"] {
        assert!(refused.contains(part), "{refused}");
    }
    assert!(!scene.key_file().exists());
    KeyFile::create(&scene.key_file()).unwrap();
    fs::write(scene.key_file(), key).unwrap();
    let restored = scene.another_gateway().await;
    let directory = restored.accounts.directory().unwrap();
    assert!(directory.cluster(&cluster.id).unwrap().credentials.is_some());
}
