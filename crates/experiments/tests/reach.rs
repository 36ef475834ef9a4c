//! Tests of claims about how far layers reach, with models so small that they take seconds.

use taper_experiments::{
    Carrier, FirstToken, field_by_formula, field_of_text, fields_of_images, layers_of_images,
};

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// Checks that the formula gives the length of the shortest path over a distance, as it is measured
/// by gradients that are not zero (Vaswani et al. 2017, table 1).
#[test]
fn paths_are_as_long_as_the_formula_says() -> TestResult {
    for (name, carrier, layers) in Carrier::ALL {
        for distance in [0, 1, 2, 7, 8, 13, 31] {
            let measured = carrier.measured_path(distance)?;
            assert_eq!(measured, carrier.path(distance), "{name}, {distance}");
        }
        // The layers are enough for the longest text, and one fewer would not be.
        let is_recurrent = matches!(carrier, Carrier::Gru | Carrier::Lstm);
        assert!(is_recurrent || layers == carrier.path(31), "{name}");
    }
    Ok(())
}

/// Checks that gradients fade with each step through a recurrent layer, while through attention the
/// distance does not matter. Over distances at which gradients fade, nothing is learned (Bengio et
/// al. 1994).
#[test]
fn gradients_fade_through_steps_and_not_through_attention() -> TestResult {
    // Ratio of the gradients over 21 to 31 tokens to the gradients over 1 to 11 tokens.
    let far = |carrier| -> Result<f64, taper_theory::TheoryError> {
        let norms = FirstToken::train(carrier, 1, (0, 1))?.gradients(32, 32)?;
        let square = |norms: &[f64]| norms.iter().map(|norm| norm * norm).sum::<f64>();
        Ok((square(&norms[21..]) / square(&norms[1..12])).sqrt())
    };
    for carrier in [Carrier::Gru, Carrier::Lstm] {
        let ratio = far(carrier)?;
        assert!(ratio < 1e-3, "{carrier:?}: {ratio}");
    }
    let ratio = far(Carrier::Attention)?;
    assert!(ratio > 0.7 && ratio < 1.4, "{ratio}");

    // All texts have 32 tokens. So there are no shorter texts that would help to learn the long
    // distance.
    let of_long = |carrier| FirstToken::train(carrier, 1, (500, 32))?.right(32);
    let steps = [of_long(Carrier::Gru)?, of_long(Carrier::Lstm)?];
    let attention = of_long(Carrier::Attention)?;
    assert!(steps.iter().all(|share| *share < 0.1) && attention > 0.8, "{steps:?} {attention}");
    // With texts of all lengths, the GRU's gates learn to stay open.
    let reader = FirstToken::train(Carrier::Gru, 1, (500, 1))?;
    assert!(reader.right(32)? > 0.8);
    Ok(())
}

/// Checks that the receptive field grows in proportion to the depth, but that the standard
/// deviation of influences grows as the square root of the depth. With more depth, influences
/// become normally distributed (Luo et al. 2016, section 2).
#[test]
fn fields_grow_with_the_depth_and_what_counts_as_its_root() -> TestResult {
    for kernel in [3, 5] {
        let first = field_of_text(Some(kernel), 1)?.deviation();
        for depth in [1, 2, 4, 8] {
            let field = field_of_text(Some(kernel), depth)?;
            assert_eq!(field.size(), field_by_formula(&vec![(kernel, 1); depth]), "{depth}");
            let ratio = field.deviation() / first / (depth as f64).sqrt();
            assert!((ratio - 1.0).abs() < 0.2, "{kernel}, {depth}: {ratio}");
        }
        let normal = field_of_text(Some(kernel), 8)?.distance_from_normal();
        assert!(normal < 0.1, "{kernel}: {normal}");
    }
    assert_eq!(field_of_text(None, 1)?.size(), 65);
    for (number, field) in fields_of_images(6)?.iter().enumerate() {
        let layers = layers_of_images(number + 1);
        assert_eq!(field.size(), field_by_formula(&layers), "{} layers", number + 1);
    }
    Ok(())
}

#[test]
fn strides_multiply_what_later_kernels_see() {
    assert_eq!(field_by_formula(&[]), 1);
    assert_eq!(field_by_formula(&[(3, 1), (3, 2), (3, 1)]), 9);
    // The first layers of AlexNet: a convolution of 11 pixels with stride 4, a maximum over 3
    // pixels with stride 2, and a convolution of 5 pixels.
    assert_eq!(field_by_formula(&[(11, 4), (3, 2), (5, 1)]), 51);
}
