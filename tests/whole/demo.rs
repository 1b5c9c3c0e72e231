//! Tests the demo that the README describes.

use admittance_tests::Artifacts;
use tokio::process::Command;

#[tokio::test]
async fn the_demo_prints_commands_and_the_address_of_its_console() {
    for arguments in [&["--once"][..], &["bcs", "--once"]] {
        let stdout = run_demo(arguments).await;
        assert_eq!(stdout.matches("curl -s ").count(), 3, "{stdout}");
        assert!(stdout.contains("Its console:\n  http://127.0.0.1:"), "{stdout}");
    }
}

#[tokio::test]
async fn the_demo_sends_some_requests_that_are_refused() {
    let stdout = run_demo(&["traffic", "--once"]).await;
    let (_, counts) = stdout.split_once("traffic: ").unwrap();
    let counts: Vec<u32> = counts.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(
        matches!(counts[..], [allowed, refused] if allowed > 40 && refused > 0),
        "{stdout}"
    );
}

async fn run_demo(arguments: &[&str]) -> String {
    let demo = Artifacts::find().unwrap().program("admittance-demo").unwrap();
    let output = Command::new(demo)
        .args(arguments)
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{stdout}\n{stderr}");
    stdout.into_owned()
}

#[tokio::test]
async fn the_demo_says_what_to_do_when_its_port_is_taken() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let demo = Artifacts::find().unwrap().program("admittance-demo").unwrap();
    let output = Command::new(demo)
        .args(["--listen", &address])
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains(&format!("listen.address: cannot listen on {address}")),
        "{stderr}"
    );
    assert!(stderr.contains("cargo task demo --listen"), "{stderr}");
}
