//! Tests of components that take too much time or memory to compile, and of stopping the compiler process.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests are tests, which clippy knows only of functions marked as such"
)]

use std::{
    fs,
    io::{self, Write as _},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use admittance_sandbox::{Error, PluginConfig, Sandbox, SandboxConfig};

const COMPILER: &str = env!("CARGO_BIN_EXE_admittance-compiler");

fn sandbox_with_limits(memory: u64, time: Duration) -> Sandbox {
    let mut config = SandboxConfig::default();
    config.calls_in_flight = 1;
    config.compiler = Some(COMPILER.into());
    config.compile_memory = memory;
    config.compile_time = time;
    config.prepare_timeout = Duration::from_secs(600);
    Sandbox::new(config).unwrap()
}

fn encode_leb128(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 0x7f {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn encode_section(id: u8, content: &[u8]) -> Vec<u8> {
    [&[id], encode_leb128(content.len()).as_slice(), content].concat()
}

fn multiplying_module(functions: usize, times: usize) -> Vec<u8> {
    let multiply = [0x20, 0x00, 0x20, 0x00, 0x6c, 0x21, 0x00].repeat(times);
    let body = [&[0x00], multiply.as_slice(), &[0x20, 0x00, 0x0b]].concat();
    let bodies = [encode_leb128(body.len()), body].concat().repeat(functions);
    let count = encode_leb128(functions);
    let module = [
        b"\0asm\x01\0\0\0".to_vec(),
        encode_section(1, &[0x01, 0x60, 0x01, 0x7f, 0x01, 0x7f]),
        encode_section(3, &[count.clone(), vec![0x00; functions]].concat()),
        encode_section(10, &[count, bodies].concat()),
    ]
    .concat();
    [b"\0asm\x0d\0\x01\0".to_vec(), encode_section(1, &module)].concat()
}

async fn prepare_refusal(sandbox: &Sandbox, module: Vec<u8>) -> Error {
    let prepared = sandbox.prepare(module, "{}", &PluginConfig::default()).await;
    prepared.unwrap_err()
}

fn child_count() -> usize {
    let me = std::process::id().to_string();
    let is_mine = |entry: io::Result<fs::DirEntry>| {
        let stat = fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
        // The file `/proc/PID/stat` contains the state and the parent of a process after its name in parentheses.
        let mut rest = stat.rsplit_once(')')?.1.split_whitespace();
        let (state, parent) = (rest.next()?, rest.next()?);
        (parent == me && state != "Z").then_some(())
    };
    fs::read_dir("/proc").unwrap().filter_map(is_mine).count()
}

/// One test contains all checks, because it counts the child processes of the whole test program.
#[tokio::test(flavor = "multi_thread")]
async fn a_compiler_is_stopped_at_its_limits() {
    let error = prepare_refusal(
        &sandbox_with_limits(64 << 20, Duration::from_secs(600)),
        multiplying_module(1, 200_000),
    )
    .await;
    assert!(
        matches!(&error, Error::CompileLimit(what) if what == "67108864 bytes of memory"),
        "{error}"
    );
    let error = prepare_refusal(
        &sandbox_with_limits(8 << 30, Duration::from_secs(1)),
        multiplying_module(200, 3_000),
    )
    .await;
    assert!(
        matches!(&error, Error::CompileLimit(what) if what == "1 s of processor time"),
        "{error}"
    );
    assert_eq!(child_count(), 0);

    let patient = sandbox_with_limits(8 << 30, Duration::from_secs(600));
    let work = tokio::spawn(async move { prepare_refusal(&patient, multiplying_module(200, 3_000)).await });
    wait_until(|| child_count() == 1).await;
    work.abort();
    wait_until(|| child_count() == 0).await;
    assert!(work.await.unwrap_err().is_cancelled());

    let module = multiplying_module(200, 3_000);
    let job = format!(
        r#"{{"size":{},"memory":8589934592,"cpuSeconds":600,"effort":"full","inBackground":true}}"#,
        module.len()
    );
    let mut compiler = Command::new(COMPILER)
        .args(["compile", &job])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = compiler.stdin.take().unwrap();
    stdin.write_all(&module).unwrap();
    assert_eq!(compiler.try_wait().unwrap(), None);
    #[cfg(target_os = "linux")]
    wait_until(|| is_confined(compiler.id())).await;
    drop(stdin);
    assert_eq!(compiler.wait().unwrap().code(), Some(4));
}

/// Returns whether a process has a system call filter and can gain no privileges.
#[cfg(target_os = "linux")]
fn is_confined(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    ["NoNewPrivs:\t1", "Seccomp:\t2"]
        .iter()
        .all(|line| status.lines().any(|status_line| status_line == *line))
}

async fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_program_that_is_not_a_compiler_is_reported() {
    for program in ["/no/such/program", "/bin/false"] {
        let mut config = SandboxConfig::default();
        config.calls_in_flight = 1;
        config.compiler = Some(Path::new(program).into());
        let sandbox = Sandbox::new(config).unwrap();
        let error = prepare_refusal(&sandbox, multiplying_module(1, 1)).await;
        assert!(matches!(error, Error::Compiler(_)), "{program}: {error}");
    }
}
