//! A run of any task, with its model.

use std::path::Path;

use anyhow::{Result, bail};
use taper_data::{Task, TokenizerPair};
use taper_model::{
    ContrastiveModel, ImageCaptioner, ImageClassifier, InContextRegressor, LanguageModel,
    MaskedLanguageModel, Model, SpanExtractor, TextClassifier, TokenTagger, TranslationModel,
};
use taper_ops::ParameterStore;
use taper_run::tasks::require_task;
use taper_run::{LoadSettings, LoadedRun, RunConfig, RunFolder};

/// Defines the runs of each task's model, and the functions that all of them have.
macro_rules! loaded {
    ($($task:ident: $model:ty,)*) => {
        /// A trained run, by its task.
        pub(crate) enum Loaded {
            $($task(Box<LoadedRun<$model>>),)*
        }

        impl Loaded {
            /// Loads the run at `root`.
            ///
            /// # Errors
            /// See [`LoadedRun::open`].
            pub(crate) fn open(root: &Path, settings: &LoadSettings) -> Result<Self> {
                let task = RunFolder::open(root)?.load_config(&settings.overrides)?.task;
                Ok(match task {
                    $(Task::$task => Self::$task(Box::new(LoadedRun::open(root, settings)?)),)*
                })
            }

            /// Its configuration.
            pub(crate) fn config(&self) -> &RunConfig {
                match self { $(Self::$task(run) => &run.config,)* }
            }

            /// Its tokenizers.
            pub(crate) fn tokenizers(&self) -> &TokenizerPair {
                match self { $(Self::$task(run) => &run.tokenizers,)* }
            }

            /// The checkpoint of its weights.
            pub(crate) fn checkpoint(&self) -> &Path {
                match self { $(Self::$task(run) => &run.checkpoint,)* }
            }

            /// Number of updates of the checkpoint.
            pub(crate) fn step(&self) -> u64 {
                match self { $(Self::$task(run) => run.state.step,)* }
            }

            /// Its weights.
            pub(crate) fn parameters(&self) -> &ParameterStore {
                match self { $(Self::$task(run) => run.model.parameters(),)* }
            }
        }
    };
}

loaded! {
    Translation: TranslationModel,
    LanguageModel: LanguageModel,
    MaskedLanguageModel: MaskedLanguageModel,
    Classification: TextClassifier,
    Tagging: TokenTagger,
    QuestionAnswering: SpanExtractor,
    ImageClassification: ImageClassifier,
    Captions: ImageCaptioner,
    ImageText: ContrastiveModel,
    InContextRegression: InContextRegressor,
}

impl Loaded {
    /// Refuses the run, whose task is not `wanted`.
    ///
    /// # Errors
    /// Always, with the program's command for its task.
    pub(crate) fn refuse<T>(&self, wanted: Task) -> Result<T> {
        require_task(self.config(), wanted)?;
        bail!("the run is of no use for this")
    }
}
