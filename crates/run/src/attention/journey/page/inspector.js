// The panel beside the diagram: what the station does, and with which numbers.
const table = (heads, rows) => {
  const made = taper.element('table', 'inside'), top = taper.element('tr');
  top.append(...heads.map(text => {
    const cell = taper.element(text ? 'th' : 'td', '', text);
    if (text) cell.scope = 'col';
    return cell;
  }));
  const head = taper.element('thead'), body = taper.element('tbody');
  head.append(top);
  body.append(...rows.map(([name, ...cells]) => {
    const row = taper.element('tr'), first = taper.element('th', '', name);
    first.scope = 'row';
    first.dir = 'auto';
    row.append(first, ...cells.map(one => {
      const cell = taper.element('td', typeof one === 'string' ? 'number' : '');
      cell.append(one);
      return cell;
    }));
    return row;
  }));
  made.append(head, body);
  return made;
};
const MOST_KEYS = 24;
// How one token reads: Q·K/√d, softmax, V.
const insideTold = (layer, name, number, head, column) => {
  const shown = taper.element('div'), query = layer.queries[column];
  const inside = insideOf(name, number, head, column);
  const names = layer.keys;
  if (picture && name !== 'decoder') shown.append(seenImage(weightsOf(layer, head)[column]));
  if (!inside) {
    const weights = weightsOf(layer, head)[column];
    shown.append(taper.element('p', '', say(`What “${query}” reads, by weight:`,
      `“${query}”读取的内容及权重：`)),
      table([say('token', '词元'), say('weight', '权重'), ''], weights
        .map((weight, key) => [names[key], percent(weight), bar(weight)])
        .sort((one, two) => parseFloat(two[1]) - parseFloat(one[1])).slice(0, 12)));
    if (!head && layer.heads.length > 1 && model.heads.length) {
      shown.append(taper.element('p', 'muted', say('Choose a head to see its Q, K and V.',
        '选择一个头，查看它的 Q、K 和 V。')));
    }
    return shown;
  }
  const { q, out, width } = inside;
  // Among many keys those with the most weight are shown.
  const keys = [...inside.rows.keys()].sort((one, other) =>
    inside.rows[other].weight - inside.rows[one].weight).slice(0, MOST_KEYS)
    .sort((one, other) => one - other);
  const rows = keys.map(key => ({ key, ...inside.rows[key] }));
  shown.append(taper.element('p', 'formula', `softmax(q·kᵀ / √${width}) · v`),
    taper.element('p', 'small-head', `q: ${query}`), strips([q], 0),
    table(['', 'k', 'q·k', `/√${width}`, 'softmax', '', 'v'], rows.map(row =>
      [names[row.key], strips([row.k], 0), row.isHidden ? '–' : fixed(row.product, 1),
        row.isHidden ? '−∞' : fixed(row.score), row.isHidden ? '0' : percent(row.weight),
        bar(row.isHidden ? 0 : row.weight), strips([row.v], 0)])),
    taper.element('p', 'small-head', say('Sum of v by weight', '按权重相加的 v')), strips([out], 0));
  return shown;
};
// The length of a token's vector, from layer to layer.
const lengthTold = (stack, column) => {
  const steps = stack.steps.filter(step => step.point === 'layer');
  if (steps.length < 2) return null;
  const shown = taper.element('div');
  const most = Math.max(...steps.map(step => step.norms[column]));
  shown.append(taper.element('p', 'small-head', say('Length, layer by layer', '逐层长度')),
    table(['', '', ''], steps.map(step => [step.layers
      ? say(`after ${step.layers}`, `${step.layers} 层后`)
      : say('first', '开始'), taper.number(step.norms[column]), bar(step.norms[column] / most)])));
  shown.querySelector('thead').remove();
  return shown;
};
