//! Replaces the types of the sandbox in a build without the feature `engine`. None of them can be created.

use std::{convert::Infallible, path::PathBuf, sync::Arc};

use admittance_admission::{Deadline, Digest, Failure, Hook, Request, Response};
use async_trait::async_trait;
use bytes::Bytes;

use crate::{ConfigurationTime, Description, Error, PluginConfig, SandboxConfig};

/// Prepares, loads and runs plugins. It cannot be created without the feature `engine`.
#[derive(Clone, Debug)]
pub struct Sandbox(Infallible);

/// A prepared plugin. It cannot be created without the feature `engine`.
#[derive(Clone, Debug)]
pub struct Prepared(Infallible);

/// A plugin that is ready for calls. It cannot be created without the feature `engine`.
#[derive(Debug)]
pub struct Plugin(Infallible);

/// The compiled forms that preparations of a module share. It cannot be created without the feature `engine`.
#[derive(Clone, Debug)]
pub struct SharedModule(Infallible);

impl Sandbox {
    /// Returns an error.
    ///
    /// # Errors
    ///
    /// Always fails: this program was built without the feature `engine`.
    pub fn new(_: SandboxConfig) -> Result<Self, Error> {
        Err(Error::NoEngine)
    }

    /// Never called, because this type cannot be created without the feature `engine`.
    pub fn fingerprint(&self) -> String {
        match self.0 {}
    }

    /// Never called, because this type cannot be created without the feature `engine`.
    pub fn limit_compilations(&self) {
        match self.0 {}
    }

    /// Never called, because this type cannot be created without the feature `engine`.
    pub fn share(&self, _: Digest) -> SharedModule {
        match self.0 {}
    }

    /// Never called, because this type cannot be created without the feature `engine`.
    ///
    /// # Errors
    ///
    /// Never fails.
    pub async fn prepare(&self, _: impl Into<Bytes>, _: &str, _: &PluginConfig) -> Result<Prepared, Error> {
        match self.0 {}
    }

    /// Never called, because this type cannot be created without the feature `engine`.
    ///
    /// # Errors
    ///
    /// Never fails.
    pub fn load(&self, _: &Prepared, _: &PluginConfig) -> Result<Plugin, Error> {
        match self.0 {}
    }
}

impl Prepared {
    /// Returns an error.
    ///
    /// # Errors
    ///
    /// Always fails: this program was built without the feature `engine`.
    pub fn from_bytes(_: impl Into<Bytes>, _: &[u8]) -> Result<Self, Error> {
        Err(Error::NoEngine)
    }

    /// Returns an error.
    ///
    /// # Errors
    ///
    /// Always fails: this program was built without the feature `engine`.
    pub fn from_file(_: impl Into<PathBuf>, _: &[u8]) -> Result<Self, Error> {
        Err(Error::NoEngine)
    }

    /// Never called, because this type cannot be created without the feature `engine`.
    pub fn header(&self) -> Vec<u8> {
        match self.0 {}
    }

    /// Never called, because this type cannot be created without the feature `engine`.
    pub fn code(&self) -> Option<&Bytes> {
        match self.0 {}
    }
}

impl Plugin {
    /// Never called, because this type cannot be created without the feature `engine`.
    pub fn description(&self) -> &Description {
        match self.0 {}
    }

    /// Never called, because this type cannot be created without the feature `engine`.
    pub fn configuration_time(&self) -> &ConfigurationTime {
        match self.0 {}
    }

    /// Never called, because this type cannot be created without the feature `engine`.
    ///
    /// # Errors
    ///
    /// Never fails.
    pub fn with_config(&self, _: &PluginConfig) -> Result<Self, Error> {
        match self.0 {}
    }
}

#[async_trait]
impl Hook for Plugin {
    async fn admit(&self, _: &Arc<Request>, _: Deadline) -> Result<Response, Failure> {
        match self.0 {}
    }
}
