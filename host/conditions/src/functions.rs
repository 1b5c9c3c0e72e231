//! The functions that expressions may call.
//!
//! Each overload of a function is registered as a closure. The closure's Rust types determine the CEL types, which the
//! checker compares with the types of a call's arguments. If these types are known only during the evaluation, the
//! overload is selected then.

use std::{collections::HashMap, sync::LazyLock};

use crate::{
    machine::{Fault, Machine, Outcome},
    types::{Type, TypeBindings},
    value::Value,
};

pub(crate) mod authorizer;
pub(crate) mod collections;
mod conversions;
pub(crate) mod format;
pub(crate) mod formats;
pub(crate) mod http;
pub(crate) mod image;
mod kyverno;
mod literals;
pub(crate) mod lookup;
mod math;
mod network;
mod operators;
pub(crate) mod quantity;
mod random;
pub(crate) mod regex;
mod strings;
pub(crate) mod time;
mod typed;
pub(crate) mod url;
mod version;
mod x509;

use typed::{Arguments, CelType};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Global,
    /// A call `x.f()`. Its first argument is the receiver.
    Member,
}

#[derive(Default, derive_more::Debug)]
#[debug("CelFunction({name:?})")]
pub(crate) struct CelFunction {
    name: &'static str,
    signatures: Vec<Signature>,
    implementations: Vec<Implementation>,
    /// The index of the argument that is a regular expression. If it is a literal, it is compiled with the expression.
    pub(crate) pattern_index: Option<usize>,
}

#[derive(Debug)]
struct Signature {
    arguments: Vec<Type>,
    result: Type,
}

/// An overload of a function. It returns `None` if it does not accept the arguments.
type Implementation =
    Box<dyn for<'m, 'v, 'a> Fn(&'m mut Machine<'a>, &'v [Value<'a>]) -> Option<Outcome<'a>> + Send + Sync>;

impl CelFunction {
    pub(crate) fn call<'a>(&self, machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
        self.implementations
            .iter()
            .find_map(|implementation| implementation(machine, arguments))
            .unwrap_or_else(|| Err(Fault::no_overload()))
    }

    pub(crate) fn resolve(&self, arguments: &[Type]) -> Option<Type> {
        let mut result: Option<Type> = None;
        for signature in &self.signatures {
            if signature.arguments.len() != arguments.len() {
                continue;
            }
            let mut bindings = TypeBindings::default();
            let mut pairs = signature.arguments.iter().zip(arguments);
            if !pairs.all(|(parameter, argument)| bindings.fits(parameter, argument)) {
                continue;
            }
            let kind = bindings.apply(&signature.result);
            result = match result {
                Some(other) if other != kind => Some(Type::Dyn),
                _ => Some(kind),
            };
        }
        result
    }
}

#[derive(Default)]
struct Library {
    globals: HashMap<&'static str, CelFunction>,
    members: HashMap<&'static str, CelFunction>,
}

impl Library {
    fn get(&self, name: &str, style: Style) -> Option<&CelFunction> {
        match style {
            Style::Global => self.globals.get(name),
            Style::Member => self.members.get(name),
        }
    }

    fn names(&self, style: Style) -> impl Iterator<Item = &'static str> {
        let functions = match style {
            Style::Global => &self.globals,
            Style::Member => &self.members,
        };
        let is_name = |name: &&'static str| name.starts_with(|first: char| first.is_ascii_alphabetic());
        functions.keys().copied().filter(is_name)
    }

    fn function_entry(&mut self, name: &'static str, style: Style) -> &mut CelFunction {
        let functions = match style {
            Style::Global => &mut self.globals,
            Style::Member => &mut self.members,
        };
        let function = functions.entry(name).or_default();
        function.name = name;
        function
    }

    fn add<A: Arguments, R: CelType>(
        &mut self,
        name: &'static str,
        style: Style,
        run: impl for<'m, 'a> Fn(&'m mut Machine<'a>, A::Rust<'a>) -> Result<R::Rust<'a>, Fault> + Send + Sync + 'static,
    ) {
        let function = self.function_entry(name, style);
        function.signatures.push(Signature {
            arguments: A::types(),
            result: R::cel(),
        });
        function.pattern_index = A::pattern();
        function.implementations.push(Box::new(move |machine, values| {
            A::read(values).map(|arguments| run(machine, arguments).map(R::write))
        }));
    }

    fn add_global<A: Arguments, R: CelType>(
        &mut self,
        name: &'static str,
        run: impl for<'m, 'a> Fn(&'m mut Machine<'a>, A::Rust<'a>) -> Result<R::Rust<'a>, Fault> + Send + Sync + 'static,
    ) {
        self.add::<A, R>(name, Style::Global, run);
    }

    fn add_member<A: Arguments, R: CelType>(
        &mut self,
        name: &'static str,
        run: impl for<'m, 'a> Fn(&'m mut Machine<'a>, A::Rust<'a>) -> Result<R::Rust<'a>, Fault> + Send + Sync + 'static,
    ) {
        self.add::<A, R>(name, Style::Member, run);
    }

    fn add_polymorphic(
        &mut self,
        name: &'static str,
        style: Style,
        signatures: impl IntoIterator<Item = (Vec<Type>, Type)>,
        run: impl for<'m, 'v, 'a> Fn(&'m mut Machine<'a>, &'v [Value<'a>]) -> Outcome<'a> + Send + Sync + 'static,
    ) {
        let function = self.function_entry(name, style);
        for (arguments, result) in signatures {
            function.signatures.push(Signature { arguments, result });
        }
        function
            .implementations
            .push(Box::new(move |machine, values| Some(run(machine, values))));
    }
}

static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    let mut library = Library::default();
    operators::register(&mut library);
    conversions::register(&mut library);
    strings::register(&mut library);
    regex::register(&mut library);
    collections::register(&mut library);
    time::register(&mut library);
    authorizer::register(&mut library);
    network::register(&mut library);
    quantity::register(&mut library);
    format::register(&mut library);
    formats::register(&mut library);
    url::register(&mut library);
    version::register(&mut library);
    library
});

static KYVERNO_LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    let mut library = Library::default();
    image::register(&mut library);
    kyverno::register(&mut library);
    lookup::register(&mut library);
    http::register(&mut library);
    math::register(&mut library);
    regex::register_for_kyverno(&mut library);
    library
});

pub(crate) fn find(name: &str, style: Style) -> Option<&'static CelFunction> {
    LIBRARY.get(name, style)
}

pub(crate) fn find_for_kyverno(name: &str, style: Style) -> Option<&'static CelFunction> {
    KYVERNO_LIBRARY.get(name, style).or_else(|| find(name, style))
}

pub(crate) fn names(style: Style, for_kyverno: bool) -> impl Iterator<Item = &'static str> {
    let libraries = for_kyverno.then_some(&*KYVERNO_LIBRARY).into_iter().chain([&*LIBRARY]);
    libraries.flat_map(move |library| library.names(style))
}

pub(crate) use kyverno::refusal;

fn value_or_error<T>(value: Option<T>, message: &'static str) -> Result<T, Fault> {
    value.ok_or_else(|| Fault::error(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_has_signatures_with_a_permitted_number_of_arguments() {
        let libraries = [&LIBRARY, &KYVERNO_LIBRARY];
        for (functions, least) in libraries
            .map(|library| [(&library.globals, 0), (&library.members, 1)])
            .as_flattened()
        {
            for (name, function) in *functions {
                assert!(!function.signatures.is_empty(), "{name}");
                let counts = function.signatures.iter().map(|signature| signature.arguments.len());
                let fits = |count| (*least..=crate::machine::MAX_ARGUMENTS).contains(&count);
                assert!(counts.into_iter().all(fits), "{name}");
            }
        }
    }
}
