//! Options of the search for translations.

use anyhow::{Result, bail, ensure};
use clap::Args;
use taper_decoding::DecodingConfig;

/// Options of the search for translations.
#[derive(Debug, Args)]
pub(crate) struct Search {
    /// Number of hypotheses kept at each step; 1 is greedy search [default: the run's]
    #[arg(long)]
    pub(crate) beam: Option<usize>,
    /// Exponent of the length penalty [default: the run's]
    #[arg(long, value_name = "ALPHA")]
    pub(crate) length_penalty: Option<f64>,
    /// Choose the translation among N candidates that is most similar to all of them (minimum Bayes
    /// risk). They are sampled from tokens with a probability of at least 0.02, unless options of
    /// sampling are given; with --beam, they are the best N of the beam [default: the run's]
    #[arg(long, value_name = "N")]
    pub(crate) mbr: Option<usize>,
    /// Limit each translation to the tokens that the run's shortlist has for its source; `taper
    /// shortlist` makes the shortlist [default: the run's]
    #[arg(long)]
    pub(crate) shortlist: bool,
}

impl Search {
    /// Whether `--mbr` draws its candidates, even if no option of sampling is given.
    pub(crate) fn draws(&self) -> bool {
        self.mbr.is_some() && self.beam.is_none()
    }

    /// Writes the options, and the requested number of translations, to `config`.
    ///
    /// # Errors
    /// When the resulting configuration is invalid.
    pub(crate) fn apply(&self, config: &mut DecodingConfig, n_best: Option<usize>) -> Result<()> {
        if let Some(beam) = self.beam {
            ensure!(
                !config.sampling.is_active(),
                "--beam has no effect if translations are sampled: leave out --beam, or the \
                     options of sampling; if the recipe samples, add --set \
                     decoding.sampling.temperature=0"
            );
            config.beam_size = beam;
            config.n_best = config.n_best.min(beam.max(1));
        }
        if let Some(n_best) = n_best {
            config.n_best = n_best;
            // If n translations are requested without a beam, the beam has to be at least n.
            if self.beam.is_none() && !config.sampling.is_active() {
                config.beam_size = config.beam_size.max(n_best);
            }
        }
        if let Some(candidates) = self.mbr {
            self.choose_among(candidates, config)?;
        }
        if let Some(alpha) = self.length_penalty {
            config.length_penalty = alpha;
        }
        config.shortlist |= self.shortlist;
        config.validate()?;
        Ok(())
    }

    /// Makes `config` choose among `candidates` translations. They are found by beam search if
    /// `--beam` is given, and sampled otherwise.
    fn choose_among(&self, candidates: usize, config: &mut DecodingConfig) -> Result<()> {
        config.reranking.candidates = candidates;
        match self.beam {
            Some(beam) if beam < candidates => bail!(
                "a beam of {beam} cannot find the {candidates} translations of --mbr: use a wider \
                 --beam, or leave --beam out to sample them"
            ),
            Some(_) => {}
            None if config.sampling.is_active() => {}
            None => {
                config.sampling.temperature = 1.0;
                config.sampling.epsilon = EPSILON_OF_CANDIDATES;
            }
        }
        Ok(())
    }
}

/// Smallest probability with which a token of a candidate is sampled (Freitag et al. 2023, "Epsilon
/// Sampling Rocks").
const EPSILON_OF_CANDIDATES: f64 = 0.02;

/// Options of sampling and of repetition control.
#[derive(Debug, Args)]
pub(crate) struct Control {
    /// Sample translations at random instead of searching for the best; implied by the next four
    /// options
    #[arg(long)]
    pub(crate) sample: bool,
    /// Divide logits by T before sampling; below 1 favours likely tokens [default: the run's, else
    /// 1]
    #[arg(long, value_name = "T")]
    pub(crate) temperature: Option<f64>,
    /// Draw from the K likeliest tokens
    #[arg(long, value_name = "K")]
    pub(crate) top_k: Option<usize>,
    /// Sample from the smallest set of likeliest tokens with a total probability of at least P
    #[arg(long, value_name = "P")]
    pub(crate) top_p: Option<f64>,
    /// Sample from the tokens with a probability of at least E
    #[arg(long, value_name = "E")]
    pub(crate) epsilon: Option<f64>,
    /// Seed of sampling; the same seed gives the same output, however lines are batched [default:
    /// the run's]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Divide positive logits, and multiply negative logits, of tokens that the output already
    /// contains
    #[arg(long, value_name = "X")]
    pub(crate) repetition_penalty: Option<f64>,
    /// Forbid that any N consecutive tokens are repeated: in a translation (within each part, if a
    /// line is translated in parts), or in a prompt and its continuation together
    #[arg(long, value_name = "N")]
    pub(crate) no_repeat_ngram: Option<usize>,
}

impl Control {
    /// Writes the options to `config`. `draws` is true if candidates are drawn even if no option of
    /// sampling is given.
    ///
    /// # Errors
    /// If an option of sampling is given although nothing is sampled, or if the temperature does
    /// not allow the requested draws.
    pub(crate) fn apply(&self, config: &mut DecodingConfig, draws: bool) -> Result<()> {
        let sampling = &mut config.sampling;
        let wanted = self.sample
            || self.temperature.is_some()
            || self.top_k.is_some()
            || self.top_p.is_some()
            || self.epsilon.is_some();
        if wanted && !sampling.is_active() {
            sampling.temperature = 1.0;
        }
        set(&mut sampling.temperature, self.temperature);
        set(&mut sampling.top_k, self.top_k);
        set(&mut sampling.top_p, self.top_p);
        set(&mut sampling.epsilon, self.epsilon);
        set(&mut sampling.seed, self.seed);
        if let Some(temperature) = self.temperature
            && draws
            && !sampling.is_active()
        {
            bail!(
                "--temperature {temperature} samples nothing, but --mbr samples its candidates: \
                 leave out --temperature, or give a --beam, whose best translations are then the \
                 candidates"
            );
        }
        let of_drawing = [
            ("--sample", self.sample),
            ("--top-k", self.top_k.is_some()),
            ("--top-p", self.top_p.is_some()),
            ("--epsilon", self.epsilon.is_some()),
            ("--seed", self.seed.is_some() && !draws),
        ];
        if let Some((name, _)) =
            of_drawing.into_iter().find(|(_, given)| *given && !sampling.is_active())
        {
            bail!(
                "{name} has no effect if nothing is sampled: leave it out, or give a \
                 --temperature above 0, such as 1"
            );
        }
        set(&mut config.repetition_penalty, self.repetition_penalty);
        set(&mut config.no_repeat_ngram, self.no_repeat_ngram);
        Ok(())
    }
}

fn set<T>(value: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *value = given;
    }
}
