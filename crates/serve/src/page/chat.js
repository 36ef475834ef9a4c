// Conversations with language models that have a chat template.
//
// A round is what somebody says, and the answer of each run that was asked. A run reads the rounds
// that it has answered.
const startChat = runs => {
  const said = byId('said'), instructions = byId('instructions');
  const [send, stop, again, clear] = ['send', 'chat-stop', 'answer-again', 'chat-clear'].map(byId);
  let rounds = [], under = null;
  const cards = runs.map(run => {
    const card = makeCard(run, '');
    card.log = taper.element('ol', 'turns');
    card.log.setAttribute('aria-label', say('conversation', { run: run.name }));
    card.log.tabIndex = 0;
    card.body.append(card.log);
    byId('chats').append(card.card);
    return card;
  });
  const turn = (role, ...content) => {
    const item = taper.element('li', `turn is-${role}`);
    item.append(taper.element('span', 'unseen', say(role)), ...content);
    return item;
  };
  // Takes back a round and those after it, to say something else in its place.
  const edit = round => {
    rounds = rounds.slice(0, rounds.indexOf(round));
    said.value = round.said;
    draw();
    said.focus();
  };
  const draw = () => {
    for (const card of cards) {
      card.log.replaceChildren(...rounds.filter(round => round.answers.has(card)).flatMap(round => {
        const change = taper.button(say('edit'), say('edit-message'), () => edit(round));
        change.disabled = under !== null;
        return [turn('user', taper.element('p', '', round.said), change),
          round.answers.get(card).item];
      }));
      card.log.scrollTop = card.log.scrollHeight;
    }
    stop.disabled = under === null;
    send.disabled = under !== null;
    again.disabled = clear.disabled = under !== null || !rounds.length;
  };
  const messages = (card, last) => [
    ...(instructions.value.trim() ? [{ role: 'system', content: instructions.value }] : []),
    ...rounds.filter(round => round.answers.has(card)).flatMap(round => [
      { role: 'user', content: round.said },
      ...(round === last ? [] : [{ role: 'assistant', content: round.answers.get(card).text }])])];
  const ended = (card, { prompt_tokens: before, completion_tokens: tokens }) => card.say(say(
    'chat-tokens', { tokens, all: before + tokens, context: card.run.context }));
  // An answer as it grows.
  const grow = async (card, answer, asked, signal) => {
    const body = { ...asked, stream: true, stream_options: { include_usage: true } };
    const told = await ask('v1/chat/completions', body, { signal, told: card.say });
    for await (const event of events(told)) {
      if (event.error) throw new Error(event.error.message);
      answer.text += event.choices[0]?.delta.content ?? '';
      answer.place.textContent = answer.text;
      card.log.scrollTop = card.log.scrollHeight;
      if (event.usage) ended(card, event.usage);
    }
  };
  // An answer with the probability of each token, which comes whole.
  const weigh = async (card, answer, asked, signal) => {
    const body = { ...asked, logprobs: true, top_logprobs: 5 };
    const told = await ask('v1/chat/completions', body, { signal, told: card.say });
    const { choices: [{ message, logprobs }], usage } = await told.json();
    answer.text = message.content;
    answer.place.replaceChildren(...logprobs.content.map(one => scoredToken(one.token, one.logprob,
      one.top_logprobs.map(other => [other.token, other.logprob]))));
    ended(card, usage);
  };
  const reply = (card, round, signal) => onCard(card, async () => {
    const place = taper.element('p'), item = turn('assistant', place);
    const answer = { text: '', place, item };
    round.answers.set(card, answer);
    draw();
    item.setAttribute('aria-busy', 'true');
    card.say(say('writing'));
    const asked = { model: card.run.name, messages: messages(card, round),
      max_tokens: Number(byId('chat-tokens').value) || undefined,
      temperature: Number(byId('chat-temperature').value) };
    try {
      await (byId('chat-scores').checked ? weigh : grow)(card, answer, asked, signal);
      byId('spoken').textContent = answer.text;
    } catch (error) {
      if (error.name === 'AbortError') card.say(say('stopped'));
      // A part of an answer is one; nothing is none.
      if (!answer.text) round.answers.delete(card);
      throw error;
    } finally {
      item.removeAttribute('aria-busy');
    }
  });
  const answer = async (round, chosen) => {
    under = new AbortController();
    const { signal } = under;
    rounds.push(round);
    await Promise.allSettled(chosen.map(card => reply(card, round, signal)));
    under = null;
    if (!round.answers.size) {
      rounds.pop();
      said.value ||= round.said;
    }
    draw();
  };
  const chosen = () => cards.filter(card => card.isChosen());
  byId('chat-form').addEventListener('submit', event => {
    event.preventDefault();
    const text = said.value.trim();
    if (!text || under || !chosen().length) return;
    said.value = '';
    answer({ said: text, answers: new Map() }, chosen());
  });
  said.addEventListener('keydown', event => {
    // A key that chooses a character of an input method sends nothing.
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    byId('chat-form').requestSubmit();
  });
  again.addEventListener('click', () => {
    const round = rounds.pop();
    answer({ said: round.said, answers: new Map() }, chosen());
  });
  stop.addEventListener('click', () => under?.abort());
  clear.addEventListener('click', () => {
    rounds = [];
    for (const card of cards) card.say('');
    draw();
    said.focus();
  });
  return { cards, again: () => {} };
};
