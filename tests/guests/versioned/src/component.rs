use std::{hint::black_box, sync::OnceLock};

use admittance_sdk::{
    bindings::{self, Description, Guest, Request, Response, SettingsError, admittance::plugin::types::Verdict},
    serde_json,
};

use crate::{Settings, names::VERSION, patch};

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// Returns the version. A test changes the version by overwriting this text in the compiled component. `black_box`
/// makes the guest read the text from there. Otherwise, the compiler, which knows the original text, could use that
/// text directly.
fn version() -> &'static str {
    static TEXT: &str = VERSION;
    black_box(TEXT)
}

struct Component;

impl Guest for Component {
    fn describe() -> Description {
        Description {
            name: "versioned".to_owned(),
            version: version().to_owned(),
            summary: env!("CARGO_PKG_DESCRIPTION").to_owned(),
            mutates: true,
            resources: Vec::new(),
            settings_schema: None,
            capabilities: Vec::new(),
        }
    }

    fn configure(settings: String) -> Result<(), Vec<SettingsError>> {
        let settings = serde_json::from_str(&settings).map_err(|error| {
            vec![SettingsError {
                pointer: String::new(),
                message: error.to_string(),
            }]
        })?;
        SETTINGS.get_or_init(|| settings);
        Ok(())
    }

    fn admit(request: Request) -> Result<Response, String> {
        let settings = SETTINGS.get().ok_or("admit before configure")?;
        let verdict = match &request.object {
            Some(object) => Verdict::Patch(patch(settings, version(), object)?),
            None => Verdict::Allow,
        };
        Ok(Response {
            verdict,
            warnings: Vec::new(),
            audit_annotations: Vec::new(),
        })
    }
}

bindings::export!(Component with_types_in bindings);
