//! Programs of select and aggregate (the language RASP), compiled to the weights of an encoder
//! (Weiss, Goldberg and Yahav 2021, "Thinking Like Transformers"; Lindner et al. 2023, "Tracr").
//!
//! The first line of a program is its alphabet: the characters of inputs. Then come definitions;
//! the last line is the result.
//!
//! ```text
//! alphabet "abc"
//! opposite = select(indices, length - indices - 1, ==)
//! aggregate(opposite, tokens)
//! ```
//!
//! Values are sequences: `tokens`, `indices` (from 0), `length`, numbers, `'c'`, `true` and
//! `false`. The operators `+`, `-`, comparisons, `and`, `or`, `not` and `x if c else y` apply at
//! each position. `select(keys, queries, ==)` compares the key at each position with the query at
//! each position, and selectors combine with `and`, `or` and `not`. `selector_width(s)` counts the
//! selected positions. `aggregate(s, values)` returns the value at the selected positions, where
//! all values must be equal; its optional third argument is the result if no position is selected.
//!
//! ```
//! use taper_theory::rasp::{CompiledProgram, Program};
//!
//! let program = Program::parse("alphabet \"ab\"\nselector_width(select(tokens, tokens, ==))")?;
//! let compiled = CompiledProgram::new(&program, 8)?;
//! assert_eq!(compiled.run(&["abaa"])?[0], ["3", "1", "3", "3"]);
//! assert_eq!(program.interpret("abaa")?, compiled.run(&["abaa"])?[0]);
//! # Ok::<(), taper_theory::TheoryError>(())
//! ```

mod compiled;
mod domains;
mod emission;
mod graph;
mod interpreter;
mod lexer;
mod parser;
mod selectors;

pub use compiled::CompiledProgram;
pub use parser::Program;
