//! Checks that the help lists tasks.
//!
//! `cargo task demo` compiles this test without running it. Cargo chooses the features of dependencies by the targets
//! that it compiles, so with this test it chooses the same features as in other builds, and need not compile the
//! dependencies again. See `build_demo`.

use std::process::Command;

#[test]
fn the_help_lists_the_tasks_in_the_readme() {
    let output = Command::new(env!("CARGO_BIN_EXE_admittance-tasks"))
        .arg("--help")
        .output()
        .expect("the program of the tasks starts");
    let help = String::from_utf8_lossy(&output.stdout);
    for task in ["demo", "test"] {
        assert!(help.contains(&format!("\n  {task} ")), "{help}");
    }
}
