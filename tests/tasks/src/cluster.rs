//! What a real Kubernetes API server needs, made once under `target/kubernetes`.
//!
//! Everything comes from the packages of the distribution, which are unpacked there and not installed:
//! etcd and kubectl as they are, and kube-apiserver, which has no package, compiled from the source
//! package with the Go of the same distribution. Each part is made once; the programs are used as long
//! as the recipe is the one that made them.

mod source;

use std::{fs, path::PathBuf};

use self::source::Source;
use crate::{
    apt::Apt,
    command::{Error, cargo_command, root, run, say},
    folders::{at, copy_into, create_directory, lock, remove_directory},
};

/// What is unpacked: programs, and what compiles one.
const PACKAGES: [&str; 5] = [
    "etcd-server",
    "kubernetes-client",
    "golang-1.19-go",
    "golang-1.19-src",
    // The version beside the source panics in programs that Go 1.18 or later compiled.
    REFLECT2,
];

const REFLECT2: &str = "golang-github-modern-go-reflect2-dev";

/// The source package. Its version, 1.20, is the newest that the distribution has.
const SOURCE: &str = "kubernetes";

/// Where packages keep the programs that are copied, and what is compiled beside them.
const PROGRAMS: [&str; 2] = ["usr/bin/etcd", "usr/bin/kubectl"];
const API_SERVER: &str = "kube-apiserver";

/// Where tests are told that the programs are.
const VARIABLE: &str = "ADMITTANCE_TEST_KUBERNETES";

/// Counted up when what is done below changes.
const RECIPE: u32 = 1;

/// The folders of `target/kubernetes`.
struct Layout {
    top: PathBuf,
}

impl Layout {
    /// Not under `CARGO_TARGET_DIR`: what lies here is the same for all of Cargo's targets.
    fn new() -> Self {
        Self {
            top: root().join("target/kubernetes"),
        }
    }

    /// The programs, and the recipe that made them.
    fn programs(&self) -> PathBuf {
        self.top.join("bin")
    }

    /// What the packages hold.
    fn unpacked(&self) -> PathBuf {
        self.top.join("unpacked")
    }

    /// Package lists and downloads.
    fn apt(&self) -> PathBuf {
        self.top.join("apt")
    }

    /// The source of Kubernetes, and what is compiled of it.
    fn source(&self) -> PathBuf {
        self.top.join("source")
    }

    /// What takes the place of the user's home folder while it is compiled.
    fn home(&self) -> PathBuf {
        self.top.join("home")
    }

    /// Remove what made the programs: three gigabytes. An interrupted removal is gone on with.
    fn tidy(&self) -> Result<(), Error> {
        [self.source(), self.home(), self.unpacked(), self.apt()]
            .iter()
            .try_for_each(|folder| remove_directory(folder))
    }

    fn log(&self, name: &str) -> PathBuf {
        self.top.join(format!("{name}.log"))
    }
}

/// Hold the store of custom resources to the rules of all stores, on an API server of its own.
pub(crate) fn try_stores() -> Result<(), Error> {
    say("Trying the store of custom resources on a real API server");
    // The whole workspace, for the same features of dependencies as everywhere.
    run(cargo_command()
        .args(["test", "--workspace", "--test", "stores", "a_real_api_server"])
        .env(VARIABLE, Layout::new().programs()))
}

/// Make etcd, kubectl and kube-apiserver, unless they are there.
pub(crate) fn install() -> Result<(), Error> {
    let layout = Layout::new();
    create_directory(&layout.top)?;
    let _one_at_a_time = lock(&layout.top.join("lock"), "make the API server")?;
    let recipe = layout.programs().join("recipe");
    if fs::read_to_string(&recipe).is_ok_and(|made| made == recipe_text()) {
        return layout.tidy();
    }
    say("Making a Kubernetes API server in target/kubernetes, from the packages of the distribution");
    remove_directory(&layout.programs())?;
    create_directory(&layout.programs())?;

    let apt = Apt::new(&layout.apt(), layout.log("apt"), "the API server is compiled")?;
    apt.require_programs("compiling Kubernetes", &[("make", "make"), ("rsync", "rsync")])?;
    say("Downloading etcd, kubectl, Go and the source of Kubernetes (150 MB)");
    apt.unpack(&PACKAGES, &layout.unpacked())?;
    for program in PROGRAMS {
        copy_into(&layout.unpacked().join(program), &layout.programs())?;
    }

    let archive = apt.source_archive(SOURCE)?;
    let version = source::version(&archive)
        .ok_or_else(|| Error::Missing(format!("{} names no version", archive.display())))?;
    let source = Source {
        directory: layout.source(),
        go: layout.unpacked().join("usr/lib/go-1.19"),
        home: layout.home(),
        version,
        log: layout.log("build"),
    };
    let reflect2 = layout
        .unpacked()
        .join("usr/share/gocode/src/github.com/modern-go/reflect2");
    source.unpack(&archive, &reflect2)?;
    say(&format!(
        "Compiling {API_SERVER} (five minutes on two processors, once); the log is {}",
        source.log.display()
    ));
    copy_into(&source.compile(API_SERVER)?, &layout.programs())?;

    // The last step: a recipe that is there says that all before it was done.
    fs::write(&recipe, recipe_text()).map_err(at(&recipe))?;
    layout.tidy()
}

fn recipe_text() -> String {
    format!("{RECIPE} {SOURCE} {}\n", PACKAGES.join(" "))
}
