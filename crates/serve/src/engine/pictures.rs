//! Answers requests of clients to models that write captions, and to models that match texts and
//! pictures.

use anyhow::Result;
use taper_data::{ImageFormat, Pixels};
use taper_decoding::Control;
use taper_model::{ContrastiveModel, ImageCaptioner};
use taper_run::LoadedRun;
use taper_run::image_text::{describe_pixels, match_pixels};
use taper_run::prediction::Prediction;
use taper_run::translation::Translation;

use super::handlers::{Answers, Handlers, Opening, Serve, Service};
use super::limits::within_limit;
use super::work::{Verb, weight_of_all};
use crate::error::{Refusal, refusal};
use crate::run_info::RunInfo;
use crate::settings::Limits;

/// Request for a caption of a picture, given as a PNG or JPEG file.
#[derive(Debug)]
pub(crate) struct Describe {
    pub(crate) file: Vec<u8>,
}

impl Verb for Describe {
    type Model = ImageCaptioner;
    type Answer = Translation;
}

/// Request for the text of `texts` that matches a picture best; if `texts` is empty, for the run's
/// label that matches best.
#[derive(Debug)]
pub(crate) struct Match {
    pub(crate) file: Vec<u8>,
    pub(crate) texts: Vec<String>,
}

impl Verb for Match {
    type Model = ContrastiveModel;
    type Answer = Prediction;

    fn weight(&self, _beam: usize) -> usize {
        weight_of_all(&self.texts)
    }
}

/// Model that describes pictures.
pub(super) struct DescribesImages<'a> {
    run: &'a LoadedRun<ImageCaptioner>,
}

impl Service for DescribesImages<'_> {
    type Model = ImageCaptioner;

    fn open(opening: &Opening<'_>, serve: Serve<'_>) -> Result<()> {
        let run: LoadedRun<ImageCaptioner> = LoadedRun::open(opening.root, opening.load)?;
        let (service, info) =
            (DescribesImages { run: &run }, RunInfo::from_run(&run, opening.name));
        serve(Handlers::new("describes images").with::<Describe>(&service), info);
        Ok(())
    }
}

impl Answers<Describe> for DescribesImages<'_> {
    type Encoded = ();

    fn check(&self, _: &Describe) -> Result<(), Refusal> {
        Ok(())
    }

    fn answer(&self, requests: &[(&Describe, &())], _: &dyn Control) -> Result<Vec<Translation>> {
        let settings = &self.run.config.data.images;
        let images = requests.iter().map(|(one, ())| Pixels::of_bytes(&one.file, settings));
        describe_pixels(self.run, images.collect::<Result<_, _>>()?)
    }
}

/// Model that finds the matching text for a picture.
pub(super) struct MatchesImages<'a> {
    run: &'a LoadedRun<ContrastiveModel>,
    limits: Limits,
}

impl Service for MatchesImages<'_> {
    type Model = ContrastiveModel;

    fn open(opening: &Opening<'_>, serve: Serve<'_>) -> Result<()> {
        let run: LoadedRun<ContrastiveModel> = LoadedRun::open(opening.root, opening.load)?;
        let images = &run.config.data.images;
        // If the images are listed in a table file, each image has captions there, and there are no
        // labels.
        let labels = match images.format {
            ImageFormat::Table => Vec::new(),
            _ => images.labels.clone(),
        };
        let info = RunInfo { labels, ..RunInfo::from_run(&run, opening.name) };
        let service = MatchesImages { run: &run, limits: opening.limits };
        let handlers = Handlers::new("finds the text that matches an image");
        serve(handlers.with::<Match>(&service), info);
        Ok(())
    }
}

impl Answers<Match> for MatchesImages<'_> {
    /// Tokens of each text.
    type Encoded = Vec<Vec<u32>>;

    fn check(&self, Match { texts, .. }: &Match) -> Result<Vec<Vec<u32>>, Refusal> {
        if texts.is_empty() && self.run.config.data.images.format == ImageFormat::Table {
            let message = "the run has no labels: name the texts to choose from as `text`";
            return Err(Refusal::Unfit(message.to_owned()));
        }
        let ids = self.run.tokenizers.target().encode_batch(texts);
        let ids = ids.map_err(|error| refusal(&error.into()))?;
        within_limit(ids.iter().map(Vec::len).sum(), self.limits.tokens)?;
        Ok(ids)
    }

    fn goes_with(&self, one: &Match, other: &Match) -> bool {
        one.texts == other.texts
    }

    fn answer(
        &self,
        requests: &[(&Match, &Vec<Vec<u32>>)],
        _: &dyn Control,
    ) -> Result<Vec<Prediction>> {
        let Some((Match { texts, .. }, ids)) = requests.first() else { return Ok(Vec::new()) };
        let settings = &self.run.config.data.images;
        let images = requests.iter().map(|(one, _)| Pixels::of_bytes(&one.file, settings));
        match_pixels(self.run, images.collect::<Result<_, _>>()?, texts, ids)
    }
}
