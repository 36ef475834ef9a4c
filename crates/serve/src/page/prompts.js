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
      for (const part of parts) yield JSON.parse(part.slice('data: '.length));
    }
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
