//! The trait that plugins implement, and how it is called.

use std::sync::OnceLock;

use crate::bindings::admittance::plugin::types;
use crate::{Error, Request, Response, Settings, SettingsErrors, sample};

pub use crate::bindings::admittance::plugin::types::{Capability, Description, ResourceRule};

/// An admission plugin: gets settings once, and returns a verdict on each request.
///
/// Put [`#[plugin]`](macro@crate::plugin) on the implementation, and the crate is a plugin when it is built for
/// `wasm32-wasip2`. Built for any other target, it is an ordinary library, so that `cargo test` works.
///
/// Every call gets a copy of the value that `configure` returned, in memory that the host copies for every call. So
/// changes that `admit` makes to the value (for example through a `Mutex`) are discarded after the call.
pub trait Plugin: Sized + Send + Sync + 'static {
    /// The type of the operator's `settings`. Put [`#[settings]`](macro@crate::settings) on
    /// the type, or use [`NoSettings`](crate::NoSettings).
    type Settings: Settings;

    /// Validates the settings and keeps what [`Plugin::admit`] needs.
    ///
    /// Called once. Do expensive work here (compile a regular expression, build a table): it is not repeated for calls.
    ///
    /// # Errors
    /// Returns all mistakes in the settings, each with its path.
    fn configure(settings: Self::Settings) -> Result<Self, SettingsErrors>;

    /// Returns the verdict on one request.
    ///
    /// # Errors
    /// An error means that there is no verdict: the stage's failure policy applies. To deny the request, return
    /// [`Response::deny`].
    fn admit(&self, request: &Request) -> Result<Response, Error>;

    /// Prepares memory, such as caches, that the first request would otherwise have to prepare.
    ///
    /// Called at the end of `configure`. Every call starts with a copy of the memory after this function, so a cache
    /// that is filled here is full from the first request on. The sample is the CREATE of a Pod of about 1 kB. Most
    /// plugins that need this write `let _ = self.admit(sample);`. `cluster` and `http` return `Unavailable` here, and
    /// there are no environment values yet.
    fn warm_up(&self, sample: &Request) {
        let _ = sample;
    }
}

/// Gives the description of a plugin. [`#[plugin]`](macro@crate::plugin) implements it.
pub trait Describe {
    /// Returns the plugin's name, version, summary, resources and capabilities, and the schema of its settings.
    fn describe() -> Description;
}

/// Returns the JSON Schema of a plugin's settings.
#[doc(hidden)]
pub fn settings_schema<P: Plugin>() -> Option<String> {
    P::Settings::schema()
}

/// The place for the plugin in an instance of the component. It is empty until `configure` puts the plugin there.
#[doc(hidden)]
#[derive(Debug)]
pub struct Configured<P>(OnceLock<P>);

impl<P: Plugin> Configured<P> {
    /// Creates a value that contains no plugin until `configure` adds it.
    #[expect(clippy::new_without_default, reason = "only constructed in a static")]
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Implements the export `configure`.
    ///
    /// # Errors
    /// Returns the mistakes in the settings.
    pub fn configure(&self, settings: &str) -> Result<(), Vec<types::SettingsError>> {
        let plugin = configure::<P>(settings).map_err(SettingsErrors::into_contract)?;
        self.0.set(plugin).map_err(|_| {
            SettingsErrors::one(
                jsonptr::PointerBuf::new(),
                "this instance is already configured; use another instance for other settings",
            )
            .into_contract()
        })
    }

    /// Implements the export `admit`.
    ///
    /// # Errors
    /// Returns the plugin's failure.
    pub fn admit(&self, request: types::Request) -> Result<types::Response, String> {
        let Some(plugin) = self.0.get() else {
            return Err("`admit` was called before `configure`".to_owned());
        };
        match plugin.admit(&Request::from_contract(request)) {
            Ok(response) => Ok(response.into_contract()),
            Err(error) => Err(error.to_string()),
        }
    }
}

pub(crate) fn configure<P: Plugin>(settings: &str) -> Result<P, SettingsErrors> {
    let plugin = P::configure(P::Settings::parse(settings)?)?;
    plugin.warm_up(&sample::request());
    Ok(plugin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoSettings;

    struct FirstKindPlugin(OnceLock<String>);

    impl Plugin for FirstKindPlugin {
        type Settings = NoSettings;

        fn configure(_: NoSettings) -> Result<Self, SettingsErrors> {
            Ok(Self(OnceLock::new()))
        }

        fn admit(&self, request: &Request) -> Result<Response, Error> {
            let first = self.0.get_or_init(|| request.kind().kind.clone());
            Err(Error::other(first.clone()))
        }

        fn warm_up(&self, sample: &Request) {
            let _ = self.admit(sample);
        }
    }

    fn contract_request(object: &str) -> types::Request {
        crate::testing::create(object).build().contract_mut().clone()
    }

    #[test]
    fn admit_before_configure_and_a_second_configure_are_errors() {
        let plugin = Configured::<FirstKindPlugin>::new();
        let early_answer = plugin.admit(contract_request("{}"));
        assert!(early_answer.is_err_and(|message| message.contains("before `configure`")));
        assert!(plugin.configure("{}").is_ok());
        let twice = plugin.configure("{}").expect_err("it is configured already");
        assert_eq!(twice.len(), 1);
    }

    #[test]
    fn configure_warms_up_the_plugin_with_a_sample() {
        let plugin = Configured::<FirstKindPlugin>::new();
        plugin.configure("{}").expect("no settings are right");
        let failure = plugin.admit(contract_request(r#"{"kind":"Other"}"#));
        assert_eq!(failure.expect_err("it always fails"), "Pod");
    }
}
