pub(crate) mod bindings {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "plugin",
        imports: { default: async | trappable },
        exports: { default: async },
        ownership: Borrowing { duplicate_if_necessary: true },
    });
}
