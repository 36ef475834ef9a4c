// Shows in each view the weights of the chosen part, layer and head: as ribbons, as a matrix, and
// as one of the thumbnails of all heads of the part.
const views = [...document.querySelectorAll('.attention')].map(view => {
  const { say } = taper;
  const parts = JSON.parse(view.dataset.parts);
  delete view.dataset.parts;
  const [MEAN, EACH] = ['mean', 'each'];
  const { weights: dense, meanWeights: mean } = taper;
  const changed = () => choose();
  const lists = {
    part: taper.select(parts.map(({ part }, at) => [at, part]), changed),
    layer: taper.select([], changed), head: taper.select([], changed),
  };
  const bar = taper.element('div', 'toolbar');
  for (const [name, text] of [['part', say('Part', '部分')], ['layer', say('Layer', '层')],
    ['head', say('Head', '头')]]) {
    lists[name].name = name;
    bar.append(taper.labelled(text, lists[name]));
  }
  const panel = name => {
    const made = taper.element('div', 'panel');
    made.append(taper.element(document.querySelector('main h2') ? 'h3' : 'h2', '', name));
    return made;
  };
  const two = taper.element('div', 'panels');
  const flow = panel(say('Ribbons', '连线')), table = panel(say('Matrix', '矩阵'));
  const wall = panel(say('All heads', '所有头'));
  two.append(flow, table);
  view.append(bar, two, wall);
  const part = () => parts[Number(lists.part.value)];
  const layer = () => part().layers[Number(lists.layer.value)];

  // A thumbnail of a head: its weights as shades.
  const sketch = (canvas, weights) => {
    const side = 72, down = weights.length, across = weights[0]?.length ?? 1;
    const zoom = devicePixelRatio || 1;
    canvas.width = canvas.height = Math.round(side * zoom);
    const pen = canvas.getContext('2d');
    pen.fillStyle = taper.colour('--accent');
    weights.forEach((row, y) => row.forEach((weight, x) => {
      if (weight < 0.02) return;
      pen.globalAlpha = Math.min(1, weight);
      pen.fillRect(x / across * canvas.width, y / down * canvas.height,
        canvas.width / across + 0.5, canvas.height / down + 0.5);
    }));
  };
  let thumbs = [];
  const hang = () => {
    thumbs = [];
    const field = taper.element('div', 'wide wall');
    part().layers.forEach((layer, at) => {
      const row = taper.element('div', 'wall-row');
      row.append(taper.element('span', 'muted', `${say('layer', '层')} ${layer.layer}`));
      dense(layer).forEach((weights, head) => {
        const button = taper.element('button', 'thumb');
        button.type = 'button';
        const canvas = taper.element('canvas'), role = layer.roles[head] ?? '';
        canvas.setAttribute('aria-hidden', 'true');
        button.append(canvas, taper.element('span', '', `${head + 1} ${role}`.trim()));
        button.setAttribute('aria-label',
          `${say('layer', '层')} ${layer.layer}, ${say('head', '头')} ${head + 1} ${role}`);
        button.addEventListener('click', () => {
          lists.layer.value = String(at);
          choose();
          lists.head.value = String(head + 1);
          choose();
        });
        row.append(button);
        thumbs.push({ button, at, head, draw: () => sketch(canvas, weights) });
      });
      field.append(row);
    });
    wall.replaceChildren(wall.firstChild, field);
    thumbs.forEach(one => one.draw());
  };
  let hung = null;
  function choose() {
    const layers = part().layers;
    taper.options(lists.layer, layers.map((one, at) => [at, one.layer]));
    const count = layer().heads.length;
    taper.options(lists.head, [[MEAN, say('mean', '均值')],
      ...(count > 1 ? [[EACH, say('each in its colour', '各头分色')]] : []),
      ...(count > 1 ? layer().heads.map((_, at) => [at + 1, String(at + 1)]) : [])]);
    if (hung !== part()) { hung = part(); hang(); }
    const own = layer(), head = lists.head.value, single = Number(head);
    const weights = single ? dense(own)[single - 1] : mean(own);
    const what = `${lists.part.selectedOptions[0].text}, ${say('layer', '层')} ${own.layer}, `
      + `${say('head', '头')} ${lists.head.selectedOptions[0].text}`;
    const matrix = taper.matrix({ rows: own.queries, columns: own.keys, values: weights,
      rowLabel: '', columnLabel: '→', strongest: 1, title: `${say('Matrix', '矩阵')}: ${what}` });
    const heads = head === EACH
      ? dense(own).map((weights, at) => ({ weights, colour: `--plot-series-${at % 8 + 1}` }))
      : [{ weights, colour: '--accent' }];
    const ribbons = taper.ribbons({ queries: own.queries, keys: own.keys, heads,
      title: `${say('Ribbons', '连线')}: ${what}` });
    matrix.told.setAttribute('aria-live', 'polite');
    table.replaceChildren(table.firstChild, matrix.place, matrix.told);
    flow.replaceChildren(flow.firstChild, ribbons.place);
    for (const { button, at, head } of thumbs) {
      button.setAttribute('aria-pressed',
        String(at === Number(lists.layer.value) && head === single - 1));
    }
  }
  taper.onTheme(() => thumbs.forEach(one => one.draw()));
  const move = (list, step) => {
    const last = list.options.length - 1;
    list.selectedIndex = Math.min(last, Math.max(0, list.selectedIndex + step));
    choose();
  };
  const press = key => {
    const { part, layer, head } = lists;
    const keys = { h: [head, -1], l: [head, 1], j: [layer, 1], k: [layer, -1] };
    if (key in keys) move(...keys[key]);
    if (key === 'p') {
      part.selectedIndex = (part.selectedIndex + 1) % part.options.length;
      choose();
    }
  };
  choose();
  // Alignments are read from the last layer but one.
  lists.layer.value = String(Math.max(0, part().layers.length - 2));
  choose();
  return { view, press };
});
document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches('select, input, textarea')) return;
  // Keys are for the view that has the focus, or for the only one.
  const one = views.find(({ view }) => view.contains(event.target));
  (one ?? (views.length === 1 ? views[0] : undefined))?.press(event.key);
});
