// Stations of tokens and their vectors. A station has a name, what it says, and what it draws.
const station = (stack, name, words, draw, more = {}) => ({ stack, name, words, draw, ...more });
// Names of tokens, each a button that follows its token.
const tokenRow = (stack, tokens, below) => {
  const row = lane('token-row', tokens.length);
  tokens.forEach((token, column) => {
    const cell = taper.element('span', 'token-cell');
    const button = taper.element('button', 'token', token);
    button.type = 'button';
    button.dir = 'auto';
    button.dataset.stack = stack;
    button.dataset.column = column;
    button.title = token;
    const patch = stack === 'encoder' && picture && patchOf(column);
    if (patch) {
      button.setAttribute('aria-label', token);
      button.replaceChildren(patch);
    }
    cell.append(button);
    if (below) cell.append(taper.element('small', 'muted', below[column]));
    row.append(cell);
  });
  return row;
};
const numberRow = (numbers, className = '') => {
  const row = lane(`number-row ${className}`, numbers.length);
  row.append(...numbers.map(one => taper.element('small', 'muted', one)));
  return row;
};
// The vectors of all tokens at one point, with their norms.
const vectorRow = step => {
  const row = taper.element('div', 'vector-row');
  row.append(strips(unpacked(step.strips)),
    numberRow(step.norms.map(norm => taper.number(Number(norm.toPrecision(3))))));
  return row;
};
const stepOf = (stack, point, layers) =>
  stack.steps.find(step => step.point === point && step.layers === layers);
const longest = stack => Math.max(...stack.steps.flatMap(step => step.norms));
// Makes a function that shows a token's vector at a point, for the inspector.
const vectorTold = (stack, step) => column => {
  const row = unpacked(step.strips)[column], shown = taper.element('div');
  shown.append(taper.element('p', 'formula', [...row.slice(0, 6)].map(one => fixed(one)).join('  ')
    + ' …'), strips([row], 0));
  const count = step.width > row.length ? say(`${row.length} of ${step.width} numbers are shown.`,
    `显示 ${step.width} 个数中的 ${row.length} 个。`) : say(`${row.length} numbers.`, `${row.length} 个数。`);
  const norm = taper.number(step.norms[column]);
  shown.append(taper.element('p', 'muted', `${count} ${say(`Length ${norm}.`, `长度 ${norm}。`)}`));
  if (step.moved) {
    const far = taper.number(step.moved[column]);
    shown.append(taper.element('p', 'muted', say(`The sublayer moved it by ${far}.`,
      `该子层使它移动了 ${far}。`)));
  }
  return shown;
};
const piecesStation = stack => station(stack.stack, picture ? say('Patches', '图块')
  : say('Pieces', '子词'), picture ? say(
  'The image is cut into patches, which are read like words. Click one to follow it through the '
  + 'model.', '图像被切成小块，像词一样被读取。点击一块，跟随它穿过模型。') : say(
  `The tokenizer cuts the text into ${model.pieces.length} pieces, each of which has a number in `
  + 'the vocabulary. Click a piece to follow it through the model.',
  `分词器把文本切成 ${model.pieces.length} 个子词，每个在词表中都有编号。点击一个子词，跟随它穿过模型。`), () => {
  const text = taper.element('p', 'the-text', picture ? '' : model.normalized);
  text.dir = 'auto';
  if (picture) text.append(seenImage(model.pieces.map(() => 1)));
  return [text, tokenRow(stack.stack, model.pieces.map(one => one.token),
    picture ? null : model.pieces.map(one => one.id))];
});
// Vectors of positions as curves: the height of a curve is an element of the vector.
const waves = step => {
  const rows = unpacked(step.strips), row = lane('wave-row', rows.length);
  const most = Math.max(1e-9, ...rows.flatMap(one => [...one].map(Math.abs)));
  row.append(...rows.map(numbers => {
    const made = taper.drawn('svg', { class: 'wave', 'aria-hidden': 'true',
      viewBox: `0 -1.1 ${numbers.length - 1 || 1} 2.2`, preserveAspectRatio: 'none' });
    // Sines and cosines alternate where all numbers are shown.
    for (const [from, by] of step.width > numbers.length ? [[0, 1]] : [[0, 2], [1, 2]]) {
      const points = [...numbers].map((one, at) => `${at},${(-one / most).toFixed(3)}`);
      made.append(taper.drawn('polyline', {
        points: points.filter((_, at) => at % by === from).join(' ') }));
    }
    return made;
  }));
  return row;
};
const vectorStations = stack => {
  const token = stepOf(stack, 'token', 0), position = stepOf(stack, 'position', 0);
  const whole = stepOf(stack, 'layer', 0), made = [];
  if (token) {
    made.push(station(stack.stack, say('Vectors', '向量'), say(
      'Each piece looks up its vector in a table that training has filled. Blue numbers are '
      + 'positive, orange ones negative; below each strip is its length.',
      '每个子词在训练得到的表中查到自己的向量。蓝色为正，橙色为负；下方是向量的长度。'),
    () => [vectorRow(token)], { told: vectorTold(stack, token) }));
  }
  const sum = token && position ? '+' : '';
  made.push(station(stack.stack, position ? say('Positions', '位置') : say('First states', '初始状态'),
    position ? say('A vector that tells the place is added: its numbers are waves, fast ones on '
      + 'the left and slow ones on the right where they are sinusoids.',
    '加上表示位置的向量：若为正弦编码，左边的波快，右边的波慢。')
      : say(`Positions are told apart within attention: ${model.positions}.`,
        `位置在注意力之内区分：${model.positions}。`),
    () => [...(position ? [waves(position), taper.element('p', 'sign', sum)] : []),
      vectorRow(whole)], { told: vectorTold(stack, whole) }));
  return made;
};
const feedForwardStation = (stack, layer, before, after) => station(stack.stack,
  say(`Layer ${layer} · feed-forward`, `第 ${layer} 层 · 前馈`), say(
    'Each token goes through the same small network by itself, and the result is added to its '
    + 'line. The wider the lens, the further the token was moved.',
    '每个词元各自通过同一个小网络，结果加到它的线上。透镜越宽，词元移动得越远。'), () => {
    const drawing = canvasField('feed-forward'), most = longest(stack);
    const count = stack.tokens.length, far = Math.max(1e-9, ...after.moved);
    drawing.append(...threads(before.norms, most));
    after.moved.forEach((moved, column) => {
      const x = middle(column, count), half = Math.min(90, 400 / count) * moved / far;
      drawing.append(taper.drawn('path', { class: 'lens', 'data-column': column,
        d: `M${x} 6C${x + half} 30 ${x + half} 70 ${x} 94`
          + `C${x - half} 70 ${x - half} 30 ${x} 6Z` }));
    });
    return [drawing, vectorRow(after)];
  }, { told: vectorTold(stack, after) });
