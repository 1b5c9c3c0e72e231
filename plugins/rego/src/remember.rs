//! Caches the results of functions by their arguments, as OPA does during the evaluation of a query. Regorus does not.
//!
//! Calls of such a function are replaced by calls of an extension. If the extension has no cached result, it evaluates
//! the function with a second engine, in which no calls are replaced. The functions depend only on their arguments and
//! the input, which is the same in both engines.

mod definitions;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use regorus::unstable::{Expr, Module, Ref};
use regorus::{Engine, Value};

use self::definitions::{PureFunction, PureFunctions};
use crate::{policy::ModuleScope, walk};

/// The maximum number of cached results of functions.
const MAX_RESULTS: usize = 1000;

const ARGUMENT: &str = "__argument";

pub(crate) type ModuleText = (String, String);

#[derive(Clone, Debug)]
pub(crate) struct RememberedFunctions {
    state: Arc<Mutex<RememberState>>,
}

#[derive(Debug)]
struct RememberState {
    /// A second engine, which evaluates a function if the cache does not have its result. Calls in this engine do not
    /// use the cache. It has a rule for each cached function, which evaluates the function.
    engine: Engine,
    functions: Vec<RememberedFunction>,
    arguments: Arc<Mutex<Vec<Value>>>,
    /// The cached results. A key consists of the index of the function and the arguments.
    results: BTreeMap<(usize, Vec<Value>), Value>,
}

#[derive(Debug)]
struct RememberedFunction {
    rule: String,
    reads_input: bool,
}

impl RememberedFunctions {
    /// Prepares for a new input: deletes all cached results that depend on the previous input.
    pub(crate) fn prepare_for_input(&self, input: &Value) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let RememberState {
            engine,
            functions,
            results,
            ..
        } = &mut *state;
        engine.set_input(input.clone());
        if results.len() > MAX_RESULTS {
            results.clear();
        }
        results.retain(|(index, _), _| functions.get(*index).is_some_and(|function| !function.reads_input));
    }

    fn add_extensions(&self, engine: &mut Engine, worthwhile_functions: &[&PureFunction]) -> Option<()> {
        for (index, definition) in worthwhile_functions.iter().enumerate() {
            let state = Arc::clone(&self.state);
            let call = move |arguments: Vec<Value>| {
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                let key = (index, arguments);
                if let Some(result) = state.results.get(&key) {
                    return Ok(result.clone());
                }
                let rule = state.functions.get(index).map(|function| function.rule.clone());
                state
                    .arguments
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone_from(&key.1);
                let result = state.engine.eval_rule(rule.unwrap_or_default())?;
                state.results.insert(key, result.clone());
                Ok(result)
            };
            let added = engine.add_extension(extension_name(index), definition.arity, Box::new(call));
            added.ok()?;
        }
        Some(())
    }
}

/// Returns the name of the extension that finds the cached results of a function. A policy calls this extension in
/// place of the function. In the second engine, a rule with the same name evaluates the function.
fn extension_name(index: usize) -> String {
    format!("__remembered_{index}")
}

/// Returns an engine that caches the results of functions; `None` if caching would make no function faster.
pub(crate) fn remembering_engine(
    modules: &[Ref<Module>],
    texts: &[ModuleText],
    rule: &str,
    new_engine: impl Fn() -> Result<Engine, String>,
) -> Option<(Engine, RememberedFunctions)> {
    let definitions = PureFunctions::find(modules)?;
    let worthwhile_functions = definitions.functions_worth_remembering(modules);
    if worthwhile_functions.is_empty() {
        return None;
    }
    let mut second = texts.to_vec();
    for (index, definition) in worthwhile_functions.iter().enumerate() {
        let arguments: Vec<String> = (0..definition.arity)
            .map(|argument| format!("{ARGUMENT}({argument})"))
            .collect();
        let (_, text) = second.get_mut(definition.module)?;
        let call = format!("{}({})", definition.name, arguments.join(", "));
        text.push_str(&format!("\n{} := {call}\n", extension_name(index)));
    }
    let described = worthwhile_functions
        .iter()
        .enumerate()
        .map(|(index, definition)| RememberedFunction {
            rule: format!("{}.{}", definition.package, extension_name(index)),
            reads_input: definition.reads_input,
        });
    let functions: Vec<RememberedFunction> = described.collect();
    let arguments: Arc<Mutex<Vec<Value>>> = Arc::default();
    let mut engine = with_modules(second, &new_engine)?;
    let shared = Arc::clone(&arguments);
    let argument = move |indices: Vec<Value>| {
        let arguments = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let number = indices.first().and_then(|index| index.as_u64().ok());
        let index = number.and_then(|number| usize::try_from(number).ok());
        let selected_argument = index.and_then(|index| arguments.get(index));
        Ok(selected_argument.cloned().unwrap_or(Value::Undefined))
    };
    let added = engine.add_extension(ARGUMENT.to_owned(), 1, Box::new(argument));
    added.ok()?;
    for function in &functions {
        engine.compile_with_entrypoint(&function.rule.as_str().into()).ok()?;
    }
    let remembered = RememberedFunctions {
        state: Arc::new(Mutex::new(RememberState {
            engine,
            functions,
            arguments,
            results: BTreeMap::new(),
        })),
    };
    let mut engine = with_modules(
        replace_calls(modules, texts, &definitions, &worthwhile_functions),
        &new_engine,
    )?;
    remembered.add_extensions(&mut engine, &worthwhile_functions)?;
    engine.compile_with_entrypoint(&rule.into()).ok()?;
    Some((engine, remembered))
}

fn with_modules(texts: Vec<ModuleText>, new: impl Fn() -> Result<Engine, String>) -> Option<Engine> {
    let mut engine = new().ok()?;
    for (path, text) in texts {
        engine.add_policy(path, text).ok()?;
    }
    Some(engine)
}

fn replace_calls(
    modules: &[Ref<Module>],
    texts: &[ModuleText],
    definitions: &PureFunctions,
    worthwhile_functions: &[&PureFunction],
) -> Vec<ModuleText> {
    let mut result = texts.to_vec();
    for (module, (_, text)) in modules.iter().zip(&mut result) {
        let scope = ModuleScope::from_module(module);
        let mut calls: Vec<(usize, usize, String)> = Vec::new();
        walk::visit_expressions(module, &mut |expression| {
            let Expr::Call { fcn, params, .. } = expression else {
                return;
            };
            let path = definitions.pure_callee(&scope, fcn.span().text());
            let index = worthwhile_functions.iter().position(|definition| {
                path.as_deref() == Some(&*definition.path()) && usize::from(definition.arity) == params.len()
            });
            let (start, end) = (usize::try_from(fcn.span().start), usize::try_from(fcn.span().end));
            if let (Some(index), Ok(start), Ok(end)) = (index, start, end) {
                calls.push((start, end, extension_name(index)));
            }
        });
        calls.sort();
        calls.dedup();
        for (start, end, name) in calls.into_iter().rev() {
            if text.get(start..end).is_some() {
                text.replace_range(start..end, &name);
            }
        }
    }
    result
}

#[cfg(test)]
mod tests;
