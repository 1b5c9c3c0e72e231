use std::fs;

use tokio::io::AsyncReadExt as _;

use super::scene::{DecisionsScene, EventClient, write_tokens};

#[tokio::test]
async fn users_with_the_read_role_see_decisions_without_values() {
    let directory = tempfile::tempdir().unwrap();
    let admin = write_tokens(&directory);
    let scene = DecisionsScene::start_in(directory, &admin).await;
    scene.create("a", "img:1").await;
    let explain = async |token: &str| {
        let path = scene.path(token);
        let token = path.to_str().unwrap();
        scene.json_of(&["explain", "a", "--token-file", token]).await["decisions"][0].clone()
    };
    let full = explain("admin").await;
    assert!(full["review"]["request"]["object"].is_object());
    assert!(full["patch"][0]["value"].is_object() || full["patch"][0]["value"].is_string());
    let reduced = explain("reader").await;
    assert_eq!((reduced.get("review"), reduced.get("result")), (None, None));
    assert_eq!(reduced["patch"][0].get("value"), None);
    assert_eq!(reduced["patch"][0]["path"], full["patch"][0]["path"]);
    assert_eq!(reduced["stages"][0]["log"], full["stages"][0]["log"]);
    let reader = scene.path("reader");
    let replay = scene
        .run_command(&["explain", "a", "--replay", "--token-file", reader.to_str().unwrap()])
        .await;
    assert!(
        replay.stderr.contains("the role Admin is required"),
        "{}",
        replay.stderr
    );
    let stranger = scene.run_command(&["decisions"]).await;
    assert!(stranger.stderr.contains("unauthenticated"), "{}", stranger.stderr);
}

#[tokio::test]
async fn a_stream_of_decisions_ends_when_its_token_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let admin = write_tokens(&directory);
    let scene = DecisionsScene::start_in(directory, &admin).await;
    let header = "Authorization: Bearer reader-token-0123456789\r\n";
    let mut client = EventClient::open(&scene, "/v1/decisions/events", header).await;
    client.read_until("content-type").await;
    fs::remove_file(scene.path("reader")).unwrap();
    client.read_until("event: end").await;
    assert_eq!(client.read_until("data").await, "data: unknown token");
    let mut rest = Vec::new();
    client.0.read_to_end(&mut rest).await.unwrap();
}
