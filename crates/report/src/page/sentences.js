// Test sentences as a table: sorted, sifted, made as they come into view. Of one run, or of several
// side by side.
taper.later(() => {
  const place = document.getElementById('sentence-list');
  const { say } = taper;
  const flaws = new Map(JSON.parse(place.dataset.flaws));
  const sets = taper.data('sentence-data').sets;
  const AT = { line: 0, source: 1, reference: 2, texts: 3, chrf: 4, bleu: 5, length: 6, rarest: 7,
    flaws: 8, links: 9 };
  const STEP = 20;
  // Rows whose text is put into lower case at a time.
  const CHUNK = 500;
  const tools = taper.element('div', 'sentence-tools');
  const table = taper.element('table', 'sentences');
  const body = taper.element('tbody');
  const count = taper.element('output');
  const end = taper.element('div');
  const chosen = taper.select(sets.map((set, number) => [number, set.split]), () => head());
  const kind = taper.select(
    [['', say('any', '不限')], ['*', say('with a flaw', '有错误')], ...flaws], () => begin());
  const find = taper.element('input');
  find.type = 'search';
  const length = ['min', 'max'].map(name => {
    const made = taper.element('input');
    Object.assign(made, { type: 'number', min: 0, placeholder: name === 'min' ? '0' : '∞' });
    made.setAttribute('aria-label', name === 'min' ? say('Fewest words', '最少词数')
      : say('Most words', '最多词数'));
    made.addEventListener('input', () => begin());
    return made;
  });
  const words = taper.element('span', 'field', say('words', '词数'));
  words.append(length[0], '–', length[1]);
  if (sets.length > 1) tools.append(taper.labelled(say('test set', '测试集'), chosen));
  tools.append(taper.labelled(say('find text', '查找文本'), find),
    taper.labelled(say('flaw', '错误'), kind), words, count);
  find.addEventListener('input', () => begin());
  place.append(tools, table, end);
  // Words that belong together, where a run has kept which do.
  const linkedRows = new WeakMap();
  const isAligned = sets.some(set => set.rows.some(row => row[AT.links]));
  const links = isAligned ? taper.links(body, row => linkedRows.get(row)) : null;
  if (links) {
    place.append(links.spoken);
    tools.after(taper.element('p', 'muted', say(
      'Point at a word, or walk with the arrow keys, to see which words it is aligned with.',
      '将指针移到词上，或用方向键移动，即可看到与其对齐的词。')));
  }

  let rows = [], shown = 0, set = sets[0], columns = [], order = 'chrf 0', sign = 1;
  // The value by which rows are sorted: a column of numbers, the line, or the score of a system.
  const valued = key => {
    if (key === 'line') return row => row[AT.line];
    const at = Number(key.split(' ')[1]);
    return key.startsWith('chrf') ? row => row[AT.chrf][at]
      : columns.find(([name]) => name === key)[2];
  };
  // Columns of numbers, each with its value in a row.
  const difference = row => row[AT.chrf][1] - row[AT.chrf][0];
  const keys = () => {
    const length = ['length', say('words', '词数'), row => row[AT.length]];
    if (set.systems.length) return [['apart', 'Δ 2−1', difference], length];
    return [['chrf 0', 'chrF2', row => row[AT.chrf][0]],
      ['bleu', 'BLEU', row => row[AT.bleu][0]], length,
      ['rarest', say('rarest word', '最罕见词'),
        row => (row[AT.rarest] ? row[AT.rarest][0] : Infinity)]];
  };
  const cell = (className, name, text) => {
    const made = taper.element('td', className);
    made.append(taper.element('span', 'name', name));
    if (text !== undefined) made.append(text);
    return made;
  };
  const render = row => {
    const made = taper.element('tr');
    const line = taper.element('th', 'line', `${row[AT.line]}`);
    line.scope = 'row';
    const texts = row[AT.texts];
    const compared = texts.map(text => taper.differ(row[AT.reference], text));
    const isLinked = row[AT.links]?.some(list => list.length);
    // The place of a text whose words are linked with others.
    const place = cell => {
      if (!isLinked) return cell;
      const own = taper.element('span', 'text');
      cell.append(own);
      return own;
    };
    const source = cell('', say('source', '原文'));
    source.dir = 'auto';
    const read = place(source);
    read.append(row[AT.source]);
    if (isLinked) {
      read.tabIndex = -1;
      read.setAttribute('role', 'group');
      read.setAttribute('aria-label', say('Words and their translations, by the arrow keys',
        '用方向键查看词及其译文'));
      linkedRows.set(made, { links: row[AT.links], texts: [
        [taper.words(row[AT.source]), new Set()], ...compared.map(([, own]) => own)] });
    }
    const reference = cell('', say('reference', '参考译文'));
    reference.dir = 'auto';
    if (texts.length > 1) reference.append(row[AT.reference]);
    else taper.marked(reference, compared[0][0], 'del');
    made.append(line, source, reference);
    const best = Math.max(...row[AT.chrf]);
    texts.forEach((_, at) => {
      const own = cell('', set.systems[at] ?? say('translation', '译文'));
      own.dir = 'auto';
      taper.marked(place(own), compared[at][1], 'ins');
      const flaw = flaws.get(row[AT.flaws][at]);
      if (set.systems.length) {
        const score = row[AT.chrf][at];
        own.append(taper.element('div', score === best ? 'score best' : 'score',
          `chrF2 ${score.toFixed(1)}`));
      }
      if (flaw) own.append(taper.element('span', 'flaw', flaw));
      made.append(own);
    });
    for (const [name, title, value] of columns) {
      if (name === 'rarest') {
        const own = cell('rare', title);
        if (row[AT.rarest]) own.append(`${row[AT.rarest][1]} (${taper.number(row[AT.rarest][0])})`);
        made.append(own);
        continue;
      }
      const number = value(row), is = name === 'length' ? String(number) : number.toFixed(1);
      const own = cell('number', title, name === 'apart' && number > 0 ? `+${is}` : is);
      if (name === 'chrf 0') own.classList.add('score');
      made.append(own);
    }
    return made;
  };
  const more = () => {
    const part = document.createDocumentFragment();
    for (const row of rows.slice(shown, shown + STEP)) part.append(render(row));
    shown = Math.min(rows.length, shown + STEP);
    body.append(part);
  };
  const fill = () => {
    while (shown < rows.length && end.getBoundingClientRect().top < innerHeight + 800) more();
  };
  // All text of some rows in lower case, and where each row of it ends; made once. No text has a
  // line break, and no text to find has one.
  const chunk = (set, number) => {
    set.chunks ??= [];
    if (set.chunks[number]) return set.chunks[number];
    const own = set.rows.slice(number * CHUNK, (number + 1) * CHUNK);
    const text = own.map(row => `${row[AT.source]}\n${row[AT.reference]}\n`
      + `${row[AT.texts].join('\n')}\n`).join('').toLowerCase();
    const lines = 2 + (own[0]?.[AT.texts].length ?? 0);
    let at = 0;
    const ends = own.map(() => {
      for (let line = 0; line < lines; line++) at = text.indexOf('\n', at) + 1;
      return at;
    });
    return (set.chunks[number] = { text, ends });
  };
  // For each line, whether it has a text.
  const having = (set, wanted) => {
    const found = new Uint8Array(set.rows.length + 1);
    for (let number = 0; number * CHUNK < set.rows.length; number++) {
      const { text, ends } = chunk(set, number);
      let row = 0;
      for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, ends[row])) {
        while (ends[row] <= at) row++;
        found[number * CHUNK + row + 1] = 1;
      }
    }
    return found;
  };
  // While the page rests, so that the first search is as quick as those after it.
  const prepare = (set, number = 0) => {
    if (number * CHUNK >= set.rows.length) return;
    chunk(set, number);
    rest(() => prepare(set, number + 1));
  };
  const rest = act => (window.requestIdleCallback
    ? requestIdleCallback(act, { timeout: 30 }) : setTimeout(act));
  // All rows in the chosen order, which a search sifts.
  let sorted = null;
  const ordered = () => {
    const key = `${chosen.value} ${order} ${sign}`;
    if (sorted?.key === key) return sorted.rows;
    const value = valued(order);
    const all = set.rows.toSorted((left, right) =>
      sign * (value(left) - value(right)) || left[0] - right[0]);
    sorted = { key, rows: all };
    return all;
  };
  function begin() {
    const text = find.value.toLowerCase();
    const [least, most] = length.map((input, at) => (input.value === '' ? [0, Infinity][at]
      : Number(input.value)));
    const own = kind.value;
    const found = text ? having(set, text) : null;
    rows = ordered().filter(row => (!found || found[row[AT.line]])
      && row[AT.length] >= least && row[AT.length] <= most
      && (!own || row[AT.flaws].some(flaw => (own === '*' ? flaw : flaw === own))));
    links?.clear();
    body.replaceChildren();
    shown = 0;
    count.textContent = `${taper.number(rows.length)} / ${taper.number(set.rows.length)} `
      + say('sentences', '句');
    more();
    const first = body.querySelector('tr:has(.text)');
    if (first) links.stop(first);
  }
  function head() {
    set = sets[Number(chosen.value)];
    columns = keys();
    if (order !== 'line' && !order.startsWith('chrf')
      && !columns.some(([name]) => name === order)) order = columns[0][0];
    const groups = taper.element('colgroup');
    const top = taper.element('tr');
    const title = (name, key, className) => {
      const made = taper.element('th', className);
      made.scope = 'col';
      if (!key) made.textContent = name;
      else {
        const sort = taper.element('button', '', name);
        sort.type = 'button';
        sort.dataset.key = key;
        sort.addEventListener('click', () => {
          [order, sign] = [key, order === key ? -sign : 1];
          mark();
          begin();
        });
        made.append(sort);
      }
      groups.append(taper.element('col', className));
      top.append(made);
    };
    const mark = () => {
      for (const button of top.querySelectorAll('button')) {
        const cell = button.parentElement;
        if (button.dataset.key === order) {
          cell.setAttribute('aria-sort', sign > 0 ? 'ascending' : 'descending');
        } else cell.removeAttribute('aria-sort');
      }
    };
    title('#', 'line', 'line');
    title(say('source', '原文'));
    title(say('reference', '参考译文'));
    if (set.systems.length) {
      set.systems.forEach((name, at) => title(`${at + 1} ${name}`, `chrf ${at}`));
    } else title(say('translation', '译文'));
    columns.forEach(([key, name]) => title(name, key, key === 'rarest' ? 'rarest' : 'number'));
    mark();
    const above = taper.element('thead');
    above.append(top);
    table.replaceChildren(groups, above, body);
    begin();
    rest(() => prepare(set));
  }
  addEventListener('scroll', fill, { passive: true });
  addEventListener('resize', fill);
  if (sets[0]?.systems.length) order = 'apart';
  head();
});
