// Charts and bars that respond: values at the pointer and by keys, zoom, smoothing, log axes. A
// drawing (SVG) says what there is; it stays for printers and where no script runs.
taper.chart = (figure, svg, plot) => {
  const say = taper.say;
  const bars = plot.kind === 'bars';
  const state = { smooth: 0, logX: plot.x?.log ?? false, logY: plot.y.log ?? false };
  const hidden = new Set();
  const live = taper.element('div', 'live');
  const head = taper.element('div', 'figure-head');
  const readout = taper.element('output', 'readout');
  const tools = taper.element('span', 'tools');
  const legend = taper.element('div', 'legend');
  const place = taper.element('div', 'chart');
  // Rows with names of their own need a height of their own.
  const rows = plot.y.names ?? [];
  if (rows.length) place.style.setProperty('--high', `${Math.max(15, 5 + 1.5 * rows.length)}rem`);
  const spoken = taper.element('p', 'unseen');
  spoken.setAttribute('aria-live', 'polite');
  place.tabIndex = 0;
  place.setAttribute('role', 'img');
  place.setAttribute('aria-label', svg.getAttribute('aria-label'));
  head.append(taper.element('h3', '', svg.dataset.title), tools);
  live.append(head, legend, place, spoken);
  figure.append(live);
  figure.classList.add('is-live');
  svg.setAttribute('aria-hidden', 'true');

  // The points of each series as columns over all x.
  const usable = ([x, y]) => y !== null && (!state.logX || x > 0) && (!state.logY || y > 0);
  const smoothed = values => {
    // An exponential mean of what came before, without the pull of its beginning.
    let sum = 0, weight = 0;
    return values.map(value => {
      sum = state.smooth * sum + (1 - state.smooth) * value;
      weight = state.smooth * weight + (1 - state.smooth);
      return sum / weight;
    });
  };
  const isSmooth = one => state.smooth > 0 && one.mark === 'line' && one.points.length > 8;
  const table = () => {
    if (bars) return [plot.categories.map((_, at) => at), ...plot.series.map(one => one.values)];
    const columns = [];
    for (const one of plot.series) {
      const points = one.points.filter(usable).sort((left, right) => left[0] - right[0]);
      const xs = points.map(point => point[0]);
      // Two points of a series may have the same x.
      for (let at = 1; at < xs.length; at++) {
        if (xs[at] <= xs[at - 1]) xs[at] = xs[at - 1] + Math.abs(xs[at - 1] || 1) * 1e-9;
      }
      const ys = points.map(point => point[1]);
      columns.push([xs, ys]);
      if (isSmooth(one)) columns.push([xs, smoothed(ys)]);
    }
    return uPlot.join(columns);
  };

  let chart, data, lines;
  const entries = plot.series.map((one, number) => {
    const isRidge = one.mark === 'ridge';
    // Ridges of one colour are shown and hidden together, by the name of the first with a name.
    const joins = other => isRidge && other.mark === 'ridge' && other.colour === one.colour;
    const own = plot.series.flatMap((other, at) => (at === number || joins(other) ? [at] : []));
    const name = own.map(at => plot.series[at].name).find(Boolean);
    if (isRidge && own[0] !== number) return { entry: '', value: taper.element('b') };
    const entry = taper.element('button', 'entry');
    entry.type = 'button';
    entry.setAttribute('aria-pressed', 'true');
    const mark = taper.element('i', `mark ${one.mark ?? 'bar'}`);
    mark.style.setProperty('--mark', `var(${one.colour})`);
    const value = taper.element('b');
    entry.append(mark, taper.element('span', '', name || plot.y.label), value);
    entry.addEventListener('click', () => {
      const change = hidden.has(number) ? 'delete' : 'add';
      own.forEach(at => hidden[change](at));
      entry.setAttribute('aria-pressed', String(!hidden.has(number)));
      build();
    });
    if (!isRidge) {
      entry.addEventListener('pointerenter', () =>
        chart?.setSeries(lines[number], { focus: true }));
      entry.addEventListener('pointerleave', () => chart?.setSeries(null, { focus: false }));
    }
    return { entry, value };
  });
  legend.append(...entries.map(one => one.entry).filter(Boolean), readout);

  // The value of a column at an index, or the nearest one within 2 % of the width.
  const valueAt = (column, index) => {
    const [xs, ys] = [data[0], data[column]];
    if (index === null || index === undefined) {
      return ys.findLast(value => value !== null && value !== undefined) ?? null;
    }
    const most = (chart.scales.x.max - chart.scales.x.min) * 0.02;
    for (let apart = 0; apart < ys.length; apart++) {
      const near = [index - apart, index + apart].filter(at => at >= 0 && at < ys.length);
      if (!near.length || near.every(at => Math.abs(xs[at] - xs[index]) > most)) return null;
      const found = near.find(at => ys[at] !== null && ys[at] !== undefined);
      if (found !== undefined) return ys[found];
    }
    return null;
  };
  const words = [];
  const told = () => {
    const index = chart.cursor.idx;
    const isOver = index !== null && index !== undefined;
    const x = isOver ? (bars ? plot.categories[index] : taper.number(data[0][index])) : '';
    readout.textContent = isOver ? `${plot.x?.label ?? plot.label} ${x}` : '';
    words.length = 0;
    if (isOver) words.push(readout.textContent);
    entries.forEach(({ value }, number) => {
      // The height of a ridge is a share of the highest, and no value.
      const isValue = plot.series[number].mark !== 'ridge' && (isOver || !bars);
      const shown = isValue ? valueAt(lines[number], index) : null;
      value.textContent = shown === null ? '' : taper.number(shown);
      if (isOver && shown !== null && !hidden.has(number)) {
        words.push(`${plot.series[number].name || plot.y.label} ${value.textContent}`);
      }
    });
  };

  const axis = (label, more) => ({
    label, labelSize: 18, labelFont: '12px system-ui, sans-serif',
    font: '11px system-ui, sans-serif',
    stroke: () => taper.colour('--muted'), grid: { stroke: () => taper.colour('--line'), width: 1 },
    ticks: { stroke: () => taper.colour('--line'), width: 1, size: 4 }, gap: 4, ...more,
  });
  const wide = values => Math.max(...(values ?? ['']).map(text => text.length)) * 6.6 + 14;
  const series = () => {
    lines = [];
    const all = [{}];
    plot.series.forEach((one, number) => {
      const stroke = () => taper.colour(one.colour);
      const common = { stroke, show: !hidden.has(number), spanGaps: true, label: one.name };
      if (bars) {
        const count = plot.series.length, size = 0.76 / count;
        common.fill = stroke;
        common.paths = uPlot.paths.bars({ radius: 0.08, gap: 1, disp: {
          x0: { unit: 1, values: () => plot.categories.map((_, at) => at - 0.38 + size * number) },
          size: { unit: 1, values: () => plot.categories.map(() => size * 0.94) } } });
        common.points = { show: false };
      } else if (one.mark === 'dots') {
        Object.assign(common, { paths: () => null, points: { show: true, size: 9, fill: stroke } });
      } else {
        common.width = 1.75;
        if (one.mark === 'dashes') common.dash = [6, 4];
        common.points = { show: one.points.length < 3, size: 6, fill: stroke };
        if (one.mark === 'ridge') {
          common.fill = () => stroke().replace('rgb(', 'rgba(').replace(')', ', 0.3)');
          common.fillTo = () => one.base;
          common.width = 1.25;
        }
      }
      if (isSmooth(one)) {
        all.push({ ...common, alpha: 0.25, width: 1, points: { show: false } });
      }
      lines.push(all.length);
      all.push(common);
    });
    return all;
  };
  const build = () => {
    const zoom = chart && !bars && chart.isZoomed
      ? { min: chart.scales.x.min, max: chart.scales.x.max } : null;
    chart?.destroy();
    data = table();
    const small = figure.classList.contains('is-small');
    const limits = given => (given ? { range: () => given } : {});
    // Ends that are given hold until a part is chosen.
    const ends = given => (given ? { range: (_, low, high) =>
      (low <= data[0][0] && high >= data[0][data[0].length - 1] ? given : [low, high]) } : {});
    // Within few decades, some numbers between their powers are written too.
    const between = (self, places) => {
      const apart = Math.log10(self.scales.x.max / self.scales.x.min);
      const told = apart < 1 ? [1, 2, 3, 5, 7] : apart < 3 ? [1, 2, 5] : [1];
      return places.map(place =>
        (told.includes(Number(place.toExponential(0)[0])) ? place : null));
    };
    const every = Math.ceil(plot.series[0]?.values?.length / Math.max(2, place.clientWidth / 74));
    chart = new uPlot({
      width: Math.max(80, place.clientWidth),
      height: Math.max(120, place.clientHeight),
      padding: [10, 14, small ? 0 : 2, small ? 0 : 2],
      legend: { show: false },
      cursor: {
        y: false, drag: { x: !bars, y: false }, points: { size: 7 },
        focus: { prox: -1 }, sync: { key: plot.x?.label ?? plot.label },
      },
      focus: { alpha: 0.3 },
      scales: {
        x: bars ? { time: false, range: () => [-0.5, plot.categories.length - 0.5] }
          : { time: false, distr: state.logX ? 3 : 1, ...ends(plot.x.range) },
        y: { distr: state.logY ? 3 : 1, ...(bars && !state.logY
          ? { range: (_, low, high) => [Math.min(0, low * 1.08), Math.max(0, high * 1.08) || 1] }
          : limits(plot.y.range)) },
      },
      axes: [
        bars ? axis(small ? '' : plot.label, {
          splits: () => plot.categories.map((_, at) => at), grid: { show: false },
          values: (_, at) => at.map(one =>
            (one % every ? '' : plot.categories[one].replace(' (', '\n('))),
          size: 40,
        }) : axis(small ? '' : plot.x.label, { values: (_, at) => at.map(one =>
          (one === null ? '' : taper.short(one))), space: small ? 36 : 60, size: 24,
          ...(state.logX && { filter: between }) }),
        axis(small ? '' : plot.y.label, {
          ...(rows.length && { splits: () => rows.map(([at]) => at) }),
          values: (_, at) => at.map((one, number) =>
            (rows[number]?.[1] ?? (one === null ? '' : taper.short(one)))),
          size: (_, values) => wide(values), space: 28 }),
      ],
      series: series(),
      hooks: {
        setCursor: [told],
        setScale: [(self, key) => {
          if (key !== 'x' || bars || !data[0].length) return;
          const { min, max } = self.scales.x;
          self.isZoomed = min > data[0][0] || max < data[0][data[0].length - 1];
          reset.hidden = !self.isZoomed;
        }],
      },
    }, data, place);
    if (zoom) chart.setScale('x', zoom);
    told();
  };

  const toggle = (text, name, key) => {
    const made = taper.button(text, name, () => {
      state[key] = !state[key];
      made.setAttribute('aria-pressed', String(state[key]));
      build();
    });
    made.setAttribute('aria-pressed', String(state[key]));
    return made;
  };
  const all = () => chart.setScale('x', { min: data[0][0], max: data[0][data[0].length - 1] });
  const reset = taper.button('⟲', say('Whole range', '全部范围'), all);
  reset.hidden = true;
  const grow = taper.button('⤢', say('Wide or narrow', '放宽或收窄'), () => {
    figure.classList.toggle('is-wide');
    grow.setAttribute('aria-pressed', String(figure.classList.contains('is-wide')));
  });
  grow.setAttribute('aria-pressed', 'false');
  tools.append(reset);
  if (!figure.classList.contains('is-small')) {
    if (!bars) {
      tools.append(toggle('log x', say('Logarithmic x axis', '横轴取对数'), 'logX'));
      if (!rows.length) {
        tools.append(toggle('log y', say('Logarithmic y axis', '纵轴取对数'), 'logY'));
      }
    }
    tools.append(grow);
  }
  place.addEventListener('keydown', event => {
    const count = data[0].length, step = bars ? 1 : Math.max(1, Math.round(count / 100));
    const moves = { ArrowLeft: -step, ArrowRight: step, Home: -Infinity, End: Infinity,
      PageUp: -10 * step, PageDown: 10 * step };
    if (event.ctrlKey || event.metaKey || event.altKey || !count) return;
    if (event.key === 'Escape') {
      chart.setCursor({ left: -10, top: -10 });
      if (!bars) all();
    } else if (!bars && (event.key === '+' || event.key === '-')) {
      const { min, max } = chart.scales.x, at = data[0][chart.cursor.idx ?? 0];
      const by = event.key === '+' ? 0.5 : 2;
      const from = Math.max(data[0][0], at - (at - min) * by);
      const to = Math.min(data[0][count - 1], at + (max - at) * by);
      if (to > from) chart.setScale('x', { min: from, max: to });
    } else if (event.key in moves) {
      const before = chart.cursor.idx ?? (moves[event.key] > 0 ? -1 : count);
      const at = Math.min(count - 1, Math.max(0, before + moves[event.key]));
      chart.setCursor({ left: chart.valToPos(data[0][at], 'x'), top: 10 });
      spoken.textContent = words.join(', ');
    } else return;
    event.preventDefault();
  });
  place.addEventListener('blur', () => chart.setCursor({ left: -10, top: -10 }));
  build();
  let seen = [place.clientWidth, place.clientHeight];
  new ResizeObserver(() => {
    const now = [place.clientWidth, place.clientHeight];
    if (now.every((size, at) => size === seen[at])) return;
    seen = now;
    chart.setSize({ width: Math.max(80, now[0]), height: Math.max(120, now[1]) });
  }).observe(place);
  taper.onTheme(() => chart.redraw(false, true));
  const isCurve = plot.series.some(one => one.mark === 'line' || one.mark === 'dashes');
  return { isCurve, smooth(share) { state.smooth = share; build(); } };
};

// Tools over a group of charts.
taper.chartTools = group => {
  const curves = group.filter(one => one.isCurve);
  if (curves.length < 2) return null;
  const bar = taper.element('div', 'toolbar');
  const slide = taper.element('input');
  Object.assign(slide, { type: 'range', min: 0, max: 0.99, step: 0.01, value: 0 });
  const value = taper.element('output', '', '0');
  let wait;
  slide.addEventListener('input', () => {
    value.textContent = slide.value;
    cancelAnimationFrame(wait);
    wait = requestAnimationFrame(() => curves.forEach(one => one.smooth(Number(slide.value))));
  });
  const label = taper.labelled(taper.say('Smoothing', '平滑'), slide);
  label.append(value);
  bar.append(label, taper.element('span', 'muted', taper.say(
    'Drag to zoom, double-click for all; arrows, + and − by keyboard.',
    '拖动以缩放，双击还原；键盘用方向键、+ 与 −。')));
  return bar;
};

// Makes every drawing of the page respond: those in the window at once, the others afterwards.
taper.plots = () => {
  const waiting = [];
  const groups = new Map();
  for (const svg of document.querySelectorAll('svg.plot[data-plot]')) {
    const figure = svg.closest('figure');
    const plot = JSON.parse(svg.dataset.plot);
    delete svg.dataset.plot;
    const group = figure.closest('.figures') ?? figure;
    if (!groups.has(group)) groups.set(group, { charts: [], left: 0 });
    const own = groups.get(group);
    own.left++;
    waiting.push(() => {
      if (plot.kind === 'heatmap') taper.heatmap(figure, svg, plot);
      else own.charts.push(taper.chart(figure, svg, plot));
      if (--own.left) return;
      const bar = taper.chartTools(own.charts);
      if (bar) group.before(bar);
    });
  }
  const some = until => {
    while (waiting.length && until()) waiting.shift()();
    if (waiting.length) {
      setTimeout(() => {
        const end = performance.now() + 30;
        some(() => performance.now() < end);
      });
    } else document.documentElement.dataset.ready = 'true';
  };
  let made = 0;
  some(() => made++ < 4);
};
