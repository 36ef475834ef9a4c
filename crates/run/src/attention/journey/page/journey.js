// The diagram, and moving along it.
const place = document.getElementById('journey');
const [stations, followed] = [[], { stack: null, column: null }];
for (const stack of model.stacks) {
  const isSource = stack === model.stacks[0];
  if (isSource) stations.push(piecesStation(stack));
  else {
    stations.push(station(stack.stack, say('What is written so far', '已写出的内容'), say(
      'The decoder reads what it has written so far, beginning with a mark, and predicts the next '
      + 'token at each place.', '解码器从起始标记开始读取已写出的内容，并在每个位置预测下一个词元。'),
    () => [tokenRow(stack.stack, stack.tokens)]));
  }
  stations.push(...vectorStations(stack));
  for (let layer = 1; stepOf(stack, 'layer', layer); layer++) {
    let before = stepOf(stack, 'layer', layer - 1);
    for (const [name, point] of [[stack.stack, 'self-attention'], ['cross', 'cross-attention']]) {
      const after = stepOf(stack, point, layer - 1);
      if (!after) continue;
      if (layerOf(name, layer)) {
        stations.push(attentionStation(stack, name, layer, before, after));
      }
      before = after;
    }
    const after = stepOf(stack, 'layer', layer);
    if (after.moved.some(moved => moved > 0)) {
      stations.push(feedForwardStation(stack, layer, before, after));
    }
  }
}
if (!model.stacks.length) {
  // Models older than the Transformer have attention alone.
  const first = model.attention[0].layers[0];
  stations.push(piecesStation({ stack: 'encoder' }),
    attentionStation({ stack: 'decoder', tokens: first.queries, steps: [] },
      model.attention[0].name, 1));
}
stations.push(answersStation());
if (model.evidence.length) stations.push(evidenceStation());
if (model.beam.length) stations.push(beamStation());
if (model.found.length) stations.push(textStation());

// A station in the diagram: its name at the side, its drawing beside it.
const diagram = taper.element('div', 'diagram');
const inspector = taper.element('aside', 'panel inspector');
inspector.tabIndex = 0;
inspector.setAttribute('aria-label', say('The station in numbers', '此站的数值'));
let group = null;
for (const one of stations) {
  if (!group || group.dataset.stack !== one.stack) {
    group = taper.element('div', 'stack-group');
    group.dataset.stack = one.stack;
    // Long texts are scrolled sideways, so the group gets a least width. A patch is narrower than a
    // word. A decoder also shows the tokens of its encoder.
    const own = model.stacks.filter(({ stack }) => stack === 'encoder' || stack === one.stack);
    group.style.setProperty('--wide', Math.max(3.1, ...own.map(({ stack, tokens }) =>
      tokens.length * (picture && stack === 'encoder' ? 2 : 3.1))));
    diagram.append(group);
  }
  const made = taper.element('section', 'station'), side = taper.element('div', 'side');
  const heading = taper.element('h2'), name = taper.element('button', 'station-name', one.name);
  name.type = 'button';
  name.addEventListener('click', () => show(one));
  heading.append(name);
  side.append(heading);
  const drawn = taper.element('div', 'drawn');
  drawn.append(...one.draw());
  if (one.own?.bar) side.append(one.own.bar);
  made.append(side, drawn);
  made.dataset.stack = one.stack;
  group.append(made);
  one.element = made;
}
// Buttons to move along.
const transport = taper.element('div', 'transport');
transport.setAttribute('role', 'group');
transport.setAttribute('aria-label', say('Journey', '旅程'));
const [scrub, where] = [taper.element('input'), taper.element('output', 'where')];
Object.assign(scrub, { type: 'range', min: 0, max: stations.length - 1, step: 1 });
scrub.setAttribute('aria-label', say('Station', '站点'));
let now = stations.length - 1, timer = null;
const PAUSE = 1700;
const isStill = () => matchMedia('(prefers-reduced-motion: reduce)').matches;
const stop = () => {
  clearInterval(timer);
  timer = null;
  play.textContent = '▶';
  play.setAttribute('aria-label', say('Play', '播放'));
  diagram.classList.remove('is-played');
};
const begin = () => {
  diagram.classList.add('is-played');
  go(now >= stations.length - 1 ? 0 : now + 1, true);
  timer = setInterval(() => {
    go(now + 1, true);
    if (now >= stations.length - 1) stop();
  }, PAUSE);
  play.textContent = '❚❚';
  play.setAttribute('aria-label', say('Pause', '暂停'));
};
const toggle = () => (timer ? stop() : begin());
const [back, play, on] = [
  taper.button('◀', say('Back', '上一站'), () => step(-1)),
  taper.button('▶', say('Play', '播放'), toggle),
  taper.button('▶|', say('Next', '下一站'), () => step(1))];
play.classList.add('play');
const free = taper.button(say('Follow no token', '不再跟随'), say('Follow no token', '不再跟随'),
  () => follow(null, null));
transport.append(play, back, on, scrub, where, free);
const narrow = matchMedia('(max-width: 68rem)');
const two = taper.element('div', 'journey-two');
two.append(diagram, inspector);
place.append(transport, two);

// Shows a station in the panel; the diagram is drawn up to it.
function show(one, isMoved = false) {
  now = stations.indexOf(one);
  scrub.value = now;
  scrub.setAttribute('aria-valuetext', one.name);
  where.textContent = `${now + 1} / ${stations.length}`;
  back.disabled = now === 0;
  on.disabled = now === stations.length - 1;
  stations.forEach((other, number) => {
    other.element.classList.toggle('is-now', number === now);
    other.element.querySelector('.station-name')
      .setAttribute('aria-current', String(number === now));
    if (isMoved) other.element.classList.toggle('is-ahead', number > now);
  });
  if (narrow.matches) one.element.append(inspector);
  else two.append(inspector);
  const stack = model.stacks.find(stack => stack.stack === one.stack);
  const isOwn = followed.stack === one.stack || (one.part && followed.stack === null);
  const tokens = one.layer?.queries ?? stack?.tokens ?? [];
  // Encoders predict from tokens of the text, other models from the last one.
  const isEncoder = ['label', 'tags', 'hidden'].includes(model.answer);
  const usual = isEncoder ? model.choices[0].place : tokens.length - 1;
  const column = isOwn && followed.column !== null ? followed.column : usual;
  const parts = [taper.element('p', 'muted', stackNames[one.stack]),
    taper.element('h2', '', one.name),
    taper.element('p', '', one.words)];
  if (one.told && tokens.length) {
    const name = taper.element('p', 'small-head', tokens[column]);
    name.dir = 'auto';
    parts.push(...(one.part ? [] : [name]), one.told(column));
    const length = one.part || !stack ? null : lengthTold(stack, column);
    if (length) parts.push(length);
  }
  inspector.replaceChildren(...parts);
}
function go(number, isMoved) {
  const one = stations[Math.min(stations.length - 1, Math.max(0, number))];
  show(one, isMoved);
  const isHigh = one.element.offsetHeight > innerHeight * 0.6;
  one.element.scrollIntoView({ block: isHigh ? 'start' : 'center',
    behavior: isStill() ? 'auto' : 'smooth' });
}
function step(by) {
  if (timer) stop();
  go(now + by, true);
}
// Follows a token: its ribbons, its line.
function follow(stack, column) {
  const isSame = followed.stack === stack && followed.column === column;
  Object.assign(followed, isSame ? { stack: null, column: null } : { stack, column });
  const own = followed.stack;
  diagram.classList.toggle('is-followed', own !== null);
  free.hidden = own === null;
  for (const button of diagram.querySelectorAll('button.token')) {
    button.setAttribute('aria-pressed', String(button.dataset.stack === own
      && Number(button.dataset.column) === followed.column));
  }
  mark();
  show(stations[now]);
}
function mark() {
  for (const one of stations) {
    for (const part of one.element.querySelectorAll('[data-column]:not(.token), .ribbon')) {
      const { query, key, column } = part.dataset;
      const isKey = one.part === 'cross' ? followed.stack === 'encoder' : false;
      const number = column ?? (isKey ? key : query);
      const isOwn = one.stack === followed.stack || isKey;
      part.classList.toggle('is-dim', followed.stack !== null && isOwn
        && Number(number) !== followed.column);
      part.classList.toggle('is-own', isOwn && Number(number) === followed.column);
    }
  }
}
diagram.addEventListener('click', event => {
  const token = event.target.closest('button.token');
  if (token) follow(token.dataset.stack, Number(token.dataset.column));
});
scrub.addEventListener('input', () => {
  if (timer) stop();
  go(Number(scrub.value), true);
});
narrow.addEventListener('change', () => show(stations[now]));
document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches('input, select')) return;
  const one = stations[now];
  const moves = { ArrowRight: () => step(1), n: () => step(1), ArrowLeft: () => step(-1),
    b: () => step(-1), h: () => { one.turn?.(-1); mark(); }, l: () => { one.turn?.(1); mark(); },
    Escape: () => followed.stack !== null && follow(null, null) };
  if (event.key === ' ' && !event.target.closest('button, a, summary')) {
    event.preventDefault();
    toggle();
  } else moves[event.key]?.();
});
stop();
free.hidden = true;
show(stations.find(one => one.part) ?? stations[0]);
