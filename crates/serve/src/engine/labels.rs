//! Answers requests of clients to classifiers of texts and of images.

use anyhow::Result;
use taper_data::{ImagesConfig, Pairs, Pixels, Row, rows_of};
use taper_decoding::Control;
use taper_model::{ImageClassifier, TextClassifier};
use taper_run::LoadedRun;
use taper_run::attention::{AttentionMap, labelled_row};
use taper_run::prediction::{DividedText, Occlusion, Prediction, predict_pixels, predict_rows};

use super::attention::Attend;
use super::handlers::{Answers, Handlers, Opening, Serve, Service};
use super::limits::within_limit;
use super::work::{TOKEN_BYTES, Verb, weight_of, weight_of_all};
use crate::error::{Refusal, refusal};
use crate::run_info::RunInfo;
use crate::settings::Limits;

/// Request to label texts.
#[derive(Debug)]
pub(crate) struct LabelTexts {
    pub(crate) texts: Vec<String>,
}

impl Verb for LabelTexts {
    type Model = TextClassifier;
    type Answer = Vec<Prediction>;

    fn lines(&self) -> usize {
        self.texts.len()
    }

    fn weight(&self, _beam: usize) -> usize {
        weight_of_all(&self.texts)
    }
}

/// Request to label a text, and to measure how much each of its words contributes to the label.
#[derive(Debug)]
pub(crate) struct Occlude {
    pub(crate) text: String,
}

impl Verb for Occlude {
    type Model = TextClassifier;
    type Answer = Occlusion;

    /// Returns the cost of one pass over the whole text, and of one pass for each word, in which
    /// the model reads the text without this word. Each token is counted as a word.
    fn weight(&self, _beam: usize) -> usize {
        let bytes = self.text.len();
        weight_of(bytes.saturating_mul(1 + bytes / TOKEN_BYTES))
    }
}

/// Request to label a picture, given as a PNG or JPEG file.
#[derive(Debug)]
pub(crate) struct LabelImage {
    pub(crate) file: Vec<u8>,
}

impl Verb for LabelImage {
    type Model = ImageClassifier;
    type Answer = Prediction;
}

/// Classifier of texts.
pub(super) struct LabelsTexts<'a> {
    run: &'a LoadedRun<TextClassifier>,
    limits: Limits,
}

impl Service for LabelsTexts<'_> {
    type Model = TextClassifier;

    fn open(opening: &Opening<'_>, serve: Serve<'_>) -> Result<()> {
        let run: LoadedRun<TextClassifier> = LoadedRun::open(opening.root, opening.load)?;
        let settings = &run.config.data.labelled;
        let info = RunInfo {
            labels: settings.labels.clone(),
            pairs: settings.pairs != Pairs::No,
            ..RunInfo::from_run(&run, opening.name)
        };
        let service = LabelsTexts { run: &run, limits: opening.limits };
        let handlers = Handlers::new("labels texts").with::<LabelTexts>(&service);
        serve(handlers.with::<Occlude>(&service).with::<Attend>(&service), info);
        Ok(())
    }
}

impl Answers<LabelTexts> for LabelsTexts<'_> {
    type Encoded = Vec<Row>;

    fn check(&self, request: &LabelTexts) -> Result<Vec<Row>, Refusal> {
        let tokenizer = self.run.tokenizers.target();
        let rows = rows_of(tokenizer, &request.texts, &self.run.config.data.labelled);
        let rows = rows.map_err(|error| refusal(&error.into()))?;
        within_limit(rows.iter().map(|row| row.tokens).sum(), self.limits.tokens)?;
        Ok(rows)
    }

    fn answer(
        &self,
        requests: &[(&LabelTexts, &Vec<Row>)],
        control: &dyn Control,
    ) -> Result<Vec<Vec<Prediction>>> {
        let rows: Vec<&Row> = requests.iter().flat_map(|&(_, rows)| rows).collect();
        let mut labelled = predict_rows(self.run, &rows, |_| control.between_steps())?.into_iter();
        let labels_of_requests =
            requests.iter().map(|(_, rows)| labelled.by_ref().take(rows.len()).collect());
        Ok(labels_of_requests.collect())
    }
}

impl Answers<Occlude> for LabelsTexts<'_> {
    type Encoded = DividedText;

    fn check(&self, Occlude { text }: &Occlude) -> Result<DividedText, Refusal> {
        let settings = &self.run.config.data.labelled;
        let divided = DividedText::new(self.run.tokenizers.target(), text, settings);
        let divided = divided.map_err(|error| refusal(&error))?;
        within_limit(divided.tokens(), self.limits.tokens)?;
        Ok(divided)
    }

    fn goes_with(&self, _: &Occlude, _: &Occlude) -> bool {
        false
    }

    fn answer(
        &self,
        requests: &[(&Occlude, &DividedText)],
        _: &dyn Control,
    ) -> Result<Vec<Occlusion>> {
        requests.iter().map(|(_, divided)| divided.occlude(self.run)).collect()
    }
}

impl Answers<Attend> for LabelsTexts<'_> {
    type Encoded = Row;

    fn check(&self, Attend { text }: &Attend) -> Result<Row, Refusal> {
        let row = labelled_row(self.run, text).map_err(|error| refusal(&error))?;
        within_limit(row.tokens, self.limits.attention_tokens)?;
        Ok(row)
    }

    fn goes_with(&self, _: &Attend, _: &Attend) -> bool {
        false
    }

    fn answer(&self, requests: &[(&Attend, &Row)], _: &dyn Control) -> Result<Vec<AttentionMap>> {
        requests.iter().map(|(one, row)| AttentionMap::of_row(self.run, &one.text, row)).collect()
    }
}

/// Classifier of images.
pub(super) struct LabelsImages<'a> {
    run: &'a LoadedRun<ImageClassifier>,
    settings: &'a ImagesConfig,
}

impl Service for LabelsImages<'_> {
    type Model = ImageClassifier;

    fn open(opening: &Opening<'_>, serve: Serve<'_>) -> Result<()> {
        let run: LoadedRun<ImageClassifier> = LoadedRun::open(opening.root, opening.load)?;
        let settings = &run.config.data.images;
        let info =
            RunInfo { labels: settings.labels.clone(), ..RunInfo::from_run(&run, opening.name) };
        let service = LabelsImages { run: &run, settings };
        serve(Handlers::new("labels images").with::<LabelImage>(&service), info);
        Ok(())
    }
}

impl Answers<LabelImage> for LabelsImages<'_> {
    type Encoded = ();

    fn check(&self, _: &LabelImage) -> Result<(), Refusal> {
        Ok(())
    }

    fn answer(&self, requests: &[(&LabelImage, &())], _: &dyn Control) -> Result<Vec<Prediction>> {
        let images = requests.iter().map(|(one, ())| Pixels::of_bytes(&one.file, self.settings));
        predict_pixels(self.run, images.collect::<Result<_, _>>()?)
    }
}
