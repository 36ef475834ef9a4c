//! Shape of an attention layer: its numbers of heads, their width, and the multiplier of attention
//! scores.

/// Heads of an attention layer.
///
/// There are `heads` heads of queries, and `key_value_heads` heads of keys and of values. If there
/// are fewer heads of keys and values than of queries, neighbouring query heads share them (Ainslie
/// et al. 2023, "GQA"). Query head `h` uses key and value head `⌊h · key_value_heads / heads⌋`. A
/// single key and value head gives multi-query attention (Shazeer 2019, "Fast Transformer
/// Decoding"); equal numbers give multi-head attention (Vaswani et al. 2017).
///
/// The projections of `N` tokens have query, key and value side by side, `(N, Q + 2·K)`, and each
/// of the three has its heads side by side. `Q` is [`query_width`](Self::query_width), and `K` is
/// [`key_value_width`](Self::key_value_width).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionShape {
    /// Number of query heads.
    pub heads: usize,
    /// Number of key heads, and of value heads; it divides `heads`.
    pub key_value_heads: usize,
    /// Width of each head.
    pub head_width: usize,
    /// Multiplier of the products of queries and keys.
    pub scale: f64,
}

impl AttentionShape {
    /// Makes a shape with `heads` heads of this width, each with its own keys and values. Scores
    /// are divided by `√head_width` (Vaswani et al. 2017, equation 1).
    #[must_use]
    pub fn with_heads(heads: usize, head_width: usize) -> Self {
        let scale = 1.0 / (head_width as f64).sqrt();
        Self { heads, key_value_heads: heads, head_width, scale }
    }

    /// Makes a shape with `heads` heads of width `width / heads`.
    #[must_use]
    pub fn dividing(width: usize, heads: usize) -> Self {
        Self::with_heads(heads, width.checked_div(heads).unwrap_or_default())
    }

    /// Returns this shape with `key_value_heads` heads of keys and values.
    #[must_use]
    pub fn grouped(self, key_value_heads: usize) -> Self {
        Self { key_value_heads, ..self }
    }

    /// Returns this shape with only one head, of the same width.
    #[must_use]
    pub fn single_head(self) -> Self {
        Self { heads: 1, key_value_heads: 1, ..self }
    }

    /// Returns the width of all heads of a query together, which is also the width of attention's
    /// result.
    #[must_use]
    pub fn query_width(&self) -> usize {
        self.heads.saturating_mul(self.head_width)
    }

    /// Returns the width of all heads of a key together; values have the same width.
    #[must_use]
    pub fn key_value_width(&self) -> usize {
        self.key_value_heads.saturating_mul(self.head_width)
    }

    /// Returns the width of query, key and value side by side.
    #[must_use]
    pub fn projected_width(&self) -> usize {
        self.query_width().saturating_add(self.key_value_width().saturating_mul(2))
    }

    /// Returns the number of query heads that share a key and value head.
    #[must_use]
    pub fn group(&self) -> usize {
        self.heads.checked_div(self.key_value_heads).unwrap_or_default()
    }

    /// Returns the index of the key and value head that query head `head` uses.
    #[must_use]
    pub fn key_value_head(&self, head: usize) -> usize {
        head / self.group().max(1)
    }

    /// Returns the reason why a layer of this shape is impossible; `None` if it is possible.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let Self { heads, key_value_heads, head_width, scale } = *self;
        if heads == 0 || key_value_heads == 0 || head_width == 0 {
            return Some(format!(
                "{heads} heads, {key_value_heads} of keys and values, of width {head_width}: each \
                 must be at least 1"
            ));
        }
        if !heads.is_multiple_of(key_value_heads) {
            return Some(format!(
                "{key_value_heads} heads of keys and values do not divide {heads} heads"
            ));
        }
        (!scale.is_finite()).then(|| format!("scores cannot have the factor {scale}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_heads_share_keys_and_values() {
        let shape = AttentionShape::with_heads(6, 4).grouped(2);
        assert_eq!((shape.query_width(), shape.key_value_width()), (24, 8));
        assert_eq!((shape.projected_width(), shape.group(), shape.scale), (40, 3, 0.5));
        let seen: Vec<usize> = (0..6).map(|head| shape.key_value_head(head)).collect();
        assert_eq!(seen, [0, 0, 0, 1, 1, 1]);
        assert_eq!(shape.fault(), None);
    }

    #[test]
    fn impossible_shapes_say_why() {
        let shape = AttentionShape::dividing(24, 6);
        assert_eq!(shape, AttentionShape::with_heads(6, 4));
        assert!(shape.grouped(4).fault().unwrap().contains("4 heads of keys and values do not"));
        assert!(shape.grouped(0).fault().unwrap().contains("at least 1"));
        assert!(AttentionShape::dividing(24, 0).fault().unwrap().contains("at least 1"));
        let unbounded = AttentionShape { scale: f64::INFINITY, ..shape };
        assert!(unbounded.fault().unwrap().contains("factor inf"));
    }
}
