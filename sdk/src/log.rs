//! Writes lines to the operator's log.
//!
//! Within the sandbox, lines go to the host, which adds the plugin's name and the request's uid, and drops lines beyond
//! the limit of a call. In native builds they go to standard error.
//!
//! ```
//! use admittance_sdk::log;
//!
//! let image = "nginx";
//! log::info!("rewrote {image}");
//! log::warn!("no rule matched");
//! ```

use crate::bindings::wasi::logging::logging;

pub use crate::bindings::wasi::logging::logging::Level;

/// Logs one line. `context` is a short category, by which an operator can filter lines. The macros use the module path.
pub fn log(level: Level, context: &str, message: &str) {
    if cfg!(target_family = "wasm") {
        logging::log(level, context, message);
    } else {
        eprintln!("{level:?} {context}: {message}");
    }
}

/// Logs a line at this level. Takes the arguments of `format!`.
#[doc(hidden)]
#[macro_export]
macro_rules! __log {
    ($level:ident, $($text:tt)+) => {
        $crate::log::log($crate::log::Level::$level, ::core::module_path!(), &$crate::log::line(::core::format_args!($($text)+)))
    };
}

/// Formats a log line. If it has no arguments, the text is not copied.
#[doc(hidden)]
pub fn line(text: std::fmt::Arguments<'_>) -> std::borrow::Cow<'static, str> {
    match text.as_str() {
        Some(text) => std::borrow::Cow::Borrowed(text),
        None => std::borrow::Cow::Owned(std::fmt::format(text)),
    }
}

macro_rules! levels {
    ($dollar:tt $($(#[$doc:meta])* $hidden:ident as $name:ident: $level:ident;)*) => {$(
        $(#[$doc])*
        #[doc(hidden)]
        #[macro_export]
        macro_rules! $hidden {
            ($dollar($dollar text:tt)+) => { $crate::__log!($level, $dollar($dollar text)+) };
        }
        $(#[$doc])*
        #[doc(inline)]
        pub use $hidden as $name;
    )*};
}

levels! {$
    /// Logs a step of an operation. Takes the arguments of `format!`.
    __trace as trace: Trace;
    /// Logs details of an operation and their reasons. Takes the arguments of `format!`.
    __debug as debug: Debug;
    /// Logs something that an operator may want to know. Takes the arguments of `format!`.
    __info as info: Info;
    /// Logs something unexpected in spite of which the plugin could go on. Takes the arguments of `format!`.
    __warn as warn: Warn;
    /// Logs an error that stopped what the plugin was doing. Takes the arguments of `format!`.
    __error as error: Error;
}
