// Texts that grow as language models write them.
const startPrompts = runs => {
  const prompt = byId('prompt'), go = byId('go'), stop = byId('stop');
  const cards = runs.map(run => {
    const card = makeCard(run, '');
    card.text = taper.element('div', 'text');
    card.body.append(card.text);
    byId('texts').append(card.card);
    return card;
  });
  let under = null;
  // Every token of the text in the shade of its probability.
  const score = async (card, prompt, signal) => {
    const text = card.text.textContent;
    const answer = await ask('v1/completions', { model: card.run.name, prompt: text, max_tokens: 1,
      echo: true, logprobs: 5 }, { signal });
    const { tokens, token_logprobs: scores, top_logprobs: likeliest }
      = (await answer.json()).choices[0].logprobs;
    // One more token is made than asked for.
    if (signal.aborted || !tokens.join('').startsWith(text)) return;
    let at = 0;
    let length = 0;
    const own = tokens.filter(token => (length += token.length) - token.length < text.length);
    card.text.replaceChildren(...own.map((token, number) => {
      const isGiven = at < prompt.length;
      at += token.length;
      if (scores[number] === null) {
        return taper.element('span', isGiven ? 'given' : 'written', token);
      }
      const others = Object.entries(likeliest[number] ?? {})
        .sort((one, other) => other[1] - one[1]);
      const made = scoredToken(token, scores[number], others);
      if (isGiven) made.className = 'given';
      return made;
    }));
  };
  const write = async (card, asked, signal) => {
    card.text.replaceChildren(taper.element('span', 'given', asked.prompt));
    card.text.setAttribute('aria-busy', 'true');
    card.say(say('writing'));
    try {
      const answer = await ask('api/generate', { run: card.run.name, ...asked },
        { signal, told: card.say });
      for await (const event of events(answer)) {
        if (event.error) throw new Error(event.error);
        if (event.text) card.text.append(event.text);
        if (event.done) {
          const [{ tokens, log_probability: probability }] = event.texts;
          card.say(say('tokens-in', { tokens, probability: probability.toFixed(1) }));
          // Without the probabilities there is still the text.
          await score(card, asked.prompt, signal).catch(error => {
            if (error.name === 'AbortError') throw error;
          });
        }
      }
    } catch (error) {
      if (error.name === 'AbortError') card.say(say('stopped'));
      throw error;
    } finally {
      card.text.removeAttribute('aria-busy');
    }
  };
  byId('prompt-form').addEventListener('submit', async event => {
    event.preventDefault();
    under?.abort();
    under = new AbortController();
    const { signal } = under;
    go.disabled = true;
    stop.disabled = false;
    const number = id => byId(id).value === '' ? undefined : Number(byId(id).value);
    const asked = {
      prompt: prompt.value, max_tokens: number('max-tokens'), temperature: number('temperature'),
      top_p: number('top-p'), seed: number('seed'), stream: true,
    };
    const chosen = cards.filter(card => card.isChosen());
    await Promise.allSettled(chosen.map(card => onCard(card, () => write(card, asked, signal))));
    go.disabled = false;
    stop.disabled = true;
  });
  stop.addEventListener('click', () => under?.abort());
  prompt.addEventListener('keydown', event => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
      byId('prompt-form').requestSubmit();
    }
  });
  return { cards, again: () => {} };
};
