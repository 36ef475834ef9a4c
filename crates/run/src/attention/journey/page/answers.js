// Stations at the end: probabilities under a temperature, the beam, and the text.
const labelled = (text, control, output) => {
  const label = taper.labelled(text, control);
  label.append(output);
  return label;
};
// An element that may be wider than the page. Keys scroll it while it has the focus.
const scrolled = (className, name) => {
  const made = taper.element('div', className);
  made.tabIndex = 0;
  made.setAttribute('role', 'group');
  made.setAttribute('aria-label', name);
  return made;
};
const slider = (name, least, most, step, value, word, changed) => {
  const range = taper.element('input'), output = taper.element('output');
  Object.assign(range, { type: 'range', min: least, max: most, step, value });
  const tell = () => { output.textContent = word(Number(range.value)); };
  range.addEventListener('input', () => { tell(); changed(Number(range.value)); });
  tell();
  return labelled(name, range, output);
};
// Probability of an alternative at the temperature `tenths` / 10, computed over the whole
// vocabulary.
const at = (choice, probability, tenths) => {
  const most = choice.alternatives[0][1];
  return (probability / most) ** (10 / tenths) / choice.partition[tenths - 1];
};
// Name and description of the station with the answers, for each kind of answer.
const nextTold = [say('Next tokens', '下一词元'), say('The last vectors become a number for each '
  + 'token of the vocabulary, and the softmax makes probabilities of them. Marked is what was '
  + 'chosen. Draw the temperature up, and the unlikely gains.',
'最后的向量给词表中每个词元一个数，softmax 把它们变成概率。标出的是所选的词元。温度越高，不常见的越有机会。')];
const answersTold = {
  translation: nextTold, text: nextTold,
  label: [say('Label', '标签'), say('The vector of the first token becomes a number for each '
    + 'label, and the softmax makes probabilities of them.',
  '第一个词元的向量给每个标签一个数，softmax 把它们变成概率。')],
  tags: [say('Tags', '标注'), say('The vector of the first token of each word becomes a number for '
    + 'each tag, and the softmax makes probabilities of them.',
  '每个词第一个词元的向量给每个标注一个数，softmax 把它们变成概率。')],
  hidden: [say('Hidden tokens', '被遮盖的词元'), say('The vector of a mask becomes a number for '
    + 'each token of the vocabulary, and the softmax makes probabilities of them. In a text '
    + 'without a mask, each token was hidden in turn: marked is the token that stood there.',
  '掩码的向量给词表中每个词元一个数，softmax 把它们变成概率。文本中没有掩码时，依次遮盖每个词元：标出的是原来的词元。')],
};
// A hidden token with its neighbours.
const hiddenAt = place => [place - 1, place + 1].map(at => model.pieces[at]?.token ?? '')
  .join(' … ');
const answersStation = () => {
  const [name, words] = answersTold[model.answer];
  return station(model.stacks.at(-1)?.stack ?? 'decoder', name, words, () => {
    const isApart = !['translation', 'text'].includes(model.answer), lists = [];
    const cards = lane(isApart ? 'choices is-apart' : 'choices', model.choices.length);
    model.choices.forEach(choice => {
      const card = taper.element('div', 'choice');
      card.dataset.column = choice.place;
      const before = { text: () => `${model.pieces[choice.place].token} →`,
        tags: () => choice.word, hidden: () => hiddenAt(choice.place) }[model.answer]?.();
      if (before) card.append(taper.element('small', 'muted', before));
      const list = taper.element('ol');
      const known = choice.alternatives.some(([token]) => token === choice.token);
      const rows = known ? choice.alternatives
        : [...choice.alternatives.slice(0, 4), [choice.token, choice.probability]];
      const made = rows.map(([token, probability]) => {
        const item = taper.element('li', token === choice.token ? 'is-chosen' : '');
        const name = taper.element('b', '', token), meter = bar(probability);
        const value = taper.element('small', 'muted');
        name.dir = 'auto';
        item.append(name, value, meter);
        list.append(item);
        return { probability, meter, value };
      });
      card.append(list);
      cards.append(card);
      lists.push({ choice, made });
    });
    const draw = tenths => lists.forEach(({ choice, made }) => made.forEach(one => {
      const share = at(choice, one.probability, tenths);
      one.meter.style.setProperty('--share', share.toFixed(4));
      one.value.textContent = percent(share);
    }));
    const toolbar = taper.element('div', 'toolbar');
    toolbar.append(slider(say('Temperature', '温度'), 1, 20, 1, 10,
      one => (one / 10).toFixed(1), draw));
    draw(10);
    const wide = scrolled('wide', name);
    wide.append(cards);
    return [toolbar, wide];
  });
};
// Station with the words of a text and their evidence for the text's label.
const evidenceStation = () => {
  const label = model.choices[0].token;
  return station(model.stacks[0]?.stack ?? 'encoder', say('Words', '词'), say(
    'Each word is left out in turn, and the text is read again. Its evidence is how much the '
    + `log-odds of “${label}” fall without it; words in the other colour speak against the label.`,
    `依次去掉每个词，重新判断。证据是去掉该词后“${label}”的对数几率下降多少；另一种颜色的词反对这个标签。`), () => {
    const cards = lane('choices is-apart evidence', model.evidence.length);
    const most = Math.max(1, ...model.evidence.map(one => Math.abs(one.evidence)));
    cards.append(...model.evidence.map(({ text, without, evidence }) => {
      const card = taper.element('div', evidence < 0 ? 'choice is-against' : 'choice');
      const word = taper.element('b', '', text.trim());
      word.dir = 'auto';
      card.append(word, taper.element('small', 'muted', `${evidence < 0 ? '' : '+'}${
        fixed(evidence)}`), bar(Math.abs(evidence) / most), taper.element('small', 'muted',
        say(`without it ${percent(without)}`, `去掉后 ${percent(without)}`)));
      return card;
    }));
    const wide = scrolled('wide', say('Words', '词'));
    wide.append(cards);
    return [wide];
  });
};
// Those of the recorded branches that a beam of this width would have kept.
const keptBy = width => {
  const depth = model.beam.map(() => 0), kept = new Set();
  model.beam.forEach((one, number) => {
    depth[number] = one.parent === null ? 0 : depth[one.parent] + 1;
  });
  for (let level = 0; level <= Math.max(...depth); level++) {
    model.beam.map((one, number) => ({ one, number }))
      .filter(({ one, number }) => depth[number] === level
        && (one.parent === null || kept.has(one.parent)))
      .sort((left, right) => right.one.log_probability - left.one.log_probability)
      .slice(0, width).forEach(({ number }) => kept.add(number));
  }
  return kept;
};
const beamStation = () => station('decoder', say('The beam', '集束搜索'), say(
  'The search keeps the likeliest beginnings and lets each grow by one token at a time. A narrower '
  + 'beam would have kept fewer: try it. Thick lines are likely, thin ones unlikely.',
  '搜索保留最可能的开头，每次各延伸一个词元。集束越窄，保留越少。线越粗，概率越大。'), () => {
  const children = model.beam.map(() => []), roots = [], place = [];
  model.beam.forEach((one, number) =>
    (one.parent === null ? roots : children[one.parent]).push(number));
  const columns = [];
  let next = 0;
  const order = list => list.toSorted((left, right) =>
    model.beam[right].log_probability - model.beam[left].log_probability);
  // Branches from the first to the last, without recursion: sentences may be long.
  const open = order(roots).reverse().map(number => [number, 0, false]);
  while (open.length) {
    const [number, depth, isDone] = open.pop(), own = children[number];
    if (isDone || !own.length) {
      const rows = own.map(child => place[child][1]);
      place[number] = [depth, own.length ? rows[0] : next++];
      columns[depth] = Math.max(columns[depth] ?? 0, [...model.beam[number].token].reduce(
        (sum, one) => sum + (/[\u2e80-\uffef]/.test(one) ? 15 : 8.5), 0));
      continue;
    }
    open.push([number, depth, true],
      ...order(own).reverse().map(child => [child, depth + 1, false]));
  }
  const left = columns.reduce((sums, wide) => [...sums, sums.at(-1) + wide + 52], [46]);
  const HEIGHT = 21, wide = left.at(-1), high = next * HEIGHT + 12;
  const drawing = taper.drawn('svg', { class: 'beam', viewBox: `0 0 ${wide} ${high}`, width: wide,
    height: high, role: 'img', 'aria-label': say(
      `Tree of the search: ${model.beam.length} branches`, `搜索树：${model.beam.length} 个分支`) });
  const x = number => left[place[number][0]], y = number => 16 + place[number][1] * HEIGHT;
  const parts = model.beam.map((one, number) => {
    const from = one.parent === null ? [8, 16] : [x(one.parent)
      + columns[place[one.parent][0]] + 4, y(one.parent) - 5];
    const to = [x(number) - 5, y(number) - 5], half = (from[0] + to[0]) / 2;
    const step = one.log_probability - (one.parent === null ? 0
      : model.beam[one.parent].log_probability);
    const line = taper.drawn('path', { class: 'branch',
      d: `M${from}C${half} ${from[1]} ${half} ${to[1]} ${to}` });
    line.style.strokeWidth = (0.8 + 5 * Math.exp(step)).toFixed(2);
    const text = taper.drawn('text', { x: x(number), y: y(number) });
    text.textContent = one.token;
    const told = taper.drawn('title', {});
    told.textContent = `${one.token}  ${fixed(one.log_probability)}  ${percent(Math.exp(step))}`;
    text.append(told);
    drawing.append(line, text);
    return { line, text, one };
  });
  const widest = model.beam.filter(one => one.parent === null && one.fate !== 'dropped').length;
  const draw = width => {
    const kept = keptBy(width);
    parts.forEach(({ line, text, one }, number) => {
      for (const part of [line, text]) {
        part.classList.toggle('is-best', one.is_best && kept.has(number));
        part.classList.toggle('is-dropped', !kept.has(number));
      }
    });
  };
  draw(widest);
  const toolbar = taper.element('div', 'toolbar');
  if (widest > 1) {
    toolbar.append(slider(say('Beam', '集束宽度'), 1, widest, 1, widest, String, draw));
  }
  const around = scrolled('wide grows', say('The beam', '集束搜索'));
  around.append(drawing);
  return [toolbar, around];
});
const textStation = () => station('decoder', say('Text', '文本'), say(
  'The pieces are put together. The score is the log-probability for its length.',
  '把子词拼起来。得分是按长度归一的对数概率。'), () => {
  const [best, ...others] = model.found, text = taper.element('p', 'the-text', best.text);
  text.dir = 'auto';
  const told = one => `${say('score', '得分')} ${fixed(one.score, 3)} · `
    + `${say('log-probability', '对数概率')} ${fixed(one.log_probability, 3)}`;
  const list = taper.element('ol', 'found');
  list.append(...others.map(one => {
    const item = taper.element('li', '', one.text);
    item.append(taper.element('small', 'muted', ` ${told(one)}`));
    return item;
  }));
  return [text, taper.element('p', 'muted', told(best)), ...(others.length ? [list] : [])];
});
