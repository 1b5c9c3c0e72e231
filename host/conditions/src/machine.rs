//! Evaluates expressions within a cost limit.

use std::sync::Arc;

use admittance_admission::{Deadline, is_call_movable, shortened};

use crate::{
    expression::{Expression, IndexExpression, ListItem, MapEntry, OrElse, Select, VariableDefinition},
    functions::{CelFunction, authorizer::AuthorizerAnswers, lookup::Lookups},
    value::{Map, ObjectPart, Value},
    variables::Variables,
};

mod compare;
mod fault;
mod macros;
mod run;

pub(crate) use self::{
    fault::{Fault, Halt},
    run::ValueSources,
};

/// The cost limit of one expression, as in kube-apiserver.
const EXPRESSION_COST: u64 = 1_000_000;
/// The deadline is checked each time that the cost has grown by this amount. An evaluation takes less than a
/// millisecond for such an amount.
const DEADLINE_INTERVAL: u64 = 10_000;

pub(crate) type Outcome<'a> = Result<Value<'a>, Fault>;

/// The maximum number of arguments in a call of a function. The receiver counts as an argument.
pub(crate) const MAX_ARGUMENTS: usize = 4;

pub(crate) struct Machine<'a> {
    variables: &'a Variables<'a>,
    definitions: &'a [VariableDefinition],
    /// The values of the policy's variables, by index. A variable has no value until it is used.
    composed_values: Vec<Option<Result<Value<'a>, String>>>,
    pub(crate) authorizer_answers: AuthorizerAnswers,
    pub(crate) lookups: Lookups,
    locals: Vec<Value<'a>>,
    budget: u64,
    /// The cost of all expressions that were evaluated since the task last let other tasks run.
    cost_since_pause: u64,
    meter: ExpressionMeter,
    pub(crate) deadline: Deadline,
}

struct ExpressionMeter {
    cost: u64,
    limit: u64,
    /// The error to return when the cost exceeds `limit`. There are two such errors: one for the limit of a single
    /// expression, and one for the limit of all expressions together.
    limit_halt: Halt,
    question_cost: u64,
    next_deadline_check: u64,
    /// The work that has not been charged yet, because it is not enough for a cost of 1. It is charged as soon as more
    /// work brings it to a cost of 1.
    work: u64,
}

impl ExpressionMeter {
    fn computed_cost(&self) -> u64 {
        self.cost.saturating_sub(self.question_cost)
    }

    fn with_budget(budget: u64) -> Self {
        let (limit, halt) = if budget < EXPRESSION_COST {
            (budget, Halt::TotalCost)
        } else {
            (EXPRESSION_COST, Halt::Cost)
        };
        Self {
            cost: 0,
            question_cost: 0,
            limit,
            limit_halt: halt,
            next_deadline_check: DEADLINE_INTERVAL,
            work: 0,
        }
    }
}

impl<'a> Machine<'a> {
    pub(crate) fn new(
        variables: &'a Variables<'a>,
        definitions: &'a [VariableDefinition],
        budget: u64,
        deadline: Deadline,
    ) -> Self {
        Self {
            variables,
            definitions,
            composed_values: vec![None; definitions.len()],
            authorizer_answers: AuthorizerAnswers::default(),
            lookups: Lookups::default(),
            locals: Vec::new(),
            budget,
            cost_since_pause: 0,
            meter: ExpressionMeter::with_budget(budget),
            deadline,
        }
    }

    pub(crate) fn charge(&mut self, cost: u64) -> Result<(), Fault> {
        let meter = &mut self.meter;
        meter.cost = meter.cost.saturating_add(cost);
        if meter.cost > meter.limit {
            meter.cost = meter.limit;
            return Err(Fault::Halt(meter.limit_halt.clone()));
        }
        if meter.cost >= meter.next_deadline_check {
            meter.next_deadline_check = meter.cost + DEADLINE_INTERVAL;
            if self.deadline.has_passed() {
                return Err(Fault::Halt(Halt::Deadline));
            }
            if meter.computed_cost() >= DEADLINE_INTERVAL && is_call_movable() {
                return Err(Fault::Halt(Halt::MoveThread));
            }
        }
        Ok(())
    }

    pub(crate) fn charge_question(&mut self, cost: u64) -> Result<(), Fault> {
        self.meter.question_cost = self.meter.question_cost.saturating_add(cost);
        self.charge(cost)
    }

    pub(crate) fn charge_bytes(&mut self, bytes: usize) -> Result<(), Fault> {
        self.charge((bytes as u64).div_ceil(10))
    }

    pub(crate) fn charge_items(&mut self, items: usize) -> Result<(), Fault> {
        self.charge(items as u64)
    }

    pub(crate) fn evaluate(&mut self, expression: &'a Expression) -> Outcome<'a> {
        match expression {
            Expression::Constant(value) => Ok(value.clone()),
            Expression::Variable(variable) => {
                self.charge(1)?;
                Ok(self.variables.get(*variable))
            }
            Expression::Local(index) => {
                self.charge(1)?;
                self.locals
                    .get(*index)
                    .cloned()
                    .ok_or_else(|| Fault::error("no such attribute"))
            }
            Expression::Composed(index) => self.evaluate_composed(*index),
            Expression::Select(select) => self.evaluate_select(select),
            Expression::Has(select) => self.evaluate_has(select),
            Expression::Index(index) => self.evaluate_index(index),
            Expression::And(sides) => self.evaluate_logical(sides, false),
            Expression::Or(sides) => self.evaluate_logical(sides, true),
            Expression::Conditional(parts) => self.evaluate_conditional(parts),
            Expression::OrElse(parts) => self.evaluate_or_else(parts),
            Expression::Call(function, arguments) => self.evaluate_call(function, arguments),
            Expression::List(items) => self.evaluate_list(items),
            Expression::Map(entries) => self.evaluate_map(entries),
            Expression::Part(path, fields) => self.evaluate_part(path, fields),
            Expression::Each(each) => self.evaluate_comprehension(each),
            Expression::WithValue(with) => self.evaluate_optional_map(with),
        }
    }

    #[inline(never)]
    fn evaluate_or_else(&mut self, parts: &'a OrElse) -> Outcome<'a> {
        let operand = self.evaluate(&parts.operand)?;
        self.charge(1)?;
        match operand {
            Value::Optional(Some(inner)) if parts.is_or_value => Ok((*inner).clone()),
            operand @ Value::Optional(Some(_)) => Ok(operand),
            Value::Optional(None) => self.evaluate(&parts.otherwise),
            // A value that is not optional counts as an optional value that is present, as in cel-go.
            operand => Ok(operand),
        }
    }

    #[inline(never)]
    fn evaluate_part(&mut self, path: &'a Arc<str>, fields: &'a [MapEntry]) -> Outcome<'a> {
        self.charge(40)?;
        self.charge_items(fields.len())?;
        let mut values = Vec::with_capacity(fields.len());
        for field in fields {
            let key = self.evaluate(&field.key)?;
            let value = self.evaluate(&field.value)?;
            if let Some(value) = unwrap_optional(value, field.is_optional)? {
                values.push((key, value));
            }
        }
        Ok(Value::Part(Arc::new(ObjectPart {
            path: Arc::clone(path),
            fields: Map::Shared(values.into()),
        })))
    }

    #[inline(never)]
    fn evaluate_select(&mut self, select: &'a Select) -> Outcome<'a> {
        let operand = self.evaluate(&select.operand)?;
        self.charge(1 + operand.lookup_cost())?;
        match operand {
            Value::Optional(None) => Ok(Value::Optional(None)),
            // If the operand is an optional value, the selected field is an optional value, too.
            Value::Optional(Some(inner)) => {
                Ok(read_field(&inner, &select.field)?.map_or(Value::Optional(None), Value::some))
            }
            operand if select.is_optional => {
                Ok(read_field(&operand, &select.field)?.map_or(Value::Optional(None), Value::some))
            }
            operand => read_field(&operand, &select.field)?.ok_or_else(|| Fault::no_key(&select.field)),
        }
    }

    #[inline(never)]
    fn evaluate_has(&mut self, select: &'a Select) -> Outcome<'a> {
        let operand = self.evaluate(&select.operand)?;
        self.charge(1 + operand.lookup_cost())?;
        let is_present = match &operand {
            Value::Optional(None) => false,
            Value::Part(part) if part.is_json_patch() => {
                let value = part.fields.field(&select.field);
                value.is_some_and(|value| !matches!(&value, Value::String(text) if text.is_empty()))
            }
            Value::Optional(Some(inner)) => read_field(inner, &select.field)?.is_some(),
            operand => read_field(operand, &select.field)?.is_some(),
        };
        Ok(Value::Bool(is_present))
    }

    #[inline(never)]
    fn evaluate_index(&mut self, index: &'a IndexExpression) -> Outcome<'a> {
        let operand = self.evaluate(&index.operand)?;
        let key = self.evaluate(&index.index)?;
        self.charge(1 + operand.lookup_cost())?;
        match operand {
            Value::Optional(None) => Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => {
                Ok(read_item(&inner, &key)?.ok().map_or(Value::Optional(None), Value::some))
            }
            operand if index.is_optional => Ok(read_item(&operand, &key)?
                .ok()
                .map_or(Value::Optional(None), Value::some)),
            operand => read_item(&operand, &key)?,
        }
    }

    /// Evaluates `&&` or `||`. One operand with the value `decisive` decides, even if the other operand fails.
    #[inline(never)]
    fn evaluate_logical(&mut self, sides: &'a [Expression; 2], decisive: bool) -> Outcome<'a> {
        let [left, right] = sides;
        let left_truth = self.evaluate_truth(left)?;
        if left_truth == Ok(decisive) {
            return Ok(Value::Bool(decisive));
        }
        match (left_truth, self.evaluate_truth(right)?) {
            (_, Ok(other)) if other == decisive => Ok(Value::Bool(decisive)),
            (Err(error), _) | (Ok(_), Err(error)) => Err(Fault::Error(error)),
            (Ok(_), Ok(_)) => Ok(Value::Bool(!decisive)),
        }
    }

    /// Evaluates an operand, such as `a` in `a && b`, to a bool. The inner error means that the operand has no value.
    /// The caller ignores this error if the value of the other operand is enough.
    fn evaluate_truth(&mut self, expression: &'a Expression) -> Result<Result<bool, String>, Fault> {
        match self.evaluate(expression) {
            Ok(Value::Bool(value)) => Ok(Ok(value)),
            Ok(_) => Ok(Err("no such overload".to_owned())),
            Err(Fault::Error(error)) => Ok(Err(error)),
            Err(halt) => Err(halt),
        }
    }

    #[inline(never)]
    fn evaluate_conditional(&mut self, parts: &'a [Expression; 3]) -> Outcome<'a> {
        let [test, then, otherwise] = parts;
        self.charge(1)?;
        match self.evaluate(test)? {
            Value::Bool(true) => self.evaluate(then),
            Value::Bool(false) => self.evaluate(otherwise),
            _ => Err(Fault::no_overload()),
        }
    }

    #[inline(never)]
    fn evaluate_call(&mut self, function: &'static CelFunction, arguments: &'a [Expression]) -> Outcome<'a> {
        let mut values = [const { Value::Null }; MAX_ARGUMENTS];
        for (value, argument) in values.iter_mut().zip(arguments) {
            *value = self.evaluate(argument)?;
        }
        let cost_before = self.meter.cost;
        let outcome = function.call(self, values.get(..arguments.len()).unwrap_or(&values))?;
        // A call costs at least 1, as in kube-apiserver.
        if self.meter.cost == cost_before {
            self.charge(1)?;
        }
        Ok(outcome)
    }

    #[inline(never)]
    fn evaluate_list(&mut self, items: &'a [ListItem]) -> Outcome<'a> {
        self.charge(10)?;
        self.charge_items(items.len())?;
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            values.extend(unwrap_optional(self.evaluate(&item.value)?, item.is_optional)?);
        }
        Ok(Value::list(values))
    }

    #[inline(never)]
    fn evaluate_map(&mut self, entries: &'a [MapEntry]) -> Outcome<'a> {
        self.charge(30)?;
        let mut values: Vec<(Value<'a>, Value<'a>)> = Vec::with_capacity(entries.len());
        for entry in entries {
            let key = self.evaluate(&entry.key)?;
            if !matches!(key, Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::String(_)) {
                return Err(Fault::error("unsupported key type"));
            }
            let value = self.evaluate(&entry.value)?;
            let Some(value) = unwrap_optional(value, entry.is_optional)? else {
                continue;
            };
            self.charge_items(values.len() + 1)?;
            if values.iter().any(|(other, _)| other.same_scalar(&key)) {
                return Err(Fault::error("Failed with repeated key"));
            }
            values.push((key, value));
        }
        Ok(Value::map(values))
    }
}

fn read_field<'a>(operand: &Value<'a>, name: &str) -> Result<Option<Value<'a>>, Fault> {
    match operand {
        Value::Map(map) => Ok(map.field(name)),
        Value::Part(part) => {
            // In a literal `JSONPatch{...}`, the string fields `op`, `path` and `from` are empty, not absent, if unset.
            let is_text = part.is_json_patch() && matches!(name, "op" | "path" | "from");
            let unset_text = is_text.then(|| Value::text(""));
            Ok(part.fields.field(name).or(unset_text))
        }
        Value::List(_) => Err(Fault::unsupported_index("string")),
        _ => Ok(None),
    }
}

/// Returns the item of a list or map with this index or key. The inner error means that there is no such item.
fn read_item<'a>(operand: &Value<'a>, key: &Value<'a>) -> Result<Outcome<'a>, Fault> {
    match operand {
        Value::Map(map) => Ok(map.get(key).ok_or_else(|| Fault::no_key(&key_text(key)))),
        Value::List(list) => {
            let index = match key {
                Value::Int(index) => usize::try_from(*index).ok(),
                Value::Uint(index) => usize::try_from(*index).ok(),
                // A double may be an index if it has no fraction.
                Value::Double(index) if index.fract() == 0.0 && *index >= 0.0 => Some(*index as usize),
                Value::Double(_) => None,
                _ => return Err(Fault::unsupported_index(key.kind())),
            };
            Ok(index
                .and_then(|index| list.get(index))
                .ok_or_else(|| Fault::Error(format!("index out of bounds: {}", key_text(key)))))
        }
        Value::Null => Ok(Err(Fault::no_key(&key_text(key)))),
        _ => Err(Fault::no_overload()),
    }
}

pub(crate) fn key_text(key: &Value<'_>) -> String {
    match key {
        // The text is for an error message. A loop may create many such messages, and their lengths are not charged, so
        // long keys are cut.
        Value::String(text) => shortened(text, MAX_SHOWN_LENGTH).into_owned(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => value.to_string(),
        Value::Bool(value) => value.to_string(),
        other => other.kind().to_owned(),
    }
}

/// The maximum length of a key in a message, in bytes.
const MAX_SHOWN_LENGTH: usize = 1024;

/// Returns the value that an entry adds to a list or map literal; `None` for an optional entry whose value is absent.
fn unwrap_optional(value: Value<'_>, optional: bool) -> Result<Option<Value<'_>>, Fault> {
    match value {
        Value::Optional(inner) if optional => Ok(inner.map(|inner| (*inner).clone())),
        _ if optional => Err(Fault::no_overload()),
        value => Ok(Some(value)),
    }
}
