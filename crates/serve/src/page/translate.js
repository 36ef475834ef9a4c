// A list of the directions of a run, from which one is chosen; its values are their numbers.
const chooseDirection = (directions, changed) => {
  const label = taper.element('label', 'muted', `${say('direction')} `);
  const list = taper.element('select');
  list.append(...directions.map(({ from, to }, number) => {
    const option = taper.element('option', '', `${from} → ${to}`);
    option.value = number;
    return option;
  }));
  list.addEventListener('change', () => {
    byId('source').lang = directions[list.value].from;
    changed();
  });
  label.append(list);
  return list;
};

// Translations that follow what is typed.
const startTranslation = runs => {
  // So many lines are asked for at a time, and so many are aligned.
  const CHUNK = 16, ALIGNED = 40, ALTERNATIVES = 4, OFFERS = 6;
  const source = byId('source'), save = byId('save');
  const cards = runs.map(run => {
    const { source: from, target: to, directions = [] } = run.translation;
    const card = makeCard(run, directions.length ? '' : `${from} → ${to}`);
    const choice = directions.length && chooseDirection(directions, () => again());
    card.direction = () => choice ? directions[choice.value] : { from, to };
    card.results = [];
    card.attention = makeAttention(card);
    card.lines = taper.element('div');
    if (choice) card.body.append(choice.parentElement);
    card.body.append(card.lines);
    // Attention is that of a run of one direction.
    if (run.translation.aligns && !choice) card.body.append(card.attention.details);
    byId('translations').append(card.card);
    return card;
  });
  source.lang = cards[0].direction().from;

  const kept = keepTexts(source, () => again());
  // Alternatives for a word: the search goes on from the words before it.
  const offer = async (card, result, words, number, place) => {
    const before = words.target.slice(0, number).join('').trimEnd();
    const list = taper.element('ul', 'offers');
    list.setAttribute('aria-label', say('instead', { token: words.target[number].trim() }));
    list.append(taper.element('li', 'muted', say('working')));
    place.querySelector('.offers')?.remove();
    place.querySelector('.target').after(list);
    const found = new Map();
    await onCard(card, async () => {
      const asked = { run: card.run.name, ...card.direction(), text: [result.source],
        alternatives: OFFERS, prefix: before, alignment: true, terms: kept.terms() };
      const answer = await (await ask('api/translate', asked)).json();
      for (const one of answer.translations[0].translations) {
        // The words after the prefix, of which the first is offered.
        const own = asWords(one.alignment).target, rest = [];
        while (own.length && own.join('').trim().length > one.text.length - before.length) {
          own.shift();
        }
        rest.push(...own);
        const first = rest[0]?.trim();
        if (first && !found.has(first)) found.set(first, one);
      }
    });
    const choose = one => {
      const others = result.translations.filter(other => other.text !== one.text);
      const next = { ...result, translations: [one, ...others] };
      const at = card.results.indexOf(result), line = render(card, next, result);
      if (at >= 0) card.results[at] = next;
      place.replaceWith(line);
      line.querySelector('.target').focus();
    };
    list.replaceChildren(...[...found].map(([first, one]) => {
      const item = taper.element('li'), button = taper.element('button', '', first);
      button.type = 'button';
      button.lang = card.direction().to;
      button.append(taper.element('small', 'muted', ` ${one.text}`));
      button.addEventListener('click', () => choose(one));
      item.append(button);
      return item;
    }));
    if (!found.size) list.replaceChildren(taper.element('li', 'muted', say('nothing')));
    list.querySelector('button')?.focus();
    list.addEventListener('keydown', event => {
      const buttons = [...list.querySelectorAll('button')];
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (event.key === 'Escape') {
        list.remove();
        place.querySelector('.target').focus();
      } else if (step) {
        event.preventDefault();
        buttons.at((buttons.indexOf(document.activeElement) + step) % buttons.length)?.focus();
      }
    });
  };
  const render = (card, result, before) => {
    const line = taper.element('div', 'line');
    const [best, ...others] = result.translations;
    const target = taper.element('p', 'target');
    target.lang = card.direction().to;
    line.append(target);
    const { alignment } = best;
    if (alignment && alignment.target.join('').trim() === best.text.trim()) {
      const read = taper.element('p', 'read');
      read.lang = card.direction().from;
      read.title = say('read-as');
      const words = asWords(alignment);
      const tokens = aligned(words, target, read, number =>
        offer(card, result, words, number, line));
      const old = before?.translations[0]?.alignment;
      if (old) {
        for (const at of newWords(asWords(old).target, words.target)) {
          tokens[at].classList.add('is-new');
        }
      }
      line.append(read);
      line.addEventListener('pointerenter', () => card.attention.of(result.source, best.text));
    } else {
      target.textContent = best.text;
    }
    if (result.parts) line.append(taper.element('p', 'muted', say('in-parts', result)));
    if (result.missing_terms) {
      line.append(taper.element('p', 'error', say('missing-terms',
        { terms: result.missing_terms.join(', ') })));
    }
    if (best.truncated) line.append(taper.element('p', 'muted', say('cut-short')));
    if (others.length) {
      const details = taper.element('details');
      details.open = card.isOpen ?? true;
      details.addEventListener('toggle', () => { card.isOpen = details.open; });
      const list = taper.element('ol', 'others');
      for (const other of others) {
        const item = taper.element('li');
        const text = taper.element('span', '', other.text);
        text.lang = card.direction().to;
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
    const begun = performance.now(), results = [], old = card.results;
    const isShort = lines.length <= ALIGNED;
    card.card.classList.add('is-old');
    card.say(say('working'));
    for (let at = 0; at < lines.length; at += CHUNK) {
      const answer = await ask('api/translate', {
        run: card.run.name, ...card.direction(), text: lines.slice(at, at + CHUNK),
        alternatives: lines.length === 1 ? ALTERNATIVES : 1,
        alignment: isShort && card.run.translation.aligns, terms: kept.terms(),
      }, { signal, told: card.say });
      const found = await answer.json();
      // What has become stale meanwhile is nobody's.
      if (signal.aborted) return;
      if (at === 0) {
        card.lines.replaceChildren();
        card.card.classList.remove('is-old');
      }
      results.push(...found.translations);
      card.lines.append(...found.translations.map((result, number) =>
        render(card, result, old[at + number])));
      if (lines.length > CHUNK) {
        card.say(say('lines-done', { done: results.length, all: lines.length }));
      }
    }
    card.results = results;
    if (lines.length <= CHUNK) {
      const milliseconds = Math.round(performance.now() - begun);
      const tokens = results.reduce((sum, one) =>
        sum + (one.translations[0].alignment?.target.length ?? 0), 0);
      const speed = Math.round(1000 * tokens / Math.max(1, milliseconds));
      card.say(tokens ? say('tokens-done', { milliseconds, tokens, speed })
        : say('done-in', { milliseconds }));
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
    if (signal.aborted) return;
    save.disabled = !chosen.some(card => card.results.length);
    compare(chosen);
    kept.remember(text);
  };
  // Marks the words of other runs that differ from those of the first.
  const compare = ([first, ...others]) => {
    const words = (card, line) => [...card.lines.querySelectorAll('.target')[line]
      ?.querySelectorAll('.token') ?? []];
    for (const card of others) {
      card.results.forEach((_, line) => {
        const own = words(card, line);
        const texts = tokens => tokens.map(token => token.textContent.trim());
        for (const at of newWords(texts(words(first, line)), texts(own))) {
          own[at].classList.add('is-other');
        }
      });
    }
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
  kept.restore();
  byId('file').addEventListener('change', event => {
    const [file] = event.target.files;
    if (file) open(file);
    event.target.value = '';
  });
  // Text goes into the field; what is more than text is translated as a document.
  const openDocuments = startDocuments(cards, kept.terms);
  const isText = file => /^[^.]*$|\.(txt|text)$/i.test(file.name);
  const drop = (files, place) => {
    const isField = files.length === 1 && isText(files[0]) && !byId('documents').contains(place);
    if (isField) open(files[0]);
    else openDocuments(files);
  };
  save.addEventListener('click', () => {
    for (const card of cards.filter(one => one.isChosen() && one.results.length)) {
      const text = card.results.map(one => `${one.translations[0].text}\n`).join('');
      const link = offerFile(new Blob([text], { type: 'text/plain' }),
        `${card.run.name}.${card.direction().to}.txt`);
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    }
  });
  return { cards, again, drop };
};
