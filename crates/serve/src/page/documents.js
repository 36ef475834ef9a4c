// Documents, translated by each chosen run.
const startDocuments = (cards, terms) => {
  const list = byId('document-list'), input = byId('document');
  // `page.html` becomes `page.de.html`.
  const renamed = (name, target) => name.replace(/(\.[^.]*)$/, `.${target}$1`);
  // A line for a document: its name, how far it is, and in the end the translated one.
  const makeRow = (card, file) => {
    const row = taper.element('li'), name = taper.element('span', 'name', file.name);
    const bar = taper.element('progress'), state = taper.element('span', 'muted');
    const stop = taper.element('button', '', say('stop'));
    bar.setAttribute('aria-label', say('document-of', { name: file.name, run: card.run.name }));
    bar.max = 1;
    bar.value = 0;
    state.setAttribute('role', 'status');
    stop.type = 'button';
    stop.setAttribute('aria-label', say('stop-document', { name: file.name }));
    row.append(name, bar, state, stop);
    list.append(row);
    const end = (...shown) => {
      const hadFocus = row.contains(document.activeElement);
      row.replaceChildren(name, ...shown);
      if (hadFocus) row.querySelector('a')?.focus();
    };
    return { bar, state, stop, end };
  };
  // What a translator should look at again.
  const remarks = told => [
    told.unchanged.length && say('document-unchanged', { count: told.unchanged.length,
      first: told.unchanged[0].sentence, reason: told.unchanged[0].reason }),
    told.truncated && say('document-truncated', { count: told.truncated }),
    told.missing_terms.length && say('missing-terms', { terms: told.missing_terms
      .map(one => `${one.term} (${one.sentence})`).join(', ') }),
  ].filter(Boolean).map(text => taper.element('p', 'error', text));
  const translate = async (card, file, row, signal) => {
    const form = new FormData();
    const { from, to } = card.direction();
    for (const [name, value] of Object.entries({ run: card.run.name, from, to,
      terms: JSON.stringify(terms()), stream: 'true' })) form.set(name, value);
    form.set('file', file);
    const told = text => { row.state.textContent = text; };
    told(say('working'));
    const answer = await ask('api/translate-file', form, { signal, type: '', told });
    for await (const event of events(answer)) {
      if (event.error) throw new Error(event.error);
      if (!event.done) {
        row.bar.max = Math.max(1, event.sentences);
        row.bar.value = event.translated;
        told(say('sentences-done', { done: event.translated, all: event.sentences }));
        continue;
      }
      // Kept by the page, since the server keeps it for a while only.
      const made = await (await ask(event.url, undefined, { signal })).blob();
      const link = offerFile(made, renamed(file.name, to));
      link.className = 'button';
      return row.end(taper.element('span', 'muted',
        say('document-done', { sentences: event.sentences })), link, ...remarks(event));
    }
    throw new Error(say('offline'));
  };
  const open = async (card, file) => {
    const row = makeRow(card, file), under = new AbortController();
    row.stop.addEventListener('click', () => under.abort());
    try {
      await translate(card, file, row, under.signal);
    } catch (error) {
      const failed = taper.element('span', 'error',
        error.name === 'AbortError' ? say('stopped') : error.message);
      failed.setAttribute('role', 'alert');
      row.end(failed);
    }
  };
  // One document after another, so that a pile of them waits for its own.
  const openAll = async files => {
    for (const file of files) {
      const chosen = cards.filter(card => card.isChosen());
      await Promise.all(chosen.map(card => open(card, file)));
    }
  };
  input.addEventListener('change', () => {
    openAll([...input.files]);
    input.value = '';
  });
  return openAll;
};
