//! Growing texts, which are sent to clients piece by piece.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc::UnboundedSender;

/// Piece of text added by a language model.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    /// Index of the text among the texts of the prompt. A streamed request has a single prompt.
    pub(crate) sample: usize,
    pub(crate) text: String,
}

/// Channel for the pieces of the texts of a prompt.
///
/// If the computation of a batch fails, its requests are computed again one by one, each with the
/// same result. So the number of sent bytes is kept here, and no piece is sent twice.
#[derive(Debug)]
pub(crate) struct PieceSender {
    sender: UnboundedSender<Piece>,
    /// Number of bytes of each text that were sent.
    sent: Vec<AtomicUsize>,
}

impl PieceSender {
    /// Makes a channel for `samples` texts.
    pub(crate) fn new(sender: UnboundedSender<Piece>, samples: usize) -> Self {
        Self { sender, sent: (0..samples).map(|_| AtomicUsize::new(0)).collect() }
    }

    /// Whether nobody listens any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends the part of `text` that was not sent before; `text` is the beginning of the text with
    /// the index `sample`. Returns whether anybody listens.
    fn send(&self, sample: usize, text: &str) -> bool {
        let Some(sent) = self.sent.get(sample) else { return !self.is_closed() };
        let known = sent.fetch_max(text.len(), Ordering::Relaxed);
        match text.get(known..).filter(|new| !new.is_empty()) {
            Some(new) => self.sender.send(Piece { sample, text: new.to_owned() }).is_ok(),
            None => !self.is_closed(),
        }
    }
}

/// Sender of one growing text to a client. It holds back the end of the text while this end may be
/// the beginning of a stop text.
pub(super) struct Teller<'w> {
    sample: usize,
    stop: &'w [String],
    pieces: Option<&'w PieceSender>,
    text: String,
    /// Number of bytes of the text that are not held back any more. No stop text begins in them.
    told: usize,
}

impl<'w> Teller<'w> {
    pub(super) fn new(sample: usize, stop: &'w [String], pieces: Option<&'w PieceSender>) -> Self {
        Self { sample, stop, pieces, text: String::new(), told: 0 }
    }

    /// Adds `piece` to the text. Returns `Break`, which ends generation, at a stop text, or if
    /// nobody listens.
    pub(super) fn push(&mut self, piece: &str) -> ControlFlow<()> {
        self.text.push_str(piece);
        // Only the end of the text is searched, so that a long text does not take longer and
        // longer.
        let held = &self.text[self.told..];
        let stopped = self.stop.iter().filter_map(|stop| held.find(stop)).min();
        if let Some(at) = stopped {
            let at = self.told + at;
            self.text.truncate(at);
            let _ = self.tell(at);
            return ControlFlow::Break(());
        }
        let may_begin =
            |from: &usize| self.stop.iter().any(|stop| stop.starts_with(&held[*from..]));
        let until = held.char_indices().map(|(at, _)| at).find(may_begin).unwrap_or(held.len());
        self.tell(self.told + until)
    }

    /// Sends the unsent text up to the byte `until`. Returns `Break`, which ends generation, if
    /// nobody listens.
    fn tell(&mut self, until: usize) -> ControlFlow<()> {
        self.told = self.told.max(until);
        let Some(pieces) = self.pieces else { return ControlFlow::Continue(()) };
        match pieces.send(self.sample, &self.text[..until]) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    }

    /// Sends the text that was held back.
    pub(super) fn finish(mut self) {
        let _ = self.tell(self.text.len());
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    #[test]
    fn what_may_stop_a_text_is_held_back() {
        let stop = ["\n\n".to_owned(), "END".to_owned()];
        let (pieces, mut received) = unbounded_channel();
        let pieces = PieceSender::new(pieces, 4);
        let teller = |sample| Teller::new(sample, &stop, Some(&pieces));
        let mut all = || {
            let mut all = String::new();
            while let Ok(piece) = received.try_recv() {
                all += &piece.text;
            }
            all
        };
        let mut one = teller(0);
        for (piece, expected) in
            [("a\n", "a"), ("b", "\nb"), ("日E", "日"), ("N", ""), ("x", "ENx"), ("\n", "")]
        {
            assert!(one.push(piece).is_continue());
            assert_eq!(all(), expected, "{piece:?}");
        }
        assert!(one.push("\nrest").is_break());
        assert_eq!(all(), "");
        let mut two = teller(1);
        assert!(two.push("ab EN").is_continue());
        assert_eq!(all(), "ab ");
        two.finish();
        assert_eq!(all(), "EN");
        let mut three = teller(2);
        assert!(three.push("abENDc").is_break());
        assert_eq!(all(), "ab");
        let mut unsent = Teller::new(0, &stop, None);
        assert!(unsent.push("ab\nE").is_continue() && unsent.push("N").is_continue());
        assert!(unsent.push("D").is_break(), "a stop text ends a text that nobody is sent");
        received.close();
        assert!(teller(3).push("x").is_break(), "nobody listens");
    }
    #[test]
    fn what_was_sent_is_not_sent_again_if_the_text_is_made_again() {
        let (pieces, mut received) = unbounded_channel();
        let pieces = PieceSender::new(pieces, 2);
        let stop = ["END".to_owned()];
        for (texts, sent) in [(["a日", "b"], ["a日", "b"]), (["a", "日bcEN"], ["", "c"])] {
            let mut teller = Teller::new(1, &stop, Some(&pieces));
            for (text, sent) in texts.iter().zip(sent) {
                assert!(teller.push(text).is_continue());
                let piece = received.try_recv().map_or_else(|_| String::new(), |piece| piece.text);
                assert_eq!(piece, sent);
            }
        }
        assert!(pieces.send(0, "x"));
        assert_eq!(received.try_recv().expect("a piece").sample, 0, "another text");
    }
}
