// What every page does. Others may use `taper`.
const taper = {
  // What the page keeps under an id.
  data: id => JSON.parse(document.getElementById(id).textContent),
  // An element with a class and text, which is never read as HTML.
  element(name, className, text) {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  },
  number(value) {
    if (value === null || value === undefined) return '–';
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(3);
    return String(Number(value.toPrecision(size >= 1e4 ? 8 : 5)));
  },
};

document.getElementById('theme').addEventListener('click', () => {
  const root = document.documentElement;
  const chosen = root.style.colorScheme;
  const dark = chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.style.colorScheme = dark ? 'light' : 'dark';
});

// Figures tell the values under a pointer, and where the arrow keys go.
taper.plots = () => {
  const make = (svg, name, className) => {
    const made = document.createElementNS('http://www.w3.org/2000/svg', name);
    made.setAttribute('class', className);
    made.setAttribute('visibility', 'hidden');
    svg.append(made);
    return made;
  };
  for (const svg of document.querySelectorAll('svg.plot:not([tabindex])')) {
    const plot = JSON.parse(svg.dataset.plot);
    const scale = Number(svg.dataset.scale);
    const tip = taper.element('div', 'tip');
    tip.hidden = true;
    tip.setAttribute('aria-live', 'polite');
    svg.parentElement.append(tip);
    svg.setAttribute('tabindex', '0');
    const cursor = make(svg, plot.kind === 'heatmap' ? 'rect' : 'line',
      plot.kind === 'heatmap' ? 'spot' : 'cursor');
    let at = null;
    const wide = plot.right - plot.left, high = plot.bottom - plot.top;
    const share = (axis, value) =>
      ((axis.log ? Math.log10(value) : value) - axis.from) / (axis.to - axis.from);
    let places = [], columns = 1;
    if (plot.kind === 'chart') {
      places = [...new Set(plot.series.flatMap(one => one.points.map(point => point[0])))];
      places.sort((left, right) => left - right);
    } else if (plot.kind === 'bars') {
      places = plot.categories.map((_, number) => number);
    } else {
      columns = plot.columns.length;
      places = Array.from({ length: columns * plot.rows.length }, (_, number) => number);
    }
    const set = attributes => {
      for (const [key, value] of Object.entries(attributes)) cursor.setAttribute(key, value);
    };
    const show = number => {
      at = number;
      let text, x, y = plot.top;
      if (plot.kind === 'chart') {
        x = plot.left + wide * share(plot.x, places[at]);
        text = [`${plot.x.label} ${taper.number(places[at])}`];
        for (const one of plot.series) {
          let best = null;
          for (const point of one.points) {
            const apart = Math.abs(plot.left + wide * share(plot.x, point[0]) - x);
            if (apart < 4 && (!best || apart < best.apart)) best = { apart, value: point[1] };
          }
          if (best) text.push(`${one.name}  ${taper.number(best.value)}`);
        }
      } else if (plot.kind === 'bars') {
        x = plot.left + wide * (at + 0.5) / places.length;
        text = [`${plot.label} ${plot.categories[at]}`];
        for (const one of plot.series) {
          text.push(`${one.name || plot.y.label}  ${taper.number(one.values[at])}`);
        }
      } else {
        const row = Math.floor(at / columns), column = at % columns;
        const cell = [wide / columns, high / plot.rows.length];
        x = plot.left + cell[0] * column;
        y = plot.top + cell[1] * row;
        set({ x: x * scale, y: y * scale, width: cell[0] * scale, height: cell[1] * scale });
        text = [`${plot.rowLabel} ${plot.rows[row]}`, `${plot.columnLabel} ${plot.columns[column]}`,
          taper.number(plot.values[row][column])];
      }
      if (plot.kind !== 'heatmap') {
        set({ x1: x * scale, x2: x * scale, y1: plot.top * scale, y2: plot.bottom * scale });
      }
      cursor.setAttribute('visibility', 'visible');
      tip.textContent = text.join('\n');
      tip.hidden = false;
      const shrunk = svg.clientWidth / svg.viewBox.baseVal.width * scale;
      const left = x * shrunk + 10, room = svg.parentElement.clientWidth - tip.offsetWidth;
      tip.style.left = `${Math.max(0, left > room ? x * shrunk - tip.offsetWidth - 10 : left)}px`;
      tip.style.top = `${y * shrunk + 6}px`;
    };
    const hide = () => {
      tip.hidden = true;
      cursor.setAttribute('visibility', 'hidden');
    };
    svg.addEventListener('pointermove', event => {
      const box = svg.getBoundingClientRect();
      const shrunk = box.width / svg.viewBox.baseVal.width * scale;
      const x = (event.clientX - box.left) / shrunk, y = (event.clientY - box.top) / shrunk;
      if (x < plot.left - 2 || x > plot.right + 2 || y < plot.top || y > plot.bottom) return hide();
      if (plot.kind === 'chart') {
        let best = 0, least = Infinity;
        places.forEach((place, number) => {
          const apart = Math.abs(plot.left + wide * share(plot.x, place) - x);
          if (apart < least) [best, least] = [number, apart];
        });
        if (places.length) show(best);
      } else {
        const within = (share, count) =>
          Math.min(count - 1, Math.max(0, Math.floor(share * count)));
        const bars = plot.kind === 'bars';
        const column = within((x - plot.left) / wide, bars ? places.length : columns);
        const row = bars ? 0 : within((y - plot.top) / high, plot.rows.length);
        show(row * columns + column);
      }
    });
    svg.addEventListener('pointerleave', hide);
    svg.addEventListener('blur', hide);
    // Its place would be another, beyond the edge of a window that has shrunk.
    addEventListener('resize', hide);
    svg.addEventListener('keydown', event => {
      const step = plot.kind === 'chart' ? Math.max(1, Math.round(places.length / 100)) : 1;
      const moves = { ArrowLeft: -step, ArrowRight: step, Home: -Infinity, End: Infinity,
        PageUp: -10 * step, PageDown: 10 * step };
      if (plot.kind === 'heatmap') Object.assign(moves, { ArrowUp: -columns, ArrowDown: columns });
      if (event.key === 'Escape') return hide();
      if (!(event.key in moves) || !places.length) return;
      event.preventDefault();
      const from = at === null ? (moves[event.key] > 0 ? -1 : places.length) : at;
      show(Math.min(places.length - 1, Math.max(0, from + moves[event.key])));
    });
  }
};
taper.plots();
