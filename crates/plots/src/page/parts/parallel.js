// Parallel coordinates: an axis for each quantity, a line for each name.
taper.parallel = place => {
  const { names, axes } = JSON.parse(place.dataset.parallel);
  delete place.dataset.parallel;
  const legend = taper.element('div', 'legend');
  const field = taper.element('div', 'wide');
  field.tabIndex = 0;
  field.setAttribute('role', 'group');
  field.setAttribute('aria-label', place.dataset.title);
  place.append(legend, field);
  let lines = [];
  const light = chosen => lines.forEach((line, number) =>
    line.classList.toggle('is-dim', chosen !== null && number !== chosen));
  names.forEach((name, number) => {
    const entry = taper.element('button', 'entry');
    entry.type = 'button';
    const mark = taper.element('i', `mark ${number < 8 ? 'line' : 'dashes'}`);
    mark.style.setProperty('--mark', `var(--plot-series-${number % 8 + 1})`);
    entry.append(mark, taper.element('span', '', name));
    for (const event of ['pointerenter', 'focus']) {
      entry.addEventListener(event, () => light(number));
    }
    for (const event of ['pointerleave', 'blur']) entry.addEventListener(event, () => light(null));
    legend.append(entry);
  });
  const draw = () => {
    lines = taper.parallelLines(field, names, axes, place.dataset.title);
    lines.forEach((line, number) => {
      line.addEventListener('pointerenter', () => light(number));
      line.addEventListener('pointerleave', () => light(null));
    });
  };
  let seen = null;
  new ResizeObserver(() => {
    if (field.clientWidth === seen) return;
    seen = field.clientWidth;
    draw();
  }).observe(field);
};
// Draws the axes and lines at the width of a field; the lines.
taper.parallelLines = (field, names, axes, title) => {
  const wide = Math.max(150, Math.floor(field.clientWidth / axes.length));
  const high = 240, top = 34, foot = 14, width = axes.length * wide;
  const drawing = taper.drawn('svg', { width, height: high + top + foot, role: 'img',
    'aria-label': title, class: 'parallel' });
  const write = (text, x, y, className) => {
    const made = taper.drawn('text', { x, y, class: className, 'text-anchor': 'middle' });
    // The end of a key says more than its beginning.
    const most = Math.floor(wide / 7.5);
    made.textContent = text.length > most ? `…${text.slice(1 - most)}` : text;
    const whole = taper.drawn('title', {});
    whole.textContent = text;
    made.append(whole);
    return made;
  };
  const lines = names.map((_, number) => {
    const line = taper.drawn('path', { class: 'run' });
    line.style.stroke = `var(--plot-series-${number % 8 + 1})`;
    if (number >= 8) line.setAttribute('stroke-dasharray', '6 4');
    return line;
  });
  const paths = names.map(() => []);
  const labels = [];
  axes.forEach(({ label, values }, at) => {
    const x = (at + 0.5) * wide;
    const numbers = values.map(Number);
    const isNumeric = values.every((value, one) =>
      value.trim() !== '' && Number.isFinite(numbers[one]));
    const marks = isNumeric ? [...new Set(numbers)].sort((one, two) => one - two)
      : [...new Set(values)];
    const isLog = isNumeric && marks[0] > 0 && marks.at(-1) / marks[0] > 50;
    const scale = value => (isLog ? Math.log(value) : value);
    const [low, up] = [scale(marks[0]), scale(marks.at(-1))];
    const share = value => (isNumeric ? (up > low ? (scale(value) - low) / (up - low) : 0.5)
      : marks.length > 1 ? marks.indexOf(value) / (marks.length - 1) : 0.5);
    const y = value => top + high * (1 - share(value));
    drawing.append(taper.drawn('line', { x1: x, x2: x, y1: top, y2: top + high, class: 'axis' }));
    labels.push(write(label, x, 14, 'label'));
    const told = isNumeric && marks.length > 6 ? [marks[0], marks.at(-1)] : marks.slice(0, 12);
    for (const mark of told) {
      labels.push(write(isNumeric ? taper.short(mark) : mark, x, y(mark) - 4, 'mark'));
    }
    values.forEach((value, number) =>
      paths[number].push([x, y(isNumeric ? numbers[number] : value)]));
  });
  paths.forEach((points, number) => {
    let d = '';
    points.forEach(([x, y], at) => {
      if (!at) { d = `M${x} ${y}`; return; }
      const [before, was] = points[at - 1], middle = (before + x) / 2;
      d += `C${middle} ${was} ${middle} ${y} ${x} ${y}`;
    });
    lines[number].setAttribute('d', d);
  });
  drawing.append(...lines, ...labels);
  field.replaceChildren(drawing);
  return lines;
};
document.querySelectorAll('[data-parallel]').forEach(taper.parallel);
