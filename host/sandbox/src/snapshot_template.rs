//! Shares compiled code among snapshots of one module that differ only in their data.
//!
//! Different settings rarely change anything in a snapshot but the data of its memories. So before compilation, the
//! data is replaced with a filler. The compiled form can be used for all these snapshots: each gets a copy in which its
//! own data replaces the filler. This works because wasmtime maps the data into the memory of instances unchanged.

use memchr::memmem;
use wasm_encoder::{ConstExpr, DataCountSection, DataSection, RawSection};
use wasmparser::{DataKind, DataSectionReader, MemoryType, Operator, Parser, Payload, TypeRef};

use crate::kubewarden::CORE_MODULE_MAGIC;

/// The data of a memory is padded to a multiple of this size. Snapshots with different settings then usually have data
/// of the same size, so that they can share compiled code.
const DATA_SIZE_UNIT: u64 = 64 << 10;

/// Up to this size, wasmtime maps the data of a memory even if it has large gaps. Larger data is mapped only if
/// segments fill at least half of it.
const MAX_SPARSE: u64 = 16 << 20;

/// The id of the sections of a component that contain core modules.
const CORE_MODULE_SECTION: u8 = 1;
const COMPONENT_SECTION: u8 = 4;

#[derive(Debug)]
pub(crate) struct SnapshotTemplate {
    /// The module or component of the snapshot, with fillers in place of the data of its memories. If two snapshots
    /// differ only in this data, their `bytes` are equal.
    pub(crate) bytes: Vec<u8>,
    memory_data: Vec<MemoryData>,
}

/// The data of a memory, padded to a multiple of [`DATA_SIZE_UNIT`].
#[derive(Debug)]
struct MemoryData {
    data: Vec<u8>,
    filler: Vec<u8>,
}

impl SnapshotTemplate {
    pub(crate) fn new(snapshot: &[u8]) -> wasmparser::Result<Self> {
        let mut memory_data = Vec::new();
        let bytes = if snapshot.starts_with(CORE_MODULE_MAGIC) {
            module_template(snapshot, &mut memory_data)?.unwrap_or_else(|| snapshot.to_vec())
        } else {
            component_template(snapshot, &mut memory_data)?
        };
        Ok(Self { bytes, memory_data })
    }

    /// Replaces the fillers in compiled code with the data of the snapshot. Returns `None` if a filler does not occur
    /// exactly once.
    pub(crate) fn fill(&self, compiled: &[u8]) -> Option<Vec<u8>> {
        let mut filled = compiled.to_vec();
        for MemoryData { data, filler } in &self.memory_data {
            let mut positions = memmem::find_iter(compiled, filler);
            let position = positions.next()?;
            if positions.next().is_some() {
                return None;
            }
            filled
                .get_mut(position..position.checked_add(data.len())?)?
                .copy_from_slice(data);
        }
        Some(filled)
    }
}

/// Splits a module or component into sections. Components may be nested as deep as the complexity check allows.
fn split_sections(bytes: &[u8]) -> wasmparser::Result<Vec<(Payload<'_>, RawSection<'_>)>> {
    let mut sections = Vec::new();
    let mut depth = 0_u32;
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload?;
        match &payload {
            Payload::Version { .. } => depth = depth.saturating_add(1),
            Payload::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
        if let (1, Some((id, range))) = (depth, payload.as_section()) {
            let data = bytes.get(range).unwrap_or_default();
            sections.push((payload, RawSection { id, data }));
        }
    }
    Ok(sections)
}

fn component_template(bytes: &[u8], memory_data: &mut Vec<MemoryData>) -> wasmparser::Result<Vec<u8>> {
    let mut template = wasm_encoder::Component::new();
    for (_, RawSection { id, data }) in split_sections(bytes)? {
        let new_data = match id {
            CORE_MODULE_SECTION => module_template(data, memory_data)?,
            COMPONENT_SECTION => Some(component_template(data, memory_data)?),
            _ => None,
        };
        template.section(&RawSection {
            id,
            data: new_data.as_deref().unwrap_or(data),
        });
    }
    Ok(template.finish())
}

/// Returns the module with a filler in place of its data; `None` if its data cannot be replaced.
fn module_template(bytes: &[u8], memory_data: &mut Vec<MemoryData>) -> wasmparser::Result<Option<Vec<u8>>> {
    let sections = split_sections(bytes)?;
    let mut memories = Vec::new();
    let mut data_part = None;
    for (payload, _) in &sections {
        match payload {
            Payload::ImportSection(section) => {
                for import in section.clone().into_imports() {
                    if let TypeRef::Memory(_) = import?.ty {
                        return Ok(None);
                    }
                }
            }
            Payload::MemorySection(section) => {
                memories = section.clone().into_iter().collect::<wasmparser::Result<_>>()?;
            }
            Payload::DataSection(section) => {
                // The module must define exactly one memory. It imports none, so the index of its memory is 0.
                let [memory] = memories.as_slice() else {
                    return Ok(None);
                };
                data_part = DataPart::read(memory, section)?;
            }
            _ => {}
        }
    }
    let Some(DataPart {
        passive_segments: passive,
        start,
        image: data,
    }) = data_part
    else {
        return Ok(None);
    };
    let filler = create_filler(memory_data.len(), data.len());
    let mut segments = DataSection::new();
    for data in passive {
        segments.passive(data.iter().copied());
    }
    segments.active(0, &ConstExpr::i32_const(start), filler.iter().copied());
    let mut template = wasm_encoder::Module::new();
    for (payload, raw) in &sections {
        match payload {
            Payload::DataSection(_) => template.section(&segments),
            Payload::DataCountSection { .. } => template.section(&DataCountSection { count: segments.len() }),
            _ => template.section(raw),
        };
    }
    memory_data.push(MemoryData { data, filler });
    Ok(Some(template.finish()))
}

struct DataPart<'a> {
    /// The passive data segments, which the module's code can copy into memory. A snapshot still has the passive
    /// segments of the original module, but they are empty.
    passive_segments: Vec<&'a [u8]>,
    start: i32,
    image: Vec<u8>,
}

impl<'a> DataPart<'a> {
    /// Reads the data section of a module. Returns `None` if the data cannot be replaced with a filler, for example
    /// because it consists mostly of gaps, or because an offset is not a constant.
    fn read(memory: &MemoryType, section: &DataSectionReader<'a>) -> wasmparser::Result<Option<Self>> {
        if memory.memory64 || memory.page_size_log2.is_some() {
            return Ok(None);
        }
        let (mut data_start, mut data_end, mut used_size) = (u64::MAX, 0, 0_u64);
        let (mut passive_segments, mut segments) = (Vec::new(), Vec::new());
        for segment in section.clone() {
            let segment = segment?;
            let offset_expr = match segment.kind {
                DataKind::Active {
                    memory_index: 0,
                    offset_expr,
                } => offset_expr,
                // All active segments become one segment, so the indices of the segments behind them change. A passive
                // segment keeps its index only if it is in front of all active segments.
                DataKind::Passive if segments.is_empty() => {
                    passive_segments.push(segment.data);
                    continue;
                }
                _ => return Ok(None),
            };
            let mut operators = offset_expr.get_operators_reader();
            let (Operator::I32Const { value }, Operator::End) = (operators.read()?, operators.read()?) else {
                return Ok(None);
            };
            let offset = u64::from(value.cast_unsigned());
            let end = offset.saturating_add(segment.data.len() as u64);
            (data_start, data_end) = (data_start.min(offset), data_end.max(end));
            used_size = used_size.saturating_add(segment.data.len() as u64);
            segments.push((offset, segment.data));
        }
        let (start, end) = (
            data_start / DATA_SIZE_UNIT * DATA_SIZE_UNIT,
            data_end.next_multiple_of(DATA_SIZE_UNIT),
        );
        let length = end.saturating_sub(start);
        // If data lies outside of the memory, the module fails when it is instantiated. This must stay so, and
        // therefore such data is not replaced with a filler.
        let fits = end <= memory.initial.saturating_mul(DATA_SIZE_UNIT);
        let is_sparse = length > MAX_SPARSE && length / 2 > used_size;
        let (Ok(start_value), Ok(length)) = (u32::try_from(start), usize::try_from(length)) else {
            return Ok(None);
        };
        if used_size == 0 || !fits || is_sparse {
            return Ok(None);
        }
        let mut data = vec![0; length];
        for (offset, bytes) in segments {
            let start_index = offset.saturating_sub(start) as usize;
            if let Some(target) = data.get_mut(start_index..start_index.saturating_add(bytes.len())) {
                target.copy_from_slice(bytes);
            }
        }
        Ok(Some(Self {
            passive_segments,
            start: start_value.cast_signed(),
            image: data,
        }))
    }
}

/// Creates bytes that occur nowhere else in a compiled form. None of them is zero, because wasmtime trims zeros.
fn create_filler(number: usize, length: usize) -> Vec<u8> {
    // This is 2^64, divided by the golden ratio. It is odd, so its multiples are all different even modulo 2^64.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let seed = number as u64 + 1;
    (1_u64..)
        .flat_map(|word| (seed.rotate_left(32) ^ word.wrapping_mul(STEP)).to_le_bytes())
        .map(|byte| byte | 1)
        .take(length)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wat(text: &str) -> Vec<u8> {
        wat::parse_str(text).unwrap()
    }

    #[test]
    fn snapshots_that_differ_only_in_data_have_equal_templates() {
        let snapshot = |data: &str| {
            let text =
                format!("(component (core module (memory 3) (func (export \"f\") (data.drop 0)) (data \"\") {data}))");
            SnapshotTemplate::new(&wat(&text)).unwrap()
        };
        let one = snapshot(r#"(data (i32.const 16) "one") (data (i32.const 17) "x")"#);
        let other = snapshot(r#"(data (i32.const 60000) "another")"#);
        assert_eq!(one.bytes, other.bytes);
        assert_ne!(one.bytes, snapshot(r#"(data (i32.const 65535) "ab")"#).bytes);
        let image = &one.memory_data[0];
        assert_eq!((image.data.len(), &image.data[16..20]), (65_536, &b"oxe\0"[..]));
    }

    #[test]
    fn filling_a_compiled_template_restores_the_data_of_the_snapshot() {
        let text = r#"(component
            (core module (memory 1) (data (i32.const 0) "first"))
            (component (core module (memory 1) (data (i32.const 9) "second"))))"#;
        let template = SnapshotTemplate::new(&wat(text)).unwrap();
        let compiled = [b"code".as_slice(), &template.bytes, b"more"].concat();
        let filled = template.fill(&compiled).unwrap();
        assert_eq!(filled.len(), compiled.len());
        for words in [&b"first\0"[..], b"\0second\0", b"code", b"more"] {
            assert_eq!(memmem::find_iter(&filled, words).count(), 1);
        }
        assert!(template.fill(&[&compiled[..], &compiled].concat()).is_none());
        assert!(template.fill(b"none").is_none());
    }

    #[test]
    fn modules_whose_data_cannot_be_replaced_are_unchanged() {
        for module in [
            r#"(memory 1)"#,
            r#"(import "a" "b" (memory 1)) (memory 1) (data (i32.const 0) "a")"#,
            r#"(import "a" "b" (memory 1)) (data (i32.const 0) "a")"#,
            r#"(memory 1) (global $at i32 (i32.const 0)) (data (global.get $at) "a")"#,
            r#"(memory 1) (data "passive")"#,
            r#"(memory 1) (data (i32.const 65535) "ab")"#,
            r#"(memory i64 1) (data (i64.const 0) "a")"#,
            r#"(memory 1) (data (i32.const 0) "a") (data "passive")"#,
            // The data consists of 2 bytes that are almost 20 MB apart.
            r#"(memory 320) (data (i32.const 0) "a") (data (i32.const 20000000) "a")"#,
        ] {
            for text in [
                format!("(component (core module {module}))"),
                format!("(module {module})"),
            ] {
                let template = SnapshotTemplate::new(&wat(&text)).unwrap();
                assert!(
                    template.memory_data.is_empty() && template.bytes == wat(&text),
                    "{text}"
                );
                assert_eq!(template.fill(b"code").unwrap(), b"code");
            }
        }
    }
}
