//! Tests changes that are made while modules are compiled.

use std::fs;

use admittance_tests::modules;
use http::StatusCode;
use rustix::process::{Pid, Signal, kill_process};

use super::scene::{HotScene, chain};

/// Processes that are stopped until this is dropped.
struct StoppedProcesses(Vec<Pid>);

impl StoppedProcesses {
    fn stop(ids: &[String]) -> Self {
        let ids = ids.iter().filter_map(|id| Pid::from_raw(id.parse().unwrap()));
        let stopped = Self(ids.collect());
        for id in &stopped.0 {
            kill_process(*id, Signal::STOP).unwrap();
        }
        stopped
    }
}

impl Drop for StoppedProcesses {
    fn drop(&mut self) {
        for id in &self.0 {
            let _ = kill_process(*id, Signal::CONT);
        }
    }
}

/// Two slow modules keep both compilers busy. The compilers are stopped as soon as both run, so that they do not end
/// before the other changes on any machine.
#[tokio::test]
async fn changes_without_compilation_do_not_wait_for_a_compiler() {
    let hot = HotScene::new().await;
    let program = hot.start().await;
    let slow = modules::slow_module_within_limits().unwrap();
    let applied = [b'a', b'b'].map(|name| {
        let letter = char::from(name);
        let path = hot.path(&format!("modules/{letter}.wasm"));
        // Each module gets a custom section with a name of its own, so that the two modules differ.
        fs::write(&path, [&slow[..], &[0, 2, 1, name]].concat()).unwrap();
        let source = format!("file:{}", path.display());
        let plugin = format!("{{ source: \"{source}\", settings: {{ behaviour: well-behaved }} }}");
        chain(&letter.to_string(), &plugin)
    });
    let compiling = async {
        let [a, b] = applied
            .each_ref()
            .map(|text| hot.post(&program, "/v1/definitions", text));
        tokio::join!(a, b)
    };
    let beside = async {
        let both_turns = async || program.children().unwrap().len() == 2;
        hot.wait_until(&program, "two compilers", both_turns).await;
        let compilers = program.children().unwrap();
        let _stopped = StoppedProcesses::stop(&compilers);

        let other = chain("other", &hot.plugin_fields("{ name: stage }"));
        let reply = hot.post(&program, "/v1/definitions", &other).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
        hot.roll_back(&program, 1).await;

        assert_eq!(program.children().unwrap(), compilers, "they still run");
        assert_eq!(hot.fetch_version(&program).await, Some(1));
    };
    tokio::select! {
        (a, b) = compiling => panic!("it is too soon: {} {}", a.text(), b.text()),
        () = beside => {}
    }
}
