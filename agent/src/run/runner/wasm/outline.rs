//! A module without what it computes: what it asks of a host, in a module that compiles at once.

use std::ops::Range;

use wasmparser::{ExternalKind, Parser, Payload, TypeRef};

use super::engine::START;

/// Sections of a module, in the order in which they stand.
const TYPES: u8 = 1;
const IMPORTS: u8 = 2;
const FUNCTIONS: u8 = 3;
const MEMORIES: u8 = 5;
const EXPORTS: u8 = 7;
const CODE: u8 = 10;

/// A function that traps: its length, no variables, `unreachable`, `end`.
const BODY: &[u8] = &[3, 0, 0x00, 0x0b];

/// What a module asks of a host: its types, imports and memories, and the type of the function that
/// it begins with.
///
/// # Errors
/// The module is not valid.
pub(super) fn outline(module: &[u8]) -> Result<Vec<u8>, String> {
    let failed = |error: wasmparser::BinaryReaderError| format!("it is no module: {error}");
    let mut kept: [Option<Range<usize>>; 3] = [None, None, None];
    let (mut imported, mut own, mut start) = (0, Vec::new(), None);
    for payload in Parser::new(0).parse_all(module) {
        match payload.map_err(failed)? {
            Payload::TypeSection(section) => kept[0] = Some(section.range()),
            Payload::ImportSection(section) => {
                kept[1] = Some(section.range());
                for import in section.into_imports() {
                    let is_function = matches!(
                        import.map_err(failed)?.ty,
                        TypeRef::Func(_) | TypeRef::FuncExact(_)
                    );
                    imported += u32::from(is_function);
                }
            }
            Payload::FunctionSection(section) => {
                own = section.into_iter().collect::<Result<_, _>>().map_err(failed)?;
            }
            Payload::MemorySection(section) => kept[2] = Some(section.range()),
            Payload::ExportSection(section) => {
                for export in section {
                    let export = export.map_err(failed)?;
                    if export.name == START && export.kind == ExternalKind::Func {
                        start = Some(export.index);
                    }
                }
            }
            _ => {}
        }
    }
    let mut outline = module[..8].to_vec();
    let [types, imports, memories] = kept.map(|range| range.map(|range| &module[range]));
    let own_type = start
        .and_then(|index| index.checked_sub(imported))
        .and_then(|index| own.get(index as usize).copied());
    put(&mut outline, TYPES, types);
    put(&mut outline, IMPORTS, imports);
    put(&mut outline, FUNCTIONS, own_type.map(|ty| list_of_one(&leb(ty))).as_deref());
    put(&mut outline, MEMORIES, memories);
    let export = start.map(|index| {
        let index = if own_type.is_some() { imported } else { index };
        let name = [&leb(START.len() as u32), START.as_bytes()].concat();
        list_of_one(&[&name[..], &[0], &leb(index)].concat())
    });
    put(&mut outline, EXPORTS, export.as_deref());
    put(&mut outline, CODE, own_type.map(|_| list_of_one(BODY)).as_deref());
    Ok(outline)
}

fn put(module: &mut Vec<u8>, id: u8, content: Option<&[u8]>) {
    let Some(content) = content else { return };
    module.push(id);
    module.extend(leb(u32::try_from(content.len()).expect("no longer than the module")));
    module.extend(content);
}

fn list_of_one(element: &[u8]) -> Vec<u8> {
    [&[1], element].concat()
}

/// A number as modules have it.
fn leb(mut number: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::super::engine::check_module;

    fn check(text: &str) -> Result<(), String> {
        check_module(&wat::parse_str(text).expect("a module"), 256)
    }

    #[test]
    fn a_program_passes_whatever_it_computes() {
        let print = r#"(module
            (type (func))
            (import "wasi_snapshot_preview1" "fd_write"
                (func $write (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 1)
            (global $n (mut i32) (i32.const 1))
            (table 2 funcref)
            (func $other (result i32) (global.get $n))
            (elem (i32.const 0) $other)
            (data (i32.const 8) "hello")
            (func (export "_start") (drop (call $other))))"#;
        assert_eq!(check(print), Ok(()));
        let many: String = (0..300).map(|_| "(func)").collect();
        assert_eq!(check(&format!(r#"(module {many} (func (export "_start")))"#)), Ok(()));
    }

    #[test]
    fn what_no_host_can_run_is_said_in_the_words_of_an_agent() {
        for (text, words) in [
            ("(module)", "exports no function \"_start\""),
            (r#"(module (global (export "_start") i32 (i32.const 0)))"#, "exports no function"),
            (
                r#"(module (func (export "_start") (result i32) (i32.const 0)))"#,
                "takes or returns values",
            ),
            (r#"(module (func (export "_start") (param i32)))"#, "takes or returns values"),
            (
                r#"(module (import "env" "emscripten_resize_heap" (func (param i32) (result i32)))
                    (import "env" "abort" (func)) (func (export "_start")))"#,
                "env.emscripten_resize_heap, env.abort",
            ),
            (
                r#"(module (import "env" "memory" (memory 1)) (func (export "_start")))"#,
                "env.memory",
            ),
            (
                r#"(module (import "wasi_snapshot_preview1" "fd_write" (func (param i32)))
                    (func (export "_start")))"#,
                "the module does not fit",
            ),
            (
                r#"(module (memory 1 2 shared) (func (export "_start")))"#,
                "it is no module that can run: threads must be enabled",
            ),
            (
                r#"(module (memory 4097) (func (export "_start")))"#,
                "begins with 257 MiB of memory, more than its 256 MiB",
            ),
            ("(component)", "it is a WebAssembly component"),
        ] {
            let said = check(text).expect_err(words);
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn what_is_no_whole_module_is_told_apart() {
        let whole = wat::parse_str(r#"(module (func (export "_start")))"#).expect("a module");
        for length in 8..whole.len() {
            let said = check_module(&whole[..length], 256).expect_err("a part");
            assert!(!said.is_empty(), "{length}");
        }
        for (content, words) in [
            (&whole[..7], "no WebAssembly module in binary form"),
            (b"(module)", "no WebAssembly module in binary form"),
            (b"\0asm\x01\0\0\0\x01\xff", "it is no module that can run"),
        ] {
            let said = check_module(content, 256).expect_err(words);
            assert!(said.contains(words), "{said}");
        }
    }
}
