// Test sentences: sorted, sifted, made as they come into view.
(() => {
  const place = document.getElementById('sentence-list');
  const say = JSON.parse(place.dataset.texts);
  const sets = taper.data('sentence-data').sets;
  const AT = { line: 0, source: 1, reference: 2, systems: 3, chrf: 4, bleu: 5, length: 6, rarest: 7,
    flaw: 8 };
  const STEP = 40;
  const by = (value, sign) => (left, right) => sign * (value(left) - value(right));
  const chrf = row => row[AT.chrf];
  const orders = {
    worst: by(chrf, 1), best: by(chrf, -1), file: by(row => row[AT.line], 1),
    long: by(row => row[AT.length], -1),
    rare: by(row => (row[AT.rarest] ? row[AT.rarest][0] : Infinity), 1),
  };
  const tools = taper.element('div', 'sentence-tools');
  const labelled = (text, control) => {
    const label = taper.element('label', '', text);
    label.append(control);
    tools.append(label);
    return control;
  };
  const choice = (text, options) => {
    const select = taper.element('select');
    for (const [value, name] of options) {
      const option = taper.element('option', '', name);
      option.value = value;
      select.append(option);
    }
    select.addEventListener('change', begin);
    return labelled(text, select);
  };
  const list = taper.element('div');
  const end = taper.element('div');
  const count = taper.element('span', 'muted');
  count.setAttribute('role', 'status');
  const chosen = choice(say.set, sets.map((set, number) => [number, set.split]));
  if (sets.length === 1) chosen.parentElement.hidden = true;
  const order = choice(say.order, Object.entries(say.orders));
  const kind = choice(say.kind, [['', say.any], ...say.kinds]);
  const find = labelled(say.find, taper.element('input'));
  find.type = 'search';
  let wait;
  find.addEventListener('input', () => { clearTimeout(wait); wait = setTimeout(begin, 150); });
  tools.append(count);
  place.append(tools, list, end);

  // Words with the space before them; characters of Chinese and Japanese by themselves.
  const east = '[\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}]';
  const word = new RegExp(`\\s*(?:${east}|(?:(?!${east})[\\p{L}\\p{N}\\p{M}'’-])+|\\S)`, 'gu');
  const cut = text => text.match(word) || [];
  // The longest common subsequence of words: what is only in one of the two is marked.
  const differ = (from, to) => {
    const left = cut(from), right = cut(to);
    const same = (i, j) => left[i].trim() === right[j].trim();
    const wide = right.length + 1;
    const best = new Uint16Array((left.length + 1) * wide);
    for (let i = left.length - 1; i >= 0; i--) {
      for (let j = right.length - 1; j >= 0; j--) {
        best[i * wide + j] = same(i, j) ? best[(i + 1) * wide + j + 1] + 1
          : Math.max(best[(i + 1) * wide + j], best[i * wide + j + 1]);
      }
    }
    const marks = [new Set(), new Set()];
    let i = 0, j = 0;
    while (i < left.length || j < right.length) {
      if (i < left.length && j < right.length && same(i, j)) { i++; j++; continue; }
      const skip = j >= right.length
        || (i < left.length && best[(i + 1) * wide + j] >= best[i * wide + j + 1]);
      if (skip) marks[0].add(i++); else marks[1].add(j++);
    }
    return [[left, marks[0]], [right, marks[1]]];
  };
  const marked = ([words, marks], name) => {
    const made = taper.element('dd');
    let text = '';
    const flush = () => { if (text) made.append(text); text = ''; };
    words.forEach((word, number) => {
      if (!marks.has(number)) { text += word; return; }
      const lead = word.length - word.trimStart().length;
      text += word.slice(0, lead);
      flush();
      made.append(taper.element(name, '', word.slice(lead)));
    });
    flush();
    return made;
  };
  const render = (row, set) => {
    const made = taper.element('article', 'sentence');
    const head = taper.element('div');
    head.append(taper.element('span', 'muted', `${row[AT.line]}  `),
      taper.element('span', 'score', `chrF2 ${set.systems ? row[AT.bleu] : row[AT.chrf]}`),
      taper.element('span', 'muted', (set.systems ? '' : `  BLEU ${row[AT.bleu]}`)
        + `  ${row[AT.length]} ${say.words}`));
    if (row[AT.rarest]) {
      const [times, word] = row[AT.rarest];
      head.append(taper.element('span', 'muted', `  ${say.rarest}: ${word} (${times})`));
    }
    const flaw = say.kinds.find(([name]) => name === row[AT.flaw]);
    if (flaw) head.append(taper.element('span', 'flaw', `  ${flaw[1]}`));
    const texts = taper.element('dl');
    const add = (name, value) => texts.append(taper.element('dt', '', name), value);
    add(say.source, taper.element('dd', '', row[AT.source]));
    const systems = set.systems ? row[AT.systems] : [row[AT.systems]];
    systems.forEach((text, number) => {
      const [reference, translation] = differ(row[AT.reference], text);
      if (number === 0) {
        add(say.reference, systems.length > 1
          ? taper.element('dd', '', row[AT.reference]) : marked(reference, 'del'));
      }
      add(set.systems ? set.systems[number] : say.translation, marked(translation, 'ins'));
    });
    made.append(head, texts);
    return made;
  };
  let rows = [], shown = 0, set = sets[0];
  const more = () => {
    const part = document.createDocumentFragment();
    for (const row of rows.slice(shown, shown + STEP)) part.append(render(row, set));
    shown = Math.min(rows.length, shown + STEP);
    list.append(part);
  };
  const near = () => end.getBoundingClientRect().top < innerHeight + 800;
  const fill = () => { while (shown < rows.length && near()) more(); };
  function begin() {
    set = sets[Number(chosen.value)];
    const text = find.value.toLowerCase();
    const has = row => row.slice(AT.source, AT.chrf).flat()
      .some(part => part.toLowerCase().includes(text));
    const is = row => !kind.value || row[AT.flaw] === kind.value;
    rows = set.rows.filter(row => is(row) && (!text || has(row)));
    rows.sort(orders[order.value]);
    list.replaceChildren();
    shown = 0;
    count.textContent = `${rows.length} ${say.count}`;
    more();
  }
  addEventListener('scroll', fill, { passive: true });
  addEventListener('resize', fill);
  begin();
})();
