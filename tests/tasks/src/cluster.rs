//! Builds a Kubernetes API server and the programs that it needs, in `target/kubernetes`.
//!
//! etcd and kubectl are unpacked from packages of the distribution. kube-apiserver has no binary package, so it is
//! compiled from its source package with the distribution's Go. All programs are built only once, and again when the
//! number of the recipe changes.

mod source;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use self::source::BinarySource;
use crate::{
    apt::Apt,
    command::{Error, cargo_command, root, run, say},
    folders::{copy_into, create_directory, file_error, lock, remove_directory},
};

const PACKAGES: [&str; 5] = [
    "etcd-server",
    "kubernetes-client",
    "golang-1.19-go",
    "golang-1.19-src",
    // The source package of Kubernetes contains an old copy of reflect2, which panics if it is compiled with Go 1.18 or
    // later. The newer reflect2 in this package replaces the copy.
    REFLECT2,
];

const REFLECT2: &str = "golang-github-modern-go-reflect2-dev";

/// The source package of Kubernetes. Its version, 1.20, is the newest in the distribution.
const SOURCE_PACKAGE: &str = "kubernetes";

const PROGRAMS: [&str; 2] = ["usr/bin/etcd", "usr/bin/kubectl"];
const API_SERVER: &str = "kube-apiserver";

/// The environment variable that tells tests in which directory the built programs are.
const VARIABLE: &str = "ADMITTANCE_TEST_KUBERNETES";

/// The number of the recipe for the build. Increment it when the steps below change.
const RECIPE_VERSION: u32 = 1;

struct Layout {
    top: PathBuf,
}

impl Layout {
    /// Returns the directories of the build. They are always in `target`, even if `CARGO_TARGET_DIR` names another
    /// directory, so that the programs are built only once.
    fn new() -> Self {
        Self {
            top: root().join("target/kubernetes"),
        }
    }

    fn program_directory(&self) -> PathBuf {
        self.top.join("bin")
    }

    fn unpack_directory(&self) -> PathBuf {
        self.top.join("unpacked")
    }

    fn apt_directory(&self) -> PathBuf {
        self.top.join("apt")
    }

    fn source_directory(&self) -> PathBuf {
        self.top.join("source")
    }

    fn home_directory(&self) -> PathBuf {
        self.top.join("home")
    }

    /// Removes what only the build needs, about three gigabytes.
    fn tidy(&self) -> Result<(), Error> {
        [
            self.source_directory(),
            self.home_directory(),
            self.unpack_directory(),
            self.apt_directory(),
        ]
        .iter()
        .try_for_each(|folder| remove_directory(folder))
    }

    fn log_file(&self, name: &str) -> PathBuf {
        self.top.join(format!("{name}.log"))
    }
}

pub(crate) fn test_stores() -> Result<(), Error> {
    say("Testing the store of custom resources with a real API server");
    // The whole workspace is selected, so that Cargo builds dependencies with the same features as in other builds.
    run(cargo_command()
        .args(["test", "--workspace", "--test", "stores", "a_real_api_server"])
        .env(VARIABLE, Layout::new().program_directory()))
}

pub(crate) fn install() -> Result<(), Error> {
    let layout = Layout::new();
    create_directory(&layout.top)?;
    let _one_at_a_time = lock(&layout.top.join("lock"), "build the API server")?;
    let recipe = layout.program_directory().join("recipe");
    if fs::read_to_string(&recipe).is_ok_and(|text| text == recipe_text()) {
        return layout.tidy();
    }
    say("Building a Kubernetes API server in target/kubernetes, from packages of the distribution");
    remove_directory(&layout.program_directory())?;
    create_directory(&layout.program_directory())?;

    let apt = Apt::new(
        &layout.apt_directory(),
        layout.log_file("apt"),
        "the API server is compiled",
    )?;
    apt.require_programs("compiling Kubernetes", &[("make", "make"), ("rsync", "rsync")])?;
    say("Downloading etcd, kubectl, Go and the source of Kubernetes (150 MB)");
    apt.unpack(&PACKAGES, &layout.unpack_directory())?;
    for program in PROGRAMS {
        copy_into(&layout.unpack_directory().join(program), &layout.program_directory())?;
    }

    let archive = apt.source_archive(SOURCE_PACKAGE)?;
    let version = source::version(&archive)
        .ok_or_else(|| Error::Missing(format!("{} has no version in its name", archive.display())))?;
    let source = BinarySource {
        directory: layout.source_directory(),
        go: layout.unpack_directory().join("usr/lib/go-1.19"),
        home: layout.home_directory(),
        version,
        log: layout.log_file("build"),
    };
    let reflect2 = layout
        .unpack_directory()
        .join("usr/share/gocode/src/github.com/modern-go/reflect2");
    source.unpack(&archive, &reflect2)?;
    say(&format!(
        "Compiling {API_SERVER} (five minutes on two processors, once); the log is {}",
        source.log.display()
    ));
    copy_into(&source.compile(API_SERVER)?, &layout.program_directory())?;

    // The recipe is written after all other steps, so that it exists only if they have succeeded.
    fs::write(&recipe, recipe_text()).map_err(file_error(&recipe))?;
    layout.tidy()
}

const OWN_NETWORK: &str = "ip link set lo up && for number in 1 2; do ip address add 198.18.0.$number/32 dev lo; done";

/// Returns a command that runs a program in a network namespace of its own, if this user may create one.
pub(crate) fn in_own_network(program: &Path) -> Command {
    let enter = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", &format!("{OWN_NETWORK} && {script}"), "sh"]);
        command
    };
    let can_enter = enter("true").output().is_ok_and(|output| output.status.success());
    if !can_enter {
        return Command::new(program);
    }
    let mut command = enter("exec \"$@\"");
    command.arg(program);
    command
}

fn recipe_text() -> String {
    format!("{RECIPE_VERSION} {SOURCE_PACKAGE} {}\n", PACKAGES.join(" "))
}
