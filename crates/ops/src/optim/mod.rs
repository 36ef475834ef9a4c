//! Steps over the flat buffers that mirror the parameter store: Adam, the gradient's norm, the
//! moving average of the weights.

mod adam;
mod average;
mod norm;

pub use adam::adam_step;
pub use average::ema_step;
pub use norm::global_norm;
