//! The demo of the README.

use admittance_tests::Artifacts;
use tokio::process::Command;

#[tokio::test]
async fn the_demo_keeps_its_promises() {
    let demo = Artifacts::find().unwrap().program("admittance-demo").unwrap();
    let output = Command::new(demo)
        .arg("--once")
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{stdout}\n{stderr}");
    assert_eq!(stdout.matches("curl -s http://127.0.0.1:").count(), 3, "{stdout}");
}

#[tokio::test]
async fn the_demo_says_what_to_do_when_its_port_is_taken() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
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
