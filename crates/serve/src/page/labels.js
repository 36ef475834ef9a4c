// Words of a text in the shade of their evidence for its label, or against it. The arrow keys go
// from word to word.
const weighed = ({ label, words }) => {
  // Evidence of a fraction of a nat is none to speak of.
  const most = Math.max(1, ...words.map(one => Math.abs(one.evidence)));
  const place = taper.element('p', 'evidence'), told = taper.element('p', 'muted');
  told.setAttribute('aria-live', 'polite');
  place.tabIndex = 0;
  place.setAttribute('role', 'group');
  place.setAttribute('aria-label', say('evidence', { label }));
  const tell = number => {
    [...place.children].forEach((word, at) => word.classList.toggle('chosen', at === number));
    const { text, without, evidence } = words[number] ?? { text: '' };
    told.textContent = text && say(evidence < 0 ? 'word-against' : 'word-for', { word: text.trim(),
      label, percent: percent(without), evidence: Math.abs(evidence).toFixed(1) });
  };
  let chosen = -1;
  place.append(...words.map(({ text, evidence }, number) => {
    const word = taper.element('span', evidence < 0 ? 'token is-against' : 'token', text);
    word.style.setProperty('--weight', (Math.abs(evidence) / most).toFixed(3));
    word.addEventListener('pointerenter', () => tell(chosen = number));
    return word;
  }));
  place.addEventListener('pointerleave', () => tell(chosen = -1));
  place.addEventListener('blur', () => tell(chosen = -1));
  place.addEventListener('keydown', event => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    chosen = Math.min(words.length - 1, Math.max(0, chosen + step));
    tell(chosen);
  });
  return [place, told];
};

// Labels of texts as they are typed.
const startLabels = runs => {
  // Texts whose words are weighed: each is read as many times as it has words.
  const WEIGHED = 12;
  const field = byId('to-label');
  if (runs.every(run => run.pairs)) field.placeholder = say('pair-hint');
  const label = async (card, lines, signal) => {
    const answer = await ask('api/classify', { run: card.run.name, text: lines },
      { signal, told: card.say });
    const { predictions } = await answer.json();
    if (signal.aborted) return;
    card.say('');
    card.body.replaceChildren(...predictions.map((prediction, number) => {
      const made = taper.element('div', 'labelled');
      made.append(taper.element('p', 'evidence', lines[number]), chances(prediction));
      return made;
    }));
    await weigh(card, lines.slice(0, WEIGHED), signal);
  };
  // The labels are shown before the words are weighed; a text that is too long for it has labels.
  const weigh = async (card, lines, signal) => {
    for (const [number, text] of lines.entries()) {
      const answer = await ask('api/occlusion', { run: card.run.name, text }, { signal })
        .catch(error => {
          if (error.name === 'AbortError') throw error;
        });
      const found = await answer?.json();
      if (signal.aborted) return;
      if (found) card.body.children[number].firstChild.replaceWith(...weighed(found));
    }
  };
  const read = () => {
    const lines = linesOf(field);
    return lines.length ? lines : null;
  };
  const started = startCards(byId('classification'), runs, 250, read, label);
  field.addEventListener('input', started.again);
  return started;
};
