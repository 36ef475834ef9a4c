//! Turing machines, run by a decoder with weights set by hand (Pérez, Barceló and Marinković 2021,
//! "Attention is Turing-Complete", section 4).
//!
//! ```
//! use taper_theory::turing::{Machine, TuringDecoder};
//!
//! let machine = Machine::parse(
//!     "blank _\nstart go\nhalt stop\ngo 1 -> go 0 R\ngo 0 -> go 1 R\ngo _ -> stop _ S",
//! )?;
//! let input = machine.read("1 0 1")?;
//! let decoder = TuringDecoder::new(&machine, 16)?;
//! let actions = decoder.run(&input, 10)?;
//! assert_eq!(actions, machine.simulate(&input, 10).actions());
//! # Ok::<(), taper_theory::TheoryError>(())
//! ```

mod decoder;
mod machine;
mod precision;
mod simulation;
mod tableau;

pub use decoder::TuringDecoder;
pub use machine::{Action, Machine, Move};
pub use precision::{PrecisionStep, precision, precision_figure};
pub use simulation::{Configuration, Simulation};
pub use tableau::{Tableau, TableauDecoder};
