//! `taper scaling`: fits scaling laws, which describe how the loss falls with the number of
//! parameters of a model and the amount of training data.

use anyhow::Result;
use taper_report::{Point, Study};

use super::write_pictures;
use crate::arguments::Scaling;
use crate::text::print_line;

/// Runs the command.
pub(crate) fn run(arguments: &Scaling) -> Result<()> {
    let runs = arguments.runs.iter().map(|root| Point::from_run(root));
    let mut points = runs.collect::<Result<Vec<_>>>()?;
    for point in &points {
        print_line(&format!(
            "{}  {:.4e} parameters  {:.4e} tokens  loss {:.4}",
            point.name, point.parameters, point.tokens, point.loss
        ))?;
    }
    if let Some(path) = &arguments.points {
        points.extend(Point::from_table(path)?);
    }
    let study = Study::fit(points, arguments.leave_out, arguments.resamples)?;
    let flops = match arguments.flops.as_slice() {
        [] => study.usual_flops(),
        given => given.to_vec(),
    };
    study.lines(&flops).iter().try_for_each(|line| print_line(line))?;
    write_pictures(&study.figures(arguments.pictures.language.into()), &arguments.pictures)
}
