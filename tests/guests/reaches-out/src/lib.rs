//! A guest that opens a file or a connection, as any library might. The sandbox supports neither.

use std::{fs, net::TcpStream};

use admittance_sdk::prelude::*;

/// The settings.
#[settings]
#[derive(Debug)]
pub struct Settings {
    /// What to open.
    pub target: Target,
}

/// What the guest opens.
#[settings]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// `/etc/passwd`.
    File,
    /// The port of a local SSH server.
    Socket,
}

/// The plugin.
#[derive(Debug)]
pub struct ReachesOut(Target);

#[plugin]
impl Plugin for ReachesOut {
    type Settings = Settings;

    fn configure(Settings { target }: Settings) -> Result<Self, SettingsErrors> {
        Ok(Self(target))
    }

    fn admit(&self, _: &Request) -> Result<Response, Error> {
        let reached = match self.0 {
            Target::File => fs::read_to_string("/etc/passwd").map(|text| format!("{} bytes", text.len())),
            Target::Socket => TcpStream::connect("127.0.0.1:22").map(|stream| format!("{stream:?}")),
        };
        Ok(match reached {
            Ok(what) => Response::deny(format!("the host allowed access to {what}")),
            Err(error) => Response::allow().warn(format!("nothing there: {error}")),
        })
    }
}
