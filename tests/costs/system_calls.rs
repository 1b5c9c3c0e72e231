//! Counts the program's system calls for a request with `strace`, which needs no privileges to trace a child process.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use admittance_tests::Serve;

use crate::{COUNTED, WARM_UP, configure_proxy, configure_webhook, count_alone, creation, exchange, review};

fn find_strace() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join("strace"))
        .find(|program| program.is_file())
}

/// Prints and returns how many system calls the program makes for a request, or `None` if `strace` is not installed.
fn calls_per_request(label: &str, directory: &Path, config: &Path, request: &[u8]) -> Option<u64> {
    let Some(strace) = find_strace() else {
        println!("skipped: the system calls of a {label} are counted with strace, which is not installed");
        return None;
    };
    let _alone = count_alone();
    // The program watches the directory of definitions. If strace wrote its trace there, the program would notice that
    // and make additional system calls.
    let traces = tempfile::tempdir().unwrap();
    let trace = traces.path().join("trace");
    // Usually, strace is the child of this process, and the traced program is the child of strace. With `-D`, the child
    // of this process is the traced program, and strace is a grandchild.
    let mut wrapper = vec![strace.into_os_string()];
    wrapper.extend(["-D", "-f", "-qq", "-e", "signal=none", "-o"].map(Into::into));
    wrapper.push(trace.clone().into_os_string());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let serve = Serve::new(config).unwrap().store(directory.join("store"));
    // The program runs without an access log, as in the benchmarks.
    let serve = serve.arguments(["--log", "error,admittance=info,admittance::access=off"]);
    let program = runtime.block_on(serve.through_wrapper(wrapper).start()).unwrap();
    let address = program.url("").trim_start_matches("http://").parse().unwrap();
    let mut connection = exchange::MeasuredConnection::open(address);
    connection.send(request, WARM_UP);
    let before = count_by_name(&trace);
    connection.send(request, COUNTED);
    let after = count_by_name(&trace);
    drop(program);
    let mut all = 0;
    let mut text = String::new();
    for (name, count) in &after {
        let count = count - before.get(name).unwrap_or(&0);
        all += count;
        if count > 0 {
            text += &format!(", {name} {:.2}", count as f64 / COUNTED as f64);
        }
    }
    let calls = (all + COUNTED as u64 / 2) / COUNTED as u64;
    println!("{label}: {calls} system calls for each request{text}");
    Some(calls)
}

/// Returns how often a trace contains each system call. A line of the trace begins with the ID of a thread.
fn count_by_name(trace: &Path) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    // If a system call is interrupted, strace prints a second line about it. This line has no parenthesis after the
    // call's name, so it is not counted. Calls of `clock_nanosleep` are not counted either: the sandbox's timer calls
    // it all the time, and how often it does so depends on the machine's speed.
    for line in fs::read_to_string(trace).unwrap().lines() {
        let call = line.split_whitespace().nth(1).and_then(|call| call.split_once('('));
        if let Some((name, _)) = call
            && name != "clock_nanosleep"
        {
            *counts.entry(name.to_owned()).or_default() += 1;
        }
    }
    counts
}

#[test]
fn a_review_with_one_plugin_needs_no_more_system_calls_than_its_bound() {
    let directory = tempfile::tempdir().unwrap();
    let config = configure_webhook(directory.path());
    let calls = calls_per_request("review with one plugin", directory.path(), &config, &review());
    assert!(calls.is_none_or(|calls| calls <= 7), "{calls:?} system calls");
}

#[test]
fn a_proxied_request_needs_no_more_system_calls_than_its_bound() {
    let directory = tempfile::tempdir().unwrap();
    let config = configure_proxy(directory.path(), exchange::start_upstream());
    let calls = calls_per_request("proxied request", directory.path(), &config, &creation());
    assert!(calls.is_none_or(|calls| calls <= 8), "{calls:?} system calls");
}
