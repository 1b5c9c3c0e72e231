//! The functions that conditions may call: their names, the types they take, and what they do.

use std::{collections::HashMap, fmt, sync::LazyLock};

use super::{
    machine::{Machine, Outcome},
    types::Type,
    value::Value,
};

mod conversions;
mod lists;
mod moments;
pub(crate) mod network;
mod operators;
mod optionals;
mod patterns;
mod permissions;
pub(crate) mod quantity;
mod strings;

/// How a function is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `f(x)`; operators too.
    Global,
    /// `x.f()`.
    Member,
}

/// A function. What it is called on is its first argument.
pub(crate) struct Function {
    name: &'static str,
    pub(crate) overloads: Vec<Overload>,
    pub(crate) run: Run,
    /// Which argument is a regular expression, which is compiled with the condition when it is written out.
    pub(crate) pattern: Option<usize>,
}

/// The types of one way to call a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) arguments: Vec<Type>,
    pub(crate) result: Type,
}

/// Pays for its work before it does it, and takes values of any types, for dynamic ones get here unchecked.
pub(crate) type Run = for<'m, 'v, 'a> fn(&'m mut Machine<'a>, &'v [Value<'a>]) -> Outcome<'a>;

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Function").field(&self.name).finish()
    }
}

/// All functions, by name.
#[derive(Default)]
struct Library {
    globals: HashMap<&'static str, Function>,
    members: HashMap<&'static str, Function>,
}

impl Library {
    fn add(&mut self, name: &'static str, style: Style, run: Run, overloads: &[(&[Type], Type)]) {
        let overloads = overloads.iter().map(|(arguments, result)| Overload {
            arguments: arguments.to_vec(),
            result: result.clone(),
        });
        let function = Function {
            name,
            overloads: overloads.collect(),
            run,
            pattern: None,
        };
        let before = self.of(style).insert(name, function);
        debug_assert!(before.is_none(), "{name} is there twice");
    }

    fn of(&mut self, style: Style) -> &mut HashMap<&'static str, Function> {
        match style {
            Style::Global => &mut self.globals,
            Style::Member => &mut self.members,
        }
    }

    fn global(&mut self, name: &'static str, run: Run, overloads: &[(&[Type], Type)]) {
        self.add(name, Style::Global, run, overloads);
    }

    fn member(&mut self, name: &'static str, run: Run, overloads: &[(&[Type], Type)]) {
        self.add(name, Style::Member, run, overloads);
    }

    /// The second argument of the function is a regular expression.
    fn with_pattern(&mut self, name: &'static str, style: Style) {
        if let Some(function) = self.of(style).get_mut(name) {
            function.pattern = Some(1);
        }
    }
}

static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    let mut library = Library::default();
    operators::list(&mut library);
    conversions::list(&mut library);
    strings::list(&mut library);
    patterns::list(&mut library);
    lists::list(&mut library);
    moments::list(&mut library);
    optionals::list(&mut library);
    permissions::list(&mut library);
    network::list(&mut library);
    quantity::list(&mut library);
    library
});

/// The function of this name that is called in this way.
pub(crate) fn find(name: &str, style: Style) -> Option<&'static Function> {
    match style {
        Style::Global => LIBRARY.globals.get(name),
        Style::Member => LIBRARY.members.get(name),
    }
}

/// Whether there is a global function of this name, as `optional.of`.
pub(crate) fn is_known(name: &str) -> bool {
    find(name, Style::Global).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_fits_a_call() {
        let members = LIBRARY.members.values();
        for function in members.clone().chain(LIBRARY.globals.values()) {
            assert!(!function.overloads.is_empty(), "{function:?}");
            let most = crate::machine::MOST_ARGUMENTS;
            let fits = |overload: &Overload| overload.arguments.len() <= most;
            assert!(function.overloads.iter().all(fits), "{function:?}");
        }
        for function in members {
            let has_receiver = |overload: &Overload| !overload.arguments.is_empty();
            assert!(function.overloads.iter().all(has_receiver), "{function:?}");
        }
    }
}
