//! Installs and runs the packages of `cargo task dist`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use admittance_tests::Artifacts;
use serde_json::Value;

/// A chain that uses a stock plugin, which every package must contain.
const CHAIN: &str = r#"
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: { name: images }
spec:
  rules: [{ operations: [CREATE], kinds: [application] }]
  stages: [{ name: images, plugin: { source: "stock:image-policy", settings: { refuseLatest: true } } }]
"#;

/// A chain without plugins. Compiling a plugin would need `/proc`, which is not mounted in the `chroot`.
const POLICY_CHAIN: &str = r#"
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: { name: images }
spec:
  rules: [{ operations: [CREATE], kinds: [application] }]
  stages: [{ name: name, cel: { validations: [{ expression: "object.metadata.name != ''", message: no name }] } }]
"#;

fn run_command(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {stdout}{stderr}");
    stdout
}

fn build_packages(folder: &Path) -> PathBuf {
    let artifacts = Artifacts::find().unwrap();
    let program = folder.join("admittance");
    let mut strip = Command::new("strip");
    strip.arg("--strip-all").arg("-o").arg(&program);
    run_command(strip.arg(artifacts.program("admittance").unwrap()));
    let mut dist = Command::new(artifacts.program("admittance-tasks").unwrap());
    dist.args(["dist", "--program"]).arg(&program);
    run_command(dist.env("CARGO_TARGET_DIR", folder));
    let packages = folder.join("dist");
    let mut sums = Command::new("sha256sum");
    run_command(sums.args(["--check", "SHA256SUMS"]).current_dir(&packages));
    packages
}

fn find_file(directory: &Path, suffix: &str) -> PathBuf {
    let entries = fs::read_dir(directory).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    paths.find(|path| path.to_string_lossy().ends_with(suffix)).unwrap()
}

fn unpack(archive: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    run_command(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(to));
}

#[test]
fn packages_are_installed_in_a_clean_root_and_run() {
    let folder = tempfile::tempdir().unwrap();
    let packages = build_packages(folder.path());
    let chain = folder.path().join("chain.yaml");
    fs::write(&chain, CHAIN).unwrap();

    let unpacked = folder.path().join("archive");
    unpack(&find_file(&packages, ".tar.gz"), &unpacked);
    let mut check = Command::new(find_file(&unpacked, "-linux").join("admittance"));
    check.arg("check").arg(&chain).env("HOME", folder.path());
    run_command(check.env_remove("ADMITTANCE_PLUGINS"));

    let is_root = run_command(Command::new("id").arg("-u")).trim() == "0";
    if !is_root
        || !["/usr/bin/dpkg", "/usr/sbin/chroot"]
            .iter()
            .all(|path| Path::new(path).exists())
    {
        eprintln!("skipped: packages are installed by root, with dpkg");
        return;
    }
    let root = folder.path().join("root");
    fs::create_dir_all(root.join("var/lib/dpkg")).unwrap();
    let dpkg = || {
        let mut dpkg = Command::new("dpkg");
        // dpkg installs the package into an empty directory, in which the package's dependencies are not installed. So
        // dpkg has to ignore that they are missing (`--force-depends`).
        dpkg.arg("--root").arg(&root).arg("--force-depends");
        dpkg
    };
    run_command(dpkg().arg("--install").arg(find_file(&packages, ".deb")));
    let version = run_command(Command::new(root.join("usr/bin/admittance")).arg("--version"));
    assert!(version.starts_with("admittance "), "{version}");
    for path in [
        "usr/lib/systemd/system/admittance.service",
        "usr/share/man/man1/admittance-serve.1.gz",
        "usr/share/bash-completion/completions/admittance",
        "etc/admittance",
    ] {
        assert!(root.join(path).exists(), "{path}");
    }
    let control = run_command(dpkg().args(["--status", "admittance"]));
    assert!(!control.contains("localhost"), "{control}");
    run_command(dpkg().args(["--remove", "admittance"]));
    assert!(!root.join("usr/bin/admittance").exists());

    let layout = folder.path().join("layout");
    unpack(&find_file(&packages, ".oci.tar"), &layout);
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap().replace(':', "/");
        layout.join("blobs").join(digest)
    };
    let json = |path: &Path| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
    let manifest = json(&blob(&json(&layout.join("index.json"))["manifests"][0]));
    let image = folder.path().join("image");
    unpack(&blob(&manifest["layers"][0]), &image);
    assert!(image.join("usr/local/lib/admittance/image_policy.wasm").exists());
    fs::write(image.join("etc/admittance/chain.yaml"), POLICY_CHAIN).unwrap();
    let config = json(&blob(&manifest["config"]))["config"].take();
    let variables = config["Env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| variable.as_str().unwrap().split_once('=').unwrap());
    let mut contained = Command::new("/usr/sbin/chroot");
    contained
        .arg(format!("--userspec={}", config["User"].as_str().unwrap()))
        .arg(&image)
        .arg(config["Entrypoint"][0].as_str().unwrap())
        .args(["check", "/etc/admittance/chain.yaml"])
        .env_clear()
        .envs(variables);
    run_command(&mut contained);
}
