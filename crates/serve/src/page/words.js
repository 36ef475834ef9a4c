// Words of a translation: where they come from, how sure the model was, what could stand there.
const named = (tokens, weights, limit) => tokens
  .map((token, number) => [token.textContent.trim(), weights[number]])
  .filter(([text, weight]) => text && weight >= limit)
  .sort((one, other) => other[1] - one[1]).slice(0, 3)
  .map(([text, weight]) => `${text} (${weight.toFixed(2)})`).join(', ') || say('nothing');
// Tokens as words: those that follow each other without a blank, unless they are of a language
// without blanks. A word has the weights of its tokens: those of the source added, of the
// translation on average; and its probability is the product of theirs.
const asWords = ({ source, target, weights, probabilities }) => {
  const begins = /^[\p{L}\p{M}\p{N}'’-]/u, ends = /[\p{L}\p{M}\p{N}'’-]$/u;
  const east = new RegExp(['Han', 'Hiragana', 'Katakana', 'Thai', 'Lao', 'Khmer', 'Myanmar',
    'Tibetan'].map(script => `\\p{Script=${script}}`).join('|'), 'u');
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
    probabilities: to.map(word => word.reduce((all, one) => all * (probabilities?.[one] ?? 1), 1)),
  };
};
// Numbers of the words of `after` that are not in `before`, by the longest common subsequence.
const newWords = (before, after) => {
  const long = before.map(() => new Array(after.length + 1).fill(0));
  long.push(new Array(after.length + 1).fill(0));
  for (let one = before.length - 1; one >= 0; one--) {
    for (let other = after.length - 1; other >= 0; other--) {
      long[one][other] = before[one] === after[other] ? long[one + 1][other + 1] + 1
        : Math.max(long[one + 1][other], long[one][other + 1]);
    }
  }
  const found = [];
  let one = 0;
  for (let other = 0; other < after.length; other++) {
    while (one < before.length && before[one] !== after[other]
      && long[one + 1][other] >= long[one][other + 1]) one++;
    if (one < before.length && before[one] === after[other]) one++;
    else found.push(other);
  }
  return found;
};
// Below this, a word is marked as unsure.
const SURE = 0.5;
const percent = share => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
// A token in the shade of its probability: the more surprising, the darker. `others` has what was
// likeliest in its place.
const scoredToken = (token, score, others) => {
  const made = taper.element('span', 'written', token), share = Math.exp(score);
  made.style.setProperty('--unsure', (1 - share).toFixed(3));
  const list = others.map(([other, own]) => `${other} ${percent(Math.exp(own))}`).join(', ');
  made.title = say('sure-of', { token, percent: percent(share), others: list });
  return made;
};
// Words of a line, of which the chosen one shows what it belongs to.
const aligned = (alignment, target, read, wanted) => {
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
    const sure = isTarget ? ` · ${percent(alignment.probabilities[number])}` : '';
    tokens[number].title = byId('spoken').textContent + sure;
  };
  for (const tokens of [targets, sources]) {
    tokens.forEach((token, number) => {
      token.addEventListener('pointerenter', () => choose(tokens, number));
      token.addEventListener('pointerleave', clear);
      if (tokens === targets) {
        const sure = alignment.probabilities[number];
        token.classList.toggle('is-unsure', sure < SURE);
        token.addEventListener('click', () => wanted(number));
      }
    });
  }
  target.tabIndex = 0;
  target.setAttribute('role', 'group');
  target.setAttribute('aria-label', `${say('tokens')}: ${target.textContent}`);
  target.addEventListener('keydown', event => {
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (event.key === 'Escape') return clear();
    if (event.key === 'Enter' && chosen >= 0) return wanted(chosen);
    if (!(event.key in moves) || !targets.length) return;
    event.preventDefault();
    const next = chosen < 0 && moves[event.key] > 0 ? 0 : chosen + moves[event.key];
    choose(targets, Math.min(targets.length - 1, Math.max(0, next)));
  });
  target.addEventListener('blur', clear);
  return targets;
};
