// Spans of texts: entities that a tagger finds, and answers to questions.
const COLOURS = 8;
// A text whose span has a colour, and a name behind it.
const marked = (text, name, colour) => {
  const made = taper.element('mark', 'span', text);
  made.style.setProperty('--mark', `var(--plot-series-${1 + colour % COLOURS})`);
  if (name) made.append('\u00a0', taper.element('small', '', name));
  return made;
};
// Spans of a text with their kinds: entities, or words by themselves where the run has tags of
// another kind.
const isOfEntities = run => run.labels.some(label => /^[BIES]-/.test(label));
const kindsOf = run => [...new Set(run.labels.map(label =>
  (isOfEntities(run) ? label.replace(/^[BIES]-/, '') : label)))].filter(kind => kind !== 'O');
const spansOf = (run, { words, tags, entities }) => {
  const spans = isOfEntities(run) ? entities : tags.map((tag, at) => [tag, at, at]);
  return spans.filter(([kind]) => kind !== 'O').map(([kind, first, last]) =>
    ({ kind, first, last, text: words.slice(first, last + 1).join(' ') }));
};
const tagged = (run, found) => {
  const line = taper.element('p', 'tagged'), kinds = kindsOf(run), { words } = found;
  line.dir = 'auto';
  let at = 0;
  for (const { kind, first, last, text } of spansOf(run, found)) {
    line.append(words.slice(at, first).map(word => `${word} `).join(''),
      marked(text, kind, kinds.indexOf(kind)), ' ');
    at = last + 1;
  }
  line.append(words.slice(at).join(' '));
  return line;
};
// Spans of each kind, and their number.
const listed = (run, texts) => {
  const table = taper.element('table', 'kinds'), spans = texts.flatMap(one => spansOf(run, one));
  kindsOf(run).forEach((kind, colour) => {
    const counts = new Map();
    for (const { text } of spans.filter(one => one.kind === kind)) {
      counts.set(text, (counts.get(text) ?? 0) + 1);
    }
    if (!counts.size) return;
    const row = taper.element('tr'), name = taper.element('th');
    name.scope = 'row';
    name.append(marked(kind, '', colour));
    row.append(name, taper.element('td', '', [...counts].map(([text, count]) =>
      (count > 1 ? `${text} × ${count}` : text)).join(', ')));
    table.append(row);
  });
  return table;
};
// Tags of texts as they are typed.
const startTags = runs => {
  const field = byId('to-tag');
  const tag = async (card, lines, signal) => {
    const answer = await ask('api/tag', { run: card.run.name, text: lines },
      { signal, told: card.say });
    const { texts } = await answer.json();
    card.say('');
    card.body.replaceChildren(...texts.map(one => tagged(card.run, one)), listed(card.run, texts));
  };
  const read = () => {
    const lines = linesOf(field);
    return lines.length ? lines : null;
  };
  const started = startCards(byId('tagging'), runs, 250, read, tag);
  field.addEventListener('input', started.again);
  return started;
};

// The place of an answer in its text, with some of the text around it.
const excerpt = (context, start, end) => {
  const AROUND = 160;
  const letters = [...context], line = taper.element('p', 'read');
  const [from, to] = [Math.max(0, start - AROUND), Math.min(letters.length, end + AROUND)];
  const part = (one, other) => letters.slice(one, other).join('');
  line.dir = 'auto';
  line.append(from > 0 ? '… ' : '', part(from, start), marked(part(start, end), '', 0),
    part(end, to), to < letters.length ? ' …' : '');
  return line;
};
// Answers to questions about a text.
const startAnswers = runs => {
  const [field, list] = ['context', 'questions'].map(byId);
  const answer = async (card, { context, questions }, signal) => {
    const asked = questions.map(question => ({ question, context }));
    const told = await ask('api/answer', { run: card.run.name, questions: asked },
      { signal, told: card.say });
    const { answers } = await told.json();
    card.say('');
    card.body.replaceChildren(...answers.map(({ answer, start, end, probability }, number) => {
      const line = taper.element('div', 'line'), found = taper.element('p', 'target', answer);
      found.dir = 'auto';
      if (answer) found.append(' ', taper.element('small', 'muted', percent(probability)));
      else found.append(taper.element('span', 'muted', say('no-answer')));
      line.append(taper.element('p', 'asked', questions[number]), found);
      if (answer) line.append(excerpt(context, start, end));
      return line;
    }));
  };
  const read = () => {
    const questions = linesOf(list);
    return field.value.trim() && questions.length ? { context: field.value, questions } : null;
  };
  const started = startCards(byId('question-answering'), runs, 250, read, answer);
  for (const one of [field, list]) one.addEventListener('input', started.again);
  return started;
};
