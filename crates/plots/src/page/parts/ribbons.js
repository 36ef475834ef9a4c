// Weights of all heads of a layer, as tables; rows hold columns with thousandths, one after the
// other.
taper.weights = layer => (layer.dense ??= layer.heads.map(head => head.map(row => {
  const made = new Array(layer.keys.length).fill(0);
  for (let at = 0; at < row.length; at += 2) made[row[at]] = row[at + 1] / 1000;
  return made;
})));
// Their mean.
taper.meanWeights = layer => (layer.mean ??= layer.queries.map((_, query) => layer.keys.map((__,
  key) => taper.weights(layer).reduce((sum, head) => sum + head[query][key], 0)
    / layer.heads.length)));
// Two rows of tokens, and ribbons between them as wide as their weights. `heads` is a list of
// tables [query][key], each with a colour. The row above attends to the row below.
taper.ribbons = ({ queries, keys, heads, title, chosen }) => {
  const place = taper.element('div', 'ribbons');
  place.setAttribute('role', 'group');
  place.setAttribute('aria-label', title);
  const side = (names, className, label) => {
    const list = taper.element('ol', `tokens ${className}`);
    list.setAttribute('aria-label', label);
    const buttons = names.map(name => {
      const item = taper.element('li'), token = taper.element('button', 'token', name);
      token.type = 'button';
      token.dir = 'auto';
      token.setAttribute('aria-pressed', 'false');
      item.append(token);
      list.append(item);
      return token;
    });
    return { list, buttons };
  };
  const above = side(queries, 'queries', taper.say('attends', '关注者'));
  const below = side(keys, 'keys', taper.say('attended to', '被关注者'));
  const drawing = taper.drawn('svg', { 'aria-hidden': 'true', class: 'ribbon-field' });
  const spoken = taper.element('p', 'unseen');
  spoken.setAttribute('aria-live', 'polite');
  place.append(above.list, drawing, below.list, spoken);
  let shown = heads, at = null, kept = null;
  const paths = [];
  const draw = () => {
    const box = drawing.getBoundingClientRect();
    if (!box.width) return;
    const high = box.height;
    drawing.setAttribute('viewBox', `0 0 ${box.width} ${high}`);
    const place = one => {
      const own = one.getBoundingClientRect();
      return [own.left - box.left, own.width];
    };
    const [tops, feet] = [above.buttons.map(place), below.buttons.map(place)];
    drawing.replaceChildren();
    paths.length = 0;
    shown.forEach(({ weights, colour }) => {
      weights.forEach((row, query) => {
        // Ribbons of a token share its width, in the order of what they lead to.
        let used = 0;
        const sum = Math.max(1, row.reduce((all, weight) => all + weight, 0));
        row.forEach((weight, key) => {
          const [left, wide] = tops[query], [from, room] = feet[key];
          const share = weight / sum, start = left + wide * used, end = start + wide * share;
          used += share;
          if (weight < 0.02) return;
          const middle = from + room / 2, half = Math.max(0.5, room * share / 2);
          const path = taper.drawn('path', {
            d: `M${start} 0C${start} ${high / 2} ${middle - half} ${high / 2} ${middle - half} `
              + `${high}H${middle + half}`
              + `C${middle + half} ${high / 2} ${end} ${high / 2} ${end} 0Z`,
          });
          path.style.fill = `var(${colour})`;
          path.style.opacity = (0.15 + 0.6 * weight) / Math.sqrt(shown.length);
          drawing.append(path);
          paths.push({ path, query, key, weight });
        });
      });
    });
    light();
  };
  const mean = (query, key) =>
    shown.reduce((sum, { weights }) => sum + weights[query][key], 0) / (shown.length || 1);
  const light = () => {
    const [kind, number] = at ?? kept ?? [];
    for (const { path, query, key } of paths) {
      path.classList.toggle('is-dim', kind === 'query' && query !== number
        || kind === 'key' && key !== number);
    }
    above.buttons.forEach((token, query) => {
      token.style.setProperty('--weight', kind === 'key' ? mean(query, number).toFixed(3)
        : kind === 'query' && query === number ? 1 : 0);
    });
    below.buttons.forEach((token, key) => {
      token.style.setProperty('--weight', kind === 'query' ? mean(number, key).toFixed(3)
        : kind === 'key' && key === number ? 1 : 0);
    });
  };
  const tell = ([kind, number]) => {
    const name = kind === 'query' ? queries[number] : keys[number];
    const others = kind === 'query' ? keys.map((token, key) => [token, mean(number, key)])
      : queries.map((token, query) => [token, mean(query, number)]);
    const most = others.filter(([, weight]) => weight >= 0.05).sort((one, two) => two[1] - one[1]);
    spoken.textContent = `${name}: `
      + most.slice(0, 5).map(([token, weight]) => `${token} ${weight.toFixed(2)}`).join(', ');
  };
  for (const [kind, { buttons }] of [['query', above], ['key', below]]) {
    buttons.forEach((token, number) => {
      const look = () => { at = [kind, number]; light(); chosen?.(kind, number); };
      token.addEventListener('pointerenter', look);
      token.addEventListener('focus', () => { look(); tell(at); });
      const leave = () => { at = null; light(); chosen?.(); };
      token.addEventListener('pointerleave', leave);
      token.addEventListener('blur', leave);
      token.addEventListener('click', () => {
        const same = kept && kept[0] === kind && kept[1] === number;
        for (const one of [...above.buttons, ...below.buttons]) {
          one.setAttribute('aria-pressed', 'false');
        }
        kept = same ? null : [kind, number];
        token.setAttribute('aria-pressed', String(!same));
        light();
      });
      token.addEventListener('keydown', event => {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        const other = { ArrowUp: above, ArrowDown: below }[event.key];
        if (!step && !other) return;
        event.preventDefault();
        const list = (other ?? (kind === 'query' ? above : below)).buttons;
        list[Math.min(list.length - 1, Math.max(0, number + (step ?? 0)))]?.focus();
      });
    });
  }
  new ResizeObserver(draw).observe(place);
  return { place, show(heads) { shown = heads; draw(); } };
};
