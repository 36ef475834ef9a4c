// Words of sentences: which of them differ, and which belong together.
// Words with the space before them; characters of Chinese and Japanese by themselves.
taper.words = (() => {
  const east = '[\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}]';
  const word = new RegExp(`\\s*(?:${east}|(?:(?!${east})[\\p{L}\\p{N}\\p{M}'’-])+|\\S)`, 'gu');
  return text => text.match(word) || [];
})();

// The longest common subsequence of words: what is only in one of the two is marked.
taper.differ = (from, to) => {
  const left = taper.words(from), right = taper.words(to);
  const [ours, theirs] = [left, right].map(words => words.map(word => word.trim()));
  const same = (i, j) => ours[i] === theirs[j];
  const wide = right.length + 1;
  const best = new Uint16Array((left.length + 1) * wide);
  for (let i = left.length - 1; i >= 0; i--) {
    for (let j = right.length - 1; j >= 0; j--) {
      best[i * wide + j] = same(i, j) ? best[(i + 1) * wide + j + 1] + 1
        : Math.max(best[(i + 1) * wide + j], best[i * wide + j + 1]);
    }
  }
  const marks = [new Set(), new Set()];
  let i = 0, j = 0;
  while (i < left.length || j < right.length) {
    if (i < left.length && j < right.length && same(i, j)) { i++; j++; continue; }
    const skip = j >= right.length
      || (i < left.length && best[(i + 1) * wide + j] >= best[i * wide + j + 1]);
    if (skip) marks[0].add(i++); else marks[1].add(j++);
  }
  return [[left, marks[0]], [right, marks[1]]];
};

// Fills a place with words, those with marks in an element of this name. With `each`, every word
// is an element, which is given to it with the word's place in the text.
taper.marked = (place, [words, marks], name, each) => {
  let text = '', at = 0;
  const flush = () => { if (text) place.append(text); text = ''; };
  words.forEach((word, number) => {
    const lead = word.length - word.trimStart().length;
    const isMarked = marks.has(number);
    if (!isMarked && !each) { text += word; return; }
    text += word.slice(0, lead);
    flush();
    let own = isMarked ? taper.element(name, '', word.slice(lead)) : null;
    if (each) {
      const made = taper.element('span', 'word', word.slice(lead));
      own?.replaceChildren(made);
      each(made, at + lead, at + word.length);
      own ??= made;
    }
    place.append(own);
    at += word.length;
  });
  flush();
  return place;
};

// Words of rows that belong together, under the pointer and by keys. `linked` has, of a row, its
// texts with their words and marks, the source first, and the links of each other text with it:
// flat lists of four, where a part of the source begins and ends, and one of that text.
taper.links = (body, linked) => {
  const spoken = taper.element('p', 'unseen');
  spoken.setAttribute('aria-live', 'polite');
  const made = new WeakMap();
  const places = row => [...row.querySelectorAll('.text')];
  // Elements for each word, made when a row is first pointed at.
  const words = row => {
    if (made.has(row)) return made.get(row);
    const { texts, links } = linked(row), all = [];
    places(row).forEach((place, text) => {
      place.replaceChildren();
      taper.marked(place, texts[text], 'ins', (element, from, to) =>
        all.push({ element, text, from, to }));
    });
    made.set(row, { all, links });
    return made.get(row);
  };
  let shown = [], now = null;
  const clear = () => {
    shown.forEach(element => element.classList.remove('is-own', 'is-linked'));
    [shown, now] = [[], null];
  };
  const show = (row, one) => {
    clear();
    now = one;
    const { all, links } = words(row), found = new Set();
    const meets = (word, from, to) => word.from < to && word.to > from;
    links.forEach((list, at) => {
      for (let four = 0; four < list.length; four += 4) {
        const ends = [list.slice(four, four + 2), list.slice(four + 2, four + 4)];
        const side = one.text === 0 ? 0 : 1;
        if (side === 1 && one.text !== at + 1) continue;
        if (!meets(one, ...ends[side])) continue;
        const other = side === 0 ? at + 1 : 0;
        all.filter(word => word.text === other && meets(word, ...ends[1 - side]))
          .forEach(word => found.add(word));
      }
    });
    one.element.classList.add('is-own');
    found.forEach(word => word.element.classList.add('is-linked'));
    shown = [one.element, ...[...found].map(word => word.element)];
    return [...found].map(word => word.element.textContent);
  };
  const rowOf = element => {
    const row = element?.closest?.('tr');
    return row && body.contains(row) && row.querySelector('.text') ? row : null;
  };
  const pointed = ({ target, clientX, clientY }) => {
    const row = rowOf(target);
    if (!row) return clear();
    const { all } = words(row);
    // The elements of words may only just have come under the pointer.
    const under = document.elementFromPoint(clientX, clientY)?.closest('.word');
    const one = all.find(word => word.element === under);
    if (!one) clear(); else if (one !== now) show(row, one);
  };
  body.addEventListener('pointerover', pointed);
  body.addEventListener('pointerleave', clear);
  // One stop for the tabulator in all rows: from there, arrows walk.
  const stop = (row, isFocused) => {
    body.querySelector('.text[tabindex="0"]')?.setAttribute('tabindex', '-1');
    const [first] = places(row);
    first.tabIndex = 0;
    if (isFocused) first.focus();
  };
  body.addEventListener('keydown', event => {
    const row = rowOf(event.target);
    if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
    const { all } = words(row), at = all.indexOf(now);
    const rows = { ArrowUp: 'previousElementSibling', ArrowDown: 'nextElementSibling' };
    const steps = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: all.length - 1 };
    if (event.key in rows) {
      const next = row[rows[event.key]];
      if (!next?.querySelector('.text')) return;
      clear();
      stop(next, true);
    } else if (event.key in steps && all.length) {
      const one = all[Math.min(all.length - 1, Math.max(0, steps[event.key]))];
      const others = show(row, one);
      spoken.textContent = `${one.element.textContent}: ${others.join(', ') || '–'}`;
      one.element.scrollIntoView({ block: 'nearest' });
    } else if (event.key === 'Escape') clear();
    else return;
    event.preventDefault();
  });
  body.addEventListener('focusout', clear);
  return { spoken, stop, clear };
};
