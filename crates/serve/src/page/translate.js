// Translations that follow what is typed.
const startTranslation = runs => {
  // So many lines are asked for at a time, and so many are aligned.
  const CHUNK = 16, ALIGNED = 40, ALTERNATIVES = 4;
  const source = byId('source'), save = byId('save');
  const cards = runs.map(run => {
    const { source: from, target: to } = run.translation;
    const card = makeCard(run, `${from} → ${to}`);
    card.results = [];
    card.attention = makeAttention(card);
    card.lines = taper.element('div');
    card.body.append(card.lines);
    if (run.translation.aligns) card.body.append(card.attention.details);
    byId('translations').append(card.card);
    return card;
  });
  source.lang = runs[0].translation.source;

  const named = (tokens, weights, limit) => tokens
    .map((token, number) => [token.textContent.trim(), weights[number]])
    .filter(([text, weight]) => text && weight >= limit)
    .sort((one, other) => other[1] - one[1]).slice(0, 3)
    .map(([text, weight]) => `${text} (${weight.toFixed(2)})`).join(', ') || say('nothing');
  // Tokens as words: those that follow each other without a blank, unless they are of a language
  // without blanks. A word has the weights of its tokens: those of the source added, of the
  // translation on average.
  const asWords = ({ source, target, weights }) => {
    const begins = /^[\p{L}\p{M}\p{N}'’-]/u, ends = /[\p{L}\p{M}\p{N}'’-]$/u;
    const east = /\p{Script=Han}|\p{Script=Hiragana}|\p{Script=Katakana}/u;
    const groups = tokens => tokens.reduce((words, token, number) => {
      const last = words.at(-1);
      const text = last && last.map(one => tokens[one]).join('');
      const isPart = token === '' || text?.trim() === ''
        || (begins.test(token) && ends.test(text) && !east.test(text + token));
      if (last && isPart) last.push(number);
      else words.push([number]);
      return words;
    }, []);
    const [from, to] = [groups(source), groups(target)];
    const sum = numbers => numbers.reduce((one, other) => one + other, 0);
    return {
      source: from.map(word => word.map(one => source[one]).join('')),
      target: to.map(word => word.map(one => target[one]).join('')),
      weights: to.map(word => from.map(own =>
        sum(word.map(row => sum(own.map(column => weights[row][column])))) / word.length)),
    };
  };
  // Words of a line, of which the chosen one shows what it belongs to.
  const aligned = (alignment, target, read) => {
    const make = (texts, place) => texts.map(text => {
      const made = taper.element('span', 'token', text);
      place.append(made);
      return made;
    });
    const targets = make(alignment.target, target), sources = make(alignment.source, read);
    const shade = (tokens, weights) => tokens.forEach((token, number) =>
      token.style.setProperty('--weight', weights ? weights[number] : 0));
    let chosen = -1;
    const clear = () => {
      shade(targets);
      shade(sources);
      for (const token of [...targets, ...sources]) token.classList.remove('chosen');
      chosen = -1;
    };
    const choose = (tokens, number) => {
      clear();
      const isTarget = tokens === targets;
      const others = isTarget ? sources : targets;
      const weights = isTarget ? alignment.weights[number]
        : alignment.weights.map(row => row[number]);
      if (isTarget) chosen = number;
      tokens[number].classList.add('chosen');
      shade(others, weights);
      const list = named(others, weights, 0.1), token = tokens[number].textContent.trim();
      byId('spoken').textContent = isTarget ? say('comes-from', { token, sources: list })
        : say('goes-to', { token, targets: list });
      tokens[number].title = byId('spoken').textContent;
    };
    for (const tokens of [targets, sources]) {
      tokens.forEach((token, number) => {
        token.addEventListener('pointerenter', () => choose(tokens, number));
        token.addEventListener('pointerleave', clear);
      });
    }
    target.tabIndex = 0;
    target.setAttribute('role', 'group');
    target.setAttribute('aria-label', `${say('tokens')}: ${target.textContent}`);
    target.addEventListener('keydown', event => {
      const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
      if (event.key === 'Escape') return clear();
      if (!(event.key in moves) || !targets.length) return;
      event.preventDefault();
      const next = chosen < 0 && moves[event.key] > 0 ? 0 : chosen + moves[event.key];
      choose(targets, Math.min(targets.length - 1, Math.max(0, next)));
    });
    target.addEventListener('blur', clear);
  };
  const render = (card, result) => {
    const line = taper.element('div', 'line');
    const [best, ...others] = result.translations;
    const target = taper.element('p', 'target');
    target.lang = card.run.translation.target;
    line.append(target);
    const { alignment } = best;
    if (alignment && alignment.target.join('').trim() === best.text.trim()) {
      const read = taper.element('p', 'read');
      read.lang = card.run.translation.source;
      read.title = say('read-as');
      aligned(asWords(alignment), target, read);
      line.append(read);
      line.addEventListener('pointerenter', () => card.attention.of(result.source, best.text));
    } else {
      target.textContent = best.text;
    }
    if (result.parts) line.append(taper.element('p', 'muted', say('in-parts', result)));
    if (best.truncated) line.append(taper.element('p', 'muted', say('cut-short')));
    if (others.length) {
      const details = taper.element('details');
      details.open = card.isOpen ?? true;
      details.addEventListener('toggle', () => { card.isOpen = details.open; });
      const list = taper.element('ol', 'others');
      for (const other of others) {
        const item = taper.element('li');
        const text = taper.element('span', '', other.text);
        text.lang = card.run.translation.target;
        item.append(text, taper.element('span', '', other.score.toFixed(2)));
        list.append(item);
      }
      details.append(taper.element('summary', '',
        `${say('others')} (${say('score')} ${best.score.toFixed(2)})`), list);
      line.append(details);
    }
    return line;
  };
  const translate = async (card, lines, signal) => {
    const begun = performance.now(), results = [], isShort = lines.length <= ALIGNED;
    card.card.classList.add('is-old');
    card.say(say('working'));
    for (let at = 0; at < lines.length; at += CHUNK) {
      const answer = await ask('api/translate', {
        run: card.run.name, text: lines.slice(at, at + CHUNK),
        alternatives: lines.length === 1 ? ALTERNATIVES : 1,
        alignment: isShort && card.run.translation.aligns,
      }, { signal, told: card.say });
      const found = await answer.json();
      // What has become stale meanwhile is nobody's.
      if (signal.aborted) return;
      if (at === 0) {
        card.lines.replaceChildren();
        card.card.classList.remove('is-old');
      }
      results.push(...found.translations);
      card.lines.append(...found.translations.map(result => render(card, result)));
      if (lines.length > CHUNK) {
        card.say(say('lines-done', { done: results.length, all: lines.length }));
      }
    }
    card.results = results;
    if (lines.length <= CHUNK) {
      const milliseconds = Math.round(performance.now() - begun);
      card.say(say('done-in', { milliseconds }));
    }
    if (results.length && results[0].translations[0].alignment) {
      card.attention.of(results[0].source, results[0].translations[0].text);
    }
  };
  const begin = async signal => {
    const text = source.value.replace(/\s+$/, '');
    save.disabled = true;
    if (!text) {
      for (const card of cards) {
        card.lines.replaceChildren();
        card.results = [];
        card.say('');
        card.fail('');
        card.attention.of('');
      }
      return;
    }
    const lines = text.split(/\r\n|\r|\n/);
    const chosen = cards.filter(card => card.isChosen());
    await Promise.all(chosen.map(card => onCard(card, () => translate(card, lines, signal))));
    if (!signal.aborted) save.disabled = !chosen.some(card => card.results.length);
  };
  const again = latest(250, begin);
  source.addEventListener('input', again);
  byId('clear').addEventListener('click', () => {
    source.value = '';
    again();
    source.focus();
  });
  const open = async file => {
    source.value = await file.text();
    again();
  };
  byId('file').addEventListener('change', event => {
    const [file] = event.target.files;
    if (file) open(file);
    event.target.value = '';
  });
  source.addEventListener('drop', event => {
    const [file] = event.dataTransfer.files;
    if (!file) return;
    event.preventDefault();
    open(file);
  });
  save.addEventListener('click', () => {
    for (const card of cards.filter(one => one.isChosen() && one.results.length)) {
      const text = card.results.map(one => `${one.translations[0].text}\n`).join('');
      const link = taper.element('a');
      link.href = URL.createObjectURL(new Blob([text], { type: 'text/plain' }));
      link.download = `${card.run.name}.${card.run.translation.target}.txt`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    }
  });
  return { cards, again };
};
