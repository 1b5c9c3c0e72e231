use crate::{
    Catalog, Digest, Error, Freshness, Module, ModuleReference, NetworkConfig, OnProgress, module::FetchedModule,
    signature::Material,
};

/// Refuses to fetch modules, because the program was built without the feature `registries`.
#[derive(Debug)]
pub(crate) struct Remote;

impl Remote {
    pub(crate) fn new(_: NetworkConfig) -> Result<Self, Error> {
        Ok(Self)
    }

    pub(crate) async fn signatures(
        &self,
        reference: &ModuleReference,
        _: &FetchedModule,
        _: OnProgress<'_>,
    ) -> Result<Material, Error> {
        Err(no_registries(reference))
    }
}

impl Catalog {
    pub(crate) async fn obtain_remote(
        &self,
        reference: &ModuleReference,
        _: Option<Digest>,
        _: Freshness,
        _: OnProgress<'_>,
    ) -> Result<Module, Error> {
        Err(no_registries(reference))
    }
}

fn no_registries(reference: &ModuleReference) -> Error {
    Error::NoRegistries {
        reference: Box::new(reference.clone()),
    }
}
