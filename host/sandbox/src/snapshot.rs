use std::collections::BTreeMap;

use wasm_encoder::{Alias, ComponentAliasSection, ComponentExportKind, ComponentExportSection, RawSection};
use wasmparser::{ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentOuterAliasKind, Parser, Payload};
use wasmtime::{
    Store,
    component::{Instance, Lift, WasmList},
};
use wasmtime_wizer::{ComponentContext, ComponentInstanceState, Wizer};

use crate::{
    Error,
    engine::error_chain,
    merge::merge,
    store::{CallState, PAGE_SIZE},
};

/// The maximum memory in a snapshot, in bytes. Compilation needs several copies of it.
const MAX_SNAPSHOT_MEMORY: usize = 64 << 20;

/// The name of the instance through which wizer reads memories and globals.
const ACCESS_INSTANCE: &str = "wasmtime:wizer/access";

/// A component that was changed only to make its memories and globals accessible.
pub(crate) struct InstrumentedComponent<'a> {
    wizer: Wizer,
    /// The outer component, if all core modules are in nested components. `parts` are these nested components then. If
    /// it is `None`, the only part is the whole component.
    wrapper: Option<WrapperComponent<'a>>,
    /// The components that directly contain core modules: nested components, or the whole component. Wizer skips nested
    /// components, so a separate snapshot of each part is taken.
    parts: Vec<ComponentContext<'a>>,
}

/// A component whose modules are all in nested components, as JavaScript toolchains produce it.
#[derive(Default)]
struct WrapperComponent<'a> {
    sections: Vec<SnapshotSection<'a>>,
    instance_count: u32,
}

struct SnapshotSection<'a> {
    raw: RawSection<'a>,
    /// The index of the instance of the nested component in this section. `None` if the section has no nested component
    /// that contains core modules and is instantiated.
    instance_index: Option<u32>,
}

struct NestedComponent {
    section_index: usize,
    index: u32,
    has_modules: bool,
}

impl<'a> InstrumentedComponent<'a> {
    /// Instruments a component. The error is the reason why it cannot be instrumented.
    pub(crate) fn new(component: &'a [u8]) -> Result<(Self, Vec<u8>), String> {
        let wizer = Wizer::new();
        let wrapper = WrapperComponent::parse(component)?;
        let part_bytes = match &wrapper {
            Some(wrapper) => wrapper.parts().collect(),
            None => vec![component],
        };
        let results = part_bytes.into_iter().map(|part| wizer.instrument_component(part));
        let instrumentation: wasmtime::Result<(Vec<_>, Vec<_>)> = results.collect();
        let (parts, instrumented_parts) = instrumentation.map_err(|error| error_chain(&error))?;
        let bytes = match &wrapper {
            Some(wrapper) => wrapper.wrap_parts(&instrumented_parts, true),
            None => instrumented_parts.concat(),
        };
        Ok((Self { wizer, wrapper, parts }, bytes))
    }

    /// Takes a snapshot of the memories and globals after `configure`. The inner error is the reason why no snapshot is
    /// possible; every call must run `configure` then. The outer error means that the memories are too large.
    pub(crate) async fn snapshot(
        &self,
        store: &mut Store<CallState>,
        instance: Instance,
    ) -> Result<Result<Vec<u8>, String>, Error> {
        // If a resource of the host is still open, the memory may contain a handle of it. The handle would be invalid
        // in the instances that start from the snapshot.
        if !store.data().has_no_open_resources() {
            let problem = "`configure` leaves a host resource open, such as a standard stream";
            return Ok(Err(problem.to_owned()));
        }
        let mut snapshot_memory = SnapshotMemory::default();
        // Wizer makes each memory larger by one page, and reads a whole memory in one step. A call of a plugin has
        // limits for the size of a memory and for the bytes that are read in one step. Both limits are raised here.
        store.data_mut().make_room_for_snapshot();
        store.set_hostcall_fuel(usize::MAX);
        let mut snapshots = Vec::new();
        for (part, context) in self.parts.iter().enumerate() {
            let mut reader = InstanceReader {
                store: &mut *store,
                instance,
                access: match self.wrapper {
                    Some(_) => access_instance_name(part),
                    None => ACCESS_INSTANCE.to_owned(),
                },
                snapshot_memory: &mut snapshot_memory,
                error: None,
            };
            let snapshot = self.wizer.snapshot_component(context, &mut reader).await;
            let error = reader.error;
            snapshot_memory.check_size()?;
            match (snapshot, error) {
                (Ok(snapshot), None) => snapshots.push(merge(&snapshot).unwrap_or(snapshot)),
                (Ok(_), Some(error)) | (Err(error), _) => return Ok(Err(error_chain(&error))),
            }
        }
        Ok(Ok(match &self.wrapper {
            Some(wrapper) => wrapper.wrap_parts(&snapshots, false),
            None => snapshots.concat(),
        }))
    }
}

/// Chooses the memories of a configured instance that are copied into a snapshot.
#[derive(Default)]
pub(crate) struct SnapshotMemory {
    /// The names of the memories, and whether the content of each is copied into the snapshot.
    copy_decisions: BTreeMap<String, bool>,
    /// The total size of all pages that contain anything but zeros, in all memories together.
    nonzero_size: usize,
}

impl SnapshotMemory {
    /// Returns the content of a memory that the snapshot gets. All memories in the snapshot together have a limit. If
    /// this memory no longer fits, the returned slice is empty.
    pub(crate) fn content_to_copy<'m>(&mut self, name: &str, memory: &'m [u8]) -> &'m [u8] {
        let is_copied = self.copy_decisions.get(name).copied().unwrap_or_else(|| {
            let pages = memory
                .chunks(PAGE_SIZE)
                .filter(|page| Some(*page) != ZEROS.get(..page.len()));
            self.nonzero_size = self
                .nonzero_size
                .saturating_add(pages.count().saturating_mul(PAGE_SIZE));
            let fits = self.nonzero_size <= MAX_SNAPSHOT_MEMORY;
            self.copy_decisions.insert(name.to_owned(), fits);
            fits
        });
        if is_copied { memory } else { &[] }
    }

    pub(crate) fn check_size(&self) -> Result<(), Error> {
        if self.nonzero_size > MAX_SNAPSHOT_MEMORY {
            let bytes = self.nonzero_size;
            return Err(Error::Unusable(format!(
                "`configure` leaves {bytes} bytes of memory that are not zero, and at most {MAX_SNAPSHOT_MEMORY} can be kept for the \
                 calls; prepare less in it, such as only what the settings name, or overwrite with zeros what calls do \
                 not need"
            )));
        }
        Ok(())
    }
}

static ZEROS: [u8; PAGE_SIZE] = [0; PAGE_SIZE];

fn access_instance_name(part: usize) -> String {
    format!("{ACCESS_INSTANCE}{part}")
}

impl<'a> WrapperComponent<'a> {
    /// Reads a component whose core modules are all in nested components. Returns `None` if the component has core
    /// modules of its own, or if no nested component has any.
    fn parse(component: &'a [u8]) -> Result<Option<Self>, String> {
        let mut scan = Scan::default();
        let mut depth = 0_u32;
        for payload in Parser::new(0).parse_all(component) {
            let payload = payload.map_err(|error| error.to_string())?;
            match (&payload, depth) {
                (Payload::Version { .. }, _) => depth = depth.saturating_add(1),
                (Payload::End(_), _) => depth = depth.saturating_sub(1),
                (Payload::ModuleSection { .. }, 1) => return Ok(None),
                (Payload::ModuleSection { .. }, _) => {
                    if let Some(nested) = scan.nested_components.last_mut() {
                        nested.has_modules = true;
                    }
                }
                _ => {}
            }
            if let (1, Some((id, range))) = (depth, payload.as_section()) {
                scan.scan_section(payload).map_err(|error| error.to_string())?;
                let data = component.get(range).unwrap_or_default();
                let raw = RawSection { id, data };
                scan.wrapper.sections.push(SnapshotSection {
                    raw,
                    instance_index: None,
                });
            }
        }
        let Scan {
            mut wrapper,
            nested_components: nested,
            instantiations,
            ..
        } = scan;
        for nested in nested.iter().filter(|nested| nested.has_modules) {
            let mut instances = instantiations.iter().filter(|(index, _)| *index == nested.index);
            let first = instances.next().map(|(_, instance)| *instance);
            if instances.next().is_some() {
                return Err("a nested component is instantiated twice".to_owned());
            }
            // A nested component that is never instantiated gets no instance here, so no snapshot of it is taken. Its
            // modules never run.
            if let Some(section) = wrapper.sections.get_mut(nested.section_index) {
                section.instance_index = first;
            }
        }
        let has_parts = wrapper.parts().next().is_some();
        Ok(has_parts.then_some(wrapper))
    }

    fn parts(&self) -> impl Iterator<Item = &'a [u8]> {
        let parts = self.sections.iter().filter(|section| section.instance_index.is_some());
        parts.map(|section| section.raw.data)
    }

    /// Encodes the component again, with its nested components replaced by `parts`, in the same order. If `give_access`
    /// is set, the component also exports the memories and globals of these parts.
    fn wrap_parts(&self, parts: &[Vec<u8>], give_access: bool) -> Vec<u8> {
        let mut component = wasm_encoder::Component::new();
        let (mut aliases, mut exports) = (ComponentAliasSection::new(), ComponentExportSection::new());
        let kind = ComponentExportKind::Instance;
        let mut replacements = parts.iter().enumerate();
        for SnapshotSection {
            raw,
            instance_index: instance,
        } in &self.sections
        {
            let replacement = instance.and_then(|instance| Some((instance, replacements.next()?)));
            let Some((instance, (part, data))) = replacement else {
                component.section(raw);
                continue;
            };
            component.section(&RawSection { id: raw.id, data });
            exports.export(
                access_instance_name(part),
                kind,
                self.instance_count.saturating_add(aliases.len()),
                None,
            );
            aliases.alias(Alias::InstanceExport {
                instance,
                kind,
                name: ACCESS_INSTANCE,
            });
        }
        if give_access {
            component.section(&aliases).section(&exports);
        }
        component.finish()
    }
}

#[derive(Default)]
struct Scan<'a> {
    wrapper: WrapperComponent<'a>,
    component_count: u32,
    nested_components: Vec<NestedComponent>,
    /// An entry for each instantiation: the index of the instantiated component, and the index of the new instance.
    instantiations: Vec<(u32, u32)>,
}

impl Scan<'_> {
    fn scan_section(&mut self, payload: Payload<'_>) -> wasmparser::Result<()> {
        match payload {
            Payload::ComponentSection { .. } => {
                self.nested_components.push(NestedComponent {
                    section_index: self.wrapper.sections.len(),
                    index: self.component_count,
                    has_modules: false,
                });
                self.count_definition(ComponentExternalKind::Component);
            }
            Payload::ComponentInstanceSection(section) => {
                for instance in section {
                    if let ComponentInstance::Instantiate { component_index, .. } = instance? {
                        self.instantiations.push((component_index, self.wrapper.instance_count));
                    }
                    self.count_definition(ComponentExternalKind::Instance);
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section {
                    match alias? {
                        ComponentAlias::InstanceExport { kind, .. } => self.count_definition(kind),
                        ComponentAlias::Outer {
                            kind: ComponentOuterAliasKind::Component,
                            ..
                        } => self.count_definition(ComponentExternalKind::Component),
                        _ => {}
                    }
                }
            }
            Payload::ComponentImportSection(section) => {
                for import in section {
                    self.count_definition(import?.ty.kind());
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section {
                    self.count_definition(export?.kind);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn count_definition(&mut self, kind: ComponentExternalKind) {
        let count = match kind {
            ComponentExternalKind::Instance => &mut self.wrapper.instance_count,
            ComponentExternalKind::Component => &mut self.component_count,
            _ => return,
        };
        *count = count.saturating_add(1);
    }
}

/// Reads the memories and globals of an instrumented instance. It records errors, while wizer's own reader panics.
struct InstanceReader<'a> {
    store: &'a mut Store<CallState>,
    instance: Instance,
    access: String,
    snapshot_memory: &'a mut SnapshotMemory,
    /// The first error of a read. Values that were read after it are meaningless.
    error: Option<wasmtime::Error>,
}

impl InstanceReader<'_> {
    async fn read<R: Lift + Send + Sync + 'static>(&mut self, function: &str) -> Option<R> {
        if self.error.is_some() {
            return None;
        }
        match self.call(function).await {
            Ok(value) => Some(value),
            Err(error) => {
                self.error = Some(error);
                None
            }
        }
    }

    async fn call<R: Lift + Send + Sync + 'static>(&mut self, function: &str) -> wasmtime::Result<R> {
        let absent_error = || wasmtime::format_err!("`{}#{function}` is absent", self.access);
        let (_, parent) = self
            .instance
            .get_export(&mut *self.store, None, &self.access)
            .ok_or_else(absent_error)?;
        let (_, index) = self
            .instance
            .get_export(&mut *self.store, Some(&parent), function)
            .ok_or_else(absent_error)?;
        let function = self.instance.get_typed_func::<(), (R,)>(&mut *self.store, index)?;
        Ok(function.call_async(&mut *self.store, ()).await?.0)
    }
}

impl ComponentInstanceState for InstanceReader<'_> {
    async fn call_func_ret_list_u8(&mut self, _: &str, func: &str, contents: impl FnOnce(&[u8]) + Send) {
        match self.read::<WasmList<u8>>(func).await {
            Some(list) => {
                let name = format!("{}#{func}", self.access);
                contents(
                    self.snapshot_memory
                        .content_to_copy(&name, list.as_le_slice(&*self.store)),
                );
            }
            None => contents(&[]),
        }
    }

    async fn call_func_ret_s32(&mut self, _: &str, func: &str) -> i32 {
        self.read(func).await.unwrap_or_default()
    }

    async fn call_func_ret_s64(&mut self, _: &str, func: &str) -> i64 {
        self.read(func).await.unwrap_or_default()
    }

    async fn call_func_ret_f32(&mut self, _: &str, func: &str) -> u32 {
        self.read::<f32>(func).await.unwrap_or_default().to_bits()
    }

    async fn call_func_ret_f64(&mut self, _: &str, func: &str) -> u64 {
        self.read::<f64>(func).await.unwrap_or_default().to_bits()
    }
}
