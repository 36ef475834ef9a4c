//! Optimizer steps, the norm of the gradient, and the moving average of the weights. They are
//! passes over flat buffers, which hold all parameters one after the other, or one value for each
//! of their scalars.

mod adam;
mod average;
mod muon;
mod norm;
mod pieces;

pub use adam::adam_step;
pub use average::ema_step;
pub use muon::muon_step;
pub use norm::{NORM_CHUNK, global_norm, sums_of_squares};
pub use pieces::{Piece, update_pieces};
