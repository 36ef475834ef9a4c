// Drawings whose width is that of the page: a column for each token.
const WIDE = 1000, HIGH = 100;
const middle = (column, count) => (column + 0.5) * WIDE / count;
const lane = (className, count) => {
  const made = taper.element('div', `lane ${className}`);
  made.style.setProperty('--columns', count);
  if (count > 10) made.classList.add('is-dense');
  return made;
};
const canvasField = className => taper.drawn('svg', { class: className, 'aria-hidden': 'true',
  viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: 'none' });
// Strips of colour, one for each row: positive numbers in one colour, negative ones in another.
const strips = (rows, gap = 8) => {
  const made = taper.element('canvas', 'strip');
  made.setAttribute('aria-hidden', 'true');
  const width = rows[0]?.length ?? 1;
  made.width = rows.length * (width + gap);
  made.height = 1;
  const numbers = rows.flatMap(row => [...row]);
  const usual = Math.sqrt(numbers.reduce((sum, one) => sum + one * one, 0) / numbers.length) || 1;
  const paint = () => {
    const pen = made.getContext('2d');
    const colours = [taper.colour('--accent'), taper.colour('--plot-series-2')];
    pen.clearRect(0, 0, made.width, 1);
    rows.forEach((row, at) => row.forEach((number, cell) => {
      pen.globalAlpha = Math.min(1, Math.abs(number) / (2 * usual));
      pen.fillStyle = colours[number < 0 ? 1 : 0];
      pen.fillRect(at * (width + gap) + gap / 2 + cell, 0, 1, 1);
    }));
  };
  paint();
  taper.onTheme(paint);
  return made;
};
// Vertical lines, one for each token. The thickness of a line shows the norm of the token's vector.
const threads = (norms, most) => norms.map((norm, at) => {
  const x = middle(at, norms.length);
  const line = taper.drawn('line', { class: 'thread', x1: x, x2: x, y1: 0, y2: HIGH,
    'data-column': at });
  line.style.strokeWidth = (1.5 + 6 * norm / most).toFixed(2);
  return line;
});
// Ribbons from keys above to queries below, as wide as the weights.
const ribbons = (weights, colour, share = 1) => {
  const [down, across] = [weights.length, weights[0]?.length ?? 1];
  const [span, room] = [Math.min(110, 700 / down), Math.min(110, 700 / across)];
  return weights.flatMap((row, query) => {
    let used = 0;
    return row.map((weight, key) => {
      const start = middle(query, down) - span / 2 + span * used, end = start + span * weight;
      used += weight;
      if (weight < 0.02) return null;
      const from = middle(key, across), half = room * weight / 2;
      const path = taper.drawn('path', { class: 'ribbon', 'data-query': query, 'data-key': key,
        d: `M${from - half} 0C${from - half} 55 ${start} 45 ${start} ${HIGH}H${end}`
          + `C${end} 45 ${from + half} 55 ${from + half} 0Z` });
      path.style.fill = `var(${colour})`;
      path.style.opacity = ((0.12 + 0.48 * weight) * share).toFixed(3);
      return path;
    }).filter(Boolean);
  });
};
const bar = (share, className = '') => {
  const made = taper.element('span', `meter ${className}`);
  made.style.setProperty('--share', Math.max(0, Math.min(1, share)).toFixed(4));
  return made;
};
