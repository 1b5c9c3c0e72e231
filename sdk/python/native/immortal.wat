;; The module `admittance._immortal`, in the format of shared libraries, for the interpreter in a component.
;;
;; `immortalize(objects)` makes each object of a list immortal: Python no longer counts the references to it.
(module
  (@dylink.0 (mem-info (memory 128 2) (table 1 0)))
  (type $method (func (param i32 i32) (result i32)))
  (import "env" "memory" (memory 1))
  (import "env" "__indirect_function_table" (table 1 funcref))
  (import "env" "__memory_base" (global $data i32))
  (import "env" "__table_base" (global $functions i32))
  (import "env" "PyModule_Create2" (func $PyModule_Create2 (param i32 i32) (result i32)))
  (import "env" "PyList_Size" (func $PyList_Size (param i32) (result i32)))
  (import "env" "PyList_GetItem" (func $PyList_GetItem (param i32 i32) (result i32)))
  (import "env" "Py_GetConstant" (func $Py_GetConstant (param i32) (result i32)))
  (import "env" "_Py_SetImmortalUntracked" (func $_Py_SetImmortalUntracked (param i32)))

  (elem (global.get $functions) func $immortalize)

  ;; At 0 a PyModuleDef, at 52 two PyMethodDef, the second of which ends the list, at 84 and 94 the names.
  (data (global.get $data)
    "\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\ff\ff\ff\ff\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00"
    "\00\00\00\00\00\00\00\00\08\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00"
    "_immortal\00" "immortalize\00")

  (func (export "PyInit__immortal") (result i32)
    (i32.store offset=20 (global.get $data) (i32.add (global.get $data) (i32.const 84)))
    (i32.store offset=32 (global.get $data) (i32.add (global.get $data) (i32.const 52)))
    (i32.store offset=52 (global.get $data) (i32.add (global.get $data) (i32.const 94)))
    (i32.store offset=56 (global.get $data) (global.get $functions))
    (call $PyModule_Create2 (global.get $data) (i32.const 1013)))

  (func $immortalize (type $method)
    (local $count i32)
    (local.set $count (call $PyList_Size (local.get 1)))
    (if (i32.lt_s (local.get $count) (i32.const 0)) (then (return (i32.const 0))))
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $count)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (call $_Py_SetImmortalUntracked (call $PyList_GetItem (local.get 1) (local.get $count)))
        (br $next)))
    (call $Py_GetConstant (i32.const 0))))
