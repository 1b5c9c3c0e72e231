//! What the README says of the demo.

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
