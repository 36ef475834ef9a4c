// Numbers of the model, as the page keeps them.
const model = taper.data('journey-data');
const { say } = taper;
// Rows of numbers that are packed as 16-bit integers.
const unpacked = ({ rows, unit, numbers }) => {
  const bytes = Uint8Array.from(atob(numbers), one => one.charCodeAt(0));
  const whole = new Int16Array(bytes.buffer), width = rows ? whole.length / rows : 0;
  return Array.from({ length: rows }, (_, row) =>
    Float32Array.from(whole.subarray(row * width, (row + 1) * width), one => one * unit));
};
const partNamed = name => model.attention.find(part => part.name === name);
// Attention of the layer with this number, counted from 1; `undefined` if there is none.
const layerOf = (name, number) =>
  partNamed(name)?.layers.find(layer => layer.layer === String(number));
// Weights of a head, counted from 1, or their mean over all heads if `head` is 0.
const weightsOf = (layer, head) =>
  head ? taper.weights(layer)[head - 1] : taper.meanWeights(layer);
// Queries, keys, values and scores of a head for one query; `null` if the page has none.
const insideOf = (name, number, head, query) => {
  const kept = model.heads.find(one => one.part === name && one.layer === number);
  if (!kept || !head) return null;
  kept.unpacked ??= [kept.queries, kept.keys, kept.values].map(unpacked);
  const [queries, keys, values] = kept.unpacked, { width, scale } = kept;
  const all = queries[0].length / width, shared = keys[0].length / width;
  const own = Math.floor((head - 1) / (all / shared));
  const part = (row, at) => row.subarray(at * width, (at + 1) * width);
  const q = part(queries[query], head - 1);
  const weights = weightsOf(layerOf(name, number), head)[query];
  const rows = keys.map((key, at) => {
    const k = part(key, own), v = part(values[at], own);
    const product = q.reduce((sum, one, cell) => sum + one * k[cell], 0);
    // Tokens of a decoder do not see later tokens.
    const isHidden = name === 'decoder' && at > query;
    return { k, v, product, score: product * scale, isHidden, weight: weights[at] };
  });
  const seen = rows.filter(row => !row.isHidden);
  const most = Math.max(...seen.map(row => row.score));
  const sum = seen.reduce((all, row) => all + Math.exp(row.score - most), 0);
  for (const row of seen) row.weight = Math.exp(row.score - most) / sum;
  const out = Array.from({ length: width }, (_, cell) =>
    seen.reduce((all, row) => all + row.weight * row.v[cell], 0));
  return { q, rows, out, width };
};
const fixed = (value, digits = 2) => value.toFixed(digits).replace('-', '−');
const percent = share => (share >= 0.9995 || share < 0.0005 ? `${(100 * share).toFixed(2)} %`
  : `${(100 * share).toFixed(1)} %`);
const stackNames = { encoder: say('encoder', '编码器'), decoder: say('decoder', '解码器') };
