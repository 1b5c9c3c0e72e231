//! Finds the functions of modules whose results depend only on their arguments and the input.

use std::collections::{BTreeMap, BTreeSet};

use regorus::unstable::{Expr, Module, Ref, Rule, RuleHead};

use crate::{
    policy::{ModuleScope, collect_defined_paths},
    walk,
};

/// The results of a function are cached if its calls in the policy evaluate at least this many rule bodies together.
/// With fewer, looking up a result takes longer than evaluating the function.
const MIN_CACHED_BODIES: usize = 8;

#[derive(Debug)]
pub(super) struct PureFunction {
    pub(super) package: String,
    pub(super) name: String,
    pub(super) module: usize,
    pub(super) arity: u8,
    bodies: usize,
    pub(super) reads_input: bool,
    calls: BTreeSet<String>,
}

impl PureFunction {
    /// Combines two definitions of the same function, because Rego allows several. Returns `None` if the definitions
    /// are in different modules, or have different numbers of arguments.
    fn merged_with(mut self, other: Self) -> Option<Self> {
        let is_same = self.module == other.module && self.arity == other.arity;
        self.bodies += other.bodies;
        self.reads_input |= other.reads_input;
        self.calls.extend(other.calls);
        is_same.then_some(self)
    }

    pub(super) fn path(&self) -> String {
        format!("{}.{}", self.package, self.name)
    }
}

/// Functions whose results depend only on their arguments and the input.
pub(super) struct PureFunctions {
    functions: BTreeMap<String, PureFunction>,
}

impl PureFunctions {
    /// Finds the functions that modules define; returns `None` if a module uses `with`, which changes the input.
    pub(super) fn find(modules: &[Ref<Module>]) -> Option<Self> {
        let mut has_with = false;
        for module in modules {
            walk::visit_queries(module, &mut |query| {
                has_with |= query.stmts.iter().any(|statement| !statement.with_mods.is_empty());
            });
        }
        if has_with {
            return None;
        }
        let rules = RulePaths::from_modules(modules);
        let mut functions_by_path: BTreeMap<String, Option<PureFunction>> = BTreeMap::new();
        for (index, module) in modules.iter().enumerate() {
            let scope = ModuleScope::from_module(module);
            for rule in &module.policy {
                let Some((path, definition)) = rules.function_of_rule(rule, index, &scope) else {
                    continue;
                };
                let merged = match (functions_by_path.remove(&path), definition) {
                    (None, only_definition) => only_definition,
                    (Some(Some(before)), Some(later_definition)) => before.merged_with(later_definition),
                    _ => None,
                };
                functions_by_path.insert(path, merged);
            }
        }
        let functions = functions_by_path
            .into_iter()
            .filter_map(|(path, function)| Some((path, function?)));
        let mut pure_functions = Self {
            functions: functions.collect(),
        };
        pure_functions.resolve_calls();
        Some(pure_functions)
    }

    fn resolve_calls(&mut self) {
        loop {
            let calls_only_pure =
                |definition: &PureFunction| definition.calls.iter().all(|path| self.functions.contains_key(path));
            let impure_paths: Vec<String> = self
                .functions
                .iter()
                .filter(|(_, definition)| !calls_only_pure(definition))
                .map(|(path, _)| path.clone())
                .collect();
            if impure_paths.is_empty() {
                break;
            }
            self.functions.retain(|path, _| !impure_paths.contains(path));
        }
        loop {
            let reads = |path: &String| self.functions.get(path).is_some_and(|called| called.reads_input);
            let input_free = self.functions.iter().filter(|(_, definition)| !definition.reads_input);
            let reading_paths: Vec<String> = input_free
                .filter(|(_, definition)| definition.calls.iter().any(reads))
                .map(|(path, _)| path.clone())
                .collect();
            if reading_paths.is_empty() {
                break;
            }
            for path in reading_paths {
                if let Some(definition) = self.functions.get_mut(&path) {
                    definition.reads_input = true;
                }
            }
        }
    }

    pub(super) fn pure_callee(&self, scope: &ModuleScope, name: &str) -> Option<String> {
        let mut paths = scope.possible_paths(name).into_iter();
        paths.find(|path| self.functions.contains_key(path))
    }

    fn total_body_count(&self, path: &str, visited_paths: &mut BTreeSet<String>) -> usize {
        if !visited_paths.insert(path.to_owned()) {
            return 0;
        }
        let Some(definition) = self.functions.get(path) else {
            return 0;
        };
        let called: usize = definition
            .calls
            .iter()
            .map(|path| self.total_body_count(path, visited_paths))
            .sum();
        definition.bodies + called
    }

    pub(super) fn functions_worth_remembering(&self, modules: &[Ref<Module>]) -> Vec<&PureFunction> {
        let mut sites: BTreeMap<String, usize> = BTreeMap::new();
        for module in modules {
            let scope = ModuleScope::from_module(module);
            walk::visit_expressions(module, &mut |expression| {
                if let Expr::Call { fcn, .. } = expression
                    && let Some(path) = self.pure_callee(&scope, fcn.span().text())
                {
                    *sites.entry(path).or_default() += 1;
                }
            });
        }
        let is_worthwhile = |path: &str| {
            let sites = sites.get(path).copied().unwrap_or_default();
            sites * self.total_body_count(path, &mut BTreeSet::new()) >= MIN_CACHED_BODIES
        };
        let worthwhile_functions = self.functions.iter().filter(|(path, _)| is_worthwhile(path));
        worthwhile_functions.map(|(_, definition)| definition).collect()
    }
}

struct RulePaths {
    defined_paths: BTreeSet<String>,
    /// The rules that the engine evaluates each time a policy uses their value. Functions are left out. Constants are
    /// left out too, because there is nothing to evaluate.
    evaluated_paths: BTreeSet<String>,
}

impl RulePaths {
    fn from_modules(modules: &[Ref<Module>]) -> Self {
        let mut evaluated = BTreeSet::new();
        for module in modules {
            let scope = ModuleScope::from_module(module);
            for rule in &module.policy {
                let refr = match &**rule {
                    Rule::Spec {
                        head: RuleHead::Func { .. },
                        ..
                    } => continue,
                    Rule::Spec {
                        head: RuleHead::Compr { .. },
                        bodies,
                        ..
                    } if bodies.iter().all(|body| body.query.stmts.is_empty()) => continue,
                    Rule::Spec {
                        head: RuleHead::Compr { refr, .. } | RuleHead::Set { refr, .. },
                        ..
                    }
                    | Rule::Default { refr, .. } => refr,
                };
                evaluated.insert(format!("{}.{}", scope.package, refr.span().text()));
            }
        }
        Self {
            defined_paths: collect_defined_paths(modules),
            evaluated_paths: evaluated,
        }
    }

    /// Returns the path and the definition of the function that a rule defines. The definition is `None` if the results
    /// of the function must not be cached.
    fn function_of_rule(
        &self,
        rule: &Rule,
        module: usize,
        scope: &ModuleScope,
    ) -> Option<(String, Option<PureFunction>)> {
        let (refr, args, bodies) = match rule {
            Rule::Spec {
                head: RuleHead::Func { refr, args, .. },
                bodies,
                ..
            } => (refr, args, bodies),
            Rule::Default { refr, .. } => {
                return Some((format!("{}.{}", scope.package, refr.span().text()), None));
            }
            Rule::Spec { .. } => return None,
        };
        let mut definition = PureFunction {
            package: scope.package.clone(),
            name: refr.span().text().to_owned(),
            module,
            arity: u8::try_from(args.len()).unwrap_or_default(),
            bodies: bodies.len().max(1),
            reads_input: false,
            calls: BTreeSet::new(),
        };
        let mut is_pure = definition.arity > 0;
        walk::visit_rule_expressions(rule, &mut |expression| match expression {
            Expr::Call { fcn, .. } => {
                let name = fcn.span().text();
                is_pure &= !matches!(name, "print" | "trace") && !name.starts_with("rand.");
                let path = scope
                    .possible_paths(name)
                    .into_iter()
                    .find(|path| self.defined_paths.contains(path));
                definition.calls.extend(path);
            }
            Expr::Var { span, .. } => {
                let name = span.text();
                let root = scope.imported_path(name).unwrap_or(name);
                definition.reads_input |= root == "input" || root.starts_with("input.");
                is_pure &= root != "data" && !root.starts_with("data.");
                is_pure &= !self.evaluated_paths.contains(&format!("{}.{name}", scope.package));
            }
            _ => {}
        });
        Some((definition.path(), is_pure.then_some(definition)))
    }
}
