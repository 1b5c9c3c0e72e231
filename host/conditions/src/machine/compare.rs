//! Compares the values of expressions, and charges for the comparisons.

use super::{Fault, Machine};
use crate::value::{Map, Value};

/// The number of comparisons that together cost 1. Comparing long texts counts as one comparison for every 16 bytes.
const WORK_OF_A_UNIT: u64 = 64;

impl<'a> Machine<'a> {
    /// Charges the cost of a comparison as kube-apiserver does. The size of the smaller value determines the cost. The
    /// size of a list or map is the number of its items, and the sizes of the items do not matter.
    pub(crate) fn charge_comparison(&mut self, one: &Value<'a>, other: &Value<'a>) -> Result<(), Fault> {
        let size = |value: &Value<'a>| match value {
            Value::String(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            Value::List(list) => list.len(),
            Value::Map(map) => map.len(),
            _ => 1,
        };
        self.charge_bytes(size(one).min(size(other)))
    }

    /// Charges for comparing the values inside lists and maps. kube-apiserver does not charge for them.
    fn charge_work(&mut self, values: usize) -> Result<(), Fault> {
        self.meter.work += values as u64;
        let cost = self.meter.work / WORK_OF_A_UNIT;
        self.meter.work %= WORK_OF_A_UNIT;
        self.charge(cost)
    }

    /// Returns whether two values are equal. Values of different types are not equal, except for numbers.
    pub(crate) fn equal(&mut self, one: &Value<'a>, other: &Value<'a>) -> Result<bool, Fault> {
        match (one, other) {
            (Value::List(one), Value::List(other)) => {
                self.charge_work(1)?;
                if one.len() != other.len() {
                    return Ok(false);
                }
                for (one, other) in one.iter().zip(other.iter()) {
                    if !self.equal(&one, &other)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Value::Map(one), Value::Map(other)) => self.equal_maps(one, other),
            (Value::Part(one), Value::Part(other)) => {
                Ok(one.path == other.path && self.equal_maps(&one.fields, &other.fields)?)
            }
            (Value::Optional(one), Value::Optional(other)) => match (one, other) {
                (Some(one), Some(other)) => self.equal(one, other),
                (one, other) => Ok(one.is_none() == other.is_none()),
            },
            (Value::String(one), Value::String(other)) => {
                self.charge_work(1 + one.len().min(other.len()) / 16)?;
                Ok(**one == **other)
            }
            (Value::Bytes(one), Value::Bytes(other)) => {
                self.charge_work(1 + one.len().min(other.len()) / 16)?;
                Ok(one == other)
            }
            _ => {
                self.charge_work(1)?;
                Ok(one.same_scalar(other))
            }
        }
    }

    fn equal_maps(&mut self, one: &Map<'a>, other: &Map<'a>) -> Result<bool, Fault> {
        self.charge_work(1)?;
        if one.len() != other.len() {
            return Ok(false);
        }
        for (key, value) in one.entries() {
            self.charge(other.lookup_cost())?;
            self.charge_work(1)?;
            let Some(other) = other.get(&key) else {
                return Ok(false);
            };
            if !self.equal(&value, &other)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(crate) fn position(
        &mut self,
        value: &Value<'a>,
        items: impl Iterator<Item = Value<'a>>,
    ) -> Result<Option<usize>, Fault> {
        for (index, item) in items.enumerate() {
            self.charge(1)?;
            if self.equal(&item, value)? {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }
}
