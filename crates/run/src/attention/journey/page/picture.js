// An image whose patches are the tokens.
const picture = model.picture;
const light = picture && Uint8Array.from(atob(picture.pixels), one => one.charCodeAt(0));
// A part of the image as a canvas, pixel by pixel; each patch is as bright as its weight.
const imageOf = (top, left, side, weights) => {
  const made = taper.element('canvas', 'image'), { size, patch, channels } = picture;
  made.width = made.height = side;
  const pen = made.getContext('2d'), data = pen.createImageData(side, side);
  const most = weights ? Math.max(...weights, 1e-9) : 1;
  for (let y = 0; y < side; y++) {
    for (let x = 0; x < side; x++) {
      const [row, column] = [top + y, left + x];
      const number = Math.floor(row / patch) * (size / patch) + Math.floor(column / patch);
      const share = weights ? 0.15 + 0.85 * weights[number] / most : 1;
      for (let colour = 0; colour < 3; colour++) {
        const channel = channels === 3 ? colour : 0;
        data.data[(y * side + x) * 4 + colour] =
          light[(channel * size + row) * size + column] * share;
      }
      data.data[(y * side + x) * 4 + 3] = 255;
    }
  }
  pen.putImageData(data, 0, 0);
  return made;
};
// The patch of a token; for other tokens `null`.
const patchOf = token => {
  const number = token - picture.before, across = picture.size / picture.patch;
  if (number < 0) return null;
  return imageOf(Math.floor(number / across) * picture.patch, number % across * picture.patch,
    picture.patch);
};
// The image as a token sees it, by the weights of its patches.
const seenImage = weights => {
  const made = imageOf(0, 0, picture.size, weights.slice(picture.before));
  made.classList.add('is-whole');
  made.setAttribute('role', 'img');
  made.setAttribute('aria-label', say('The image, each patch as bright as its weight',
    '图像，每块的亮度为其权重'));
  return made;
};
