//! Cache of tensors that all layers use in a pass, such as masks: the first layer makes them, and
//! later layers reuse them.

use candle_core::{Device, Result, Tensor};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// The most recently made tensors, each with its key. Few tensors are needed at a time: a batch has
/// few sets of sequence lengths, such as those of sources and of targets, and the next batch has
/// other lengths.
pub(crate) struct Recent<K>(Mutex<VecDeque<(K, Tensor)>>);

/// Largest number of tensors in the cache.
const CAPACITY: usize = 4;

impl<K: PartialEq> Recent<K> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    /// Returns the tensor for `key` on `device`; if it is not in the cache, `make` makes it.
    pub(crate) fn get(
        &self,
        key: K,
        device: &Device,
        make: impl FnOnce() -> Result<Tensor>,
    ) -> Result<Tensor> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |(of, tensor): &&(K, Tensor)| *of == key && tensor.device().same_device(device);
        if let Some((_, tensor)) = lock().iter().find(is_it) {
            return Ok(tensor.clone());
        }
        let tensor = make()?;
        let mut kept = lock();
        kept.truncate(CAPACITY - 1);
        kept.push_front((key, tensor.clone()));
        Ok(tensor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_is_made_once_for_each_of_the_last_few_keys() {
        let recent = Recent::new();
        let mut made = Vec::new();
        let mut ask = |key: usize| {
            let make = || {
                made.push(key);
                Tensor::new(key as u32, &Device::Cpu)
            };
            let tensor = recent.get(key, &Device::Cpu, make).expect("memory");
            assert_eq!(tensor.to_scalar::<u32>().expect("a number") as usize, key);
        };
        [1, 2, 1, 3, 2, 4, 1, 5, 5, 1].into_iter().for_each(&mut ask);
        assert_eq!(made, [1, 2, 3, 4, 5, 1]);
    }
}
