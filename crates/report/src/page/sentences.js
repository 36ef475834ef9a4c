// Test sentences as a table: sorted, sifted, made as they come into view. Of one run, or of several
// side by side.
taper.later(() => {
  const place = document.getElementById('sentence-list');
  const { say } = taper;
  const flaws = new Map(JSON.parse(place.dataset.flaws));
  const sets = taper.data('sentence-data').sets;
  const AT = { line: 0, source: 1, reference: 2, texts: 3, chrf: 4, bleu: 5, length: 6, rarest: 7,
    flaws: 8 };
  const STEP = 20;
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
  const marked = (cell, [words, marks], name) => {
    let text = '';
    const flush = () => { if (text) cell.append(text); text = ''; };
    words.forEach((word, number) => {
      if (!marks.has(number)) { text += word; return; }
      const lead = word.length - word.trimStart().length;
      text += word.slice(0, lead);
      flush();
      cell.append(taper.element(name, '', word.slice(lead)));
    });
    flush();
    return cell;
  };

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
    const compared = texts.map(text => differ(row[AT.reference], text));
    const source = cell('', say('source', '原文'));
    const text = (cell, value) => { cell.append(value); cell.dir = 'auto'; return cell; };
    const reference = cell('', say('reference', '参考译文'));
    reference.dir = 'auto';
    if (texts.length > 1) reference.append(row[AT.reference]);
    else marked(reference, compared[0][0], 'del');
    made.append(line, text(source, row[AT.source]), reference);
    const best = Math.max(...row[AT.chrf]);
    texts.forEach((_, at) => {
      const own = cell('', set.systems[at] ?? say('translation', '译文'));
      own.dir = 'auto';
      marked(own, compared[at][1], 'ins');
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
  // Text for searches, in lower case; made once.
  const lower = row => (row.lower ??=
    [row[AT.source], row[AT.reference], ...row[AT.texts]].join('\n').toLowerCase());
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
    rows = ordered().filter(row => (!text || lower(row).includes(text))
      && row[AT.length] >= least && row[AT.length] <= most
      && (!own || row[AT.flaws].some(flaw => (own === '*' ? flaw : flaw === own))));
    body.replaceChildren();
    shown = 0;
    count.textContent = `${taper.number(rows.length)} / ${taper.number(set.rows.length)} `
      + say('sentences', '句');
    more();
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
  }
  addEventListener('scroll', fill, { passive: true });
  addEventListener('resize', fill);
  if (sets[0]?.systems.length) order = 'apart';
  head();
});
