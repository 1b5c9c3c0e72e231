//! A guest that opens a file, as any library might. The sandbox has no files.

use admittance_sdk::prelude::*;

/// The plugin.
#[derive(Debug)]
pub struct OpensFile;

#[plugin]
impl Plugin for OpensFile {
    type Settings = NoSettings;

    fn configure(_: NoSettings) -> Result<Self, SettingsErrors> {
        Ok(Self)
    }

    fn admit(&self, _: &Request) -> Result<Response, Error> {
        match std::fs::read_to_string("/etc/passwd") {
            Ok(text) => Ok(Response::deny(format!(
                "the host let it read {} bytes",
                text.len()
            ))),
            Err(error) => Ok(Response::allow().warn(format!("no file: {error}"))),
        }
    }
}
