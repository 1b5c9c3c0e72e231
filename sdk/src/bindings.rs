//! The bindings that `wit-bindgen` generates from the contract. The rest of this crate wraps them.

wit_bindgen::generate!({
    path: "wit",
    world: "plugin",
    generate_all,
    pub_export_macro: true,
    default_bindings_module: "admittance_sdk::bindings",
    additional_derives: [PartialEq],
});
