//! Compiles plugins, and the guests and policies of tests, to WebAssembly.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    command::{Error, built_program, cargo, root, run, say, target_directory},
    folders::create_directory,
    target::{self, PLUGIN_TARGET, POLICY_TARGET},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PluginSelection {
    Demo,
    Plugins,
    /// All stock plugins, and the guests and policies of the tests.
    All,
}

/// The plugins in the chains of `docs/examples/demo`. The demo needs no other plugins, which take longer to compile.
const DEMO_PLUGINS: [&str; 2] = ["image-policy", "sidecar-injector"];

/// Compiles packages, and copies the plugins to `target/plugins/`, where the chains of the examples expect them.
pub(crate) fn build(selection: PluginSelection) -> Result<(), Error> {
    target::install(PLUGIN_TARGET)?;
    let mut plugins = packages(&root().join("plugins"))?;
    plugins.retain(|plugin| selection != PluginSelection::Demo || DEMO_PLUGINS.contains(&plugin.name.as_str()));
    let mut arguments = ["build", "--profile", "plugin", "--target", PLUGIN_TARGET, "--config"]
        .map(str::to_owned)
        .to_vec();
    arguments.push(path_remapping_config(PLUGIN_TARGET));
    for PluginPackage { name, .. } in &plugins {
        arguments.extend(["--package".to_owned(), name.clone()]);
    }
    if selection == PluginSelection::All {
        for PluginPackage { name, .. } in packages(&root().join("tests/guests"))? {
            arguments.extend(["--package".to_owned(), name]);
        }
    }
    say(match selection {
        PluginSelection::All => "Compiling the plugins and the guests of the tests to WebAssembly",
        PluginSelection::Demo | PluginSelection::Plugins => "Compiling the plugins to WebAssembly",
    });
    cargo(arguments)?;
    if selection == PluginSelection::All {
        build_policies()?;
    }

    copy_all(&plugins, &root().join("target/plugins"))
}

/// Compiles the stock plugins. Returns a directory with the plugins in compressed form.
pub(crate) fn build_compressed() -> Result<PathBuf, Error> {
    build(PluginSelection::Plugins)?;
    let directory = target_directory().join("stock");
    let packed = target_directory().join("stock-packed");
    let plugins = packages(&root().join("plugins"))?;
    copy_all(&plugins, &packed)?;
    create_directory(&directory)?;
    for plugin in plugins {
        let mut gzip = Command::new("gzip");
        run(gzip
            .args(["-9", "--no-name", "--force"])
            .arg(packed.join(plugin.artifact())))?;
        // A file with the same content is not written again. Otherwise, Cargo would see a changed file, and would
        // compile the program again.
        let file = format!("{}.gz", plugin.artifact());
        copy(&packed.join(&file), &directory.join(&file))?;
    }
    Ok(directory)
}

fn copy_all(plugins: &[PluginPackage], to: &Path) -> Result<(), Error> {
    let from = target_directory().join(PLUGIN_TARGET).join("plugin");
    fs::create_dir_all(to).map_err(|source| Error::File {
        path: to.to_owned(),
        source,
    })?;
    for plugin in plugins {
        let file = plugin.artifact();
        copy(&from.join(&file), &to.join(&file))?;
    }
    Ok(())
}

/// Compiles the policies of the tests. They are a workspace of their own, but use the target directory of the plugins.
fn build_policies() -> Result<(), Error> {
    target::install(POLICY_TARGET)?;
    let mut arguments: Vec<OsString> = [
        "build",
        "--locked",
        "--profile",
        "plugin",
        "--target",
        POLICY_TARGET,
        "--config",
    ]
    .map(Into::into)
    .into();
    arguments.push(path_remapping_config(POLICY_TARGET).into());
    arguments.extend([
        "--manifest-path".into(),
        root().join("tests/policies/Cargo.toml").into(),
    ]);
    arguments.extend(["--target-dir".into(), target_directory().into()]);
    cargo(arguments)
}

pub(crate) fn run_cases() -> Result<(), Error> {
    let folder = root().join("plugins");
    for plugin in packages(&folder)? {
        let cases = folder.join(&plugin.name).join("tests");
        if !cases.is_dir() {
            return Err(Error::Missing(format!(
                "the plugin has no cases in {}",
                cases.display()
            )));
        }
        say(&format!("Running the cases of {}", plugin.name));
        let mut command = Command::new(built_program("debug", "admittance")?);
        command
            .arg("test")
            .arg(root().join("target/plugins").join(plugin.artifact()))
            .arg("--cases")
            .arg(&cases)
            .arg("--store")
            // All test cases share a store of compiled modules, so that each plugin is compiled only once.
            .arg(target_directory().join("tmp/compiled"));
        run(&mut command)?;
    }
    Ok(())
}

/// Returns an option for Cargo that removes the paths of this machine from the panic messages in plugins.
fn path_remapping_config(target: &str) -> String {
    let registry = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(env::home_dir()?.join(".cargo")));
    let folders = [(Some(root()), "admittance"), (registry, "cargo")];
    let flags: Vec<_> = folders
        .iter()
        .filter_map(|(folder, name)| Some(format!("--remap-path-prefix={}={name}", folder.as_ref()?.display())))
        .collect();
    format!("target.{target}.rustflags={flags:?}")
}

struct PluginPackage {
    name: String,
}

impl PluginPackage {
    fn artifact(&self) -> String {
        format!("{}.wasm", self.name.replace('-', "_"))
    }
}

fn packages(folder: &Path) -> Result<Vec<PluginPackage>, Error> {
    let at = |path: PathBuf| move |source| Error::File { path, source };
    let mut packages = Vec::new();
    for entry in fs::read_dir(folder).map_err(at(folder.to_owned()))? {
        let manifest = entry.map_err(at(folder.to_owned()))?.path().join("Cargo.toml");
        if !manifest.exists() {
            continue;
        }
        let text = fs::read_to_string(&manifest).map_err(at(manifest.clone()))?;
        let name =
            package_name(&text).ok_or_else(|| Error::Missing(format!("{} has no package name", manifest.display())))?;
        packages.push(PluginPackage { name });
    }
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(packages)
}

/// Returns the name of a package from its manifest: the value in the first line with the key `name`.
fn package_name(manifest: &str) -> Option<String> {
    let value = manifest
        .lines()
        .find_map(|line| line.trim().strip_prefix("name")?.trim().strip_prefix('='))?;
    Some(value.trim().trim_matches('"').to_owned())
}

/// Copies a file, unless the existing copy has the same content. So programs that watch the copy see only real changes.
fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    let content = fs::read(from).map_err(|source| Error::File {
        path: from.to_owned(),
        source,
    })?;
    if fs::read(to).is_ok_and(|old| old == content) {
        return Ok(());
    }
    fs::write(to, content).map_err(|source| Error::File {
        path: to.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_of_a_workspace_has_no_package_name() {
        assert_eq!(
            package_name("[package]\nname = \"a-b\"\nversion = \"1\"\n").as_deref(),
            Some("a-b")
        );
        assert_eq!(package_name("[workspace]\n"), None);
    }

    #[test]
    fn every_directory_below_plugins_is_a_package() {
        for folder in ["plugins", "tests/guests"] {
            let folder = root().join(folder);
            let packages = packages(&folder).expect("the folder can be read");
            let folders = fs::read_dir(&folder)
                .expect("it can be read")
                .flatten()
                .filter(|entry| entry.path().is_dir());
            assert_eq!(packages.len(), folders.count());
        }
    }
}
