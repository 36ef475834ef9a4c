//! `taper positions`: position encodings in numbers and figures.

use anyhow::{Context, Result};
use taper_plots::{Language, Page, escape};
use taper_run::RunConfig;
use taper_run::attention::PositionFigures;
use taper_run::folder::files::write_atomically;

use crate::arguments::PositionsArguments;
use crate::text::print_line;

/// Runs the command.
pub(crate) fn run(arguments: &PositionsArguments) -> Result<()> {
    let config = RunConfig::load(&arguments.config, &arguments.overrides.set)?;
    let language: Language = arguments.language.into();
    let figures = PositionFigures::new(&config.model, arguments.count, language);
    if let Some(folder) = &arguments.svg {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        for (name, figure) in figures.figures()? {
            let path = folder.join(format!("positions-{name}.svg"));
            write_atomically(&path, figure.draw()?.standalone().as_bytes())?;
        }
    }
    if let Some(path) = &arguments.html {
        let mut body = String::new();
        for (_, figure) in figures.figures()? {
            let (title, words) = (escape(&figure.title), escape(&figure.description));
            let drawn = figure.draw()?.inline();
            body += &format!("<h2>{title}</h2><p>{words}</p><figure>{drawn}</figure>\n");
        }
        let title = language.choose("Position encodings", "位置编码").to_owned();
        let page = Page { language, title, body, ..Page::default() };
        write_atomically(path, page.html().as_bytes())?;
    }
    if arguments.svg.is_some() || arguments.html.is_some() {
        return Ok(());
    }
    let chosen = serde_json::to_value(figures.chosen())?;
    print_line(&format!("model.positions = {chosen}"))?;
    let columns = figures.by_distance()?;
    let names: Vec<&str> = columns.iter().map(|one| one.name.as_str()).collect();
    print_line(&format!("distance  {}", names.join("  ")))?;
    // All distances below 8, then powers of two.
    let near = 0..8.min(arguments.count);
    let far = (3..).map(|power| 1 << power).take_while(|distance| *distance < arguments.count);
    for distance in near.chain(far) {
        let value = |(one, name): (&f64, &&str)| format!("{one:>width$.3}", width = name.len());
        let row: Vec<f64> =
            columns.iter().filter_map(|one| one.values.get(distance).copied()).collect();
        let row: Vec<String> = row.iter().zip(&names).map(value).collect();
        print_line(&format!("{distance:>8}  {}", row.join("  ")))?;
    }
    Ok(())
}
