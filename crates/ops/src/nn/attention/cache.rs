//! Cache of an attention layer for decoding. It holds rows, such as the key and the value of a
//! token side by side. Rows are added for each new token, and then never change.
//!
//! **Decision.** Taper's own kernels can read rows from several tensors, so on the host the rows of
//! each step stay in their own tensor. Candle's operations need a single tensor, and joining all
//! steps for each token would copy the whole past each time. For these operations, rows are
//! therefore appended to a tensor with spare room. When this tensor is full, a tensor of twice the
//! size replaces it. So a row is copied at most twice on average, whatever the length.

use crate::spec::{CacheType, CachedRows, CompactRows};
use crate::tape::is_fused;
use candle_core::{Result, Tensor, bail};
use std::sync::Arc;

/// Cached rows of a layer: the rows of texts that were read in a single pass (prompts), and the
/// rows of each decoding step.
#[derive(Debug, Clone, Default)]
pub struct Cache(Parts);

#[derive(Debug, Clone)]
enum Parts {
    Apart {
        text: Option<Tensor>,
        steps: Vec<Tensor>,
    },
    Joined(Joined),
    Compact {
        cache_type: CacheType,
        /// Number of columns in a block of [`CompactRows`].
        block: usize,
        text: Option<Arc<CompactRows>>,
        steps: Vec<Arc<CompactRows>>,
    },
}

impl Default for Parts {
    fn default() -> Self {
        Self::Apart { text: None, steps: Vec::new() }
    }
}

/// All rows in one tensor.
#[derive(Debug, Clone, Default)]
struct Joined {
    /// Tensor with the rows, `(capacity, W)`; `None` before rows are added.
    rows: Option<Tensor>,
    /// Number of rows that have been written to the tensor, from the first row on.
    used: usize,
    /// For each token of the texts, the index of its row in the tensor.
    text: Vec<u32>,
    /// For each step, the index of its first row in the tensor, and the number of its rows.
    steps: Vec<(u32, u32)>,
    /// Counts the caches that share this tensor. A cache is allowed to write beyond the used rows
    /// only if no other cache shares the tensor.
    owner: Arc<()>,
}

/// Smallest capacity of a tensor, in rows.
const LEAST: usize = 16;

impl Cache {
    /// Makes a cache that has all rows in one tensor from the beginning, on any device. A default
    /// cache has one tensor only where Taper has no kernels of its own, as on a GPU.
    #[must_use]
    pub fn joined() -> Self {
        Self(Parts::Joined(Joined::default()))
    }

    /// Makes a cache that keeps rows in `cache_type`. Heads have keys and values of `head_width`
    /// columns. In a type other than [`CacheType::Exact`], rows must be on the host.
    #[must_use]
    pub fn in_type(cache_type: CacheType, head_width: usize) -> Self {
        match cache_type {
            CacheType::Exact => Self::default(),
            _ => Self(Parts::Compact {
                cache_type,
                block: head_width,
                text: None,
                steps: Vec::new(),
            }),
        }
    }

    /// Adds the rows of texts that were read in a single pass, such as prompts.
    ///
    /// # Shapes
    /// `(M, W)`.
    ///
    /// # Errors
    /// If the width differs from the width of earlier rows, or the device has no memory left.
    pub fn add_text(&mut self, rows: Tensor) -> Result<()> {
        match self.parts(&rows)? {
            Parts::Apart { text, .. } => {
                *text = Some(match &*text {
                    Some(text) => Tensor::cat(&[text, &rows], 0)?,
                    None => rows,
                });
            }
            Parts::Joined(joined) => {
                let (first, count) = joined.append(&rows)?;
                joined.text.extend(first..first + count);
            }
            Parts::Compact { text: Some(text), .. } => Arc::make_mut(text).push(&rows)?,
            Parts::Compact { text, block, cache_type, .. } => {
                *text = Some(Arc::new(CompactRows::new(&rows, *block, *cache_type)?));
            }
        }
        Ok(())
    }

    /// Adds the rows of a step.
    ///
    /// # Shapes
    /// `(R, W)`.
    ///
    /// # Errors
    /// The errors of [`Cache::add_text`]. If each step has its own tensor, its width is not
    /// compared with that of earlier rows.
    pub fn add_step(&mut self, rows: Tensor) -> Result<()> {
        match self.parts(&rows)? {
            Parts::Apart { steps, .. } => steps.push(rows),
            Parts::Joined(joined) => {
                let step = joined.append(&rows)?;
                joined.steps.push(step);
            }
            Parts::Compact { steps, block, cache_type, .. } => {
                steps.push(Arc::new(CompactRows::new(&rows, *block, *cache_type)?));
            }
        }
        Ok(())
    }

    /// Drops cached rows. `text` has the indices of the text rows to keep, in their new order.
    /// `steps` says for each step whether it is kept; steps beyond the end of `steps` are dropped.
    /// A cache without rows accepts any indices and stays empty: some layers keep sums over the
    /// past instead of rows, and never add rows to their cache.
    ///
    /// # Errors
    /// If there is no row with one of these indices.
    pub fn keep(&mut self, text: &[u32], steps: &[bool]) -> Result<()> {
        let rows = match self.kept() {
            Some(kept) if kept.steps() > 0 || kept.texts()? > 0 => kept.texts()?,
            _ => return Ok(()),
        };
        if let Some(row) = text.iter().find(|&&row| row as usize >= rows) {
            bail!("a cache of {rows} rows of text has no row {row}");
        }
        let mut is_kept = steps.iter().copied().chain(std::iter::repeat(false));
        let mut is_kept = || is_kept.next().unwrap_or(false);
        match &mut self.0 {
            Parts::Apart { text: kept, steps } => {
                if let Some(kept) = kept {
                    let index = Tensor::new(text, kept.device())?;
                    *kept = kept.index_select(&index, 0)?;
                }
                steps.retain(|_| is_kept());
            }
            // Rows that are no longer kept stay in the tensor until it is replaced.
            Parts::Joined(joined) => {
                joined.text = text.iter().map(|&row| joined.text[row as usize]).collect();
                joined.steps.retain(|_| is_kept());
            }
            Parts::Compact { text: kept, steps, .. } => {
                if let Some(kept) = kept {
                    *kept = Arc::new(kept.select(text)?);
                }
                steps.retain(|_| is_kept());
            }
        }
        Ok(())
    }

    /// Returns the cached rows; `None` before rows are added.
    #[must_use]
    pub fn kept(&self) -> Option<CachedRows<'_>> {
        match &self.0 {
            Parts::Apart { text, steps } => (text.is_some() || !steps.is_empty())
                .then(|| CachedRows::Apart { text: text.as_ref(), steps }),
            Parts::Joined(Joined { rows, text, steps, .. }) => {
                rows.as_ref().map(|rows| CachedRows::Joined { rows, text, steps })
            }
            Parts::Compact { text, steps, .. } => (text.is_some() || !steps.is_empty())
                .then(|| CachedRows::Compact { text: text.as_deref(), steps }),
        }
    }

    /// Returns the stored rows. If the cache is empty, first decides how to store rows. They are
    /// stored in separate tensors if Taper has kernels of its own for tensors like `rows`,
    /// otherwise in one tensor.
    fn parts(&mut self, rows: &Tensor) -> Result<&mut Parts> {
        let is_new = matches!(&self.0, Parts::Apart { text: None, steps } if steps.is_empty());
        if is_new && !is_fused(None, &[rows])? {
            self.0 = Parts::Joined(Joined::default());
        }
        Ok(&mut self.0)
    }
}

impl Joined {
    /// Appends rows; returns the index of the first of them in the tensor, and their number.
    fn append(&mut self, new: &Tensor) -> Result<(u32, u32)> {
        let (count, width) = new.dims2()?;
        let new = new.contiguous()?;
        let is_shared = Arc::strong_count(&self.owner) > 1;
        let rows = match &self.rows {
            Some(rows) if !is_shared && self.used + count <= rows.dim(0)? => rows.clone(),
            _ => self.replace(count, width, &new)?,
        };
        if count > 0 {
            rows.slice_set(&new, 0, self.used)?;
        }
        let first = self.used;
        self.used += count;
        Ok((first as u32, count as u32))
    }

    /// Allocates a tensor with room for `count` more rows, and copies all rows that are still kept
    /// into it.
    fn replace(&mut self, count: usize, width: usize, like: &Tensor) -> Result<Tensor> {
        let steps = self.steps.iter().flat_map(|&(first, count)| first..first + count);
        let wanted: Vec<u32> = self.text.iter().copied().chain(steps).collect();
        let kept = wanted.len();
        let capacity = (2 * (kept + count)).max(LEAST);
        let rows = Tensor::zeros((capacity, width), like.dtype(), like.device())?;
        if let Some(old) = self.rows.as_ref().filter(|_| kept > 0) {
            let index = Tensor::from_vec(wanted, kept, like.device())?;
            rows.slice_set(&old.index_select(&index, 0)?, 0, 0)?;
        }
        let mut place = self.text.len() as u32;
        self.text = (0..place).collect();
        for (first, count) in &mut self.steps {
            *first = place;
            place += *count;
        }
        (self.used, self.owner) = (kept, Arc::new(()));
        self.rows = Some(rows.clone());
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ABSENT;
    use candle_core::{DType, Device};

    fn rows(first: usize, count: usize) -> Tensor {
        let values = (3 * first..3 * (first + count)).map(|value| value as f32).collect::<Vec<_>>();
        Tensor::from_vec(values, (count, 3), &Device::Cpu).expect("rows")
    }

    /// Returns the values of all cached rows, of the texts and then of the steps.
    fn values(cache: &Cache) -> Vec<Vec<f32>> {
        let kept = cache.kept().expect("rows");
        let (text, counts) = match kept {
            CachedRows::Apart { text, steps } => (
                text.map_or(0, |text| text.dims()[0]),
                steps.iter().map(|step| step.dims()[0]).collect::<Vec<_>>(),
            ),
            CachedRows::Joined { text, steps, .. } => {
                (text.len(), steps.iter().map(|step| step.1 as usize).collect())
            }
            CachedRows::Compact { text, steps } => (
                text.map_or(0, CompactRows::count),
                steps.iter().map(|step| step.count()).collect(),
            ),
        };
        // Reads each row of a step as the only row that a query sees.
        let all = kept.joined().expect("memory");
        let mut index: Vec<u32> =
            all.visible_to(0, std::slice::from_ref(&(0..text)), &[]).collect();
        let mut history = vec![vec![ABSENT]; counts.len()];
        for (step, &count) in counts.iter().enumerate() {
            for row in 0..count as u32 {
                history[step][0] = row;
                index.extend(all.visible_to(0, &[], &history));
            }
            history[step][0] = ABSENT;
        }
        let index = Tensor::new(index, &Device::Cpu).expect("an index");
        all.rows.index_select(&index, 0).and_then(|rows| rows.to_vec2()).expect("values")
    }

    #[test]
    fn rows_in_one_tensor_are_those_that_stay_apart() -> Result<()> {
        let (mut apart, mut joined) = (Cache::default(), Cache::joined());
        assert!(apart.kept().is_none() && joined.kept().is_none());
        for i in 0..200 {
            for cache in [&mut apart, &mut joined] {
                match i % 7 {
                    3 => cache.add_text(rows(100 * i, i % 5))?,
                    5 if i % 3 == 0 => {
                        let text: Vec<u32> = (0..(i % 4) as u32).collect();
                        let steps: Vec<bool> = (0..i).map(|step| step % 3 != 1).collect();
                        cache.keep(&text, &steps)?;
                    }
                    _ => cache.add_step(rows(100 * i, 1 + i % 6))?,
                }
            }
            if i == 0 {
                assert!(matches!(apart.kept(), Some(CachedRows::Apart { .. })));
                assert!(matches!(joined.kept(), Some(CachedRows::Joined { .. })));
            }
            assert_eq!(values(&apart), values(&joined), "{i}");
        }
        let mut without_text = Cache::default();
        without_text.keep(&[1_000_000], &[])?;
        without_text.add_step(rows(0, 2))?;
        for cache in [&mut apart, &mut joined, &mut without_text] {
            assert!(cache.keep(&[1_000_000], &[]).is_err());
        }
        Ok(())
    }

    #[test]
    fn every_storage_keeps_and_refuses_the_same() -> Result<()> {
        let caches = || {
            let compact = [CacheType::Bf16, CacheType::Int8];
            let compact = compact.map(|cache_type| Cache::in_type(cache_type, 3));
            [Cache::default(), Cache::joined()].into_iter().chain(compact)
        };
        for mut cache in caches() {
            // An empty cache accepts any indices.
            cache.keep(&[7], &[true])?;
            cache.add_step(rows(0, 2))?;
            assert!(cache.keep(&[0], &[true]).is_err(), "{cache:?}");
            cache.keep(&[], &[])?;
            cache.keep(&[7], &[])?;
            cache.add_text(rows(0, 3))?;
            for row in [3, 1_000_000] {
                let error = cache.keep(&[0, row], &[]).expect_err("no such row").to_string();
                assert!(error.contains(&format!("3 rows of text has no row {row}")), "{error}");
            }
            cache.keep(&[2, 0], &[])?;
            let kept = cache.kept().expect("rows");
            assert_eq!((kept.texts()?, kept.steps()), (2, 0));
        }
        Ok(())
    }

    /// Checks that the number of tensors allocated grows with the logarithm of the number of
    /// tokens.
    #[test]
    fn a_tensor_is_replaced_when_it_is_full_and_not_for_each_token() -> Result<()> {
        let mut cache = Cache::joined();
        let mut tensors = Vec::new();
        for step in 0..1000 {
            cache.add_step(rows(step, 5))?;
            if let Some(CachedRows::Joined { rows, .. }) = cache.kept() {
                tensors.push(rows.id());
            }
        }
        tensors.dedup();
        assert!(tensors.len() < 11, "{} tensors", tensors.len());
        assert_eq!(values(&cache).len(), 5000);
        Ok(())
    }

    #[test]
    fn a_copy_goes_its_own_way() -> Result<()> {
        let mut cache = Cache::joined();
        cache.add_step(rows(0, 2))?;
        let mut copy = cache.clone();
        copy.add_step(rows(5, 1))?;
        cache.add_step(rows(9, 1))?;
        assert_eq!(values(&copy)[2], [15.0, 16.0, 17.0]);
        assert_eq!(values(&cache)[2], [27.0, 28.0, 29.0]);
        Ok(())
    }

    /// Checks that rows are stored in one tensor if Taper has no kernel for their type, as on a
    /// GPU.
    #[test]
    fn which_of_the_two_it_is_depends_on_the_kernels() -> Result<()> {
        let mut cache = Cache::default();
        cache.add_text(rows(0, 2).to_dtype(DType::F16)?)?;
        assert!(matches!(cache.kept(), Some(CachedRows::Joined { .. })));
        assert!(cache.add_step(rows(0, 2)).is_err(), "another type");
        Ok(())
    }
}
