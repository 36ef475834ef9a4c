//! Thinning of lines: points that the eye cannot distinguish are removed.

/// Number of pixel columns into which a line is divided for thinning.
const COLUMNS: usize = 700;

/// Returns the thinned points of a line. In each pixel column, the first, the lowest, the highest
/// and the last point are kept, so no spike is lost. A line with few points keeps all of them.
pub(super) fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= 4 * COLUMNS {
        return points.to_vec();
    }
    let (low, high) = points.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), at| {
        (low.min(at.0), high.max(at.0))
    });
    let width = ((high - low) / COLUMNS as f64).max(f64::MIN_POSITIVE);
    let column = |at: &(f64, f64)| ((at.0 - low) / width) as usize;
    let mut kept = Vec::new();
    for group in points.chunk_by(|left, right| column(left) == column(right)) {
        let by_height = |left: &usize, right: &usize| group[*left].1.total_cmp(&group[*right].1);
        let lowest = (0..group.len()).min_by(by_height).unwrap_or(0);
        let highest = (0..group.len()).max_by(by_height).unwrap_or(0);
        let mut places = [0, lowest, highest, group.len() - 1];
        places.sort_unstable();
        let mut last = None;
        for place in places {
            if last != Some(place) {
                kept.push(group[place]);
                last = Some(place);
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spike_of_a_long_line_is_kept() {
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|x| (f64::from(x), 1.0)).collect();
        points[54_321].1 = 9.0;
        points[54_400].1 = -9.0;
        let kept = thinned(&points);
        assert!(kept.len() <= 4 * (COLUMNS + 1), "{}", kept.len());
        assert!(kept.contains(&(54_321.0, 9.0)) && kept.contains(&(54_400.0, -9.0)));
        assert_eq!((kept[0].0, kept[kept.len() - 1].0), (0.0, 99_999.0));
        assert!(kept.is_sorted_by(|left, right| left.0 <= right.0));
    }
}
