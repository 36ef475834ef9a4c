// Stations of attention: ribbons between tokens, by head.
const heads = {};
const attentionStation = (stack, name, number, before, after) => {
  const layer = layerOf(name, number), count = layer.heads.length;
  const isCross = name === 'cross', key = `${name} ${number}`;
  heads[key] ??= 0;
  const words = isCross ? say(`Each token that is to be written reads the ${picture ? 'image'
    : 'source'}: from above come the encoder’s last vectors, as wide as their weight.`,
  `每个将要写出的词元读取${picture ? '图像' : '原文'}：上方是编码器的最终向量，带宽即权重。`)
    : name === 'decoder' ? say('Each token gathers from itself and those before it, never '
      + 'from those after it.', '每个词元从自身和之前的词元收集信息，从不看之后的词元。')
      : say('Each token gathers from all others. A ribbon is as wide as its weight.',
        '每个词元从所有词元收集信息，带宽即权重。');
  const own = { drawing: null, chips: [] };
  const draw = () => {
    const parts = [];
    if (isCross) {
      parts.push(tokenRow('encoder', layer.keys));
    }
    if (count > 1) {
      const bar = taper.element('div', 'heads');
      bar.setAttribute('role', 'group');
      bar.setAttribute('aria-label', say('Head', '头'));
      own.chips = ['', ...layer.heads].map((_, head) => {
        const role = head ? layer.roles[head - 1] : '';
        const text = head ? `${head} ${role ?? ''}`.trim() : say('mean', '均值');
        const chip = taper.button(text, `${say('head', '头')} ${text}`, () => choose(head));
        bar.append(chip);
        return chip;
      });
      own.bar = bar;
    }
    own.drawing = canvasField('attention-field');
    parts.push(own.drawing);
    if (after) parts.push(vectorRow(after));
    redraw();
    return parts;
  };
  const redraw = () => {
    const weights = weightsOf(layer, heads[key]);
    const lines = before && !isCross ? threads(before.norms, longest(stack)) : [];
    own.drawing.replaceChildren(...lines, ...ribbons(weights, '--accent'));
    own.chips.forEach((chip, head) =>
      chip.setAttribute('aria-pressed', String(head === heads[key])));
  };
  const choose = head => {
    heads[key] = (head + count + 1) % (count + 1);
    redraw();
    show(made);
  };
  const told = column => insideTold(layer, name, number, heads[key], column);
  const title = isCross
    ? picture ? say(`Layer ${number} · attention to the image`, `第 ${number} 层 · 对图像的注意力`)
      : say(`Layer ${number} · attention to the source`, `第 ${number} 层 · 对原文的注意力`)
    : say(`Layer ${number} · attention`, `第 ${number} 层 · 注意力`);
  const made = station(stack.stack, title, words, draw, { told, own, layer, part: name,
    turn: by => choose(heads[key] + by) });
  return made;
};
