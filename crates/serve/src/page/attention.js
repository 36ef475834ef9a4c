// The weights of a layer and head as a table of shades.
const makeAttention = card => {
  const details = taper.element('details');
  const choices = taper.element('div', 'choices');
  const caption = taper.element('p', 'muted');
  const place = taper.element('div');
  const lists = {};
  for (const name of ['part', 'layer', 'head']) {
    const label = taper.element('label', '', `${say(name)} `);
    lists[name] = taper.element('select');
    lists[name].dataset.name = name;
    label.append(lists[name]);
    choices.append(label);
    lists[name].addEventListener('change', () => draw());
  }
  details.append(taper.element('summary', '', say('attention')), choices, caption, place);
  let wanted = null, shown = null, layers = [], under = null;

  const fill = (list, options) => {
    const before = list.value;
    list.replaceChildren(...options.map(([value, text]) => {
      const option = taper.element('option', '', text);
      option.value = value;
      return option;
    }));
    const values = options.map(([value]) => value);
    list.value = values.includes(before) ? before
      : list === lists.part && values.includes('cross') ? 'cross' : values.at(0);
  };
  const draw = () => {
    fill(lists.part, [...new Set(layers.map(one => one.part))].map(part => [part, say(part)]));
    const own = layers.filter(one => one.part === lists.part.value);
    fill(lists.layer, own.map(one => [String(one.layer), String(one.layer)]));
    const layer = own.find(one => String(one.layer) === lists.layer.value);
    if (!layer) return place.replaceChildren();
    fill(lists.head, [['mean', say('mean')], ...layer.heads.map((_, head) =>
      [String(head + 1), String(head + 1)])]);
    const head = lists.head.value;
    const weight = (row, column) => head === 'mean'
      ? layer.heads.reduce((sum, one) => sum + one[row][column], 0) / layer.heads.length
      : layer.heads[Number(head) - 1][row][column];
    const matrix = taper.matrix({ rows: layer.queries, columns: layer.keys,
      values: layer.queries.map((_, row) => layer.keys.map((__, column) => weight(row, column))),
      rowLabel: '', columnLabel: '→', strongest: 1, title: say('attention') });
    matrix.told.setAttribute('aria-live', 'polite');
    place.replaceChildren(matrix.place, matrix.told);
  };
  const load = async () => {
    if (!details.open || !wanted || JSON.stringify(wanted) === shown) return;
    under?.abort();
    under = new AbortController();
    const { signal } = under;
    const asked = wanted;
    await onCard(card, async () => {
      const answer = await ask('api/attention', { run: card.run.name, ...asked }, { signal });
      const found = await answer.json();
      if (signal.aborted) return;
      layers = found.layers;
      shown = JSON.stringify(asked);
      caption.textContent = say('attention-of', { line: asked.text });
      draw();
    }).catch(() => {});
  };
  details.addEventListener('toggle', load);
  return {
    details,
    // What to show from now on: a text, and its translation.
    of(text, target) {
      wanted = text.trim() ? { text, target } : null;
      load();
    },
  };
};
