// Asking the server, and what all parts of the page share.
const texts = taper.data('page-texts');
const say = (name, values = {}) => Object.entries(values)
  .reduce((text, [key, value]) => text.replaceAll(`{${key}}`, () => value), texts[name]);
const byId = id => document.getElementById(id);
const pause = (milliseconds, signal) => new Promise((done, fail) => {
  const timer = setTimeout(done, milliseconds);
  signal?.addEventListener('abort', () => { clearTimeout(timer); fail(signal.reason); });
});
const key = {
  get: () => { try { return sessionStorage.getItem('taper-key') || ''; } catch { return ''; } },
  // Where nothing may be kept, the key is asked for again.
  set: value => { try { sessionStorage.setItem('taper-key', value); } catch { /* as above */ } },
};

// The answer to a request, tried again where the server is busy.
const ask = async (path, body, { signal, type = 'application/json', told = () => {} } = {}) => {
  const headers = {};
  // A form has a boundary of its own in its type.
  if (body !== undefined && type) headers['Content-Type'] = type;
  if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
  const sent = type === 'application/json' && body !== undefined ? JSON.stringify(body) : body;
  for (let attempt = 1; ; attempt++) {
    let answer;
    try {
      answer = await fetch(path, { method: body === undefined ? 'GET' : 'POST', headers,
        body: sent, signal });
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new Error(say('offline'));
    }
    if (answer.ok) return answer;
    const said = await answer.json().catch(() => ({}));
    if (answer.status === 401) byId('key-form').hidden = false;
    if (answer.status !== 503 || attempt === 5) {
      throw new Error(said.error?.message ?? said.error ?? answer.statusText);
    }
    const seconds = Number(answer.headers.get('Retry-After')) || 1;
    told(say('waiting', { seconds }));
    await pause(1000 * seconds, signal);
  }
};

// The events of an answer as they come.
const events = async function* (answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let kept = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    kept += value;
    const parts = kept.split('\n\n');
    kept = parts.pop();
    for (const part of parts) {
      const data = part.slice('data: '.length);
      if (data === '[DONE]') return;
      yield JSON.parse(data);
    }
  }
};

// Offers a blob under a name to be saved.
const offerFile = (blob, name) => {
  const link = taper.element('a', '', name);
  link.href = URL.createObjectURL(blob);
  link.download = name;
  return link;
};

// A card for what a run answers, with a place for its state and its errors.
const makeCard = (run, about) => {
  const card = taper.element('article', 'card');
  const head = taper.element('header');
  const state = taper.element('span', 'muted');
  state.setAttribute('role', 'status');
  const error = taper.element('p', 'error');
  error.setAttribute('role', 'alert');
  const body = taper.element('div');
  const count = new Intl.NumberFormat(document.documentElement.lang, { notation: 'compact' });
  head.append(taper.element('h2', '', run.name),
    taper.element('span', 'muted', [about, say('parameters',
      { count: count.format(run.parameters) })].filter(Boolean).join(' · ')), state);
  card.append(head, error, body);
  return {
    run, card, body,
    say(text) { state.textContent = text; },
    fail(text) { error.textContent = text; },
    isChosen: () => !card.hidden,
  };
};

// Calls `work` with a signal a moment after the last call; what is under way is given up.
const latest = (wait, work) => {
  let timer, under;
  return () => {
    clearTimeout(timer);
    under?.abort();
    timer = setTimeout(() => {
      under = new AbortController();
      work(under.signal).catch(error => {
        if (error.name !== 'AbortError') throw error;
      });
    }, wait);
  };
};

// What a card does, with its errors shown on it.
const onCard = async (card, work) => {
  card.fail('');
  try {
    await work();
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    card.say('');
    card.fail(error.message);
  }
};

// Lines of a field that have text.
const linesOf = field => field.value.split(/\r\n|\r|\n/).filter(line => line.trim());

// A card for each run, in the place for cards of a section. Each answers what `read` gives a moment
// after `again` was called, by what `show` puts onto it; nothing is asked of `null`.
const startCards = (section, runs, wait, read, show) => {
  const cards = runs.map(run => makeCard(run, ''));
  section.querySelector('.cards').append(...cards.map(({ card }) => card));
  const again = latest(wait, async signal => {
    const asked = read();
    await Promise.all(cards.filter(card => card.isChosen()).map(card => onCard(card, async () => {
      if (asked === null) card.body.replaceChildren();
      else await show(card, asked, signal);
    })));
  });
  return { cards, again };
};

// Rows of labels with their probabilities, the likeliest first.
const chances = prediction => {
  const table = taper.element('table', 'chances');
  const rows = prediction.probabilities.toSorted((one, other) =>
    other.probability - one.probability).slice(0, 10);
  for (const { label, probability } of rows) {
    const row = taper.element('tr');
    const name = taper.element('th', '', label);
    name.scope = 'row';
    const bar = taper.element('td', 'bar');
    const filled = taper.element('div');
    filled.style.setProperty('--weight', probability);
    bar.append(filled);
    row.append(name, bar, taper.element('td', 'number', `${(100 * probability).toFixed(1)} %`));
    table.append(row);
  }
  return table;
};
