//! `taper attention`: attention of a model on a text, in the terminal, as a page or as a picture.

use anyhow::{Context, Result};
use taper_plots::{Figure, Theme};
use taper_run::attention::{
    AttentionLayer, AttentionMap, AttentionPart, HeadProfile, attention_figure, attention_page,
    profiles, rollout_figure,
};
use taper_run::folder::files::write_atomically;

use super::grid::grid;
use crate::arguments::Attention;
use crate::text::{print_line, say};

/// Scale of a PNG picture, in pixels per unit of length of the drawing.
const ZOOM: f32 = 2.0;

/// Runs the command.
pub(crate) fn run(arguments: &Attention) -> Result<()> {
    let load = arguments.loading.settings();
    let target = arguments.target.as_deref();
    let map = AttentionMap::of_run(&arguments.run, &load, &arguments.text, target)?;
    if arguments.heads {
        return table(&profiles(&[map]));
    }
    let (layer, figure) = chosen(arguments, &map)?;
    if let Some(path) = &arguments.html {
        write_atomically(path, attention_page(&map, arguments.language.into()).as_bytes())?;
    }
    if let Some(path) = &arguments.svg {
        write_atomically(path, figure.draw()?.standalone().as_bytes())?;
    }
    if let Some(path) = &arguments.png {
        write_atomically(path, &figure.draw()?.png(Theme::Light, ZOOM)?)?;
    }
    if arguments.json {
        return print_line(&serde_json::to_string(&map)?);
    }
    if arguments.html.is_some() || arguments.svg.is_some() || arguments.png.is_some() {
        return Ok(());
    }
    say(&figure.title);
    let weights = layer.weights(arguments.head)?;
    for line in grid(&layer.queries, &layer.keys, &weights) {
        print_line(&line)?;
    }
    Ok(())
}

/// Returns the layer that the arguments name, and its figure.
fn chosen(arguments: &Attention, map: &AttentionMap) -> Result<(AttentionLayer, Figure)> {
    let parts = map.parts();
    let usual = if arguments.rollout { parts.first() } else { parts.last() };
    let part = arguments.part.map(AttentionPart::from).or(usual.copied());
    let part = part.context("no layer has attention weights")?;
    if arguments.rollout {
        let layer = map.rollout(part)?;
        let figure = rollout_figure(&layer, arguments.language.into());
        return Ok((layer, figure));
    }
    let layer = map.layer(part, arguments.layer)?.clone();
    let figure = attention_figure(&layer, arguments.head, arguments.language.into())
        .with_context(|| format!("--head {}", arguments.head.unwrap_or_default()))?;
    Ok((layer, figure))
}

/// Prints a line about the behaviour of each head.
fn table(profiles: &[HeadProfile]) -> Result<()> {
    print_line(
        "part     layer head  previous  same  next  first  last  punct.  distance  entropy  does",
    )?;
    for head in profiles {
        print_line(
            format!(
                "{:<8} {:>5} {:>4}  {:>8.2}  {:>4.2}  {:>4.2}  {:>5.2}  {:>4.2}  {:>6.2}  {:>8.1}  \
                 {:>7.2}  {}",
                head.part.name(),
                head.layer,
                head.head,
                head.previous,
                head.same,
                head.next,
                head.first,
                head.last,
                head.punctuation,
                head.distance,
                head.entropy,
                head.does()
            )
            .trim_end(),
        )?;
    }
    Ok(())
}
