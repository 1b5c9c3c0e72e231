//! Evaluates expressions, and counts what that costs.

use std::sync::Arc;

use super::{
    expression::{Constant, Each, EachKind, Entry, Expression, Index, Item, Select, WithValue},
    functions::Function,
    permission::{Answers, Question},
    value::{List, Map, Value},
    variables::Variables,
};
use admittance_admission::Deadline;

/// What one expression may cost: kube-apiserver's limit of a call.
const PER_EXPRESSION: u64 = 1_000_000;
/// How often the clock is looked at.
const PER_LOOK: u64 = 10_000;

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    /// A value is not what it would have to be. `&&`, `||` and their like go on when the other side
    /// decides.
    Error(String),
    /// The evaluation cannot go on.
    Halt(Halt),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Halt {
    /// The limit of one expression is reached.
    Cost,
    /// The limit of all conditions together is reached.
    TotalCost,
    /// The time is over.
    Deadline,
    /// An answer of the authorizer is needed first.
    Question(Box<Question>),
}

impl Fault {
    pub(crate) fn error(text: impl Into<String>) -> Self {
        Self::Error(text.into())
    }

    /// The operands have types for which nothing is defined.
    pub(crate) fn no_overload() -> Self {
        Self::error("no such overload")
    }

    fn no_key(key: &str) -> Self {
        Self::Error(format!("no such key: {key}"))
    }
}

pub(crate) type Outcome<'a> = Result<Value<'a>, Fault>;

/// The most that a function takes, with what it is called on.
pub(crate) const MOST_ARGUMENTS: usize = 4;

/// One evaluation of one expression.
pub(crate) struct Machine<'a> {
    variables: &'a Variables<'a>,
    answers: &'a Answers,
    locals: Vec<Value<'a>>,
    cost: u64,
    limit: u64,
    /// What to say when the limit is reached.
    over: Halt,
    next_look: u64,
    deadline: Deadline,
}

impl<'a> Machine<'a> {
    /// With `left` to spend of what all conditions together may cost.
    pub(crate) fn new(
        variables: &'a Variables<'a>,
        answers: &'a Answers,
        left: u64,
        deadline: Deadline,
    ) -> Self {
        let (limit, over) = if left < PER_EXPRESSION {
            (left, Halt::TotalCost)
        } else {
            (PER_EXPRESSION, Halt::Cost)
        };
        Self {
            variables,
            answers,
            locals: Vec::new(),
            cost: 0,
            limit,
            over,
            next_look: PER_LOOK,
            deadline,
        }
    }

    /// What was spent.
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// The answers of the authorizer.
    pub(crate) fn answers(&self) -> &'a Answers {
        self.answers
    }

    /// Spend this much. Everything that makes or goes through something pays before it does.
    pub(crate) fn pay(&mut self, cost: u64) -> Result<(), Fault> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit {
            self.cost = self.limit;
            return Err(Fault::Halt(self.over.clone()));
        }
        if self.cost >= self.next_look {
            self.next_look = self.cost + PER_LOOK;
            if self.deadline.has_passed() {
                return Err(Fault::Halt(Halt::Deadline));
            }
        }
        Ok(())
    }

    /// Spend what it costs to go through this many bytes.
    pub(crate) fn pay_bytes(&mut self, bytes: usize) -> Result<(), Fault> {
        self.pay((bytes as u64).div_ceil(10))
    }

    /// Spend what it costs to go through this many items.
    pub(crate) fn pay_items(&mut self, items: usize) -> Result<(), Fault> {
        self.pay(items as u64)
    }

    pub(crate) fn evaluate(&mut self, expression: &'a Expression) -> Outcome<'a> {
        match expression {
            Expression::Constant(constant) => Ok(value_of(constant)),
            Expression::Variable(variable) => {
                self.pay(1)?;
                Ok(self.variables.get(*variable))
            }
            Expression::Local(place) => {
                self.pay(1)?;
                // The check binds every local that it lets through.
                self.locals
                    .get(*place)
                    .cloned()
                    .ok_or_else(|| Fault::error("no such attribute"))
            }
            Expression::Select(select) => self.select(select),
            Expression::Has(select) => self.has(select),
            Expression::Index(index) => self.index(index),
            Expression::And(sides) => self.decided(sides, false),
            Expression::Or(sides) => self.decided(sides, true),
            Expression::Conditional(parts) => self.conditional(parts),
            Expression::Call(function, arguments) => self.call(function, arguments),
            Expression::List(items) => self.list(items),
            Expression::Map(entries) => self.map(entries),
            Expression::Each(each) => self.each(each),
            Expression::WithValue(with) => self.with_value(with),
        }
    }

    #[inline(never)]
    fn select(&mut self, select: &'a Select) -> Outcome<'a> {
        let operand = self.evaluate(&select.operand)?;
        self.pay(1 + operand.look())?;
        match operand {
            Value::Optional(None) => Ok(Value::Optional(None)),
            // What an optional value leads to is optional.
            Value::Optional(Some(inner)) => {
                Ok(field(&inner, &select.field).map_or(Value::Optional(None), Value::some))
            }
            operand if select.optional => {
                Ok(field(&operand, &select.field).map_or(Value::Optional(None), Value::some))
            }
            operand => field(&operand, &select.field).ok_or_else(|| Fault::no_key(&select.field)),
        }
    }

    #[inline(never)]
    fn has(&mut self, select: &'a Select) -> Outcome<'a> {
        let operand = self.evaluate(&select.operand)?;
        self.pay(1 + operand.look())?;
        let present = match &operand {
            Value::Optional(None) => false,
            Value::Optional(Some(inner)) => field(inner, &select.field).is_some(),
            operand => field(operand, &select.field).is_some(),
        };
        Ok(Value::Bool(present))
    }

    #[inline(never)]
    fn index(&mut self, index: &'a Index) -> Outcome<'a> {
        let operand = self.evaluate(&index.operand)?;
        let key = self.evaluate(&index.index)?;
        self.pay(1 + operand.look())?;
        match operand {
            Value::Optional(None) => Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => Ok(item(&inner, &key)?
                .ok()
                .map_or(Value::Optional(None), Value::some)),
            operand if index.optional => Ok(item(&operand, &key)?
                .ok()
                .map_or(Value::Optional(None), Value::some)),
            operand => item(&operand, &key)?,
        }
    }

    /// `&&` and `||`: one side that is `decisive` decides, whatever the other is.
    #[inline(never)]
    fn decided(&mut self, sides: &'a [Expression; 2], decisive: bool) -> Outcome<'a> {
        let [one, other] = sides;
        let one = self.truth(one)?;
        if one == Ok(decisive) {
            return Ok(Value::Bool(decisive));
        }
        match (one, self.truth(other)?) {
            (_, Ok(other)) if other == decisive => Ok(Value::Bool(decisive)),
            (Err(error), _) | (Ok(_), Err(error)) => Err(Fault::Error(error)),
            (Ok(_), Ok(_)) => Ok(Value::Bool(!decisive)),
        }
    }

    /// Whether it holds, or the error that another side may outweigh.
    fn truth(&mut self, expression: &'a Expression) -> Result<Result<bool, String>, Fault> {
        match self.evaluate(expression) {
            Ok(Value::Bool(value)) => Ok(Ok(value)),
            Ok(_) => Ok(Err("no such overload".to_owned())),
            Err(Fault::Error(error)) => Ok(Err(error)),
            Err(halt) => Err(halt),
        }
    }

    #[inline(never)]
    fn conditional(&mut self, parts: &'a [Expression; 3]) -> Outcome<'a> {
        let [test, then, otherwise] = parts;
        self.pay(1)?;
        match self.evaluate(test)? {
            Value::Bool(true) => self.evaluate(then),
            Value::Bool(false) => self.evaluate(otherwise),
            _ => Err(Fault::no_overload()),
        }
    }

    #[inline(never)]
    fn call(&mut self, function: &'static Function, arguments: &'a [Expression]) -> Outcome<'a> {
        let mut values = [const { Value::Null }; MOST_ARGUMENTS];
        for (place, argument) in values.iter_mut().zip(arguments) {
            *place = self.evaluate(argument)?;
        }
        self.pay(1)?;
        (function.run)(self, values.get(..arguments.len()).unwrap_or(&values))
    }

    #[inline(never)]
    fn list(&mut self, items: &'a [Item]) -> Outcome<'a> {
        self.pay(10)?;
        self.pay_items(items.len())?;
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            let value = self.evaluate(&item.value)?;
            values.extend(unwrap_optional(value, item.optional)?);
        }
        Ok(Value::list(values))
    }

    #[inline(never)]
    fn map(&mut self, entries: &'a [Entry]) -> Outcome<'a> {
        self.pay(30)?;
        let mut values: Vec<(Value<'a>, Value<'a>)> = Vec::with_capacity(entries.len());
        for entry in entries {
            let key = self.evaluate(&entry.key)?;
            if !matches!(
                key,
                Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::String(_)
            ) {
                return Err(Fault::error("unsupported key type"));
            }
            let value = self.evaluate(&entry.value)?;
            let Some(value) = unwrap_optional(value, entry.optional)? else {
                continue;
            };
            self.pay_items(values.len() + 1)?;
            if values.iter().any(|(other, _)| other.same_scalar(&key)) {
                return Err(Fault::error("Failed with repeated key"));
            }
            values.push((key, value));
        }
        Ok(Value::map(values))
    }

    #[inline(never)]
    fn each(&mut self, each: &'a Each) -> Outcome<'a> {
        let range = self.evaluate(&each.range)?;
        self.pay(1)?;
        match range {
            Value::List(list) => self.each_of(each, list.iter()),
            Value::Map(map) => self.each_of(each, map.keys()),
            _ => Err(Fault::no_overload()),
        }
    }

    fn each_of(&mut self, each: &'a Each, range: impl Iterator<Item = Value<'a>>) -> Outcome<'a> {
        let place = self.locals.len();
        let outcome = match each.kind {
            EachKind::All => self.until(each, range, false),
            EachKind::Exists => self.until(each, range, true),
            EachKind::ExistsOne => self.exactly_one(each, range),
            EachKind::Map | EachKind::Filter => self.collect(each, range),
        };
        self.locals.truncate(place);
        outcome
    }

    /// `all` and `exists`: the first item whose test is `decisive` decides, also when others fail.
    fn until(
        &mut self,
        each: &'a Each,
        range: impl Iterator<Item = Value<'a>>,
        decisive: bool,
    ) -> Outcome<'a> {
        let mut failed = None;
        for item in range {
            match self.test(each, item)? {
                Ok(value) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(_) => {}
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        match failed {
            Some(error) => Err(Fault::Error(error)),
            None => Ok(Value::Bool(!decisive)),
        }
    }

    fn exactly_one(&mut self, each: &'a Each, range: impl Iterator<Item = Value<'a>>) -> Outcome<'a> {
        let mut found = 0_usize;
        for item in range {
            if self.test(each, item)?.map_err(Fault::Error)? {
                found += 1;
            }
        }
        Ok(Value::Bool(found == 1))
    }

    fn collect(&mut self, each: &'a Each, range: impl Iterator<Item = Value<'a>>) -> Outcome<'a> {
        let mut values = Vec::new();
        for item in range {
            if !self.test(each, item.clone())?.map_err(Fault::Error)? {
                continue;
            }
            // What a list of one and its concatenation cost.
            self.pay(12)?;
            values.push(match &each.result {
                Some(result) => self.evaluate(result)?,
                None => item,
            });
        }
        Ok(Value::list(values))
    }

    /// Bind the item and test it; without a test, it holds.
    fn test(&mut self, each: &'a Each, item: Value<'a>) -> Result<Result<bool, String>, Fault> {
        // What a step costs besides the test: to look at what is known so far, and to keep it.
        self.pay(2)?;
        self.bind(each, item);
        match &each.test {
            Some(test) => self.truth(test),
            None => Ok(Ok(true)),
        }
    }

    fn bind(&mut self, each: &'a Each, item: Value<'a>) {
        // The name's place is behind all outer names: what an item before this one left there goes.
        self.locals.truncate(each.place);
        self.locals.push(item);
    }

    #[inline(never)]
    fn with_value(&mut self, with: &'a WithValue) -> Outcome<'a> {
        let operand = self.evaluate(&with.operand)?;
        self.pay(1)?;
        let Value::Optional(inner) = operand else {
            return Err(Fault::no_overload());
        };
        let Some(inner) = inner else {
            return Ok(Value::Optional(None));
        };
        let place = self.locals.len();
        self.locals.push((*inner).clone());
        let outcome = self.evaluate(&with.body);
        self.locals.truncate(place);
        match outcome? {
            value @ Value::Optional(_) if with.flat => Ok(value),
            _ if with.flat => Err(Fault::no_overload()),
            value => Ok(Value::some(value)),
        }
    }

    /// Whether two values are equal. Numbers compare across types; values of other types are unequal.
    pub(crate) fn equal(&mut self, one: &Value<'a>, other: &Value<'a>) -> Result<bool, Fault> {
        match (one, other) {
            (Value::List(one), Value::List(other)) => {
                self.pay(1)?;
                if one.len() != other.len() {
                    return Ok(false);
                }
                for (one, other) in one.iter().zip(other.iter()) {
                    self.pay(1)?;
                    if !self.equal(&one, &other)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Value::Map(one), Value::Map(other)) => self.equal_maps(one, other),
            (Value::Optional(one), Value::Optional(other)) => match (one, other) {
                (Some(one), Some(other)) => self.equal(one, other),
                (one, other) => Ok(one.is_none() == other.is_none()),
            },
            (Value::String(one), Value::String(other)) => {
                self.pay_bytes(one.len().min(other.len()))?;
                Ok(**one == **other)
            }
            (Value::Bytes(one), Value::Bytes(other)) => {
                self.pay_bytes(one.len().min(other.len()))?;
                Ok(one == other)
            }
            _ => Ok(one.same_scalar(other)),
        }
    }

    fn equal_maps(&mut self, one: &Map<'a>, other: &Map<'a>) -> Result<bool, Fault> {
        self.pay(1)?;
        if one.len() != other.len() {
            return Ok(false);
        }
        for (key, value) in one.entries() {
            self.pay(1 + other.look())?;
            let Some(other) = other.get(&key) else {
                return Ok(false);
            };
            if !self.equal(&value, &other)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The place of a value in a list.
    pub(crate) fn position(
        &mut self,
        wanted: &Value<'a>,
        among: impl Iterator<Item = Value<'a>>,
    ) -> Result<Option<usize>, Fault> {
        for (place, item) in among.enumerate() {
            self.pay(1)?;
            if self.equal(&item, wanted)? {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }
}

fn value_of(constant: &Constant) -> Value<'_> {
    match constant {
        Constant::Null => Value::Null,
        Constant::Bool(value) => Value::Bool(*value),
        Constant::Int(value) => Value::Int(*value),
        Constant::Uint(value) => Value::Uint(*value),
        Constant::Double(value) => Value::Double(*value),
        Constant::String(text) => Value::text(text),
        Constant::Bytes(bytes) => Value::Bytes(Arc::clone(bytes)),
        Constant::Type(name) => Value::Type(name),
        Constant::Pattern(pattern) => Value::Pattern(pattern),
    }
}

fn field<'a>(operand: &Value<'a>, name: &str) -> Option<Value<'a>> {
    match operand {
        Value::Map(map) => map.field(name),
        _ => None,
    }
}

/// The item of a list or a map. The inner error is that there is none, which an optional index forgives.
fn item<'a>(operand: &Value<'a>, key: &Value<'a>) -> Result<Outcome<'a>, Fault> {
    match operand {
        Value::Map(map) => Ok(map.get(key).ok_or_else(|| Fault::no_key(&plain(key)))),
        Value::List(list) => {
            let index = match key {
                Value::Int(index) => usize::try_from(*index).ok(),
                Value::Uint(index) => usize::try_from(*index).ok(),
                // A whole number in any type is an index.
                Value::Double(index) if index.fract() == 0.0 && *index >= 0.0 => Some(*index as usize),
                Value::Double(_) => None,
                _ => {
                    return Err(Fault::Error(format!(
                        "unsupported index type '{}' in list",
                        key.kind()
                    )));
                }
            };
            Ok(index
                .and_then(|index| list.get(index))
                .ok_or_else(|| Fault::Error(format!("index out of bounds: {}", plain(key)))))
        }
        Value::Null => Ok(Err(Fault::no_key(&plain(key)))),
        _ => Err(Fault::no_overload()),
    }
}

/// A key as messages show it.
fn plain(key: &Value<'_>) -> String {
    match key {
        Value::String(text) => text.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => value.to_string(),
        Value::Bool(value) => value.to_string(),
        other => other.kind().to_owned(),
    }
}

/// The value that an entry of a list or a map adds: none for an optional one that holds none.
fn unwrap_optional(value: Value<'_>, optional: bool) -> Result<Option<Value<'_>>, Fault> {
    match value {
        Value::Optional(inner) if optional => Ok(inner.map(|inner| (*inner).clone())),
        _ if optional => Err(Fault::no_overload()),
        value => Ok(Some(value)),
    }
}

/// A list as one that can be indexed, or the fault that it is none.
pub(crate) fn as_list<'a>(value: &Value<'a>) -> Result<List<'a>, Fault> {
    match value {
        Value::List(list) => Ok(list.clone()),
        _ => Err(Fault::no_overload()),
    }
}
