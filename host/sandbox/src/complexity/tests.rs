use super::*;

fn check_text(text: &str) -> Result<(), Error> {
    check(&wat::parse_str(text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

fn exceeded_limit(text: &str) -> (&'static str, u64) {
    match check_text(text) {
        Err(Error::TooComplex { items, count, limit }) => {
            assert!(count > limit, "{count} {items}, {limit}");
            (items, count)
        }
        other => panic!("{other:?}"),
    }
}

/// Writes components in components, `levels` deep. Each component instantiates the one inside it `times` times.
fn nested_components_text(levels: usize, times: usize) -> String {
    let mut text = "(component)".to_owned();
    for _ in 0..levels {
        text = format!("(component {text} {})", "(instance (instantiate 0))".repeat(times));
    }
    text
}

#[test]
fn nested_instances_are_counted_for_each_instantiation() {
    let text = nested_components_text(9, 10);
    let module = wat::parse_str(&text).unwrap();
    assert!(module.len() < 410, "{}", module.len());
    assert_eq!(exceeded_limit(&text), (INSTANCES.0, 1_111_111_110));
    let message = check(&module).unwrap_err().to_string();
    assert!(message.contains("has 1111111110 instances"), "{message}");
    assert!(message.contains("the limit is 1000"), "{message}");
    check_text(&nested_components_text(8, 2)).unwrap();
}

#[test]
fn aliased_components_are_counted() {
    let forty = "(instance (instantiate $it))".repeat(40);
    for (case, text) in [
        (
            "an alias of an outer one",
            format!(
                "(component (component $a)
                    (component $b (alias outer 1 0 (component $it)) {forty})
                    (component $c (alias outer 1 $b (component $it)) {forty})
                    (instance (instantiate $c)))"
            ),
        ),
        (
            "an export",
            format!(
                r#"(component (component $a)
                    (component $b (export $it "it" (component 0)) {forty})
                    (instance (instantiate $b)))"#
            )
            .replace(
                "(component $b",
                &format!("(component $b (component $i (component $it) {forty})"),
            ),
        ),
    ] {
        assert_eq!(exceeded_limit(&text).0, INSTANCES.0, "{case}");
    }
}

#[test]
fn a_component_that_instantiates_an_imported_one_is_refused() {
    for text in [
        r#"(component (import "c" (component $it)) (instance (instantiate $it)))"#,
        r#"(component
            (component $a (component $c) (export "c" (component $c)))
            (instance $i (instantiate $a))
            (alias export $i "c" (component $it))
            (instance (instantiate $it)))"#,
    ] {
        let refusal = check_text(text).unwrap_err().to_string();
        assert!(
            refusal.contains("instantiates only components that are defined inside"),
            "{refusal}"
        );
    }
}

#[test]
fn each_counted_item_has_a_limit() {
    let module = |text: &str| format!("(component (core module {text}))");
    let function = |text: &str| module(&format!("(func {text})"));
    let values = "i32 ".repeat(1_000);
    let many_values_type = format!("(type $t (func (param {values}) (result {values})))");
    let type_levels = format!("{}{}", "(type (component ".repeat(25), "))".repeat(25));
    let cases = [
        (NESTING, nested_components_text(25, 1)),
        (TYPE_NESTING, format!("(component {type_levels})")),
        (TYPES, module(&"(type (func))".repeat(110_000))),
        (TYPES, format!("(component {})", "(type u8)".repeat(110_000))),
        (
            TYPES,
            format!("(component (type (instance {})))", "(type u8)".repeat(110_000)),
        ),
        (MODULES, format!("(component {})", "(core module)".repeat(600))),
        (COMPONENTS, format!("(component {})", "(component)".repeat(600))),
        (
            INSTANCES,
            format!(
                "(component (core module $m) {})",
                "(core instance (instantiate $m))".repeat(1_100)
            ),
        ),
        (FUNCTIONS, module(&"(func)".repeat(310_000))),
        (GLOBALS, module(&"(global i32 (i32.const 0))".repeat(110_000))),
        (IMPORTS, module(&r#"(import "a" "b" (func))"#.repeat(110_000))),
        (
            EXPORTS,
            module(&format!(
                "(func) {}",
                (0..110_000)
                    .map(|number| format!(r#"(export "{number}" (func 0))"#))
                    .collect::<String>()
            )),
        ),
        (SEGMENTS, module(&"(elem func)".repeat(110_000))),
        (function::SIZE, function(&"nop ".repeat(5 << 20))),
        (
            function::LOCALS,
            function(&format!("(local {})", "i32 ".repeat(30_000))),
        ),
        (
            function::BRANCHES,
            function(&format!("(br_table {} (i32.const 0))", "0 ".repeat(250_000))),
        ),
        // The next rows repeat a block, a call or a branch until the code has about 28 KiB. Compiling this code took
        // gigabytes of memory.
        (
            function::VALUES,
            module(&format!(
                "{many_values_type} (func {})",
                "block (type $t) end ".repeat(3_000)
            )),
        ),
        (
            function::VALUES,
            module(&format!(
                "{many_values_type} (func $f (type $t) {})",
                "call $f ".repeat(3_000)
            )),
        ),
        (
            function::VALUES,
            module(&format!(
                "{many_values_type} (func (block (type $t) (br_table {} (i32.const 0))))",
                "0 ".repeat(5_000)
            )),
        ),
        (
            function::MERGES,
            function(&format!(
                "(local {}) {}",
                "i32 ".repeat(10_000),
                "loop end ".repeat(1_000)
            )),
        ),
        (
            function::ALL_MERGES,
            module(&format!("(func (local {}) {})", "i32 ".repeat(1_000), "loop end ".repeat(100)).repeat(60)),
        ),
        (
            function::ALL_VALUES,
            module(&format!(
                "{many_values_type} {}",
                format!("(func {})", "block (type $t) end ".repeat(90)).repeat(100)
            )),
        ),
    ];
    for (limit, text) in cases {
        assert_eq!(exceeded_limit(&text).0, limit.0);
    }
}

#[test]
fn definitions_of_a_component_are_counted_for_each_instance() {
    let exports: String = (0..900).map(|n| format!("(export \"e{n}\" (func $f))")).collect();
    let text = format!(
        "(component (component $a (import \"f\" (func $f)) {exports})
            (import \"f\" (func $f)) {})",
        "(instance (instantiate $a (with \"f\" (func $f))))".repeat(200)
    );
    let (items, count) = exceeded_limit(&text);
    assert_eq!(items, DEFINITIONS.0);
    assert!((180_000..190_000).contains(&count), "{count}");
}

#[test]
fn nested_types_do_not_exhaust_the_stack() {
    // wasmparser's own reader of types calls itself for each level, and would exhaust the stack.
    let levels = 1_000_000;
    let mut types = vec![1];
    for _ in 0..levels {
        types.extend([0x41, 0x01, 0x01]);
    }
    types.extend([0x41, 0x00]);
    let mut size = types.len();
    let mut module = b"\0asm\x0d\0\x01\0\x07".to_vec();
    while size > 0x7f {
        module.push((size & 0x7f) as u8 | 0x80);
        size >>= 7;
    }
    module.push(size as u8);
    module.extend(types);
    let refusal = check(&module);
    assert!(
        matches!(refusal, Err(Error::TooComplex { items, .. }) if items == TYPE_NESTING.0),
        "{refusal:?}"
    );
}

#[test]
fn a_truncated_module_is_refused() {
    let module = wat::parse_str("(component (type (instance (export \"f\" (func)))) (core module (func)))").unwrap();
    let module: &[u8] = &module;
    check(module).unwrap();
    // The module is cut off at each position, and most of the results are refused. A part that ends right after the
    // header or after a section is a complete component, and is not refused.
    let refused_count = (9..module.len()).filter(|end| check(&module[..*end]).is_err()).count();
    assert!(refused_count > module.len() / 2, "{refused_count} of {}", module.len());
}
