use wasmtime::{
    Engine,
    component::{
        Component, ComponentExportIndex, InstancePre, Linker, ResourceType, Val,
        types::{ComponentInstance, ComponentItem},
    },
};

use crate::{
    Error,
    capabilities::{denied_error, find_provided, is_wasi},
    contract::{ACCEPTED_VERSIONS, PACKAGE, accepts_version, bindings},
    engine::{SandboxInner, error_chain, per_call},
    store::CallState,
};

pub(crate) struct LinkedComponent {
    pub(crate) pre: InstancePre<CallState>,
    pub(crate) indices: bindings::PluginIndices,
    pub(crate) admit: ComponentExportIndex,
    pub(crate) configure: ComponentExportIndex,
}

pub(crate) fn link(sandbox: &SandboxInner, component: &Component) -> Result<LinkedComponent, Error> {
    let mut linker = sandbox.linker.clone();
    satisfy_imports(&mut linker, component)?;
    check_memories_and_tables(component)?;
    let export = |name: &str| {
        component
            .get_export_index(None, name)
            .ok_or_else(|| Error::NotAPlugin(format!("it does not export `{name}`")))
    };
    if component.get_export_index(None, "describe").is_none() {
        return Err(Error::NotAPlugin(missing_exports_message(component)));
    }
    let (admit, configure) = (export("admit")?, export("configure")?);
    let pre = linker
        .instantiate_pre(component)
        .map_err(|error| Error::WrongImport(error_chain(&error)))?;
    let indices = bindings::PluginIndices::new(&pre).map_err(|error| Error::NotAPlugin(error_chain(&error)))?;
    Ok(LinkedComponent {
        pre,
        indices,
        admit,
        configure,
    })
}

fn missing_exports_message(component: &Component) -> String {
    let component_type = component.component_type();
    let is_program = component_type
        .exports(component.engine())
        .any(|(name, _)| name.starts_with("wasi:cli/run@"));
    let hint = if is_program {
        "it is a program with a `main`; in Rust, a plugin is a library: move its code to src/lib.rs, with \
         `crate-type = [\"cdylib\"]` below `[lib]`"
    } else {
        "in Rust, put `#[plugin]` on `impl Plugin for ...`"
    };
    format!("it does not export `describe` ({hint})")
}

/// Refuses unknown imports. Toolchains import some parts of WASI even if the plugin does not use them, so the parts
/// that are never granted are defined as functions that fail the call.
///
/// `Linker::define_unknown_imports_as_traps` cannot be used: because it compares versions exactly, it would also define
/// traps for an interface that this host provides in another patch version.
fn satisfy_imports(linker: &mut Linker<CallState>, component: &Component) -> Result<(), Error> {
    let engine = component.engine();
    let mut unknown = Vec::new();
    let mut resources = Vec::new();
    let component_type = component.component_type();
    for (name, import) in component_type.imports(engine) {
        let (interface, version) = name.split_once('@').unwrap_or((name, ""));
        if interface.starts_with(PACKAGE) && !accepts_version(version) {
            return Err(Error::Unusable(format!(
                "the component is built for version {version} of admittance:plugin, and this host accepts {ACCEPTED_VERSIONS}; \
                 use a plugin, or a host, of a matching version"
            )));
        }
        let ComponentItem::ComponentInstance(instance) = import.ty else {
            unknown.push(name);
            continue;
        };
        if find_provided(name).is_some() {
            for (_, export) in instance.exports(engine) {
                if let ComponentItem::Resource(resource) = export.ty {
                    resources.push(resource);
                }
            }
        } else if interface.starts_with("wasi:") && is_wasi(version) {
            define_denials(linker, engine, name, &instance, &mut resources)
                .map_err(|error| Error::WrongImport(error_chain(&error)))?;
        } else {
            unknown.push(name);
        }
    }
    if unknown.is_empty() {
        return Ok(());
    }
    let names = unknown.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
    let needs_async = unknown
        .iter()
        .any(|name| name.starts_with("wasi:") && name.contains("@0.3."));
    if needs_async {
        return Err(Error::NeedsAsync(format!("it imports {}", names.join(", "))));
    }
    Err(Error::UnknownImport(names.join(", ")))
}

/// Defines an interface that the plugin may not use, such as one for sockets. If the plugin calls one of its functions,
/// the call of the plugin fails. `resources` contains the resource types of the interfaces that were defined before.
/// The resource types of this interface are added to it.
fn define_denials(
    linker: &mut Linker<CallState>,
    engine: &Engine,
    name: &str,
    instance: &ComponentInstance,
    resources: &mut Vec<ResourceType>,
) -> wasmtime::Result<()> {
    let mut into = linker.instance(name)?;
    for (item, export) in instance.exports(engine) {
        match export.ty {
            // The start-up code of Go and C libraries calls this function even if the plugin uses no files. So it does
            // not fail like the others, but returns an empty list of directories.
            ComponentItem::ComponentFunc(_) if name.starts_with("wasi:filesystem/preopens@") => {
                into.func_new(item, |_, _, _, results| {
                    results.fill(Val::List(Vec::new()));
                    Ok(())
                })?;
            }
            ComponentItem::ComponentFunc(_) => {
                let message = format!(
                    "the plugin called `{name}#{item}`; plugins have no files, no sockets and no WASI HTTP, \
                     and no stage can grant them"
                );
                into.func_new(item, move |_, _, _, _| Err(denied_error(message.clone())))?;
            }
            ComponentItem::Resource(resource) if !resources.contains(&resource) => {
                let number = u32::try_from(resources.len()).unwrap_or(u32::MAX);
                into.resource(item, ResourceType::host_dynamic(number), |_, _| Ok(()))?;
                resources.push(resource);
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_memories_and_tables(component: &Component) -> Result<(), Error> {
    let Some(required) = component.resources_required() else {
        return Err(Error::UnknownImport("a core module or a component".to_owned()));
    };
    check_count("memories", required.num_memories, per_call::MEMORIES)?;
    check_count("tables", required.num_tables, per_call::TABLES)
}

pub(crate) fn check_count(items: &'static str, needed: u32, limit: u32) -> Result<(), Error> {
    if needed > limit {
        return Err(Error::Unusable(format!(
            "the component needs {needed} {items}; the limit per call is {limit}"
        )));
    }
    Ok(())
}
