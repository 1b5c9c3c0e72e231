use std::fmt::Write as _;

use proptest::{collection::vec, prelude::*};
use wasmparser::{ElementKind, Parser, Payload};
use wasmtime::{
    Engine, Store,
    component::{Component, Linker},
};

use super::*;
use crate::engine::{Effort, compile_settings};

#[derive(Clone, Debug)]
enum Op {
    Add(i32),
    /// Calls a function that is imported from an earlier library.
    Call(usize),
    /// Calls a function by its index in the shared table.
    CallIndirect(usize),
    /// Calls the host function `double`.
    Double,
    /// Calls the host function `log` with a part of the shared memory.
    Log,
    Load,
    Store,
    /// Adds to the global variable that all libraries of the test share.
    Shared,
    /// Uses a global variable that this library defines for itself. No other library can use it.
    Own,
    /// Copies a passive data segment into the memory.
    Init,
}

impl Op {
    fn strategy() -> impl Strategy<Value = Self> {
        prop_oneof![
            any::<i32>().prop_map(Self::Add),
            any::<usize>().prop_map(Self::Call),
            any::<usize>().prop_map(Self::CallIndirect),
            Just(Self::Double),
            Just(Self::Log),
            Just(Self::Load),
            Just(Self::Store),
            Just(Self::Shared),
            Just(Self::Own),
            Just(Self::Init),
        ]
    }

    fn write(&self, text: &mut String, function: usize) {
        let library_number = function / 2;
        let step = match self {
            Self::Add(value) => format!("(i32.add (local.get 0) (i32.const {value}))"),
            Self::Call(callee) if library_number > 0 => {
                format!("(call $f{} (local.get 0))", callee % (library_number * 2))
            }
            Self::CallIndirect(other) if function > 0 => format!(
                "(call_indirect (type $t) (local.get 0) (i32.const {}))",
                other % function
            ),
            Self::Double => "(call $double (local.get 0))".to_owned(),
            Self::Log => "(call $log (global.get $place) (i32.const 8)) (local.get 0)".to_owned(),
            Self::Load => "(i32.xor (i32.load (global.get $place)) (local.get 0))".to_owned(),
            Self::Store => "(i32.store offset=4 (global.get $base) (local.get 0)) (local.get 0)".to_owned(),
            Self::Shared => {
                "(global.set $shared (i32.add (global.get $shared) (local.get 0))) (global.get $shared)".to_owned()
            }
            Self::Own => {
                "(global.set $own (i32.mul (global.get $own) (i32.const 3))) (i32.add (global.get $own) (local.get 0))"
                    .to_owned()
            }
            Self::Init => "(memory.init 0 (global.get $place) (i32.const 1) (i32.const 3)) (local.get 0)".to_owned(),
            _ => return,
        };
        writeln!(text, "{step} local.set 0").unwrap();
    }
}

fn library_text(number: usize, functions: [&[Op]; 2]) -> String {
    let mut text = format!(
        r#"(core module $library{number}
            (type $t (func (param i32) (result i32)))
            (import "env" "memory" (memory 1))
            (import "env" "table" (table 8 funcref))
            (import "env" "shared" (global $shared (mut i32)))
            (import "env" "table_base{number}" (global $table_base i32))
            (import "env" "memory_base{number}" (global $base i32))
            (import "host" "double" (func $double (param i32) (result i32)))
            (import "shim" "0" (func $log (param i32 i32)))"#
    );
    for earlier in 0..number * 2 {
        writeln!(
            text,
            r#"(import "library{}" "f{earlier}" (func $f{earlier} (type $t)))"#,
            earlier / 2
        )
        .unwrap();
    }
    let (first_function, second_function) = (number * 2, number * 2 + 1);
    writeln!(
        text,
        r#"(global $own (mut i32) (i32.const {second_function}))
           (global $place i32 (i32.add (global.get $base) (i32.const 2)))
           (elem (global.get $table_base) func $f{first_function} $f{second_function})
           (data "passive{number}")"#
    )
    .unwrap();
    for (function, ops) in [first_function, second_function].into_iter().zip(functions) {
        writeln!(text, r#"(func $f{function} (export "f{function}") (type $t)"#).unwrap();
        ops.iter().for_each(|op| op.write(&mut text, function));
        text.push_str("local.get 0)\n");
    }
    text.push_str(")\n");
    let exports: String = (0..number)
        .map(|earlier| format!(r#"(with "library{earlier}" (instance $library{earlier}))"#))
        .collect();
    text + &format!(
        r#"(core instance $library{number} (instantiate $library{number}
            (with "env" (instance $main)) (with "host" (instance $host)) (with "shim" (instance $shim)) {exports}))"#
    )
}

fn component_text(functions: &[Vec<Op>]) -> String {
    let libraries: String = functions
        .chunks_exact(2)
        .enumerate()
        .map(|(number, pair)| library_text(number, [&pair[0], &pair[1]]))
        .collect();
    let bases: String = (0..functions.len() / 2)
        .map(|number| {
            format!(
                r#"(global (export "table_base{number}") i32 (i32.const {}))
                   (global (export "memory_base{number}") i32 (i32.const {}))"#,
                number * 2,
                (number + 1) * 16
            )
        })
        .collect();
    let last_library = functions.len() / 2 - 1;
    format!(
        r#"(component
            (import "double" (func $double (param "x" u32) (result u32)))
            (import "log" (func $log (param "bytes" (list u8))))
            (core module $shim
                (type $log (func (param i32 i32)))
                (table (export "imports") 1 1 funcref)
                (func (export "0") (type $log)
                    (call_indirect (type $log) (local.get 0) (local.get 1) (i32.const 0))))
            (core module $fixup
                (import "" "imports" (table 1 1 funcref))
                (import "" "0" (func $log (param i32 i32)))
                (elem (i32.const 0) func $log))
            (core module $main
                (memory (export "memory") 1)
                (table (export "table") 8 funcref)
                (global (export "shared") (mut i32) (i32.const 7))
                (data (i32.const 16) "the data of the libraries, for a snapshot has it here")
                {bases})
            (core instance $shim (instantiate $shim))
            (core instance $main (instantiate $main))
            (alias core export $main "memory" (core memory $memory))
            (core func $lower (canon lower (func $double)))
            (core instance $host (export "double" (func $lower)))
            {libraries}
            (core func $log (canon lower (func $log) (memory $memory)))
            (alias core export $shim "imports" (core table $imports))
            (core instance $fixup (instantiate $fixup
                (with "" (instance (export "imports" (table $imports)) (export "0" (func $log))))))
            (alias core export $library{last_library} "f{}" (core func $run))
            (func (export "run") (param "x" u32) (result u32) (canon lift (core func $run))))"#,
        last_library * 2 + 1
    )
}

fn run_component(component: &[u8]) -> (Vec<u32>, Vec<Vec<u8>>) {
    let engine = Engine::new(&compile_settings(Effort::Least)).unwrap();
    let mut linker = Linker::<Vec<Vec<u8>>>::new(&engine);
    let mut root = linker.root();
    root.func_wrap("double", |_, (x,): (u32,)| Ok((x.wrapping_mul(2),)))
        .unwrap();
    root.func_wrap("log", |mut store, (bytes,): (Vec<u8>,)| {
        store.data_mut().push(bytes);
        Ok(())
    })
    .unwrap();
    let component = Component::new(&engine, component).unwrap();
    let mut store = Store::new(&engine, Vec::new());
    store.set_epoch_deadline(1);
    let instance = linker.instantiate(&mut store, &component).unwrap();
    let run_function = instance.get_typed_func::<(u32,), (u32,)>(&mut store, "run").unwrap();
    let answers = [0, 1, 77, u32::MAX].map(|x| run_function.call(&mut store, (x,)).unwrap().0);
    (answers.to_vec(), store.into_data())
}

fn module_count(component: &[u8]) -> usize {
    let payloads = Parser::new(0).parse_all(component).map(Result::unwrap);
    payloads
        .filter(|payload| matches!(payload, Payload::ModuleSection { .. }))
        .count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_merged_component_behaves_like_the_original(functions in vec(vec(Op::strategy(), 0..4), 2..8)) {
        let text = component_text(&functions[..functions.len() / 2 * 2]);
        let original = wat::parse_str(&text).unwrap();
        let merged = merge(&original).unwrap();
        // Two modules remain. One is `$fixup`, which puts the host function `log` into a table. It cannot be merged
        // with the others, because `log` itself needs the memory of the merged module.
        prop_assert_eq!(module_count(&merged), 2);
        prop_assert_eq!(run_component(&merged), run_component(&original), "{}", text);
        prop_assert!(merge(&merged).is_none());
    }
}

fn merge_two_modules(one: &str, other: &str, definitions: &str) -> Option<Vec<u8>> {
    let text = format!(
        r#"(component
            (core module $one {one})
            (core module $other {other})
            (core instance $one (instantiate $one))
            (core instance $other (instantiate $other (with "one" (instance $one))))
            {definitions})"#
    );
    merge(&wat::parse_str(&text).unwrap())
}

#[test]
fn a_component_that_cannot_be_merged_is_unchanged() {
    const IMPORT_OF_F: &str = r#"(import "one" "f" (func))"#;
    const DEFINITION_OF_F: &str = r#"(func $f (export "f"))"#;
    assert!(merge_two_modules(DEFINITION_OF_F, IMPORT_OF_F, "").is_some());
    for (one, other, definitions) in [
        (format!("{DEFINITION_OF_F} (start $f)").as_str(), IMPORT_OF_F, ""),
        (
            &format!("{DEFINITION_OF_F} (memory 1)"),
            &format!("{IMPORT_OF_F} (memory 1)"),
            "",
        ),
        (
            r#"(func $f (export "f") (drop (ref.func $f)))"#,
            &format!("{IMPORT_OF_F} (table 1 funcref) (elem (i32.const 0) func 0)"),
            "",
        ),
        (
            &format!(r#"{DEFINITION_OF_F} (global (export "g") i64 (i64.const 1))"#),
            &format!(r#"{IMPORT_OF_F} (import "one" "g" (global $g i64)) (global i64 (global.get $g))"#),
            "",
        ),
        (
            DEFINITION_OF_F,
            IMPORT_OF_F,
            r#"(alias core export $one "f" (core func $f)) (type (resource (rep i32) (dtor (core func $f))))"#,
        ),
    ] {
        assert!(
            merge_two_modules(one, other, definitions).is_none(),
            "{one} {other} {definitions}"
        );
    }
    assert!(merge(b"nothing").is_none());
    assert!(merge(&wat::parse_str("(component (core module))").unwrap()).is_none());
}

#[test]
fn a_merged_module_has_no_code_for_unreachable_functions() {
    // The bytes of the instruction `i32.const 123456789`.
    const UNUSED_FUNCTION_CODE: &[u8] = b"\x41\x95\x9a\xef\x3a";
    let one = r#"(func (export "f")) (func (export "unused") (drop (i32.const 123456789)))"#;
    let merged = merge_two_modules(one, r#"(import "one" "f" (func))"#, "").unwrap();
    assert_eq!(
        merged
            .windows(UNUSED_FUNCTION_CODE.len())
            .filter(|part| *part == UNUSED_FUNCTION_CODE)
            .count(),
        0
    );
    let importing_module = r#"(import "one" "unused" (func $f)) (table 1 funcref) (elem (i32.const 0) func $f)"#;
    let merged = merge_two_modules(one, importing_module, "").unwrap();
    assert_eq!(
        merged
            .windows(UNUSED_FUNCTION_CODE.len())
            .filter(|part| *part == UNUSED_FUNCTION_CODE)
            .count(),
        1
    );
}

#[test]
fn the_elements_of_a_merged_table_have_constant_offsets() {
    let functions = [vec![Op::Add(1)], vec![Op::CallIndirect(0)]];
    let merged = merge(&wat::parse_str(component_text(&functions)).unwrap()).unwrap();
    let (mut offsets, mut tables) = (Vec::new(), 0);
    for payload in Parser::new(0).parse_all(&merged) {
        match payload.unwrap() {
            Payload::TableSection(section) => tables += section.count(),
            Payload::ElementSection(section) => {
                for segment in section {
                    if let ElementKind::Active { offset_expr, .. } = segment.unwrap().kind {
                        let first = offset_expr.get_operators_reader().read().unwrap();
                        offsets.push(matches!(first, wasmparser::Operator::I32Const { .. }));
                    }
                }
            }
            _ => {}
        }
    }
    assert_eq!((tables, offsets), (2, vec![true; 2]));
}

#[test]
fn merging_keeps_the_order_in_which_overlapping_segments_are_written() {
    let merge_with_instances = |instances: [&str; 2]| {
        let text = format!(
            r#"(component
                (import "log" (func $log (param "bytes" (list u8))))
                (core module $main (memory (export "memory") 1) (table (export "table") 1 funcref))
                (core module $early (import "main" "table" (table 1 funcref)) (func $f) (elem (i32.const 0) func $f))
                (core module $late (import "main" "table" (table 1 funcref)) (import "host" "log" (func $f (param i32 i32)))
                    (elem (i32.const 0) func $f))
                (core instance $main (instantiate $main))
                (alias core export $main "memory" (core memory $memory))
                (core func $log (canon lower (func $log) (memory $memory)))
                (core instance $host (export "log" (func $log)))
                {})"#,
            instances.join("\n")
        );
        merge(&wat::parse_str(text).unwrap())
    };
    let early_instance = r#"(core instance (instantiate $early (with "main" (instance $main))))"#;
    let late_instance =
        r#"(core instance (instantiate $late (with "main" (instance $main)) (with "host" (instance $host))))"#;
    assert_eq!(
        merge_with_instances([early_instance, late_instance]).map(|merged| module_count(&merged)),
        Some(2)
    );
    assert!(merge_with_instances([late_instance, early_instance]).is_none());
}
