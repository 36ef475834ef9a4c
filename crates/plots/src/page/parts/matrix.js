// A table of weights: words are read as they are written, each cell is a number for those who do
// not see its shade, and the arrow keys walk over the cells.
taper.matrix = ({ rows, columns, values, rowLabel, columnLabel, strongest, title, chosen }) => {
  const place = taper.element('div', 'matrix wide');
  place.tabIndex = 0;
  place.setAttribute('role', 'group');
  place.setAttribute('aria-label', title);
  const table = taper.element('table', 'grid');
  table.style.setProperty('--columns', columns.length);
  const most = strongest ?? Math.max(1e-12, ...values.flat().map(value => Math.abs(value ?? 0)));
  const told = taper.element('output', 'readout');
  // Numbers in a long row would run into each other: every so many are written.
  const isLong = columns.length > 16 && columns.every(name => /^[\d.,-]*$/.test(name));
  const every = isLong ? Math.ceil(columns.length / 4) : 1;
  if (isLong) table.classList.add('is-dense');
  const brief = name => (isLong && name && Number.isFinite(Number(name))
    ? taper.short(Number(name)) : name);
  const head = taper.element('tr');
  head.append(taper.element('td', 'corner'), ...columns.map((name, at) => {
    const isShown = at % every === 0;
    const made = taper.element('th', '', isShown ? brief(name) : '');
    made.scope = 'col';
    made.dir = 'auto';
    if (!isShown) made.append(taper.element('span', 'unseen', name));
    return made;
  }));
  const top = taper.element('thead');
  top.append(head);
  const body = taper.element('tbody');
  const cells = rows.map((name, row) => {
    const made = taper.element('tr');
    const first = taper.element('th', '', name);
    first.scope = 'row';
    first.dir = 'auto';
    const own = columns.map((_, column) => {
      const value = values[row][column], cell = taper.element('td');
      cell.dataset.at = `${row} ${column}`;
      if (value === null || value === undefined) { cell.className = 'is-empty'; return cell; }
      if (value < 0) cell.className = 'is-negative';
      cell.style.setProperty('--weight', Math.min(1, Math.abs(value) / most).toFixed(3));
      cell.append(taper.element('span', 'unseen', taper.number(Number(value.toFixed(3)))));
      return cell;
    });
    made.append(first, ...own);
    body.append(made);
    return own;
  });
  table.append(top, body);
  place.append(table);
  let at = null;
  const show = (row, column) => {
    if (at) cells[at[0]][at[1]].classList.remove('is-at');
    at = row === undefined || !cells[row]?.[column] ? null : [row, column];
    chosen?.(at && row, at && column);
    if (!at) { told.textContent = ''; return; }
    cells[row][column].classList.add('is-at');
    const value = values[row][column];
    told.textContent = `${rowLabel} ${rows[row]} · ${columnLabel} ${columns[column]} · `
      + taper.number(value);
  };
  table.addEventListener('pointerover', event => {
    const cell = event.target.closest('td[data-at]');
    if (cell) show(...cell.dataset.at.split(' ').map(Number));
  });
  table.addEventListener('pointerleave', () => show());
  place.addEventListener('blur', () => show());
  place.addEventListener('keydown', event => {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const last = columns.length - 1;
    let next;
    if (event.key in moves && !event.ctrlKey && !event.metaKey && !event.altKey) {
      const [down, right] = moves[event.key];
      next = at ? [at[0] + down, at[1] + right] : [0, 0];
    } else if (event.key === 'Home') next = [at?.[0] ?? 0, 0];
    else if (event.key === 'End') next = [at?.[0] ?? 0, last];
    else if (event.key === 'Escape') return show();
    else return;
    event.preventDefault();
    const row = Math.min(rows.length - 1, Math.max(0, next[0]));
    const column = Math.min(last, Math.max(0, next[1]));
    show(row, column);
    cells[row][column].scrollIntoView({ block: 'nearest', inline: 'nearest' });
  });
  return { place, told, show };
};

// A heatmap of a figure.
taper.heatmap = (figure, svg, plot) => {
  const live = taper.element('div', 'live');
  const head = taper.element('div', 'figure-head');
  const made = taper.matrix({ ...plot, title: svg.getAttribute('aria-label') });
  made.told.setAttribute('aria-live', 'polite');
  head.append(taper.element('h3', '', svg.dataset.title));
  live.append(head, made.place, made.told);
  figure.append(live);
  figure.classList.add('is-live', 'is-matrix');
  svg.setAttribute('aria-hidden', 'true');
};
