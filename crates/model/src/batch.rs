//! Inputs of one pass through a model, and the expected answers: packed ids in main memory.

use std::sync::Arc;

use crate::{ModelError, Result, Sequences};

/// Inputs and expected answers of one pass: one type for every model and task.
///
/// A stream is one kind of input, such as the source sentences. Each model names the streams that
/// it reads ([`Model::cost`](crate::Model::cost)): a translation model reads the source and the
/// shifted target, a language model reads its text, a classifier of images reads the values of
/// pixels, and an in-context regression model reads the bits of numbers. The model predicts an id
/// at each row (token position) of the last stream, or only at some of the rows; `answers` has the
/// true ids.
///
/// The alternative, a batch type for each model, would make the training loop, the memory check and
/// the exchange between processes generic over the batch type. This would have no use, because all
/// that they need from a batch is the number of its answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// Streams, in the order in which the model names them. Each stream has one sequence per
    /// example; the sequences are packed, one after the other.
    pub streams: Vec<Sequences>,
    /// Rows of the last stream at which an id is predicted, ascending; `None` if an id is predicted
    /// at every row. A masked language model predicts at a few rows only.
    pub asked: Option<Vec<u32>>,
    /// True id for each row at which an id is predicted.
    pub answers: Vec<u32>,
    /// Pairs of aligned words, ascending. Each pair is a row of the last stream and a row of the
    /// first stream. Guided attention, a loss that pulls attention towards the pairs, reads them;
    /// without guided attention the list is empty.
    pub links: Vec<(u32, u32)>,
}

impl Batch {
    /// Makes a batch that predicts at every row of the last of `streams`; `answers` has one id for
    /// each of these rows.
    #[must_use]
    pub fn new(streams: Vec<Sequences>, answers: Vec<u32>) -> Self {
        Self { streams, answers, ..Self::default() }
    }

    /// Number of answers, by which losses and gradients are weighted; for a translation model, the
    /// number of target tokens.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.answers.len()
    }

    /// Checks the batch for a model whose streams are called `names`, and returns the streams.
    ///
    /// # Errors
    /// In the following cases:
    /// - The number of streams is not the number of names.
    /// - The lengths of a stream do not sum to the number of its ids.
    /// - The streams have different numbers of sequences.
    /// - There is not one answer for each predicted row.
    /// - Predicted rows or links are out of range, or not ascending.
    pub fn read<const N: usize>(&self, names: [&'static str; N]) -> Result<[&Sequences; N]> {
        let refuse = |message: String| ModelError::Batch(message);
        let streams: [&Sequences; N] =
            self.streams.iter().collect::<Vec<_>>().try_into().map_err(|streams: Vec<_>| {
                refuse(format!(
                    "the model reads {} stream(s), {}, but the batch has {}",
                    N,
                    names.join(" and "),
                    streams.len()
                ))
            })?;
        for stream in streams {
            stream.check()?;
        }
        if let Some((name, stream)) = names
            .iter()
            .zip(streams)
            .find(|(_, stream)| stream.lengths.len() != streams[0].lengths.len())
        {
            return Err(refuse(format!(
                "a batch has {} sequences in its stream {}, but {} in {name}",
                streams[0].lengths.len(),
                names[0],
                stream.lengths.len()
            )));
        }
        let rows = streams.last().map_or(0, |stream| stream.ids.len());
        let predicted_rows = self.asked.as_ref().map_or(rows, Vec::len);
        if predicted_rows != self.answers.len() {
            return Err(refuse(format!(
                "a batch predicts at {predicted_rows} rows, but has {} answers",
                self.answers.len()
            )));
        }
        if let Some(row) = self.asked.iter().flatten().find(|&&row| row as usize >= rows) {
            return Err(refuse(format!("a batch predicts at row {row}, but has {rows} rows")));
        }
        let sources = streams.first().map_or(0, |stream| stream.ids.len());
        let is_beyond = |link: &&(u32, u32)| link.0 as usize >= rows || link.1 as usize >= sources;
        if let Some((target, source)) = self.links.iter().find(is_beyond) {
            return Err(refuse(format!(
                "a batch links row {target} of {rows} with row {source} of {sources}"
            )));
        }
        if !self.asked.iter().all(|asked| asked.is_sorted()) {
            return Err(refuse("the predicted rows of a batch must be ascending".to_owned()));
        }
        if !self.links.is_sorted_by_key(|link| link.0) {
            return Err(refuse("the links of a batch must be ascending".to_owned()));
        }
        Ok(streams)
    }

    /// Makes a batch that contains every example twice. One pass over it computes, for each
    /// example, two predictions with different dropout, which R-Drop compares.
    pub(crate) fn twice(&self) -> Self {
        let count = |stream: Option<&Sequences>| stream.map_or(0, |stream| stream.ids.len()) as u32;
        let (rows, sources) = (count(self.streams.last()), count(self.streams.first()));
        let again = |asked: &Vec<u32>| {
            asked.iter().copied().chain(asked.iter().map(|row| row + rows)).collect()
        };
        let links_again =
            self.links.iter().map(|(target, source)| (target + rows, source + sources));
        Self {
            streams: self.streams.iter().map(Sequences::twice).collect(),
            asked: self.asked.as_ref().map(again),
            answers: self.answers.repeat(2),
            links: self.links.iter().copied().chain(links_again).collect(),
        }
    }

    /// Divides the examples into batches of at most `most` answers each; an example with more
    /// answers is a batch by itself.
    ///
    /// # Panics
    /// If the fields do not fit together. [`Batch::read`] refuses such a batch.
    #[must_use]
    pub fn divided(&self, most: usize) -> Vec<Self> {
        let mut parts: Vec<Self> = Vec::new();
        let mut starts = vec![0; self.streams.len()];
        let mut first_answer = 0;
        for example in 0..self.streams.first().map_or(0, |stream| stream.lengths.len()) {
            let rows: Vec<_> = self
                .streams
                .iter()
                .zip(&mut starts)
                .map(|(stream, start)| {
                    let first = *start;
                    *start += stream.lengths[example];
                    first..*start
                })
                .collect();
            let asked_rows = rows.last().cloned().unwrap_or_default();
            let is_here = |row: &&u32| asked_rows.contains(&(**row as usize));
            let asked: Option<Vec<u32>> =
                self.asked.as_ref().map(|asked| asked.iter().filter(is_here).copied().collect());
            let answers = asked.as_ref().map_or(asked_rows.len(), Vec::len);
            if parts.last().is_none_or(|part| part.tokens() + answers > most) {
                let streams = vec![Sequences::default(); self.streams.len()];
                let asked = self.asked.as_ref().map(|_| Vec::new());
                parts.push(Self { streams, asked, ..Self::default() });
            }
            let Some(part) = parts.last_mut() else { continue };
            if let (Some(of_part), Some(asked)) = (&mut part.asked, asked) {
                let before = part.streams.last().map_or(0, |stream| stream.ids.len());
                let shifted = |row: u32| row - asked_rows.start as u32 + before as u32;
                of_part.extend(asked.into_iter().map(shifted));
            }
            let before = |stream: Option<&Sequences>| stream.map_or(0, |one| one.ids.len() as u32);
            let (targets, sources) = (before(part.streams.last()), before(part.streams.first()));
            let first_source = rows.first().map_or(0, |rows| rows.start as u32);
            let links = self.links.iter().filter(|(row, _)| asked_rows.contains(&(*row as usize)));
            part.links.extend(links.map(|(target, source)| {
                (target - asked_rows.start as u32 + targets, source - first_source + sources)
            }));
            for ((to, from), rows) in part.streams.iter_mut().zip(&self.streams).zip(rows) {
                to.lengths.push(rows.len());
                to.ids.extend_from_slice(&from.ids[rows]);
            }
            part.answers.extend_from_slice(&self.answers[first_answer..first_answer + answers]);
            first_answer += answers;
        }
        parts
    }

    /// Returns `asked`, the rows at which an id is predicted, in the type that tensor operations
    /// take.
    pub(crate) fn asked_rows(&self) -> Option<Arc<[u32]>> {
        self.asked.as_deref().map(Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Batch {
        Batch::new(
            vec![
                Sequences::pack(&[vec![1, 2, 3], vec![4]]),
                Sequences::pack(&[vec![5, 6], vec![7, 8]]),
            ],
            vec![50, 60, 70, 80],
        )
    }

    #[test]
    fn what_does_not_fit_together_is_named() {
        let says = |change: &dyn Fn(&mut Batch)| {
            let mut batch = batch();
            change(&mut batch);
            batch.read(["source", "target"]).unwrap_err().to_string()
        };
        assert!(batch().read(["source", "target"]).is_ok());
        assert!(batch().read(["text"]).unwrap_err().to_string().contains("1 stream(s), text"));
        assert!(says(&|batch| batch.streams[1].lengths[0] = 9).contains("lengths sum to 11"));
        assert!(
            says(&|batch| batch.streams[1].lengths = vec![4]).contains("2 sequences in its stream")
        );
        assert!(
            says(&|batch| batch.asked = Some(vec![1, 2])).contains("2 rows, but has 4 answers")
        );
        assert!(
            says(&|batch| batch.asked = Some(vec![0, 1, 2, 4])).contains("row 4, but has 4 rows")
        );
        assert!(says(&|batch| batch.links = vec![(3, 4)]).contains("row 3 of 4 with row 4 of 4"));
        assert!(
            says(&|batch| batch.links = vec![(2, 3), (0, 1)]).contains("links of a batch must be")
        );
        assert!(
            says(&|batch| batch.asked = Some(vec![0, 1, 3, 2])).contains("rows of a batch must be")
        );
    }

    #[test]
    fn asked_rows_follow_their_examples() {
        let links = vec![(0, 1), (1, 2), (2, 3)];
        let batch =
            Batch { asked: Some(vec![1, 2, 3]), answers: vec![60, 70, 80], links, ..batch() };
        let twice = batch.twice();
        assert_eq!(twice.asked.as_deref(), Some([1, 2, 3, 5, 6, 7].as_slice()));
        assert_eq!(twice.answers, [60, 70, 80, 60, 70, 80]);
        assert_eq!(twice.streams[0].lengths, [3, 1, 3, 1]);
        assert_eq!(twice.links, [(0, 1), (1, 2), (2, 3), (4, 5), (5, 6), (6, 7)]);
        let parts = batch.divided(2);
        assert_eq!(parts.len(), 2);
        assert_eq!((parts[0].asked.as_deref(), &*parts[0].answers), (Some(&[1][..]), &[60][..]));
        assert_eq!(
            (parts[1].asked.as_deref(), &*parts[1].answers),
            (Some(&[0, 1][..]), &[70, 80][..])
        );
        assert_eq!(parts[1].streams[0].ids, [4]);
        assert_eq!((&*parts[0].links, &*parts[1].links), (&[(0, 1), (1, 2)][..], &[(0, 0)][..]));
    }

    #[test]
    fn a_large_batch_is_divided_between_its_examples() {
        let row = |length: usize, first: u32| (first..first + length as u32).collect::<Vec<_>>();
        let lengths = [(3, 600), (5, 424), (1, 1), (2, 3000), (4, 7)];
        let sources: Vec<_> = lengths.iter().map(|&(source, _)| row(source, 0)).collect();
        let targets: Vec<_> = lengths.iter().map(|&(_, target)| row(target, 10)).collect();
        let batch = Batch::new(
            vec![Sequences::pack(&sources), Sequences::pack(&targets)],
            targets.concat(),
        );
        let parts = batch.divided(1024);
        assert_eq!(parts.iter().map(Batch::tokens).collect::<Vec<_>>(), [1024, 1, 3000, 7]);
        let ids = |pick: fn(&Batch) -> &Vec<u32>| {
            parts.iter().flat_map(pick).copied().collect::<Vec<_>>()
        };
        assert_eq!(ids(|part| &part.streams[0].ids), batch.streams[0].ids);
        assert_eq!(ids(|part| &part.streams[1].ids), batch.streams[1].ids);
        assert_eq!(ids(|part| &part.answers), batch.answers);
        assert_eq!(parts[0].streams[0].lengths, [3, 5]);
    }
}
