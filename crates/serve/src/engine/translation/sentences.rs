//! Translation of the sentences of documents, with the search settings of the run.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use taper_data::{Direction, EncodedText};
use taper_decoding::{Control, Renumbered};
use taper_model::TranslationModel;
use taper_run::translation::{
    LineNumbers, Terms, TranslatedSentence, TranslationSettings, linked_sentences,
    sentence_settings,
};

use super::Translates;
use crate::engine::handlers::Answers;
use crate::engine::limits::encoded;
use crate::engine::work::{Verb, weight_of_all};
use crate::error::{Refusal, refusal};

/// Request to translate sentences of a document.
#[derive(Debug)]
pub(crate) struct TranslateSentences {
    pub(crate) texts: Vec<String>,
    /// Number in the document of each of these sentences, counted from 1.
    pub(crate) numbers: Vec<usize>,
    /// Source and target language; `None` for a run that has only one direction.
    pub(crate) direction: Option<Direction>,
    /// Terms with their translations. Each line has a term, a tab and the translation of the term.
    pub(crate) terms: String,
    /// Whether to align the translations, so that markup can follow the words.
    pub(crate) is_aligned: bool,
}

impl Verb for TranslateSentences {
    type Model = TranslationModel;
    /// Translation of each sentence, or the reason why the sentence has none.
    type Answer = Vec<Result<TranslatedSentence>>;

    fn lines(&self) -> usize {
        self.texts.len()
    }

    fn weight(&self, _beam: usize) -> usize {
        let searches = if self.terms.is_empty() { 1 } else { 2 };
        weight_of_all(&self.texts) * searches
    }
}

impl Answers<TranslateSentences> for Translates<'_> {
    /// Tokens of each sentence.
    type Encoded = Vec<EncodedText>;

    fn check(&self, request: &TranslateSentences) -> Result<Vec<EncodedText>, Refusal> {
        if request.is_aligned && !self.aligns {
            return Err(Refusal::Unfit(
                "the model has no attention to the source, so tags and placeholders within a \
                 sentence cannot be placed"
                    .to_owned(),
            ));
        }
        let tokenizers = self.tokenizers(request.direction.as_ref())?;
        Terms::parse(&request.terms, "terms, ", tokenizers).map_err(|error| refusal(&error))?;
        encoded(tokenizers.source(), &request.texts, self.limits.tokens)
    }

    /// Returns `false`: each request is a batch by itself.
    fn goes_with(&self, _: &TranslateSentences, _: &TranslateSentences) -> bool {
        false
    }

    fn answer(
        &self,
        requests: &[(&TranslateSentences, &Vec<EncodedText>)],
        control: &dyn Control,
    ) -> Result<Vec<Vec<Result<TranslatedSentence>>>> {
        let translate = |(number, &(request, lines)): (usize, &(&TranslateSentences, &Vec<_>))| {
            let numbers = vec![number; lines.len()];
            let control = Renumbered::new(control, &numbers);
            let tokenizers = self.tokenizers(request.direction.as_ref());
            let tokenizers = tokenizers.map_err(|refusal| anyhow!(refusal.message()))?;
            let terms = Terms::parse(&request.terms, "", tokenizers)?.map(Arc::new);
            let settings = TranslationSettings { terms, ..self.settings.clone() };
            let settings = sentence_settings(&settings, request.is_aligned);
            let spoken = self.translator.with_tokenizers(tokenizers);
            let translator = spoken.under(&settings, &control);
            let lines: Vec<&EncodedText> = lines.iter().collect();
            let numbers = LineNumbers::Sentences(&request.numbers);
            let translated = translator.translate_encoded(&lines, &[], numbers, |_| {})?;
            linked_sentences(&self.run.config.data.source_prefix, &request.texts, translated)
        };
        requests.iter().enumerate().map(translate).collect()
    }
}
