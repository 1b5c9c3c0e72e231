use std::collections::BTreeSet;

use admittance_sdk::prelude::*;
use regorus::unstable::{Expr, Import, Module, Ref, Rule, RuleHead};
use regorus::{Engine, Value};

use crate::{
    functions,
    remember::{self, RememberedFunctions},
    settings::{LanguageVersion, Settings},
    source, walk,
};

#[derive(Debug)]
pub(crate) struct CompiledModules {
    engine: Engine,
    remembered_functions: Option<RememberedFunctions>,
    rule: String,
}

impl CompiledModules {
    pub(crate) fn evaluate(&mut self, input: Value) -> Result<Value, String> {
        if let Some(remembered) = &self.remembered_functions {
            remembered.prepare_for_input(&input);
        }
        self.engine.set_input(input);
        let evaluation = self.engine.eval_rule(self.rule.clone());
        evaluation.map_err(|error| readable_message(&error.to_string()))
    }
}

/// Returns an engine without modules, but with the functions of this plugin.
fn new_engine(is_v0: bool) -> Result<Engine, String> {
    let mut engine = source::new_engine(is_v0);
    // If a built-in function fails, its call is undefined, and the evaluation goes on, as in OPA and Gatekeeper.
    engine.set_strict_builtin_errors(false);
    functions::add_extensions(&mut engine)?;
    Ok(engine)
}

pub(crate) fn compile(settings: &Settings) -> Result<(CompiledModules, String), SettingsErrors> {
    let mut errors = SettingsErrors::new();
    let is_v0 = settings.version == LanguageVersion::V0;
    let mut engine = match new_engine(is_v0) {
        Ok(engine) => engine,
        Err(error) => {
            errors.push(pointer![""], error);
            return Err(errors);
        }
    };
    let mut package = String::new();
    let main_text = std::iter::once((pointer!["rego"], &settings.rego));
    let libs = settings.libs.iter().enumerate();
    let texts = main_text.chain(libs.map(|(index, lib)| (pointer!["libs", index], lib)));
    let (mut pointers, mut rewritten) = (Vec::new(), Vec::new());
    for (index, (pointer, text)) in texts.enumerate() {
        let path = pointer.to_string();
        let text = source::rewrite(&path, text, is_v0);
        rewritten.push((path.clone(), text.clone()));
        match engine.add_policy(path, text) {
            Ok(of_module) if index == 0 => package = of_module,
            Ok(_) => {}
            Err(error) => errors.push(pointer.clone(), readable_message(&error.to_string())),
        }
        pointers.push(pointer);
    }
    errors.check()?;
    let mut errors = SettingsErrors::new();
    let modules = engine.get_modules().clone();
    let defined = collect_defined_paths(&modules);
    for (module, module_pointer) in modules.iter().zip(pointers) {
        for mistake in unknown_functions(module, &defined) {
            errors.push(module_pointer.clone(), mistake);
        }
    }
    if let (None, Some(module)) = (&settings.entrypoint, modules.first()) {
        for mistake in violations_without_message(module) {
            errors.push(pointer!["rego"], mistake);
        }
    }
    let rule = match &settings.entrypoint {
        Some(rule) => canonical_rule_path(rule),
        None => format!("{package}.violation"),
    };
    errors.check()?;
    let mut errors = SettingsErrors::new();
    if let Err(error) = engine.compile_with_entrypoint(&rule.as_str().into()) {
        let error = error.to_string();
        if !error.contains("not a valid rule path") {
            errors.push(pointer!["rego"], readable_message(&error));
        } else if settings.entrypoint.is_some() {
            let message = format!("there is no rule {rule}; name one, `{package}.deny`");
            errors.push(pointer!["entrypoint"], message);
        } else {
            let message = "the template has no rule `violation`; write `violation[{\"msg\": msg}] { ... }`";
            errors.push(pointer!["rego"], message);
        }
    }
    errors.check()?;
    let remembering = remember::remembering_engine(&modules, &rewritten, &rule, || self::new_engine(is_v0));
    let (engine, remembered) = match remembering {
        Some((engine, remembered)) => (engine, Some(remembered)),
        None => (engine, None),
    };
    let compiled = CompiledModules {
        engine,
        remembered_functions: remembered,
        rule: rule.clone(),
    };
    Ok((compiled, rule))
}

pub(crate) struct ModuleScope {
    pub(crate) package: String,
    imports: Vec<(String, String)>,
}

impl ModuleScope {
    pub(crate) fn from_module(module: &Module) -> Self {
        let import = |import: &Import| {
            let path = import.refr.span().text().to_owned();
            let last = path.rsplit('.').next().unwrap_or_default().to_owned();
            let name = import.r#as.as_ref().map(|name| name.text().to_owned());
            (name.unwrap_or(last), path)
        };
        Self {
            package: format!("data.{}", module.package.refr.span().text()),
            imports: module.imports.iter().map(import).collect(),
        }
    }

    pub(crate) fn imported_path(&self, name: &str) -> Option<&str> {
        let import = self.imports.iter().find(|(alias, _)| alias == name);
        import.map(|(_, path)| path.as_str())
    }

    pub(crate) fn possible_paths(&self, name: &str) -> Vec<String> {
        let full = self.imports.iter().find_map(|(alias, path)| {
            let rest = name.strip_prefix(alias.as_str())?;
            (rest.is_empty() || rest.starts_with('.')).then(|| format!("{path}{rest}"))
        });
        let local_paths = [name.to_owned(), format!("{}.{name}", self.package)];
        local_paths.into_iter().chain(full).collect()
    }
}

/// Converts the path of a rule from the spelling of OPA's tools: `jobs/deny` becomes `data.jobs.deny`.
fn canonical_rule_path(rule: &str) -> String {
    let dotted = rule.trim_matches('/').replace('/', ".");
    if dotted.starts_with("data.") {
        dotted
    } else {
        format!("data.{dotted}")
    }
}

pub(crate) fn readable_message(report: &str) -> String {
    let location_text = report.lines().find_map(|line| line.trim().strip_prefix("--> "));
    let line = location_text.and_then(|location| location.rsplit(':').nth(1)?.parse::<u32>().ok());
    let message = report.lines().find_map(|line| line.strip_prefix("error: "));
    match (line, message) {
        (Some(line), Some(message)) => format!("line {line}: {message}"),
        (None, Some(message)) => message.to_owned(),
        _ => report.split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

pub(crate) fn collect_defined_paths(modules: &[Ref<Module>]) -> BTreeSet<String> {
    let mut defined = BTreeSet::new();
    for module in modules {
        let package = format!("data.{}", module.package.refr.span().text());
        for rule in &module.policy {
            let name = match &**rule {
                Rule::Spec { head, .. } => match head {
                    RuleHead::Compr { refr, .. } | RuleHead::Set { refr, .. } | RuleHead::Func { refr, .. } => refr,
                },
                Rule::Default { refr, .. } => refr,
            };
            defined.insert(format!("{package}.{}", name.span().text()));
        }
    }
    defined
}

/// The engine would report a missing function only when the call is evaluated.
fn unknown_functions(module: &Module, defined: &BTreeSet<String>) -> Vec<String> {
    let scope = ModuleScope::from_module(module);
    let mut unknown = Vec::new();
    walk::visit_expressions(module, &mut |expression| {
        let Expr::Call { fcn, .. } = expression else {
            return;
        };
        let name = fcn.span().text();
        if !functions::is_known(name) && !scope.possible_paths(name).iter().any(|path| defined.contains(path)) {
            let why = functions::missing_reason(name);
            unknown.push(format!("line {}: `{name}` {why}", fcn.span().line));
        }
    });
    unknown
}

/// Finds the rules `violation` that never have a message. Without this check, the engine would report such a rule only
/// when a request is evaluated.
fn violations_without_message(module: &Module) -> Vec<String> {
    let mut mistakes = Vec::new();
    for rule in &module.policy {
        let Rule::Spec { head, .. } = &**rule else {
            continue;
        };
        let (span, has_message) = match head {
            RuleHead::Set { span, refr, key } if refr.span().text() == "violation" => {
                (span, key.as_ref().is_none_or(|key| can_be_violation(key)))
            }
            RuleHead::Compr { span, refr, assign } if refr.span().text() == "violation" => {
                let value = assign.as_ref().map(|assign| &*assign.value);
                let can_be_set = value.is_some_and(|value| {
                    !matches!(value, Expr::Object { .. }) && (can_be_violation(value) || is_list(value))
                });
                (span, can_be_set)
            }
            _ => continue,
        };
        if !has_message {
            let message = "a violation is an object with a message: write `violation[{\"msg\": msg}]`";
            mistakes.push(format!("line {}: {message}", span.line));
        }
    }
    mistakes
}

/// Returns whether the value of this expression can be an object whose `msg` is a text.
fn can_be_violation(expression: &Expr) -> bool {
    match expression {
        Expr::Object { fields, .. } => {
            let mut messages = fields.iter().filter(|(_, key, _)| match &**key {
                Expr::String { value, .. } | Expr::RawString { value, .. } => *value == "msg".into(),
                _ => true,
            });
            messages.any(|(_, _, message)| !is_list(message) && !is_scalar(message))
        }
        Expr::String { .. } | Expr::RawString { .. } => false,
        other => !is_list(other) && !is_scalar(other),
    }
}

fn is_list(expression: &Expr) -> bool {
    matches!(
        expression,
        Expr::Array { .. } | Expr::Set { .. } | Expr::ArrayCompr { .. } | Expr::SetCompr { .. }
    )
}

fn is_scalar(expression: &Expr) -> bool {
    matches!(expression, Expr::Number { .. } | Expr::Bool { .. } | Expr::Null { .. })
}
